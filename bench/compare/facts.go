package main

import "github.com/allotment-hpc/allotment/internal/quantile"

// typical are the medians of a policy's runs with one background.
type typical struct {
	inTime, longest, evictions, lost, useful, background float64
}

// typically returns the medians of each policy with a background, by the policy's name.
func typically(results []result, scene string) map[string]typical {
	of := map[string][]outcome{}
	for _, r := range results {
		if r.scene.Name == scene {
			of[r.policy.Name] = append(of[r.policy.Name], r.outcome)
		}
	}
	all := map[string]typical{}
	for name, outcomes := range of {
		median := func(figure func(o *outcome) float64) float64 {
			var all []float64
			for i := range outcomes {
				all = append(all, figure(&outcomes[i]))
			}
			return quantile.Median(all)
		}
		all[name] = typical{
			inTime:     median(func(o *outcome) float64 { return o.inTime }),
			longest:    median(func(o *outcome) float64 { return float64(percentile(o.guaranteed, 100)) }),
			evictions:  median(func(o *outcome) float64 { return float64(o.evictions) }),
			lost:       median(func(o *outcome) float64 { return o.lost }),
			useful:     median(func(o *outcome) float64 { return o.useful }),
			background: median(func(o *outcome) float64 { return float64(percentile(o.background, 50)) }),
		}
	}
	return all
}

// fact is what the page says besides the tables, and must be true of them.
type fact struct {
	text  string
	holds func(short, long map[string]typical) bool
}

// both makes a fact of what holds with both backgrounds.
func both(holds func(t map[string]typical) bool) func(short, long map[string]typical) bool {
	return func(short, long map[string]typical) bool { return holds(short) && holds(long) }
}

func facts() []fact {
	return []fact{
		{"fair share preempts nothing, and the farm does the most useful work", both(func(t map[string]typical) bool {
			best := true
			for _, other := range t {
				best = best && t["fair-share"].useful >= other.useful
			}
			return best && t["fair-share"].evictions == 0
		})},
		{"with short jobs fair share starts nine in ten guaranteed jobs in time, with long ones Allotment a third of all jobs more", func(short, long map[string]typical) bool {
			return short["fair-share"].inTime >= 0.9 && long["allotment-60"].inTime >= long["fair-share"].inTime+1.0/3
		}},
		{"with a reservation the guaranteed jobs start at once, the farm does the least, and the others wait the longest", both(func(t map[string]typical) bool {
			worst := true
			for name, other := range t {
				worst = worst && (name == "reservation" || t["reservation"].useful < other.useful && t["reservation"].background > other.background)
			}
			return worst && t["reservation"].longest <= 2
		})},
		{"preempt/qos is faster than Allotment at 60 s, preempts more jobs, and more work is lost", both(func(t map[string]typical) bool {
			return t["preempt"].longest < t["allotment-60"].longest && t["preempt"].evictions > t["allotment-60"].evictions && t["preempt"].lost > t["allotment-60"].lost
		})},
		{"Allotment at 60 s starts nine in ten in time, and the farm does more than with preempt/qos", both(func(t map[string]typical) bool {
			return t["allotment-60"].inTime >= 0.9 && t["allotment-60"].useful > t["preempt"].useful
		})},
		{"Allotment at 0 s preempts more jobs than at 60 s, and fewer than preempt/qos", both(func(t map[string]typical) bool {
			return t["allotment-0"].evictions > t["allotment-60"].evictions && t["allotment-0"].evictions < t["preempt"].evictions
		})},
	}
}

// untrue returns the facts that the results do not bear out.
func untrue(results []result) (all []string) {
	short, long := typically(results, "short"), typically(results, "long")
	for _, f := range facts() {
		if !f.holds(short, long) {
			all = append(all, f.text)
		}
	}
	return all
}
