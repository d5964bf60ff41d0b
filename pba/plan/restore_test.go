package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// R7, R31: dummy jobs end, and jobs that waited for them may start anywhere.
func TestRestoreEndsDummyJobs(t *testing.T) {
	id := func(n int64) backends.ID { return backends.ID{Job: n} }
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	farm := &backends.Snapshot{At: now, Jobs: []backends.Job{
		{ID: id(9), State: backends.Running, DummyFor: id(2), Priority: backends.At(backends.LevelPBA, 20)},
		{ID: id(1), State: backends.Pending, HeldUntil: now.Add(time.Minute)},
		{ID: id(2), State: backends.Running},
		{ID: id(7), State: backends.Pending, DummyFor: id(1), Pinned: []string{"n1"}},
		{ID: id(8), State: backends.Running, DummyFor: id(1)},
	}}
	memory := Memory{Dummies: dummy.Memory{Gathers: map[backends.ID]dummy.Gather{id(1): {Host: "n1", Since: now}}}}
	got := Restore(State{Farm: farm, Memory: memory}, now)
	want := []Action{
		{Verb: Release, Job: id(1), Reason: restoredReason},
		{Verb: Drop, Job: id(1), Dummies: []backends.ID{id(7), id(8)}, Reason: restoredReason},
		{Verb: Drop, Job: id(2), Dummies: []backends.ID{id(9)}, Reason: restoredReason},
	}
	if d := cmp.Diff(want, got.Actions); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(dummy.Memory{Placed: true}, got.Memory.Dummies); d != "" {
		t.Error(d)
	}
}
