package desk

import (
	"context"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestDoctorOnDummyJobs(t *testing.T) { // R28, R31
	const gib = 1 << 30
	farm := &backends.Snapshot{
		Hosts: []backends.Host{{Name: "n1", Slots: 4, Memory: 16 * gib}, {Name: "n2", Slots: 2, Memory: 4 * gib}, {Name: "n3", Slots: 2}},
		Jobs: []backends.Job{
			{ID: backends.ID{Job: 1}, State: backends.Running, Memory: 4 * gib, Hosts: []backends.Placement{{Host: "n1", Slots: 1}}},
			{ID: backends.ID{Job: 2}, State: backends.Running, Memory: 5 * gib, Hosts: []backends.Placement{{Host: "n1", Slots: 1}}},
			{ID: backends.ID{Job: 3}, State: backends.Pending, Memory: 9 * gib},
			{ID: backends.ID{Job: 4}, State: backends.Running, Memory: 10 * gib, Hosts: []backends.Placement{{Host: "n1", Slots: 2}, {Host: "n2", Slots: 1}}},
			{ID: backends.ID{Job: 5}, State: backends.Running, Memory: 9 * gib, Hosts: []backends.Placement{{Host: "n3", Slots: 1}}}, // the host's memory is unknown
			{ID: backends.ID{Job: 6}, State: backends.Running, Memory: 3 * gib, Hosts: []backends.Placement{{Host: "n2", Slots: 1}}, Queue: "other"},
		},
	}
	placeDummies := func(context.Context, []backends.Dummy) []backends.Submitted { return nil }
	for name, x := range map[string]struct {
		mode dummy.Mode
		able backends.ForEngine
		of   []string
		want []string
	}{
		"as it should be":             {mode: dummy.Reserve, able: backends.ForEngine{Place: placeDummies}},
		"the queue looks at memory":   {able: backends.ForEngine{Place: placeDummies, ManagesMemory: true}},
		"and dummy jobs do, too":      {mode: dummy.Surround, able: backends.ForEngine{Place: placeDummies, ManagesMemory: true}, want: []string{"mode is surround, and the queue manages memory by itself"}},
		"none can be placed":          {mode: dummy.Reserve, want: []string{"can't be placed"}},
		"memory is not managed":       {able: backends.ForEngine{Place: placeDummies}, want: []string{"(job 2, job 6), and the queue"}},
		"in the managed queues alone": {able: backends.ForEngine{}, of: []string{"other"}, want: []string{"(job 6), and the queue"}},
	} {
		var got findings
		checkDummyMode("config.yaml", plan.Policy{Dummies: dummy.Policy{Mode: x.mode}, Queues: x.of}, plan.State{Farm: farm, Abilities: x.able}, &got)
		expect(t, name, got, x.want...)
	}
}
