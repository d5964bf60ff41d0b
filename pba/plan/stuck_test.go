package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R21: a warning names a job that was not released, and would not run in the end.
func TestStuckJobsAreWarnedOf(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	job := func(n int64, until time.Time) backends.Job {
		return backends.Job{ID: backends.ID{Job: n}, State: backends.Pending, Slots: 1, HeldUntil: until}
	}
	farm := &backends.Snapshot{At: now, Jobs: []backends.Job{
		job(1, time.Time{}), job(2, now.Add(10*time.Minute)), job(3, time.Unix(1<<32-2, 0)), job(4, now.Add(2*time.Hour)),
	}}
	p := Make(State{Farm: farm}, Policy{HoldLimit: 10 * time.Minute, Cycle: 20 * time.Second}, now)
	about := func(w string) bool { return strings.Contains(w, "did not release job 3:") }
	if !slices.ContainsFunc(p.Warnings, about) {
		t.Errorf("warnings %q, want one of job 3", p.Warnings)
	}
	farm.Jobs = slices.Delete(farm.Jobs, 2, 3)
	if p = Make(State{Farm: farm}, Policy{HoldLimit: 10 * time.Minute, Cycle: 20 * time.Second}, now); len(p.Warnings) != 0 {
		t.Errorf("warnings %q", p.Warnings)
	}
	many := make([]backends.ID, 10)
	if text := Some(many); !strings.HasSuffix(text, " and 2 more") {
		t.Error(text)
	}
}
