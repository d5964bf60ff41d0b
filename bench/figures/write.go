package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// writeTables writes the tables alone, for the README.
func writeTables(out io.Writer, path string, all []scene) error {
	s := page.Printer{Out: out}
	s.Printf("Trace: `%s` of the [Parallel Workloads Archive](https://www.cs.huji.ac.il/labs/parallel/workload/l_nasa_ipsc/), %d slots. Waits in seconds. The same jobs run under every policy.", path, slots)
	for i := range all {
		c := &all[i]
		if !c.readme {
			continue
		}
		s.Printf("\n%s; %d jobs, %d of them within the guarantee:\n", c.Title, c.Result.Trace.Jobs, c.Result.Within)
		s.Printf("    %s\n", c.Command)
		s.Printf("| policy | within the guarantee: p95, max wait | the rest: median, p95 wait | useful utilization | work lost | slots evicted ÷ requested |\n|---|---:|---:|---:|---:|---:|")
		for _, o := range c.Result.Policies {
			ratio := "-"
			if o.Requested > 0 {
				ratio = fmt.Sprintf("%d ÷ %d", o.Evicted, o.Requested)
			}
			s.Printf("| %s | %.0f, %.0f | %.0f, %.0f | %.1f %% | %.2f %% | %s |", o.Policy, o.Within.Wait.P95, o.Within.Wait.Max, o.Rest.Wait.Median, o.Rest.Wait.P95,
				100*o.Useful, 100*o.LostShare, ratio)
		}
		writeOmissions(&s, c.Result)
	}
	s.Printf("\nJobs that save their work when they are asked to (30 s to save, 60 s to go on, both counted as lost), two projects, arrivals × 2:\n")
	s.Printf("| jobs that do | work lost | useful utilization | within the guarantee: max wait |\n|---|---:|---:|---:|")
	for i := range all {
		c := &all[i]
		if share := c.Setup.OnDemand.Share; c.section == saving && share > 0 || c.section == twoPools && c.readme {
			o := c.outcome(simulate.PBA)
			s.Printf("| %.0f %% | %.2f %% | %.1f %% | %.0f |", 100*share, 100*o.LostShare, 100*o.Useful, o.Within.Wait.Max)
		}
	}
	return s.Err
}

// writeOmissions writes which jobs are in no figure, or in none of one policy.
func writeOmissions(s *page.Printer, r *simulate.Result) {
	if len(r.Trace.LeftOut) > 0 || cannotRun(r) {
		s.Printf("")
	}
	for _, l := range r.Trace.LeftOut {
		s.Printf("- Left out under all policies: %s (%s): %s.", printable.Count(l.Jobs, "job"), l.Share(), l.Why)
	}
	for _, o := range r.Policies {
		for _, l := range o.CannotRun {
			s.Printf("- Can't run under %s, and in none of its figures: %s (%s): %s.", o.Policy, printable.Count(l.Jobs, "job"), l.Share(), l.Why)
		}
	}
}

func cannotRun(r *simulate.Result) bool {
	for i := range r.Policies {
		if len(r.Policies[i].CannotRun) > 0 {
			return true
		}
	}
	return false
}

func writePage(out io.Writer, path string, all []scene, sweeps []simulate.Sweep, broken []error) error {
	s := page.Printer{Out: out}
	s.Printf("# What guaranteed slots are worth: figures\n")
	if len(broken) == 0 {
		s.Printf("With Allotment no job within the guarantee waited longer than promised, no eviction was useless, and of the recorded jobs the farm did at most one point less useful work than without a guarantee: `make figures TRACE=%s`, which writes this page, fails otherwise.", path)
	} else {
		s.Printf("`make figures TRACE=%s`, which writes this page, failed, as these bounds are not kept:\n", path)
		for _, err := range broken {
			s.Printf("- %s", err)
		}
		s.Printf("")
	}
	s.Printf("The trace is public: %s of the", path)
	s.Printf("[Parallel Workloads Archive](https://www.cs.huji.ac.il/labs/parallel/workload/l_nasa_ipsc/) (NASA Ames iPSC/860, 18,239 jobs of 1993). Its jobs are replayed on one host of %d", slots)
	s.Printf("slots, under virtual time, by the same planner and queue that run a farm. Jobs arrive as densely as recorded, or more so (*arrivals ×*). The recorded submission times are start times: no wait was recorded.\n")
	s.Printf("- **fifo**: no guarantee. **dedicated**: hosts fenced off for the project, where alone its jobs run. **pba**: Allotment with its defaults.")
	s.Printf("- The same jobs run under every policy. What can't run under dedicated is named there, with its share, and is in none of its figures.")
	s.Printf("- All figures are over one window, from the first submission to the last. *Useful* is the window's share of slot-seconds in runs that completed, also after it, and in work that was saved; *lost*, of all others.")
	s.Printf("- *Within the guarantee*: jobs that would start at once on as many slots fenced off for the guarantee (first come, first served); the same jobs for all policies.")
	s.Printf("- *Clock*: the time from the first cycle that saw a job within its allocation and able to start, to its start. Promised: threshold (60 s) + 2 cycles (20 s each), and a cycle more for every %d slots beyond the first %d.", 20, 20)
	s.Printf("- *Widest*: the widest 1 %% of all jobs, those of equal width together.")
	s.Printf("- *Evicted ÷ requested*: slots of preempted jobs, per slot that the waiting job lacked. It is above 1 if only wider jobs could be preempted, since jobs are preempted as a whole.")
	s.Printf("- *Bounded slowdown*: wait and run time divided by run time (of at least 10 s).")
	for i := range all {
		if i == 0 || all[i-1].section != all[i].section {
			s.Printf("\n## %s", all[i].section)
			if text := about(all[i].section); text != "" {
				s.Printf("\n%s", text)
			}
		}
		writeScene(&s, &all[i])
	}
	writeSweeps(&s, sweeps)
	return s.Err
}

// writeScenes writes the scenes alone.
func writeScenes(out io.Writer, all []scene) error {
	s := page.Printer{Out: out}
	for i := range all {
		writeScene(&s, &all[i])
	}
	return s.Err
}

func writeSweeps(s *page.Printer, sweeps []simulate.Sweep) {
	if len(sweeps) > 0 {
		s.Printf("\n## How the defaults were chosen\n")
		s.Printf("Policy pba, %s, one setting varied, all others at their defaults (bold). Waits in seconds, of the jobs within the guarantee.", sweptTitle)
		s.Printf("\n![The same as a chart](%s)", chart)
	}
	for _, w := range sweeps {
		s.Printf("\n| `%s` | p95 wait | max wait | max clock | preemptions | lost | useful | evicted ÷ requested | median wait of the rest |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|", w.Setting)
		for _, p := range w.Points {
			o := &p.Outcome
			mark := ""
			if p.Value == w.Default {
				mark = "**"
			}
			s.Printf("| %s%g%s | %.0f | %.0f | %.0f | %d | %.2f %% | %.1f %% | %.2f | %.0f |", mark, p.Value, mark, o.Within.Wait.P95, o.Within.Wait.Max, o.Within.Clock.Max,
				o.Preemptions, 100*o.LostShare, 100*o.Useful, o.Ratio, o.Rest.Wait.Median)
		}
	}
}

func writeScene(s *page.Printer, c *scene) {
	r := c.Result
	if c.Title != c.section {
		s.Printf("\n### %s", c.Title)
	}
	s.Printf("\n    %s\n", c.Command)
	s.Printf("%d jobs, %s to %s. Within the guarantee: %d jobs. The widest 1 %%: %d slots or more.", r.Trace.Jobs, r.Window.From.Format(time.DateOnly), r.Window.To.Format(time.DateOnly), r.Within, r.Widest)
	writeOmissions(s, r)
	s.Printf("\n| policy | jobs | within: median, p95, max wait | its clock: p95, max | the rest: median, p95, max wait | widest of the rest: median, p95, max wait | bounded slowdown: within, rest |\n|---|---:|---:|---:|---:|---:|---:|")
	for _, o := range r.Policies {
		s.Printf("| %s | %d | %.0f, %.0f, %.0f s | %.0f, %.0f s | %.0f, %.0f, %.0f s | %.0f, %.0f, %.0f s | %.1f, %.1f |", o.Policy, o.Within.Jobs+o.Rest.Jobs, o.Within.Wait.Median, o.Within.Wait.P95, o.Within.Wait.Max,
			o.Within.Clock.P95, o.Within.Clock.Max, o.Rest.Wait.Median, o.Rest.Wait.P95, o.Rest.Wait.Max, o.Rest.Widest.Median, o.Rest.Widest.P95, o.Rest.Widest.Max, o.Within.Slowdown.Mean, o.Rest.Slowdown.Mean)
	}
	s.Printf("\n| policy | utilization | useful | lost | preemptions | of these saved, suspended | evicted ÷ requested slots | useless evictions | seconds under guarantee while a job waited beyond the threshold |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, o := range r.Policies {
		ratio := "-"
		if o.Requested > 0 {
			ratio = fmt.Sprintf("%d ÷ %d = %.2f", o.Evicted, o.Requested, o.Ratio)
		}
		s.Printf("| %s | %.1f %% | %.1f %% | %.2f %% | %d | %d, %d | %s | %d | %.0f |", o.Policy, 100*o.Utilization, 100*o.Useful, 100*o.LostShare, o.Preemptions, o.Saved, o.Suspensions, ratio, o.Useless, o.StarvedSeconds)
	}
	ours := c.outcome(simulate.PBA)
	s.Printf("\nFor each of %d reclaims every possible set of victims was tried: %s frees fewer slots beyond the need.", ours.Checked, cmp.Or(number(ours.Cheaper), "none"))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("one for %d of them", n)
}
