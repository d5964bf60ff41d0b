// Command figures simulates a recorded trace, checks that the engine keeps its
// promises, and writes what guaranteed slots are worth there into docs/figures.md.
// `make figures TRACE=FILE` runs it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
	charts "github.com/allotment-hpc/allotment/pba/simulate/page"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	figures := flag.String("page", "docs/figures.md", "the page that is written; the sweeps' chart lies beside it")
	readme := flag.String("readme", "README.md", "the page whose tables, between its two marks, are replaced")
	data := flag.String("json", "", "write the results, for charts, to this file")
	noSweep := flag.Bool("no-sweep", false, "simulate the three scenes only")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: figures [-page FILE] [-readme FILE] [-json FILE] [-no-sweep] TRACE")
		os.Exit(2)
	}
	if err := run(ctx, flag.Arg(0), *figures, *readme, *data, *noSweep); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

const slots = 128

// chart is the sweeps' file, beside the page.
const chart = "figures-sweeps.svg"

// scene is one of the comparisons.
type scene struct {
	Title   string
	Command string // that shows the same
	Setup   simulate.Setup
	Result  *simulate.Result
	oneSlot bool
}

func scenes(path string) []scene {
	const same = "pba simulate --trace %s --farm 128 --guarantee user:7=32%s --scale-arrivals %d%s"
	user := func(name string, slots int) simulate.PlanEntry {
		return simulate.PlanEntry{Allocation: plan.Allocation{Project: name, Guarantee: slots}}
	}
	base := simulate.Setup{
		Hosts: []backends.Host{{Name: "farm", Slots: slots}}, Plan: []simulate.PlanEntry{user("7", 32)}, By: byUser("7"),
		Policy: settings.Default().Policy(), Reserve: 10 * time.Minute, Seed: 1, ScaleArrivals: 2, Buckets: 240, Check: true,
		Policies: []string{simulate.FIFO, simulate.Dedicated, simulate.PBA},
		Filter: esub.Settings{
			Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true,
		},
	}
	two, one := base, base
	two.Plan, two.By = []simulate.PlanEntry{user("7", 32), user("4", 64)}, byUser("7", "4")
	one.OneSlot, one.First, one.ScaleArrivals = true, 3000, 4
	return []scene{
		{Title: "One project: user 7 holds 32 of 128 slots", Command: fmt.Sprintf(same, path, "", 2, ""), Setup: base},
		{Title: "Two projects: user 4 holds 64 beside it", Command: fmt.Sprintf(same, path, " --guarantee user:4=64", 2, ""), Setup: two},
		{Title: "One-slot jobs: the first 3,000, each job of n slots as n jobs of one", Command: fmt.Sprintf(same, path, "", 4, " --first 3000 --one-slot"), Setup: one, oneSlot: true},
	}
}

// byUser selects users' jobs, each as a project of the user's name.
func byUser(names ...string) []simulate.Selector {
	var all []simulate.Selector
	for _, name := range names {
		all = append(all, simulate.Selector{Kind: simulate.ByUser, Name: name, Project: name})
	}
	return all
}

func run(ctx context.Context, path, figures, readme, data string, noSweep bool) error {
	store, format, err := readTrace(path)
	if err != nil {
		return err
	}
	defer store.Close()
	all := scenes(filepath.Base(path))
	var broken []error
	for i := range all {
		s := &all[i]
		s.Setup.Trace, s.Setup.Format, s.Setup.Name = store, format, filepath.Base(path)
		began := time.Now()
		if s.Result, err = simulate.Run(ctx, s.Setup); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d jobs, %v\n", s.Title, s.Result.Trace.Jobs, time.Since(began).Round(time.Millisecond))
		broken = append(broken, s.check()...)
	}
	var sweeps []simulate.Sweep
	if !noSweep {
		if sweeps, err = sweep(ctx, all[0].Setup); err != nil {
			return err
		}
	}
	if err := page.Write(figures, func(out io.Writer) error { return writePage(out, filepath.Base(path), all, sweeps) }); err != nil {
		return err
	}
	if len(sweeps) > 0 {
		if err := page.Write(filepath.Join(filepath.Dir(figures), chart), func(out io.Writer) error { return charts.WriteSweeps(out, sweeps) }); err != nil {
			return err
		}
	}
	if err := page.Replace(readme, "make figures", func(out io.Writer) error { return writeTables(out, filepath.Base(path), all) }); err != nil {
		return err
	}
	if data != "" {
		err := page.Write(data, func(out io.Writer) error {
			return json.NewEncoder(out).Encode(struct {
				Scenes []scene
				Sweeps []simulate.Sweep
			}{all, sweeps})
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(broken...)
}

func readTrace(path string) (*trace.Store, trace.Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	format, records, err := trace.Open(f, time.UTC)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	store := new(trace.Store)
	if err := store.Fill(records, 0); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return store, format, nil
}

// writeTables writes the tables alone, for the README.
func writeTables(out io.Writer, path string, all []scene) error {
	s := page.Printer{Out: out}
	s.Printf("Trace: `%s` of the [Parallel Workloads Archive](https://www.cs.huji.ac.il/labs/parallel/workload/l_nasa_ipsc/), %d slots. Waits in seconds.", path, slots)
	for i := range all {
		c := &all[i]
		s.Printf("\n%s; %d jobs, arrivals × %g, %d of them within the guarantee:\n", c.Title, c.Result.Trace.Jobs, c.Result.Settings.ScaleArrivals, c.Result.Within)
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
	}
	return s.Err
}

// check returns the properties of a correct engine that the scene breaks.
func (s *scene) check() []error {
	var broken []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Errorf("%s: %s", s.Title, fmt.Sprintf(format, args...)))
		}
	}
	fifo, dedicated, ours := &s.Result.Policies[0], &s.Result.Policies[1], &s.Result.Policies[2]
	want(ours.Within.OverPromise == 0, "%d jobs within the guarantee waited beyond the promise (longest by the guarantee's clock: %.0f s; put off by max_victims_per_project: %d)",
		ours.Within.OverPromise, ours.Within.Clock.Max, ours.Within.PutOff)
	want(ours.Useful >= fifo.Useful-0.02, "useful utilization is %.1f %%, without a guarantee %.1f %%", 100*ours.Useful, 100*fifo.Useful)
	want(ours.Checked > 0, "no reclaim was compared with other sets of victims")
	want(ours.Cheaper == 0, "%d of %d reclaims freed more slots beyond the need than they had to", ours.Cheaper, ours.Checked)
	want(ours.Useless == 0, "%d useless evictions", ours.Useless)
	if s.oneSlot {
		want(ours.Requested > 0 && ours.Requested == ours.Evicted, "%d slots were evicted for %d that were requested", ours.Evicted, ours.Requested)
		want(ours.Useful >= dedicated.Useful+0.05, "useful utilization is %.1f %%, dedicated %.1f %%: not 5 points more", 100*ours.Useful, 100*dedicated.Useful)
	}
	return broken
}

// sweep varies one setting at a time.
func sweep(ctx context.Context, base simulate.Setup) ([]simulate.Sweep, error) {
	base.Policies, base.Check, base.Buckets = []string{simulate.Dedicated, simulate.PBA}, false, 0
	defaults := base.Policy
	settings := []struct {
		name   string
		is     float64
		values []float64
		set    func(p *plan.Policy, value float64)
	}{
		{"pending_threshold", defaults.PendingThreshold.Seconds(), []float64{20, 40, 60, 120, 300, 600}, func(p *plan.Policy, v float64) { p.PendingThreshold = seconds(v) }},
		{"min_runtime", defaults.MinRuntime.Seconds(), []float64{0, 30, 60, 120, 300, 600}, func(p *plan.Policy, v float64) { p.MinRuntime = seconds(v) }},
		{"headroom", defaults.Headroom, []float64{0, 0.5, 1, 1.5, 2, 3, 5}, func(p *plan.Policy, v float64) { p.Headroom = v }},
	}
	var all []simulate.Sweep
	for _, setting := range settings {
		s := simulate.Sweep{Setting: setting.name, Default: setting.is}
		for _, value := range setting.values {
			varied := base
			setting.set(&varied.Policy, value)
			// Dedicated serves only to choose the jobs that are left out, alike for all values.
			r, err := simulate.Run(ctx, varied)
			if err != nil {
				return nil, err
			}
			s.Points = append(s.Points, simulate.SweepPoint{Value: value, Outcome: r.Policies[1]})
		}
		all = append(all, s)
	}
	return all, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func writePage(out io.Writer, path string, all []scene, sweeps []simulate.Sweep) error {
	s := page.Printer{Out: out}
	s.Printf("# What guaranteed slots are worth: figures\n")
	s.Printf("With Allotment no job within the guarantee waited longer than promised, and the farm did at most two points less useful work than without a guarantee: `make figures TRACE=%s`, which writes this page, fails otherwise. The trace is public: %s of the", path, path)
	s.Printf("[Parallel Workloads Archive](https://www.cs.huji.ac.il/labs/parallel/workload/l_nasa_ipsc/) (NASA Ames iPSC/860, 18,239 jobs of 1993). Its jobs are replayed on one host of %d", slots)
	s.Printf("slots, under virtual time, by the same planner and queue that run a farm. Jobs arrive more densely than recorded (*arrivals ×*). The recorded submission times are start times: no wait was recorded.\n")
	s.Printf("- **fifo**: no guarantee. **dedicated**: hosts fenced off for the project, where alone its jobs run. **pba**: Allotment with its defaults.")
	s.Printf("- All figures are over one window, from the first submission to the last. *Useful* is the window's share of slot-seconds in runs that completed, also after it; *lost*, in runs that were preempted.")
	s.Printf("- *Within the guarantee*: jobs that would start at once on as many slots fenced off for the guarantee (first come, first served); the same jobs for all policies.")
	s.Printf("- *Clock*: the time from the first cycle that saw a job within its allocation and able to start, to its start. Promised: threshold (60 s) + 2 cycles (20 s each), and a cycle more for every %d slots beyond the first %d.", 20, 20)
	s.Printf("- *Evicted ÷ requested*: slots of preempted jobs, per slot that the waiting job lacked. It is above 1 if only wider jobs could be preempted, since jobs are preempted as a whole.")
	s.Printf("- *Bounded slowdown*: wait and run time divided by run time (of at least 10 s).")
	for i := range all {
		writeScene(&s, &all[i])
	}
	if len(sweeps) > 0 {
		s.Printf("\n## How the defaults were chosen\n")
		s.Printf("Policy pba for the first case above, one setting varied, all others at their defaults (bold). Waits in seconds, of the jobs within the guarantee.")
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
	return s.Err
}

func writeScene(s *page.Printer, c *scene) {
	r := c.Result
	s.Printf("\n## %s\n", c.Title)
	s.Printf("    %s\n", c.Command)
	s.Printf("%d jobs, arrivals × %g, %s to %s. Within the guarantee: %d jobs.", r.Trace.Jobs, r.Settings.ScaleArrivals,
		r.Window.From.Format(time.DateOnly), r.Window.To.Format(time.DateOnly), r.Within)
	for _, l := range r.Trace.LeftOut {
		s.Printf("Left out for all three: %d jobs %s.", l.Jobs, l.Why)
	}
	s.Printf("\n| policy | within: median, p95, max wait | its clock: p95, max | the rest: median, p95, max wait | bounded slowdown: within, rest |\n|---|---:|---:|---:|---:|")
	for _, o := range r.Policies {
		s.Printf("| %s | %.0f, %.0f, %.0f s | %.0f, %.0f s | %.0f, %.0f, %.0f s | %.1f, %.1f |", o.Policy, o.Within.Wait.Median, o.Within.Wait.P95, o.Within.Wait.Max,
			o.Within.Clock.P95, o.Within.Clock.Max, o.Rest.Wait.Median, o.Rest.Wait.P95, o.Rest.Wait.Max, o.Within.Slowdown.Mean, o.Rest.Slowdown.Mean)
	}
	s.Printf("\n| policy | utilization | useful | lost | preemptions | evicted ÷ requested slots | useless evictions | seconds under guarantee while a job waited beyond the threshold |\n|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, o := range r.Policies {
		ratio := "-"
		if o.Requested > 0 {
			ratio = fmt.Sprintf("%d ÷ %d = %.2f", o.Evicted, o.Requested, o.Ratio)
		}
		s.Printf("| %s | %.1f %% | %.1f %% | %.2f %% | %d | %s | %d | %.0f |", o.Policy, 100*o.Utilization, 100*o.Useful, 100*o.LostShare, o.Preemptions, ratio, o.Useless, o.StarvedSeconds)
	}
	ours := &r.Policies[len(r.Policies)-1]
	s.Printf("\nFor each of %d reclaims every possible set of victims was tried: %s frees fewer slots beyond the need.", ours.Checked, cmp.Or(number(ours.Cheaper), "none"))
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("one for %d of them", n)
}
