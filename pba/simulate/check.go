package simulate

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// checker compares each new reclaim on a farm of one host with every set of jobs that
// could have been preempted, and counts those for which another set has fewer jobs that
// lost too much already (R35), or as many, and frees fewer slots beyond what the
// beneficiary lacked when its first victim was preempted. Which jobs are spared or protected
// comes from plan.Explain; the planner's own choice plays no part.
type checker struct {
	lacked map[int64]int // by reclaim of this cycle
}

func (c *checker) check(d *driver, r *pba.Result) {
	defer clear(c.lacked)
	if len(c.lacked) == 0 || len(r.State.Farm.Hosts) != 1 {
		return
	}
	for i := range r.Plan.Memory.Reclaims {
		now := &r.Plan.Memory.Reclaims[i]
		lacked, isNew := c.lacked[now.ID]
		if !isNew || !now.Planned.Equal(r.Plan.At) {
			continue
		}
		e, ok := plan.Explain(r.State, r.Rules.Policy, r.Plan.At, now.Beneficiary)
		if !ok {
			continue
		}
		var freed cost
		var candidates []cost
		earlier := earlierVictims(&r.Plan, now)
		for _, k := range e.Considered {
			chosen := slices.ContainsFunc(now.Victims, func(v plan.Victim) bool { return v.ID == k.ID })
			of := cost{slots: k.Slots}
			if k.Protected {
				of.protected = 1
			}
			if chosen {
				freed = freed.plus(of)
			}
			if (k.Spared == "" || chosen) && !slices.Contains(earlier, k.ID) {
				candidates = append(candidates, of)
			}
		}
		d.meter.out.Checked++
		if least, found := leastCost(candidates, lacked); found && least.less(freed) {
			d.meter.out.Cheaper++
		}
	}
}

// earlierVictims returns the victims of the reclaims that the same plan opened earlier.
func earlierVictims(p *plan.Plan, r *plan.Reclaim) []backends.ID {
	var ids []backends.ID
	for i := range p.Memory.Reclaims {
		if other := &p.Memory.Reclaims[i]; other.ID < r.ID && other.Planned.Equal(p.At) {
			for _, v := range other.Victims {
				ids = append(ids, v.ID)
			}
		}
	}
	return ids
}

// cost is what a set of victims costs: jobs that lost too much already, and the slots that they
// leave.
type cost struct{ protected, slots int }

func (c cost) plus(o cost) cost { return cost{c.protected + o.protected, c.slots + o.slots} }

func (c cost) less(o cost) bool {
	return c.protected < o.protected || c.protected == o.protected && c.slots < o.slots
}

// leastCost returns the least cost of a set of jobs that leaves the slots that are needed. It
// tries all sets, and reports whether there is one.
func leastCost(jobs []cost, need int) (best cost, found bool) {
	sets := map[cost]bool{{}: true}
	for _, j := range jobs {
		for set := range maps.Clone(sets) {
			sets[set.plus(j)] = true
		}
	}
	for set := range sets {
		if set.slots >= need && (!found || set.less(best)) {
			best, found = set, true
		}
	}
	return best, found
}
