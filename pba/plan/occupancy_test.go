package plan

import (
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// TestManaged: what an edit counts is what a cycle counts.
func TestManaged(t *testing.T) {
	farm := &backends.Snapshot{Hosts: []backends.Host{
		{Name: "n1", Slots: 4}, {Name: "n2", Slots: 8, State: backends.HostDown}, {Name: "n3", Slots: 16}, {Name: "n1", Slots: 4}, {Name: "n4", Slots: 32},
	}}
	for _, managed := range [][]string{nil, {"n1", "n2", "n3"}, {"none"}} {
		_, up, down := farm.Managed(managed)
		p := Make(State{Farm: farm}, Policy{Hosts: managed}, farm.At)
		if up != p.Farm.Slots || down != p.Farm.Down {
			t.Errorf("%v: %d up, %d down; Make counts %d and %d", managed, up, down, p.Farm.Slots, p.Farm.Down)
		}
	}
}
