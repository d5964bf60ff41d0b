package desk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// R47: each slot of a job within a guarantee has its promise on the host where it is; others have none, and are
// known all the same.
func TestPromises(t *testing.T) {
	at := func(host string, slots int) backends.Placement { return backends.Placement{Host: host, Slots: slots} }
	saves := backends.Tag{Checkpoint: backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute}}
	farm := &backends.Snapshot{
		Hosts: []backends.Host{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}},
		Jobs: []backends.Job{
			{ID: backends.ID{Job: 1}, State: backends.Running, Slots: 4, Memory: 400, Hosts: []backends.Placement{at("h1", 3), at("h2", 1)}},
			{ID: backends.ID{Job: 2, Index: 5}, HostNumber: 9, State: backends.Suspended, Slots: 1, NoRequeue: true, Hosts: []backends.Placement{at("h1", 1)}},
			{ID: backends.ID{Job: 3}, State: backends.Pending, Slots: 1},
			{ID: backends.ID{Job: 4}, State: backends.Running, Slots: 1, DummyFor: backends.ID{Job: 3}, Hosts: []backends.Placement{at("h2", 1)}},
			{ID: backends.ID{Job: 5}, State: backends.Running, Slots: 1, Hosts: []backends.Placement{at("elsewhere", 1)}},
			{ID: backends.ID{Job: 6}, State: backends.Running, Slots: 1, Ending: true, Hosts: []backends.Placement{at("h2", 1)}},
			{ID: backends.ID{Job: 7}, State: backends.Running, Slots: 1, Ending: true, Tag: saves.String(), Hosts: []backends.Placement{at("h2", 1)}},
		},
	}
	classes := []plan.Class{{Within: true}, {}, {Within: true}, {}, {}, {}, {}}
	got := promises("slurm", farm, classes, supervise.Amounts{1000, 50, 0}, true)
	want := map[string]*supervise.Promises{
		"h1": {Paused: true, Jobs: []supervise.Promise{
			{Queue: "slurm", Job: 1, Slots: 3, Minimum: supervise.Amounts{3000, 150, 0}, Memory: 300, Requeues: true, Protected: true},
			{Queue: "slurm", Job: 9, Slots: 1, Held: true},
		}},
		"h2": {Paused: true, Jobs: []supervise.Promise{
			{Queue: "slurm", Job: 1, Slots: 1, Minimum: supervise.Amounts{1000, 50, 0}, Memory: 100, Requeues: true, Protected: true},
			{Queue: "slurm", Job: 6, Slots: 1, Requeues: true},
			{Queue: "slurm", Job: 7, Slots: 1, Requeues: true, Saving: true}, // it is thawed, so that it can
		}},
		"h3": {Paused: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
