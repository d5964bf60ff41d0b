package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// handOver puts beneficiaries straight into the slots that were freed for them, where
// the queue can (R19): one that counts a suspended victim's slots as taken would not.
func (f *farm) handOver() {
	if f.state.Abilities.Start == nil {
		return
	}
	assigned := map[string]int{}
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		b := f.byID[r.Beneficiary]
		if r.Phase != Freed || b == nil || f.dummies.Unit(b.ID) != nil || !b.Eligible() || !f.haveRoom(r.Hosts, assigned) {
			continue
		}
		shares := make([]int, len(r.Hosts))
		for k, p := range r.Hosts {
			assigned[p.Host] += p.Slots
			shares[k] = p.Slots
		}
		f.acts.add(stagePreempt, Action{Verb: Start, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: names(r.Hosts), Slots: shares, Reason: "its slots are free"})
	}
}

// yieldsTo returns an open reclaim whose beneficiary is to have what comes free on the hosts of a
// suspended victim, where that leaves too little for the victim beside those that are resumed
// there; nil: it may be resumed (R20). Where the queue starts beneficiaries by priority, they
// precede what waits to be resumed. Start comes a cycle after a slot is free: until then a job
// that waits to be resumed would take it. One that holds room in a pool yields to no other.
func (f *farm) yieldsTo(j *job, resumed map[string]int) *Reclaim {
	if f.state.Abilities.Start == nil || j.State != backends.Suspended || j.pba() {
		return nil
	}
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		lacks := func(p backends.Placement) bool {
			h := f.byName[p.Host]
			return h != nil && h.free-resumed[p.Host] < p.Slots && backends.SlotsOn(r.Hosts, p.Host) > 0
		}
		if r.Phase.Open() && slices.ContainsFunc(j.Hosts, lacks) {
			return r
		}
	}
	return nil
}

// haveRoom reports whether these slots are free of running jobs and not assigned to
// another beneficiary. Suspended jobs don't count.
func (f *farm) haveRoom(hosts []backends.Placement, assigned map[string]int) bool {
	for _, p := range hosts {
		h := f.byName[p.Host]
		if h == nil {
			return false
		}
		working := assigned[p.Host]
		for _, j := range h.running {
			working += slotsOn(j, p.Host)
		}
		if working+p.Slots > h.Slots {
			return false
		}
	}
	return true
}
