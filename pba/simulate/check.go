package simulate

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// checker looks, for each new reclaim on a farm of one host, at every set of jobs
// that could have been taken back, for one that frees fewer slots beyond what the
// beneficiary lacked when its first victim was preempted. plan.Explain says which jobs
// are spared; how the planner chooses is not asked.
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
		taken := 0
		var could []int
		for _, v := range now.Victims {
			taken += v.Slots
		}
		earlier := takenBefore(&r.Plan, now)
		for _, k := range e.Considered {
			mine := slices.ContainsFunc(now.Victims, func(v plan.Victim) bool { return v.ID == k.ID })
			if (k.Spared == "" || mine) && !slices.Contains(earlier, k.ID) {
				could = append(could, k.Slots)
			}
		}
		d.meter.out.Checked++
		if least := leastSum(could, lacked); least >= 0 && least < taken {
			d.meter.out.Cheaper++
		}
	}
}

// takenBefore are the victims of the reclaims that the same plan opened earlier.
func takenBefore(p *plan.Plan, r *plan.Reclaim) []backends.ID {
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

// leastSum is the least sum of some of the numbers that is no less than need; −1
// if there is none. All sums that can be had are tried.
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
