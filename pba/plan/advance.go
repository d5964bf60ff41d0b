package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Mark is what a reclaim leaves on its victims: by it a later cycle knows whose
// work an act was, whatever happened to the process that did it.
func (r *Reclaim) Mark() string { return fmt.Sprintf("r%d", r.ID) }

// observe notes what became of the victims of each reclaim since the last cycle.
// It trusts the farm alone: an act that was intended may or may not have been
// done (R18).
func (v *view) observe() {
	memory := &v.plan.Memory
	lost := map[backends.ID]*backends.Job{}
	for i := range v.state.Farm.Ended {
		if j := &v.state.Farm.Ended[i]; j.Lost {
			lost[j.ID] = j
		}
	}
	for i := range memory.Reclaims {
		r := &memory.Reclaims[i]
		r.Victims = slices.Clone(r.Victims)
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := v.byID[victim.ID]
			switch ended := lost[victim.ID]; {
			case ended != nil && ended.Mark == r.Mark() && (victim.Fate == Intended || victim.Fate == Taken):
				victim.Fate = Lost
				v.warn("the requeue of job %s of %s ended it, and the queue did not put it back: it must be submitted again", victim.ID, victim.User)
			case victim.Fate == Intended && j == nil:
				victim.Fate = Gone
			case victim.Fate == Intended && j.Mark == r.Mark():
				victim.Fate = Taken
				j.mem.Requeues++
			case victim.Fate == Intended && (j.State != backends.Running || !j.Started.Equal(victim.Started)):
				victim.Fate = Gone
			}
			if j == nil {
				victim.Released = true
			} else if victim.Fate == Taken && j.Mark == r.Mark() && j.State == backends.Running && j.Started.Equal(victim.Started) {
				j.leaving = true
			}
		}
		if r.Phase.Open() {
			if b := v.byID[r.Beneficiary]; b != nil {
				b.reclaim = r
			}
		}
	}
}

// advance moves each open reclaim along its life (R18, R19).
func (v *view) advance() {
	memory := &v.plan.Memory
	for i := range memory.Reclaims {
		r := &memory.Reclaims[i]
		if !r.Phase.Open() {
			continue
		}
		v.step(r)
		if b := v.byID[r.Beneficiary]; b != nil && !r.Phase.Open() {
			b.reclaim = nil
			if r.Phase == Expired {
				b.mem.Expired++
				b.mem.Backoff = v.now.Add(v.policy.PendingThreshold << b.mem.Expired)
			}
		}
	}
}

func (v *view) step(r *Reclaim) {
	b := v.byID[r.Beneficiary]
	if phase, why := v.ending(r, b); phase != "" {
		v.end(r, phase, why)
		return
	}
	taken, intended, busy := 0, 0, 0
	for _, victim := range r.Victims {
		switch victim.Fate {
		case Taken, Lost:
			taken++
		case Intended:
			intended++
		case Gone, Spared:
		}
		if j := v.byID[victim.ID]; j != nil && j.leaving && victim.Fate == Taken {
			busy++
		}
	}
	if r.Phase == Planned {
		switch {
		case taken == 0 && intended > 0:
			v.end(r, Cancelled, "none of its acts were done")
			return
		case intended == 0:
			r.Phase, r.Acted, r.Why = Acted, v.lastCycle(r), "its victims were told to go"
		}
	}
	if r.Phase == Acted && busy == 0 {
		r.Phase, r.Freed, r.Why = Freed, v.now, "its slots are free"
	}
	switch {
	case r.Phase == Planned && v.now.Sub(r.Planned) > v.policy.FreeTimeout:
		v.end(r, Expired, fmt.Sprintf("not all of its acts could be done within free_timeout (%s)", v.policy.FreeTimeout))
	case r.Phase == Acted && v.now.Sub(r.Acted) > v.policy.FreeTimeout:
		v.end(r, Expired, fmt.Sprintf("its victims' slots were not free after free_timeout (%s)", v.policy.FreeTimeout))
	case r.Phase == Freed && v.now.Sub(r.Freed) > v.policy.HandOverTimeout:
		v.end(r, Expired, fmt.Sprintf("its beneficiary did not start within hand_over_timeout (%s)", v.policy.HandOverTimeout))
	}
}

// lastCycle is when the acts that this cycle sees done were done at the latest.
func (v *view) lastCycle(r *Reclaim) time.Time {
	if v.state.Memory.LastCycle.After(r.Planned) {
		return v.state.Memory.LastCycle
	}
	return r.Planned
}

// ending tells whether a reclaim's beneficiary needs it no more.
func (v *view) ending(r *Reclaim, b *job) (Phase, string) {
	switch {
	case b == nil:
		if j := v.endedJob(r.Beneficiary); j != nil && !j.Started.Before(r.Planned) {
			return HandedOver, "its beneficiary ran, and has ended"
		}
		return Cancelled, "its beneficiary ended before it ran"
	case b.State == backends.Running:
		return HandedOver, "its beneficiary runs"
	case b.State == backends.Held:
		return Cancelled, "its beneficiary was held"
	case v.downAmong(r.Hosts) != "":
		return Cancelled, "host " + v.downAmong(r.Hosts) + " went down"
	case b.State == backends.Pending && b.Wait == backends.WaitOther:
		// Too little to begin a reclaim, and to give one up: so a queue says of who is
		// bound to a host that is away for a moment. The timeouts bound it.
		return "", ""
	case !b.waiting():
		return Cancelled, "its beneficiary does not wait for slots any more"
	case !b.pba():
		return Cancelled, "its beneficiary lost its place in its pool"
	}
	return "", ""
}

// downAmong is one of these hosts that is down, or unknown by now; "": none is. Jobs on a
// closed one run on, and it may be full of load for a moment: the timeouts bound that.
func (v *view) downAmong(hosts []backends.Placement) string {
	for _, p := range hosts {
		closed := func(h backends.Host) bool { return h.Name == p.Host && h.State == backends.HostClosed }
		if v.byName[p.Host] == nil && !slices.ContainsFunc(v.state.Farm.Hosts, closed) {
			return p.Host
		}
	}
	return ""
}

func (v *view) endedJob(id backends.ID) *backends.Job {
	for i := range v.state.Farm.Ended {
		if v.state.Farm.Ended[i].ID == id {
			return &v.state.Farm.Ended[i]
		}
	}
	return nil
}

func (v *view) end(r *Reclaim, phase Phase, why string) {
	r.Phase, r.Why, r.Ended = phase, why, v.now
	for i := range r.Victims {
		if r.Victims[i].Fate == Intended {
			r.Victims[i].Fate = Spared
		}
	}
}

// release undoes what reclaims did to their victims, once they ended, and renews
// the holds of those still open (R19, R21).
func (v *view) release() {
	for i := range v.plan.Memory.Reclaims {
		r := &v.plan.Memory.Reclaims[i]
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := v.byID[victim.ID]
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
			if r.Phase.Open() {
				v.renew(r, j)
			} else if v.let(r, j) {
				victim.Released = true
			}
		}
	}
}

// renew prolongs the engine's hold on a victim while its reclaim is open.
func (v *view) renew(r *Reclaim, j *job) {
	until := v.now.Add(v.policy.HoldLimit)
	tooLong := j.HeldUntil.Sub(until) > v.policy.HoldLimit // it was set while the clock was ahead
	if v.state.Abilities.HoldUntil == nil || !until.After(j.HeldUntil) && !tooLong {
		return
	}
	v.act(Action{Verb: Hold, Job: j.ID, For: r.Beneficiary, Reclaim: r.ID, Until: until, Reason: "held until " + r.Beneficiary.String() + " runs"})
}

// let sets a victim free again; it reports whether nothing is left to be done.
func (v *view) let(r *Reclaim, j *job) bool {
	reason := fmt.Sprintf("reclaim %d ended: %s", r.ID, r.Why)
	switch {
	case j.State == backends.Suspended && !j.Resuming:
		v.act(Action{Verb: Resume, Job: j.ID, For: r.Beneficiary, Reason: reason})
		return false
	case v.dummies.Holds(j.ID) && j.State == backends.Pending:
		return true // until its dummies are in place
	case !j.HeldUntil.IsZero() && j.State != backends.Running:
		v.act(Action{Verb: Release, Job: j.ID, For: r.Beneficiary, Reason: reason})
		return false
	case j.leaving:
		return false // its hold can only be lifted once it is in the queue again
	}
	return true
}

// unpin takes back pins that no open reclaim needs: nobody but us pins.
func (v *view) unpin() {
	for _, j := range v.resting {
		if v.startsSoon(j) {
			continue // where its dummies are
		}
		if (j.State == backends.Pending || j.State == backends.Held) && j.reclaim == nil && len(j.Pinned) > 0 {
			v.act(Action{Verb: Unpin, Job: j.ID, Reason: "no reclaim needs its pin any more"})
		}
	}
}

// forget drops what no later cycle can need: reclaims that ended over an hour
// ago (R22 counts that long) and whose victims are free.
func (v *view) forget() {
	v.plan.Memory.Reclaims = slices.DeleteFunc(v.plan.Memory.Reclaims, func(r Reclaim) bool {
		if r.Phase.Open() || v.now.Sub(r.Planned) < time.Hour {
			return false
		}
		return !slices.ContainsFunc(r.Victims, func(victim Victim) bool { return victim.Fate == Taken && !victim.Released })
	})
}

// stage is when, within a cycle, an act is done. Who keeps hosts has them before
// somebody else lets them go, or the queue would give them to the next best.
type stage int

const (
	stageRank stage = iota // the order in the queue
	stageKeep              // who reserves what others let go
	stageLet               // what ended reclaims leave
	stageTake              // reclaims, one after the other
	stageLast              // reservations that nobody needs any more
	stages
)

func (v *view) act(a Action) {
	at := stageTake
	switch a.Verb {
	case Rank:
		if a.Reclaim == 0 {
			at = stageRank
		}
	case Reserve:
		if a.Reclaim == 0 {
			at = stageKeep
		}
	case Move, Hold:
		at = stageRank
	case Unpin, Release, Resume:
		at = stageLet
	case Unreserve:
		at = stageLast
	case PinTo, Requeue, Suspend, Start, Place, Drop:
	}
	v.actAt(at, a)
}

func (v *view) actAt(at stage, a Action) {
	parts := v.acts[at]
	if n := len(parts); n == 0 || len(parts[n-1]) == cap(parts[n-1]) {
		parts = append(parts, make([]Action, 0, 32))
	}
	last := &parts[len(parts)-1]
	*last = append(*last, a)
	v.acts[at] = parts
}
