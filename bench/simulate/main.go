// Command simulate measures a simulation of a long queue, and fails if it costs more than its
// budget. `make bench-simulate` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/bench/made"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// The budget, for all jobs and the three policies.
const (
	jobs      = 188_041
	maxTime   = 120 * time.Second // of one processor
	maxMemory = 500 << 20
)

func main() {
	n := flag.Int("jobs", jobs, "number of jobs; the budget is for the default")
	write := flag.String("write", "", "write the trace to this file (SWF), and simulate nothing")
	profile := flag.String("profile", "", "write a profile of the processor to this file")
	policy := flag.String("policy", "", "simulate this policy alone")
	flag.Parse()
	if err := run(*n, *write, *profile, *policy); err != nil {
		fmt.Fprintln(os.Stderr, "bench-simulate:", err)
		os.Exit(1)
	}
}

func run(n int, write, profile, policy string) error {
	records := made.LongQueue(n)
	if write != "" {
		f, err := os.Create(write)
		if err != nil {
			return err
		}
		defer f.Close()
		return made.WriteSWF(f, records)
	}
	runtime.GOMAXPROCS(1)
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	store, err := made.Store(records)
	if err != nil {
		return err
	}
	defer store.Close()
	policies := []string{simulate.PBA, simulate.FIFO, simulate.Dedicated}
	if policy != "" {
		policies = []string{policy}
	}
	for _, p := range policies {
		before, _, err := used()
		if err != nil {
			return err
		}
		r, err := simulate.Run(context.Background(), setup(store, p))
		if err != nil {
			return err
		}
		after, _, err := used()
		if err != nil {
			return err
		}
		o := &r.Policies[0]
		fmt.Printf("%-9s %d jobs: %.1f s of processor time, %d cycles, %d skipped, %d preempted\n", p, r.Trace.Jobs, (after - before).Seconds(), o.Cycles, o.Skipped, o.Preemptions)
	}
	spent, memory, err := used()
	if err != nil {
		return err
	}
	fmt.Printf("in all: %.1f s of processor time, %d MiB\n", spent.Seconds(), memory>>20)
	if n == jobs && policy == "" && (spent > maxTime || memory > maxMemory) {
		return fmt.Errorf("the budget is %.0f s and %d MiB", maxTime.Seconds(), maxMemory>>20)
	}
	return nil
}

func setup(store *trace.Store, policy string) simulate.Setup {
	return simulate.Setup{
		Trace: store, Name: "long queue", Hosts: []backends.Host{{Name: "farm", Slots: 500}}, By: []simulate.Selector{{Kind: simulate.ByUser, Name: "7", Project: "7"}},
		Plan:   []simulate.PlanEntry{{Allocation: plan.Allocation{Project: "7", Guarantee: 80}}},
		Policy: settings.Default().Policy(), Reserve: 10 * time.Minute, Seed: 1, Buckets: 240, Policies: []string{policy},
		Filter: esub.Settings{Config: esub.DefaultConfig(), NextInLine: backends.At(backends.LevelNext, backends.DefaultValue), SuspendFrees: true},
	}
}

// used returns the processor time and the most memory that this process has used.
func used() (time.Duration, int64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Maxrss << 10, nil
}
