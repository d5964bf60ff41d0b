package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// Restore decides what puts everything back that the engine did to a queue (R7):
// holds, pins, reservations, priorities, suspended jobs, dummy jobs; open reclaims
// are cancelled. It looks at the queue itself rather than at what is remembered, so
// that it may be repeated after it failed half-way.
func Restore(state State, now time.Time) Plan {
	p := Plan{At: now, Memory: state.Memory}
	taken := map[backends.ID]bool{} // suspended by us and not let go on
	p.Memory.Reclaims = slices.Clone(state.Memory.Reclaims)
	for i := range p.Memory.Reclaims {
		r := &p.Memory.Reclaims[i]
		if !r.Phase.Open() {
			continue
		}
		r.Phase, r.Why, r.Ended = Cancelled, "everything was put back", now
		r.Victims = slices.Clone(r.Victims)
		for k := range r.Victims {
			if v := &r.Victims[k]; v.Fate == Taken && !v.Released {
				taken[v.ID] = true
				v.Released = true
			} else if v.Fate == Intended {
				v.Fate = Spared
			}
		}
	}
	p.Memory.Jobs = make(map[backends.ID]JobMemory, len(state.Memory.Jobs))
	maps.Copy(p.Memory.Jobs, state.Memory.Jobs)
	dummies := map[backends.ID][]backends.ID{}
	for i := range state.Farm.Jobs {
		j := &state.Farm.Jobs[i]
		if j.IsDummy() {
			dummies[j.DummyFor] = append(dummies[j.DummyFor], j.ID)
			continue
		}
		p.Actions = append(p.Actions, restoreJob(j, state, now, taken[j.ID])...)
	}
	for _, id := range slices.SortedFunc(maps.Keys(dummies), backends.ID.Compare) {
		p.Actions = append(p.Actions, Action{Verb: Drop, Job: id, Dummies: dummies[id], Reason: putBack})
	}
	// What is to be ended may not end: whoever plans next looks for it.
	p.Memory.Dummies = dummy.Memory{Placed: state.Memory.Dummies.Placed || len(dummies) > 0}
	for id, m := range p.Memory.Jobs {
		p.Memory.Jobs[id] = JobMemory{Requeues: m.Requeues, History: m.History}
	}
	return p
}

const putBack = "everything is put back"

// restoreJob frees one job of what was done to it.
func restoreJob(j *backends.Job, state State, now time.Time, taken bool) []Action {
	var actions []Action
	if len(state.Memory.Jobs[j.ID].Reserved) > 0 && state.Abilities.Reserve != nil && j.State == backends.Pending {
		actions = append(actions, Action{Verb: Unreserve, Job: j.ID, Reason: putBack})
	}
	held := j.HeldUntil.After(now)
	if j.State == backends.Running && !held { // a held one is on its way back into the queue
		return actions
	}
	if len(j.Pinned) > 0 {
		actions = append(actions, Action{Verb: Unpin, Job: j.ID, Reason: putBack})
	}
	if level := j.Priority.Level(); level > backends.LevelNormal {
		actions = append(actions, Action{Verb: Rank, Job: j.ID, Priority: backends.At(backends.LevelNormal, ownValue(j.Priority)), Reason: putBack})
	}
	if held {
		actions = append(actions, Action{Verb: Release, Job: j.ID, Reason: putBack})
	}
	if j.State == backends.Suspended && !j.Resuming && (taken || held) {
		actions = append(actions, Action{Verb: Resume, Job: j.ID, Reason: putBack})
	}
	return actions
}
