package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// history3 returns three weeks, oldest first, in each of which a pool of 10 slots used and waited
// for so many slots, and cycles saw a day.
func history3(used, waiting [3]float64) History {
	h := History{Zone: time.UTC}
	for i := range 3 {
		at := noon.AddDate(0, 0, -7*(3-i))
		h.Farm = append(h.Farm, ledger.FarmHour{Hour: at, Seen: 24 * time.Hour})
		h.Use = append(h.Use, ledger.UseHour{Hour: at, PoolID: 1, Pool: chipA, Guaranteed: slotHours(240), Used: slotHours(24 * used[i]), Waiting: slotHours(24 * waiting[i])})
	}
	return h
}

// pools3 is history3 of so many pools of a project, and one that uses all.
func pools3(n int, used [3]float64) History {
	h := history3([3]float64{10, 10, 10}, [3]float64{})
	for i := range n {
		for _, u := range history3(used, [3]float64{}).Use {
			u.PoolID, u.Step = int64(i+2), fmt.Sprintf("s%02d", i+1)
			h.Use = append(h.Use, u)
		}
	}
	return h
}

// jobsOf returns five jobs of each week, oldest first, that waited so long.
func jobsOf(waited ...time.Duration) (all []ledger.PastJob) {
	for i, d := range waited {
		for range 5 {
			all = append(all, ledger.PastJob{Project: "A", PBA: true, Started: noon, Ended: noon.AddDate(0, 0, -7*(len(waited)-i)), Waited: d})
		}
	}
	return all
}

func planned(project string, slots int, weeks ...int) (all []ledger.Allocation) {
	for _, n := range weeks {
		a := ledger.Allocation{Pool: ledger.Pool{Project: project}, Week: calendar.AddWeeks(calendar.Week{Year: 2026, Week: 48}, n)}
		a.Slots = slots
		all = append(all, a)
	}
	return all
}

func TestAdvice(t *testing.T) {
	busy := [3]float64{9, 9, 9}
	for name, c := range map[string]struct {
		e    Evidence
		want []Advice
	}{
		"nothing is recorded": {},
		"unused in three weeks": {Evidence{History: history3([3]float64{4, 3, 4.9}, [3]float64{})}, []Advice{{
			Unused, "A", "A uses less than half of its guarantee: others could have slots of it", "of what was promised it used 40 % in 2026-W45, 30 % in 2026-W46, 49 % in 2026-W47, and hardly more was waited for",
		}}},
		"used once": {e: Evidence{History: history3([3]float64{4, 5, 4}, [3]float64{})}},
		"a project's pools, unused": {Evidence{History: pools3(12, [3]float64{4, 3, 4.9})}, []Advice{{
			Unused, "A", "12 pools of A use less than half of their guarantees: others could have slots of them", "of what was promised they used 40 % in 2026-W45, 30 % in 2026-W46, 49 % in 2026-W47, and hardly more was waited for: s01, s02, s03, s04, s05, s06, s07, s08, s09, s10 and 2 more",
		}}},
		"unused, and jobs waited":     {e: Evidence{History: history3([3]float64{4, 4, 4}, [3]float64{0, 2, 0})}},
		"unused, and seen too little": {e: Evidence{History: func() History { h := history3([3]float64{}, [3]float64{}); h.Farm[1].Seen = 23 * time.Hour; return h }()}},
		"waits grow": {Evidence{History: history3(busy, [3]float64{}), Jobs: jobsOf(time.Minute, 90*time.Second, 2*time.Minute), Threshold: time.Minute}, []Advice{{
			WaitsGrow, "A", "A's jobs wait longer each week within its guarantee", "95 % of them started within 1m0s in 2026-W45, 1m30s in 2026-W46, 2m0s in 2026-W47",
		}}},
		"waits grow within the threshold": {e: Evidence{History: history3(busy, [3]float64{}), Jobs: jobsOf(time.Minute, 90*time.Second, 2*time.Minute), Threshold: 2 * time.Minute}},
		"waits grow by little":            {e: Evidence{History: history3(busy, [3]float64{}), Jobs: jobsOf(time.Minute, 90*time.Second, 119*time.Second)}},
		"waits go up and down":            {e: Evidence{History: history3(busy, [3]float64{}), Jobs: jobsOf(time.Minute, 50*time.Second, 2*time.Minute)}},
		"waits of four jobs":              {e: Evidence{History: history3(busy, [3]float64{}), Jobs: jobsOf(time.Minute, 90*time.Second, 2*time.Minute)[1:]}},
		"a plan ends": {Evidence{Allocations: append(planned("A", 3, 0, 1), planned("B", 4, 0, 1, 2)...)}, []Advice{{
			PlanEnds, "A", "A has no slots in 2026-W50: plan them, if it goes on", "it has 3 slots this week, and its plan goes up to 2026-W49",
		}}},
		"a plan that begins": {e: Evidence{Allocations: planned("A", 3, 1)}},
		"a throughput is out of reach": {Evidence{Pools: []plan.PoolStatus{{Allocation: plan.Allocation{Project: "A", Step: "sim", Jobs: 60}, Undone: 12}, {Allocation: plan.Allocation{Project: "B", Jobs: 60}}}}, []Advice{{
			Unattainable, "A", "12 jobs can't be done with A:sim's slots this week: guarantee more, or promise fewer", "at the mean time of those that ended, 48 of the week's 60 jobs will be done when it ends",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.e.This = calendar.Week{Year: 2026, Week: 48}
			if c.e.Zone == nil {
				c.e.Zone = time.UTC
			}
			if c.want == nil {
				c.want = []Advice{}
			}
			check(t, Advise(c.e, ""), c.want)
			check(t, Advise(c.e, "C"), []Advice{})
		})
	}
}
