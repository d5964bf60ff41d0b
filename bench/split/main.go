// Command splitbench measures asplit on four hosts whose speeds are 1:2:4:8: nodes of
// a throw-away queue on this machine, each in a cgroup with a quota of processor time.
// It cuts the same work with equal shares, by both rules of adjustment, and has GNU
// parallel dispatch it into the same cgroups; it halves a host's quota half-way; and
// it prints whether the budgets are met. Before that it compares asplit with GNU parallel and
// xargs on one host without a quota. `make bench-split` runs it, as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/test/farm"
)

func main() {
	var o options
	flags := flag.NewFlagSet("splitbench", flag.ExitOnError)
	flags.StringVar(&o.programs, "programs", "bin", "directory of Allotment's programs")
	flags.IntVar(&o.items, "items", 20000, "number of items")
	flags.IntVar(&o.single, "single", 5000, "number of items that are dispatched one by one")
	flags.IntVar(&o.halved, "halved", 6000, "number of items of the runs in which a host's quota is halved half-way")
	flags.DurationVar(&o.round, "round", 5*time.Second, "length of asplit's rounds")
	flags.IntVar(&o.spawned, "spawned", 20000, "number of items that do nothing (workers)")
	flags.IntVar(&o.grants, "grants", 3000, "number of grants (workers)")
	flags.IntVar(&o.tasks, "tasks", 100_000, "number of tasks that spawn nothing (workers)")
	flags.IntVar(&o.crowd, "crowd", 1000, "number of hosts with a worker each (workers)")
	flags.IntVar(&o.pairs, "pairs", 5, "how often what is compared runs, in turn (workers)")
	flags.StringVar(&o.only, "only", "", "run only this part: workers and its parts crowd, tasks, stragglers and resident (only if named), copies (only if named; needs root and Slurm), side, qualify, equal, step, rate, parallel, halved")
	flags.StringVar(&o.reports, "reports", "", "write asplit's reports to this directory")
	_ = flags.Parse(os.Args[1:]) // it exits
	if flags.NArg() > 0 || o.items < 1 || o.spawned < 1 || o.grants < 1 || o.tasks < 1 || o.crowd < 2 || o.pairs < 1 || o.single < 1 || o.halved < 1 || o.round <= 0 {
		flags.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	met, err := true, error(nil)
	switch {
	case o.only == "crowd":
		_, err = measureCrowd(ctx, o.crowd)
	case o.only == "tasks":
		_, err = measureTasks(ctx, &o)
	case o.only == "stragglers":
		met, err = judge(measureStragglers(farm.WithParent(ctx), &o))
	case o.only == "resident":
		met, err = judge(measureResident(farm.WithParent(ctx), &o))
	case o.only == "copies":
		met, err = measureCopies(farm.WithParent(ctx), &o)
	case o.only == "workers":
		met, err = standing(farm.WithParent(ctx), &o)
	case o.wants("side"):
		met, err = sideBySide(farm.WithParent(ctx), o.programs)
	}
	if err == nil && !slices.Contains([]string{"side", "workers", "crowd", "tasks", "stragglers", "resident", "copies"}, o.only) {
		quotas := false
		quotas, err = measure(farm.WithParent(ctx), o)
		met = met && (quotas || errors.Is(err, errNoCgroup))
	}
	if errors.Is(err, errNoCgroup) {
		fmt.Println("skip:", err)
		err = nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "splitbench:", err)
	}
	if err != nil || !met {
		stop()
		os.Exit(1)
	}
}

type options struct {
	programs               string
	items, single, halved  int
	spawned, grants, pairs int
	tasks, crowd           int
	round                  time.Duration
	only, reports          string
}

func (o *options) wants(part string) bool { return o.only == "" || o.only == part }
