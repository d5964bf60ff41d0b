package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Mark returns what a reclaim writes on its victims. From it a later cycle knows
// which reclaim acted, even if the engine died before it recorded the act.
func (r *Reclaim) Mark() string { return fmt.Sprintf("r%d", r.ID) }

// updateFates records what became of the victims of each reclaim since the last cycle,
// and what these lost by it (R35). It trusts the snapshot alone: an act that was intended may or may not have been
// done (R18).
func (f *farm) updateFates() {
	memory := &f.plan.Memory
	lost := map[backends.ID]*backends.Job{}
	for i := range f.state.Farm.Ended {
		if j := &f.state.Farm.Ended[i]; j.Lost {
			lost[j.ID] = j
		}
	}
	past := f.past()
	for i := range memory.Reclaims {
		r := &memory.Reclaims[i]
		r.Victims = slices.Clone(r.Victims)
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := f.byID[victim.ID]
			if j == nil {
				f.settleSave(r, victim, past[victim.ID])
			}
			switch ended := lost[victim.ID]; {
			case ended != nil && ended.Mark == r.Mark() && (victim.Fate == Intended || victim.Fate == Taken):
				victim.Fate = Lost
				f.warn("the requeue of job %s of %s ended it, and the queue did not put it back: it must be submitted again", victim.ID, victim.User)
			case j == nil && victim.Save > 0 && victim.Saved == "" && victim.Fate == Taken && !victim.Released && f.endedJob(victim.ID) == nil:
				victim.Fate = Lost // Slurm forgets a job that has ended and was not requeued in time
				f.warn("job %s of %s was asked to save itself, and the queue forgot it before it was requeued: it must be submitted again", victim.ID, victim.User)
			case victim.Fate == Intended && j == nil:
				victim.Fate = Gone
				if victim.Save > 0 && f.endedJob(victim.ID) == nil {
					f.warn("job %s of %s may have been asked to save itself, and the queue has forgotten it since: if it did not finish, it must be submitted again", victim.ID, victim.User)
				}
			case victim.Fate == Intended && j.Mark == r.Mark():
				victim.Fate = Taken
				j.mem.Requeues++
				j.mem.GaveWay = victim.Mode == backends.PreemptSuspend
				if victim.Save == 0 {
					j.mem.Lost += victim.Loss()
				}
			case victim.Fate == Intended && (j.State != backends.Running || !j.Started.Equal(victim.Started)):
				victim.Fate = Gone
			}
			if j == nil {
				victim.Released = true
			} else if victim.Fate == Taken && j.Mark == r.Mark() && j.State == backends.Running && j.Started.Equal(victim.Started) {
				j.leaving = true
			}
			f.updateSave(r, victim, j)
		}
		if r.Phase.Open() {
			if b := f.byID[r.Beneficiary]; b != nil {
				b.reclaim = r
			}
		}
	}
}

// advance moves each open reclaim to the phase that it has reached (R18, R19).
func (f *farm) advance() {
	memory := &f.plan.Memory
	for i := range memory.Reclaims {
		r := &memory.Reclaims[i]
		if !r.Phase.Open() {
			continue
		}
		f.step(r)
		if b := f.byID[r.Beneficiary]; b != nil && !r.Phase.Open() {
			b.reclaim = nil
			switch {
			case r.Phase != Expired:
				continue
			case r.Why == takenByOthers && f.tries(b):
				f.tryOn(b, r)
			default:
				b.mem.Backoff = f.now.Add(f.policy.PendingThreshold << (b.mem.Expired + 1))
			}
			b.mem.Expired++
		}
	}
}

// takenByOthers ends a reclaim of whose slots others have some.
const takenByOthers = "other jobs have its slots"

// tryOn lets the next reclaim of a job be on the same hosts at once, for the slots that it still
// lacks: what its victims left there would else be lost. The queue has considered it there. Where a
// queue does not say so, the job may start elsewhere in a moment.
func (f *farm) tryOn(b *job, r *Reclaim) {
	trials := maps.Clone(f.plan.Memory.Trials)
	if trials == nil {
		trials = map[backends.ID]Trial{}
	}
	trials[b.ID] = Trial{Hosts: names(r.Hosts), Pinned: r.Planned, Refused: trials[b.ID].Refused}
	f.plan.Memory.Trials = trials
}

func (f *farm) step(r *Reclaim) {
	b := f.byID[r.Beneficiary]
	if phase, why := f.ending(r, b); phase != "" {
		f.end(r, phase, why)
		return
	}
	acted, intended, busy := 0, 0, 0
	for _, victim := range r.Victims {
		switch victim.Fate {
		case Taken, Lost, Finished:
			acted++
		case Intended:
			intended++
		case Gone, Spared:
		}
		if j := f.byID[victim.ID]; j != nil && j.leaving && victim.Fate == Taken {
			busy++
		}
	}
	if r.Phase == Planned {
		switch {
		case acted == 0 && intended > 0:
			f.end(r, Cancelled, "none of its acts were done")
			return
		case intended == 0:
			r.Phase, r.Acted, r.Why = Acted, f.lastCycle(r), "its victims were requeued or suspended"
		}
	}
	if acted == 0 && intended == 0 && !f.stillFree(r, b) {
		f.end(r, Cancelled, "its victims ended before they were preempted, and other jobs have their slots")
		return
	}
	if r.Phase == Acted && busy == 0 {
		r.Phase, r.Freed, r.Why = Freed, f.now, "its slots are free"
	}
	switch {
	case r.Phase == Planned && f.now.Sub(r.Planned) > f.policy.FreeTimeout:
		f.end(r, Expired, fmt.Sprintf("not all of its acts could be done within free_timeout (%s)", f.policy.FreeTimeout))
	case r.Phase == Acted && f.now.Sub(r.Acted) > r.Saving()+f.policy.FreeTimeout:
		f.end(r, Expired, fmt.Sprintf("its victims' slots were not free after free_timeout (%s)%s", f.policy.FreeTimeout, r.andSaving()))
	case r.Phase == Freed && f.now.Sub(r.Freed) >= f.policy.Cycle && !f.stillFree(r, b):
		f.end(r, Expired, takenByOthers)
	case r.Phase == Freed && f.now.Sub(r.Freed) > f.policy.HandOverTimeout:
		f.end(r, Expired, fmt.Sprintf("its beneficiary did not start within hand_over_timeout (%s)", f.policy.HandOverTimeout))
	}
}

// stillFree reports whether a reclaim's hosts have the slots that its beneficiary is to
// start in.
func (f *farm) stillFree(r *Reclaim, b *job) bool {
	for _, p := range r.Hosts {
		h := f.byName[p.Host]
		if h == nil {
			continue // it may be back in a moment
		}
		free := h.free
		for _, j := range h.running {
			if j.leaving || j.Ending {
				free += slotsOn(j, h.Name)
			}
		}
		if free < h.slotsFor(b, p) {
			return false
		}
	}
	return true
}

// lastCycle returns when, at the latest, the acts that this cycle sees were done.
func (f *farm) lastCycle(r *Reclaim) time.Time {
	if f.state.Memory.LastCycle.After(r.Planned) {
		return f.state.Memory.LastCycle
	}
	return r.Planned
}

// ending returns the last phase of a reclaim that its beneficiary does not need
// any more, and why; "" if the reclaim goes on.
func (f *farm) ending(r *Reclaim, b *job) (Phase, string) {
	switch down := f.firstDown(names(r.Hosts)); {
	case b == nil:
		if j := f.endedJob(r.Beneficiary); j != nil && !j.Started.Before(r.Planned) {
			return HandedOver, "its beneficiary ran, and has ended"
		}
		return Cancelled, "its beneficiary ended before it ran"
	case b.State == backends.Running:
		return HandedOver, "its beneficiary runs"
	case b.State == backends.Held:
		return Cancelled, "its beneficiary was held"
	case down != "":
		return Cancelled, "host " + down + " went down"
	case b.State == backends.Pending && b.Wait == backends.WaitOther:
		// Insufficient to start or cancel a reclaim: a queue also gives this reason to a
		// job that is pinned to a host that is briefly unavailable. The timeouts bound it.
		return "", ""
	case !b.waiting():
		return Cancelled, "its beneficiary does not wait for slots any more"
	case !b.pba():
		return Cancelled, "its beneficiary lost its place in its pool"
	}
	return "", ""
}

// firstDown returns one of these hosts that is down or unknown; "" if none is. Jobs on a
// closed host run on, and load may close it for a moment only: the timeouts bound that.
func (f *farm) firstDown(hosts []string) string {
	for _, name := range hosts {
		closed := func(h backends.Host) bool { return h.Name == name && h.State == backends.HostClosed }
		if f.byName[name] == nil && !slices.ContainsFunc(f.state.Farm.Hosts, closed) {
			return name
		}
	}
	return ""
}

func (f *farm) endedJob(id backends.ID) *backends.Job {
	for i := range f.state.Farm.Ended {
		if f.state.Farm.Ended[i].ID == id {
			return &f.state.Farm.Ended[i]
		}
	}
	return nil
}

func (f *farm) end(r *Reclaim, phase Phase, why string) {
	r.Phase, r.Why, r.Ended = phase, why, f.now
	for i := range r.Victims {
		if r.Victims[i].Fate == Intended {
			r.Victims[i].Fate = Spared
		}
	}
}

// release undoes what ended reclaims did to their victims, and renews the holds of
// open ones (R19, R21).
func (f *farm) release() {
	resumed := map[string]int{} // slots, by host
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := f.byID[victim.ID]
			if victim.Fate != Taken || victim.Released || j == nil || j.leaving && r.Phase.Open() {
				continue
			}
			if j.Mark != r.Mark() {
				victim.Released = true // another reclaim's by now
				continue
			}
			if j.State == backends.Running && !j.leaving {
				victim.Released = true // its hold ran out, and it runs again
				continue
			}
			switch other := f.yieldsTo(j, resumed); {
			case r.Phase.Open():
				f.renew(r, j)
			case other != nil:
				f.renew(other, j)
			case j.wide != nil:
				victim.Released = true // it is held for another reason now
			default:
				victim.Released = f.releaseVictim(r, j)
				if j.State == backends.Suspended {
					for _, p := range j.Hosts {
						resumed[p.Host] += p.Slots
					}
				}
			}
		}
	}
}

// renew holds a victim until a reclaim has ended, or prolongs that hold.
func (f *farm) renew(r *Reclaim, j *job) {
	until := f.now.Add(f.policy.HoldLimit)
	tooLong := j.HeldUntil.Sub(until) > f.policy.HoldLimit // it was set while the clock was ahead
	if f.state.Abilities.HoldUntil == nil || !until.After(j.HeldUntil) && !tooLong {
		return
	}
	f.acts.add(stageRank, Action{Verb: Hold, Job: j.ID, For: r.Beneficiary, Reclaim: r.ID, Until: until, Reason: "held until " + r.Beneficiary.String() + " runs"})
}

// releaseVictim resumes or releases a victim. It reports whether nothing is left to be done.
func (f *farm) releaseVictim(r *Reclaim, j *job) bool {
	reason := fmt.Sprintf("reclaim %d ended: %s", r.ID, r.Why)
	switch {
	case j.State == backends.Suspended && !j.Resuming:
		f.acts.add(stageRelease, Action{Verb: Resume, Job: j.ID, For: r.Beneficiary, Reason: reason})
		return false
	case j.State == backends.Suspended && f.state.Abilities.Start != nil:
		return false // it may have to yield before it runs
	case f.dummies.Holds(j.ID) && j.State == backends.Pending:
		return true // until its dummies are in place
	case !j.HeldUntil.IsZero() && j.State != backends.Running:
		f.acts.add(stageRelease, Action{Verb: Release, Job: j.ID, For: r.Beneficiary, Reason: reason})
		return false
	case j.leaving:
		return false // its hold can only be lifted once it is in the queue again
	}
	return true
}

// unpin removes pins that no open reclaim needs: only the engine pins jobs.
func (f *farm) unpin() {
	for _, j := range f.resting {
		if f.startsSoon(j) {
			continue // it is pinned to its dummies' host
		}
		if (j.State == backends.Pending || j.State == backends.Held) && j.reclaim == nil && !j.trying && len(j.Pinned) > 0 {
			f.acts.add(stageRelease, Action{Verb: Unpin, Job: j.ID, Reason: "no reclaim needs its pin any more"})
		}
	}
}
