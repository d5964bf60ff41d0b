package pba

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestNames: a queue that keeps names in lower case is read by those of the plan.
func TestNames(t *testing.T) {
	projects := []plan.Project{{Name: "chipb"}, {Name: "chipA"}, {Name: "chipB"}}
	for _, x := range []struct {
		folds    bool
		is, want string
	}{
		{true, "chipa", "chipA"},
		{true, "chipb", "chipB"}, // doctor says that there are two
		{true, "chipc", "chipc"},
		{true, "", ""},
		{false, "chipa", "chipa"},
	} {
		jobs := []backends.Job{{Project: x.is}}
		namesOf(backends.ForEngine{FoldsProjects: x.folds}, projects).resolve(jobs)
		if jobs[0].Project != x.want {
			t.Errorf("%q (folds: %v) is %q, want %q", x.is, x.folds, jobs[0].Project, x.want)
		}
	}
}
