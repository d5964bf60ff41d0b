package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/internal/quantile"
)

// trustworthy is how late submissions may be, and how much longer than asked complete runs,
// in seconds for 95 % of them: beyond it the figures are about the machine's load.
const trustworthy = 2

// result is a run's outcome.
type result struct {
	cell
	version string // of Slurm
	outcome
}

// writeTables writes what the policies are, and a table for each scene: each figure is the median of the seeds, with the least
// and the greatest.
func writeTables(out io.Writer, results []result) error {
	p := page.Printer{Out: out}
	var late, longer int64
	versions, seeds, measured := map[string]bool{}, map[uint64]bool{}, map[string]bool{}
	for _, r := range results {
		measured[r.policy.Name] = true
		late, longer = max(late, r.late), max(longer, r.longer)
		versions[r.version], seeds[r.seed] = true, true
	}
	p.Printf("| policy | what it is |\n| --- | --- |")
	for _, rival := range policies() {
		if measured[rival.Name] {
			p.Printf("| %s | %s |", rival.Title, rival.what)
		}
	}
	p.Printf("\nMeasured on %s: %d runs of each policy with each background, each with jobs of its own seed. The project's jobs ask for %.0f %% of its slots' time.",
		strings.Join(slices.Sorted(maps.Keys(versions)), ", "), len(seeds), 100*guaranteedShare(results))
	p.Printf("In each run 95 %% of the jobs were submitted at most %d s late, and ran at most %d s longer than they asked.", late, longer)
	for _, s := range scenes() {
		p.Printf("\n%s:\n", s.Title)
		p.Printf("| policy | guaranteed jobs' wait: median, s | 95 %%, s | longest, s | started within %d s, %% | evictions | work lost, %% | useful, %% | background's wait: median, s | 95 %%, s |", allowed)
		p.Printf("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
		for _, rival := range policies() {
			var of []outcome
			for _, r := range results {
				if r.scene.Name == s.Name && r.policy.Name == rival.Name {
					of = append(of, r.outcome)
				}
			}
			if len(of) == 0 {
				continue
			}
			wait := func(percent int, waits func(*outcome) []int64) string {
				return spread(of, 0, func(o *outcome) float64 { return float64(percentile(waits(o), percent)) })
			}
			guaranteed := func(o *outcome) []int64 { return o.guaranteed }
			background := func(o *outcome) []int64 { return o.background }
			p.Printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", rival.Title,
				wait(50, guaranteed), wait(95, guaranteed), wait(100, guaranteed),
				spread(of, 0, func(o *outcome) float64 { return 100 * o.inTime }),
				spread(of, 0, func(o *outcome) float64 { return float64(o.evictions) }),
				spread(of, 1, func(o *outcome) float64 { return 100 * o.lost }),
				spread(of, 1, func(o *outcome) float64 { return 100 * o.useful }),
				wait(50, background), wait(95, background))
		}
	}
	return p.Err
}

// spread formats the median of the outcomes' figures, and the least and the greatest.
func spread(of []outcome, digits int, figure func(*outcome) float64) string {
	var all []float64
	for i := range of {
		all = append(all, figure(&of[i]))
	}
	least, greatest := slices.Min(all), slices.Max(all)
	format := func(v float64) string { return fmt.Sprintf("%.*f", digits, v) }
	if format(least) == format(greatest) {
		return format(least)
	}
	return fmt.Sprintf("%s (%s–%s)", format(quantile.Median(all)), format(least), format(greatest))
}

// doubts returns what makes the figures untrustworthy.
func doubts(results []result) []string {
	var all []string
	for _, r := range results {
		if r.late > trustworthy || r.longer > trustworthy {
			all = append(all, fmt.Sprintf("%s: submissions were up to %d s late, runs up to %d s longer than asked: repeat it on an idle machine", r.cell, r.late, r.longer))
		}
		if r.failed > 0 {
			all = append(all, fmt.Sprintf("%s: %d jobs failed", r.cell, r.failed))
		}
		if r.ownEvictions > 0 {
			all = append(all, fmt.Sprintf("%s: %d guaranteed jobs were evicted", r.cell, r.ownEvictions))
		}
	}
	return all
}

// guaranteedShare returns the share of the guarantee's slot-time that the guaranteed jobs ask for.
func guaranteedShare(results []result) float64 {
	var work, runs float64
	for _, r := range results {
		runs++
		for _, j := range r.scene.workload(r.seed) {
			if j.guaranteed {
				work += j.length.Seconds()
			}
		}
	}
	return work / (cmp.Or(runs, 1) * guarantee * window.Seconds())
}
