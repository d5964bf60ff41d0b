// Command replay plays the beginning of a recorded trace with real processes,
// once without pba and once with it, and compares how long the jobs waited.
// `make replay TRACE=FILE` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
)

// defaultRest makes the other users' load heavy enough for user 4 of the NASA iPSC trace.
// As recorded, user 4 runs so much beside its 32 slots that the slots that it frees are
// enough, at any density of arrivals (3 to 12 were tried): nothing has to be reclaimed.
// With 6 copies of the others' jobs (94 % of the slots) one job is preempted, with 8
// (121 %) about six are.
const defaultRest = 8

func main() {
	if len(os.Args) == 4 && os.Args[1] == "job" {
		os.Exit(job(os.Args[2], os.Args[3]))
	}
	var o options
	flags := flag.NewFlagSet("replay", flag.ExitOnError)
	flags.Float64Var(&o.arrivals, "arrivals", 3, "the time between two submissions is divided by this")
	flags.IntVar(&o.rest, "rest", defaultRest, "number of times that each job of the other users is submitted; 1: the trace as recorded")
	flags.Float64Var(&o.speed, "speed", 600, "all times are divided by this")
	flags.IntVar(&o.jobs, "jobs", 400, "number of jobs, the first of the trace")
	flags.IntVar(&o.widest, "widest", 32, "leave out jobs with more slots")
	flags.IntVar(&o.user, "user", 4, "the user whose project has a guarantee")
	flags.IntVar(&o.guarantee, "guarantee", 32, "slots of that guarantee")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: replay [options] FILE.swf[.gz]")
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // it exits
	if flags.NArg() != 1 || o.arrivals <= 0 || o.speed <= 0 || o.jobs < 1 || o.rest < 1 || o.guarantee < 1 {
		flags.Usage()
		os.Exit(2)
	}
	o.trace = flags.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := compare(farm.WithParent(ctx), os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		stop()
		os.Exit(1)
	}
}

// job is the program of the jobs, which waits. An element of an array has a diary of its
// own.
func job(path, duration string) int {
	if index := os.Getenv("LSB_JOBINDEX"); index != "" && index != "0" {
		path += "." + index
	}
	return diary.Main(path, duration, false)
}
