package plan

import (
	"github.com/allotment-hpc/allotment/backends"
)

// handOver puts beneficiaries straight into the slots that were freed for them, where
// the queue can (R19). It would not by itself where it still counts a suspended
// victim's slots as taken.
func (v *view) handOver() {
	if v.state.Abilities.Start == nil {
		return
	}
	given := map[string]int{}
	for i := range v.plan.Memory.Reclaims {
		r := &v.plan.Memory.Reclaims[i]
		b := v.byID[r.Beneficiary]
		if r.Phase != Freed || b == nil || v.dummies.Unit(b.ID) != nil || !b.Eligible() || !v.haveRoom(r.Hosts, given) {
			continue
		}
		shares := make([]int, len(r.Hosts))
		for k, p := range r.Hosts {
			given[p.Host] += p.Slots
			shares[k] = p.Slots
		}
		v.act(Action{Verb: Start, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: names(r.Hosts), Slots: shares, Reason: "its slots are free"})
	}
}

// haveRoom tells whether nobody works in these slots, suspended jobs left aside.
func (v *view) haveRoom(hosts []backends.Placement, given map[string]int) bool {
	for _, p := range hosts {
		h := v.byName[p.Host]
		if h == nil {
			return false
		}
		working := given[p.Host]
		for _, j := range h.running {
			working += slotsOn(j, p.Host)
		}
		if working+p.Slots > h.Slots {
			return false
		}
	}
	return true
}
