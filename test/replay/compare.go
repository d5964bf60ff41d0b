package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

// compare plays the trace on two farms side by side, so that the machine's other load is
// the same for both, and prints how long the jobs waited.
func compare(ctx context.Context, out io.Writer, o options) error {
	jobs, err := load(o)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	group, err := farm.OwnGroup()
	if err != nil {
		return err
	}
	describe(out, o, jobs)
	var mu sync.Mutex
	printf := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	plays := []*play{{name: "without pba"}, {name: "with pba", rebalances: true}}
	errs := make([]error, len(plays))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, p := range plays {
		p.jobs, p.printf, p.actions = slices.Clone(jobs), printf, map[string]int{}
		wg.Go(func() {
			if errs[i] = p.run(ctx, o, group, self); errs[i] != nil {
				cancel() // the other one is useless without it
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return report(out, o, plays[0], plays[1])
}

func describe(out io.Writer, o options, jobs []played) {
	var recorded, played, last time.Duration
	for _, j := range jobs {
		work := j.takes * time.Duration(j.slots)
		played += work
		if j.copies > 0 {
			recorded += work
		}
		last = max(last, j.at+j.takes)
	}
	percent := func(work time.Duration) float64 { return 100 * work.Seconds() / (last.Seconds() * slots) }
	fmt.Fprintf(out, "The first %d jobs of at most %d slots in %s, as real processes on one host of %d slots.\n", o.jobs, o.widest, o.trace, slots)
	fmt.Fprintf(out, "All times / %g, arrivals x %g (the time between two submissions is divided by that once more). Undisturbed they take\n", o.speed, o.arrivals)
	fmt.Fprintf(out, "%.0f s and fill %.0f %% of the slots.", last.Seconds(), percent(recorded))
	if o.rest > 1 {
		fmt.Fprintf(out, " Each job of another user than user %d is submitted %d times: %d jobs, %.0f %%.", o.user, o.rest, len(jobs), percent(played))
	}
	fmt.Fprintf(out, "\nUser %d's project holds %d slots; threshold %v, cycle %v. Two farms side by side, without pba and with it:\n", o.user, o.guarantee, threshold, cycle)
}

// outcome has the figures of one job.
type outcome struct {
	user     int
	wait     time.Duration // from submission to the start of the run that came to its end
	within   bool          // the guarantee had room for it before it started
	due      time.Duration // from then to its start
	requeues int
	lost     time.Duration // slots × time of the runs that did not come to their end
}

// outcomes returns the jobs' outcomes, by their diaries.
func outcomes(o options, jobs []played) []outcome {
	all := make([]outcome, len(jobs))
	for i, j := range jobs {
		start := j.Runs[len(j.Runs)-1].Start
		f := outcome{user: j.user, requeues: len(j.Runs) - 1, wait: start.Sub(j.submitted)}
		for _, r := range j.Runs[:len(j.Runs)-1] {
			f.lost += r.Total() * time.Duration(j.slots)
		}
		if room, ok := roomFor(o, jobs, i); ok && !room.After(start) {
			f.within, f.due = true, start.Sub(room)
		}
		all[i] = f
	}
	return all
}

// roomFor returns when, from its submission on, the guarantee first had room for a job
// beside its user's earlier jobs that had not ended; false: never.
func roomFor(o options, jobs []played, i int) (time.Time, bool) {
	j := &jobs[i]
	if j.user != o.user {
		return time.Time{}, false
	}
	var ends []*played
	left := o.guarantee - j.slots
	for k := range jobs[:i] {
		if e := &jobs[k]; e.user == j.user && e.end().After(j.submitted) {
			ends = append(ends, e)
			left -= e.slots
		}
	}
	slices.SortFunc(ends, func(x, y *played) int { return x.end().Compare(y.end()) })
	at := j.submitted
	for _, e := range ends {
		if left >= 0 {
			break
		}
		left += e.slots
		at = e.end()
	}
	return at, left >= 0
}

// row is a line of a table.
type row struct {
	label                  string
	jobs, requeued         int
	median, p95, max, lost time.Duration
}

func rowOf(label string, all []outcome, of func(*outcome) bool, waitOf func(*outcome) time.Duration) row {
	r := row{label: label}
	var waits []time.Duration
	for i := range all {
		f := &all[i]
		if !of(f) {
			continue
		}
		r.jobs++
		waits = append(waits, waitOf(f))
		r.lost += f.lost
		if f.requeues > 0 {
			r.requeued++
		}
	}
	if len(waits) == 0 {
		return r
	}
	r.median, r.p95, r.max = quantile.Median(waits), quantile.Of(waits, 95), slices.Max(waits)
	return r
}

func table(out io.Writer, o options, title string, all []outcome) {
	fmt.Fprintf(out, "\nWaits %s, in seconds\n", title)
	fmt.Fprintf(out, "%-30s %5s %8s %8s %8s %9s %18s\n", "", "jobs", "median", "p95", "max", "requeued", "slot-seconds lost")
	user := fmt.Sprintf("user %d", o.user)
	for _, r := range []row{
		rowOf(user+" within its guarantee", all, func(f *outcome) bool { return f.within }, func(f *outcome) time.Duration { return f.due }),
		rowOf(user, all, func(f *outcome) bool { return f.user == o.user }, func(f *outcome) time.Duration { return f.wait }),
		rowOf("the rest", all, func(f *outcome) bool { return f.user != o.user }, func(f *outcome) time.Duration { return f.wait }),
	} {
		fmt.Fprintf(out, "%-30s %5d %8.2f %8.2f %8.2f %9d %18.1f\n", r.label, r.jobs, r.median.Seconds(), r.p95.Seconds(), r.max.Seconds(), r.requeued, r.lost.Seconds())
	}
}

// waited is a wait that is longer than a submission takes.
const waited = time.Second

// report prints both tables. It returns an error if they show nothing.
func report(out io.Writer, o options, without, with *play) error {
	before, after := outcomes(o, without.jobs), outcomes(o, with.jobs)
	table(out, o, without.name, before)
	table(out, o, with.name, after)
	fmt.Fprintln(out, "\nA wait lasts from a job's submission to the start of the run that came to its end. Within the guarantee it")
	fmt.Fprintln(out, "lasts only from when the user's earlier jobs left room for it; a job that started before that does not count.")
	const promise = threshold + 2*cycle
	count := func(all []outcome, of func(*outcome) bool) (n int) {
		for i := range all {
			if of(&all[i]) {
				n++
			}
		}
		return n
	}
	late := func(f *outcome) bool { return f.within && f.due > promise }
	fmt.Fprintf(out, "Within the guarantee, but waited longer than %v (threshold + 2 cycles): %d without pba, %d with it.\n", promise, count(before, late), count(after, late))
	fmt.Fprintf(out, "What pba did: %s.\n", counted(with.actions))
	denser := fmt.Sprintf("load it more: go run ./test/replay --rest %d --arrivals %g FILE", 2*o.rest, o.arrivals)
	switch {
	case !slices.ContainsFunc(before, func(f outcome) bool { return f.wait > waited }):
		return fmt.Errorf("no job waited for more than %v: %s", waited, denser)
	case count(after, func(f *outcome) bool { return f.requeues > 0 }) == 0:
		return fmt.Errorf("nothing was reclaimed: %s", denser)
	case count(before, func(f *outcome) bool { return f.requeues > 0 }) > 0:
		return errors.New("jobs were requeued without pba")
	}
	for _, p := range []*play{without, with} {
		var tallies []judge.Tally
		for i := range p.jobs {
			tally := p.jobs[i].Tally()
			tally.Name = fmt.Sprintf("job %d", p.jobs[i].number)
			tallies = append(tallies, tally)
		}
		if wrong := judge.EndedOnce(tallies); len(wrong) > 0 {
			return fmt.Errorf("%s: %s", p.name, strings.Join(wrong, ", "))
		}
	}
	return nil
}

// counted returns each verb with how often it was done.
func counted(did map[string]int) string {
	var list []string
	for _, verb := range slices.Sorted(maps.Keys(did)) {
		list = append(list, fmt.Sprintf("%d x %s", did[verb], verb))
	}
	return strings.Join(list, ", ")
}
