package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// Restore returns the plan that undoes what the engine did to a queue (R7): holds, pins,
// reservations, priorities, suspensions, dummy jobs; open reclaims are cancelled. It reads
// most of that from the snapshot, not the memory: it may be repeated after a failure.
func Restore(state State, now time.Time) Plan {
	p := Plan{At: now, Memory: state.Memory}
	preempted := map[backends.ID]bool{} // preempted by the engine and not released
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
				preempted[v.ID] = true
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
		p.Actions = append(p.Actions, restoreJob(j, state, now, preempted[j.ID])...)
	}
	for _, id := range slices.SortedFunc(maps.Keys(dummies), backends.ID.Compare) {
		p.Actions = append(p.Actions, Action{Verb: Drop, Job: id, Dummies: dummies[id], Reason: restoredReason})
	}
	// A dummy job may fail to end: the next plan looks for it.
	p.Memory.Dummies = dummy.Memory{Placed: state.Memory.Dummies.Placed || len(dummies) > 0}
	p.SendGuaranteed = state.Abilities.Guarantee != nil && len(state.Farm.Guaranteed) > 0
	for id, m := range p.Memory.Jobs {
		p.Memory.Jobs[id] = JobMemory{Requeues: m.Requeues, Lost: m.Lost, GaveWay: m.GaveWay, History: m.History}
	}
	return p
}

const restoredReason = "everything is put back"

// restoreJob returns the actions that undo what was done to one job.
func restoreJob(j *backends.Job, state State, now time.Time, preempted bool) []Action {
	var actions []Action
	if len(state.Memory.Jobs[j.ID].Reserved) > 0 && state.Abilities.Reserve != nil && j.State == backends.Pending {
		actions = append(actions, Action{Verb: Unreserve, Job: j.ID, Reason: restoredReason})
	}
	held := j.HeldUntil.After(now)
	if j.State == backends.Running && !held { // a held one is on its way back into the queue
		return actions
	}
	if len(j.Pinned) > 0 {
		actions = append(actions, Action{Verb: Unpin, Job: j.ID, Reason: restoredReason})
	}
	if level := j.Priority.Level(); level > backends.LevelNormal {
		actions = append(actions, Action{Verb: Rank, Job: j.ID, Priority: backends.At(backends.LevelNormal, ownValue(j.Priority)), Reason: restoredReason})
	}
	if held {
		actions = append(actions, Action{Verb: Release, Job: j.ID, Reason: restoredReason})
	}
	if j.State == backends.Suspended && !j.Resuming && (preempted || held) {
		actions = append(actions, Action{Verb: Resume, Job: j.ID, Reason: restoredReason})
	}
	return actions
}
