package simulate

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// checker compares each new reclaim on a farm of one host with every set of jobs that
// could have been preempted, and counts those for which another set frees fewer slots
// beyond what the beneficiary lacked when its first victim was preempted. Which jobs are
// spared comes from plan.Explain; the planner's own choice plays no part.
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
		freed := 0
		var candidates []int
		for _, v := range now.Victims {
			freed += v.Slots
		}
		earlier := earlierVictims(&r.Plan, now)
		for _, k := range e.Considered {
			chosen := slices.ContainsFunc(now.Victims, func(v plan.Victim) bool { return v.ID == k.ID })
			if (k.Spared == "" || chosen) && !slices.Contains(earlier, k.ID) {
				candidates = append(candidates, k.Slots)
			}
		}
		d.meter.out.Checked++
		if least := leastSum(candidates, lacked); least >= 0 && least < freed {
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

// leastSum returns the least sum of some of the numbers that is at least need; −1 if
// there is none. It tries all sums.
func leastSum(numbers []int, need int) int {
	sums := map[int]bool{0: true}
	for _, n := range numbers {
		for sum := range maps.Clone(sums) {
			sums[sum+n] = true
		}
	}
	best := -1
	for sum := range sums {
		if sum >= need && (best < 0 || sum < best) {
			best = sum
		}
	}
	return best
}
