package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/test/internal/farm"
)

// compare plays the trace on two farms side by side, so that what else the
// machine does is the same for both, and prints what became of the jobs.
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
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
	plays := []*play{{name: "without pba"}, {name: "with pba", helped: true}}
	errs := make([]error, len(plays))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, p := range plays {
		p.jobs, p.say, p.did = slices.Clone(jobs), say, map[string]int{}
		wg.Go(func() {
			if errs[i] = p.run(ctx, o, group, self); errs[i] != nil {
				cancel() // the other one is of no use without it
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
	var work, last time.Duration
	for _, j := range jobs {
		work += j.takes * time.Duration(j.slots)
		last = max(last, j.at+j.takes)
	}
	fmt.Fprintf(out, "The first %d jobs of at most %d slots in %s, as real processes on one host of %d slots:\n", o.jobs, o.widest, o.trace, slots)
	fmt.Fprintf(out, "all times / %g, arrivals x %g (the time between two submissions is divided by that once more).\n", o.speed, o.arrivals)
	if o.rest > 1 {
		fmt.Fprintf(out, "Each job of another user than user %d is submitted %d times, which makes %d jobs.\n", o.user, o.rest, len(jobs))
	}
	fmt.Fprintf(out, "Undisturbed they take %.0f s and fill %.0f %% of the slots. User %d's project holds %d slots; threshold %v, cycle %v.\n",
		last.Seconds(), 100*work.Seconds()/(last.Seconds()*slots), o.user, o.guarantee, threshold, cycle)
	fmt.Fprintln(out, "Two farms side by side, without pba and with it:")
}

// fate is what became of a job.
type fate struct {
	user     int
	within   bool          // submitted when its user's jobs left it room in the guarantee
	wait     time.Duration // from submission to the start of the run that came to its end
	requeues int
	lost     time.Duration // slots × time of the runs that didn't
}

// fates are read from the diaries.
func fates(o options, jobs []played) []fate {
	all := make([]fate, len(jobs))
	for i, j := range jobs {
		f := fate{user: j.user, requeues: len(j.Runs) - 1, wait: j.Runs[len(j.Runs)-1].Start.Sub(j.submitted)}
		for _, r := range j.Runs[:len(j.Runs)-1] {
			f.lost += r.Total() * time.Duration(j.slots)
		}
		held := j.slots
		for _, earlier := range jobs[:i] {
			if earlier.user == j.user && earlier.Runs[len(earlier.Runs)-1].End.After(j.submitted) {
				held += earlier.slots
			}
		}
		f.within = j.user == o.user && held <= o.guarantee
		all[i] = f
	}
	return all
}

// row is a line of a table.
type row struct {
	who                    string
	jobs, requeued         int
	median, p95, max, lost time.Duration
}

func rowOf(who string, all []fate, of func(*fate) bool) row {
	r := row{who: who}
	var waits []time.Duration
	for i := range all {
		f := &all[i]
		if !of(f) {
			continue
		}
		r.jobs++
		waits = append(waits, f.wait)
		r.lost += f.lost
		if f.requeues > 0 {
			r.requeued++
		}
	}
	if len(waits) == 0 {
		return r
	}
	slices.Sort(waits)
	r.median, r.p95, r.max = waits[(len(waits)-1)/2], waits[(len(waits)*95+99)/100-1], waits[len(waits)-1]
	return r
}

func table(out io.Writer, o options, title string, all []fate) {
	fmt.Fprintf(out, "\nWaits %s, in seconds\n", title)
	fmt.Fprintf(out, "%-30s %5s %8s %8s %8s %9s %18s\n", "", "jobs", "median", "p95", "max", "requeued", "slot-seconds lost")
	user := fmt.Sprintf("user %d", o.user)
	for _, r := range []row{
		rowOf(user+" within its guarantee", all, func(f *fate) bool { return f.within }),
		rowOf(user, all, func(f *fate) bool { return f.user == o.user }),
		rowOf("the rest", all, func(f *fate) bool { return f.user != o.user }),
	} {
		fmt.Fprintf(out, "%-30s %5d %8.2f %8.2f %8.2f %9d %18.1f\n", r.who, r.jobs, r.median.Seconds(), r.p95.Seconds(), r.max.Seconds(), r.requeued, r.lost.Seconds())
	}
}

// waited is how long a job must wait that more than its submission took time.
const waited = time.Second

// report prints both tables, and fails if they show nothing.
func report(out io.Writer, o options, without, with *play) error {
	before, after := fates(o, without.jobs), fates(o, with.jobs)
	table(out, o, without.name, before)
	table(out, o, with.name, after)
	fmt.Fprintln(out, "\nA wait is the time from a job's submission to the start of the run that came to its end. A job is within the")
	fmt.Fprintln(out, "guarantee if it was submitted when its user's earlier jobs left it room there.")
	const promise = threshold + 2*cycle
	count := func(all []fate, of func(*fate) bool) (n int) {
		for i := range all {
			if of(&all[i]) {
				n++
			}
		}
		return n
	}
	late := func(f *fate) bool { return f.within && f.wait > promise }
	fmt.Fprintf(out, "Within the guarantee, but waited longer than %v (threshold + 2 cycles): %d without pba, %d with it.\n", promise, count(before, late), count(after, late))
	fmt.Fprintf(out, "What pba did: %v\n", with.did)
	denser := fmt.Sprintf("load it more, with --rest %d or --arrivals %g", 2*o.rest, 2*o.arrivals)
	switch {
	case !slices.ContainsFunc(before, func(f fate) bool { return f.wait > waited }):
		return fmt.Errorf("nobody waited for more than %v: %s", waited, denser)
	case count(after, func(f *fate) bool { return f.requeues > 0 }) == 0:
		return fmt.Errorf("nothing was reclaimed: %s", denser)
	case count(before, func(f *fate) bool { return f.requeues > 0 }) > 0:
		return errors.New("jobs were requeued without pba")
	}
	for _, p := range []*play{without, with} {
		for i := range p.jobs {
			if j := &p.jobs[i]; j.Ends != 1 {
				return fmt.Errorf("%s: job %d ended %d times", p.name, j.number, j.Ends)
			}
		}
	}
	return nil
}
