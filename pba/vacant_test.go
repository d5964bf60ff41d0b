package pba

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A suspended job's slots are vacant, whatever the queue counts (R19).
func TestVacant(t *testing.T) {
	farm := &backends.Snapshot{
		Hosts: []backends.Host{{Name: "n1", Slots: 4}, {Name: "n2", Slots: 4, State: backends.HostDown}, {Name: "n3", Slots: 2}},
		Jobs: []backends.Job{
			{State: backends.Running, Hosts: []backends.Placement{{Host: "n1", Slots: 2}, {Host: "n3", Slots: 1}}},
			{State: backends.Suspended, Hosts: []backends.Placement{{Host: "n1", Slots: 2}}},
		},
	}
	for _, x := range []struct {
		slots []backends.Placement
		want  bool
	}{
		{[]backends.Placement{{Host: "n1", Slots: 2}}, true},
		{[]backends.Placement{{Host: "n1", Slots: 2}, {Host: "n3", Slots: 1}}, true},
		{[]backends.Placement{{Host: "n1", Slots: 3}}, false},
		{[]backends.Placement{{Host: "n1", Slots: 1}, {Host: "n3", Slots: 2}}, false},
		{[]backends.Placement{{Host: "n2", Slots: 1}}, false},
		{[]backends.Placement{{Host: "n9", Slots: 1}}, false},
	} {
		if got := vacant(farm, x.slots); got != x.want {
			t.Errorf("%v: %v", x.slots, got)
		}
	}
}
