// Command queues compares the bundled queue with a real Slurm and with
// task-spooler, on this machine, with the same number of slots, in one run, and
// prints whether the bundled queue meets its budgets. `make bench-queue` runs it.
//
// A queue that is not installed is skipped with a line; budgets that need it are then
// not judged.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/allotment-hpc/allotment/test/farm"
)

func main() {
	var o options
	flags := flag.NewFlagSet("queues", flag.ExitOnError)
	flags.StringVar(&o.programs, "programs", "bin", "directory of Allotment's programs")
	flags.IntVar(&o.jobs, "jobs", 2000, "number of jobs that are timed from the first submission to the last end")
	flags.IntVar(&o.pending, "pending", 10000, "number of pending jobs that are listed")
	flags.IntVar(&o.rounds, "rounds", 5, "number of rounds: each figure is their median")
	flags.StringVar(&o.only, "only", "", "run only this part: submit, run, list, asub, scale, pause, ended")
	flags.BoolVar(&o.alone, "alone", false, "measure miniq only, without the other queues")
	_ = flags.Parse(os.Args[1:]) // it exits
	if flags.NArg() > 0 || o.jobs < 1 || o.pending < 1 || o.rounds < 1 {
		flags.Usage()
		os.Exit(2)
	}
	if o.below = os.Getenv("TMPDIR"); o.below == "" { // /tmp is in memory on some machines, and deleted files of others fill it on a busy one
		o.below = "/var/tmp"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	met, err := compare(farm.WithParent(ctx), os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "queues:", err)
	}
	if err != nil || !met {
		stop()
		os.Exit(1)
	}
}
