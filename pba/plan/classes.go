package plan

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Class is what a job is to the pools.
type Class struct {
	Within   bool // it is charged to a pool, or holds room in one
	Entitled bool // it matches a pool and fits it; if it is not Within, there is no room
	Standby  bool // it keeps a slot free for a pool's next jobs
}

// Classes returns the class of each job of the snapshot, in the snapshot's order. It
// decides as Make does.
func Classes(state State, policy Policy, now time.Time) []Class {
	f := decide(state, policy, now)
	of := make(map[backends.ID]Class, len(f.jobs))
	for _, j := range f.jobs {
		of[j.ID] = Class{Within: j.pba(), Entitled: j.entitled, Standby: j.standby}
	}
	all := make([]Class, len(state.Farm.Jobs))
	for i := range all {
		all[i] = of[state.Farm.Jobs[i].ID]
	}
	return all
}
