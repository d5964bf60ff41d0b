package laws

import (
	"time"

	"github.com/allotment-hpc/allotment/pba/plan"
)

// lawEarly: no job is preempted for one that has not waited for the site's threshold,
// unless its project has a shorter one, which it has waited for, and its pool takes no
// more than twice its slots within the hour.
func (g *judge) lawEarly() {
	for _, r := range g.fresh {
		b := g.p.Memory.Jobs[r.Beneficiary]
		g.d.pools[r.ID] = b.Pool
		waited := b.Clock + cycle/20 // R14's rounding
		if waited >= g.policy.PendingThreshold || len(r.Victims) == 0 {
			continue
		}
		g.d.met[hurried] = true
		own, ok := g.policy.Thresholds[r.Project]
		if !ok || waited < own {
			g.d.breach(lawEarly, "reclaim %d serves job %v of %s, which has waited %v", r.ID, r.Beneficiary, r.Project, b.Clock)
		}
		guarantee := 0
		for _, a := range g.policy.Allocations {
			if a.ID == b.Pool {
				guarantee = a.Guarantee
			}
		}
		if taken := g.takenFor(b.Pool); taken > 2*guarantee {
			g.d.breach(lawEarly, "%d slots are preempted within an hour for pool %d of %d, the last ones for job %v, which has waited %v", taken, b.Pool, guarantee, r.Beneficiary, b.Clock)
		}
	}
}

// takenFor returns how many slots the victims of an hour lost to a pool.
func (g *judge) takenFor(pool int64) int {
	slots := 0
	for i := range g.p.Memory.Reclaims {
		r := &g.p.Memory.Reclaims[i]
		if g.d.pools[r.ID] != pool || g.p.At.Sub(r.Planned) >= time.Hour {
			continue
		}
		for _, v := range r.Victims {
			if v.Fate == plan.Taken || v.Fate == plan.Lost || v.Fate == plan.Intended && r.Phase.Open() {
				slots += v.Slots
			}
		}
	}
	return slots
}
