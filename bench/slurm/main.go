// Command slurmbench measures what pba costs on a real Slurm, and reports whether
// the budgets are met: a whole cycle against squeue's own time for the same list, and
// sbatch with our submit filter against sbatch without. Both sides are measured
// in turn, in one run, on throw-away clusters. `make bench-slurm` runs it, as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
)

func main() {
	if is, err := runAsStandIn(); is { // it returns only after an error
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var o options
	flags := flag.NewFlagSet("slurmbench", flag.ExitOnError)
	flags.StringVar(&o.programs, "programs", "bin", "directory of Allotment's programs")
	flags.IntVar(&o.pending, "pending", 10000, "number of pending jobs, a fifth of them entitled")
	flags.IntVar(&o.projects, "projects", 200, "number of projects")
	flags.IntVar(&o.rounds, "rounds", 9, "number of rounds: each figure is their median")
	flags.IntVar(&o.submissions, "submissions", 200, "number of submissions of each kind")
	_ = flags.Parse(os.Args[1:]) // it exits
	if flags.NArg() > 0 || o.projects < changes || o.pending < 5*o.projects*2 || o.rounds < 1 || o.submissions < 1 {
		flags.Usage()
		os.Exit(2)
	}
	if missing := cluster.Missing(); missing != "" {
		fmt.Println("skip:", missing)
		if os.Getenv(cluster.Required) == "1" {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	met, err := bench(farm.WithParent(ctx), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurmbench:", err)
	}
	if err != nil || !met {
		stop()
		os.Exit(1)
	}
}

type options struct {
	programs            string
	pending, projects   int
	rounds, submissions int
}

// bench takes both measures in a directory of its own, and removes it.
func bench(ctx context.Context, o options) (met bool, err error) {
	if o.programs, err = filepath.Abs(o.programs); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "allotment-bench-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // Slurm's own user reads the filter
		return false, err
	}
	if err := printMachine(o); err != nil {
		return false, err
	}
	s := &testSite{options: o, dir: dir, home: filepath.Join(dir, "allotment")}
	cycles, err := s.measureCycles(ctx)
	if err != nil {
		return false, fmt.Errorf("a whole cycle: %w", err)
	}
	submissions, err := s.measureSubmissions(ctx)
	if err != nil {
		return false, fmt.Errorf("submissions: %w", err)
	}
	fmt.Println("\nbudgets")
	return judge(cycles, submissions), nil
}
