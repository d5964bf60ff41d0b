package plan

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// heavy tells how the heavy jobs stand.
func (f *farm) heavy() []HeavyStatus {
	var all []HeavyStatus
	for _, u := range f.dummies.Units {
		gathers := u.Stage == dummy.Gathers || u.Stage == dummy.Ready || u.Host == "" // else it runs, or is suspended
		all = append(all, HeavyStatus{Job: u.Job, Host: u.Host, Need: u.Slots, Dummies: len(u.Dummies), Gathers: gathers})
	}
	return all
}

// explainDummies says of a heavy job how its dummies stand, and of a light one whose
// dummy's slot it has; "" of every other.
func (f *farm) explainDummies(id backends.ID) string {
	if whose, ok := f.dummies.Lights[id]; ok {
		return fmt.Sprintf("runs on the slot of a dummy job of job %v, which leaves it enough", whose)
	}
	u := f.dummies.Unit(id)
	if u == nil {
		return ""
	}
	switch u.Stage {
	case dummy.Gathers:
		return fmt.Sprintf("gathers %s on %s: %d held", slotCount(u.Slots), u.Host, len(u.Dummies))
	case dummy.Ready:
		return fmt.Sprintf("has gathered its %s on %s, and starts there", slotCount(u.Slots), u.Host)
	case dummy.Runs:
		return fmt.Sprintf("needs that of %s on %s: %d held beside its own %d", slotCount(u.Slots), u.Host, len(u.Dummies), u.Own)
	case dummy.Waits:
	}
	if u.Why == "" {
		return fmt.Sprintf("needs that of %s on one host", slotCount(u.Slots))
	}
	return fmt.Sprintf("needs that of %s on one host, and gathers none yet: %s", slotCount(u.Slots), u.Why)
}
