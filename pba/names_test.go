package pba

import (
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestNames: a queue that keeps names in lower case is read by those of the plan. Jobs that have
// a project's former name are the project's.
func TestNames(t *testing.T) {
	projects := []plan.Project{{Name: "chipb"}, {Name: "chipA"}, {Name: "chipB", Former: []string{"Old", "CHIPA"}}}
	for _, x := range []struct {
		folds    bool
		is, want string
	}{
		{true, "chipa", "chipA"},
		{true, "chipb", "chipB"}, // doctor says that there are two
		{true, "chipc", "chipc"},
		{true, "", ""},
		{false, "chipa", "chipa"},
		{true, "old", "chipB"},
		{false, "old", "old"},
		{false, "Old", "chipB"},
		{false, "CHIPA", "chipB"},
		{false, "chipA", "chipA"},
	} {
		jobs := []backends.Job{{Project: x.is}}
		namesOf(backends.ForEngine{FoldsProjects: x.folds}, projects).resolve(jobs)
		if jobs[0].Project != x.want {
			t.Errorf("%q (folds: %v) is %q, want %q", x.is, x.folds, jobs[0].Project, x.want)
		}
	}
}

// TestFormerNames: those that jobs have are found before they are resolved, each once.
func TestFormerNames(t *testing.T) {
	projects := []plan.Project{{Name: "B", Former: []string{"Old", "Older", "Unused"}}}
	for _, folds := range []bool{false, true} {
		jobs := []backends.Job{{Project: "Old"}, {Project: "B"}, {Project: "Older"}, {Project: "Old"}, {}}
		for i := range jobs {
			if folds {
				jobs[i].Project = strings.ToLower(jobs[i].Project)
			}
		}
		if got := namesOf(backends.ForEngine{FoldsProjects: folds}, projects).former(jobs); !slices.Equal(got, []string{"Old", "Older"}) {
			t.Errorf("folds %v: %q", folds, got)
		}
	}
}
