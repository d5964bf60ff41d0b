// Command compare gives a project its slots by Slurm's own means and by Allotment, on
// throw-away Slurm clusters with the same jobs, and writes what became of them into
// docs/slurm.md. `make compare-slurm` runs it, as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/allotment-hpc/allotment/bench/page"
	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/farm"
)

func main() {
	var o options
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	flags.StringVar(&o.programs, "programs", "bin", "directory of Allotment's programs")
	flags.StringVar(&o.page, "page", "docs/slurm.md", "the page whose tables, between two marks, are replaced; \"\": none, they are printed")
	flags.StringVar(&o.records, "records", "", "keep what sacct printed in this directory; runs that are there already are not repeated")
	flags.StringVar(&o.only, "policy", "", "run this policy alone, and print the tables")
	flags.IntVar(&o.seeds, "seeds", 5, "number of runs of each policy with each background")
	flags.IntVar(&o.parallel, "parallel", 17, "number of clusters side by side")
	_ = flags.Parse(os.Args[1:]) // it exits
	if flags.NArg() > 0 || o.seeds < 1 || o.parallel < 1 {
		flags.Usage()
		os.Exit(2)
	}
	if missing := cluster.Missing(); missing != "" {
		fmt.Println("skip:", missing)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := compare(farm.WithParent(ctx), o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	programs, page, records, only string
	seeds, parallel               int
}

// compare runs what is to be run, judges it, and writes the tables.
func compare(ctx context.Context, o options) (err error) {
	if o.records == "" {
		if o.records, err = os.MkdirTemp("", "allotment-compare-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.records)) }()
	}
	cells := o.cells()
	if len(cells) == 0 {
		return fmt.Errorf("there is no policy %q", o.only)
	}
	if err := o.runAll(ctx, cells); err != nil {
		return err
	}
	var results []result
	for _, c := range cells {
		r, err := c.judged(o.records)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		results = append(results, r)
	}
	doubts := doubts(results)
	for _, d := range doubts {
		fmt.Fprintln(os.Stderr, d)
	}
	if o.page == "" || o.only != "" {
		return writeTables(os.Stdout, results)
	}
	if len(doubts) > 0 {
		return errors.New(o.page + " was not written")
	}
	if err := page.Replace(o.page, "make compare-slurm", func(out io.Writer) error { return writeTables(out, results) }); err != nil {
		return err
	}
	if wrong := untrue(results); len(wrong) > 0 {
		return fmt.Errorf("%s is written, but its text says otherwise than the tables: correct it there and in bench/compare/facts.go: %s", o.page, strings.Join(wrong, "; "))
	}
	return nil
}

// cells returns the runs in the order in which they start: those with the same jobs side by side.
func (o options) cells() (all []cell) {
	for seed := range o.seeds {
		for _, s := range scenes() {
			for _, p := range policies() {
				if o.only == "" || o.only == p.Name {
					all = append(all, cell{scene: s, policy: p, seed: uint64(seed + 1)})
				}
			}
		}
	}
	return all
}

// cell is one run of a policy.
type cell struct {
	scene  scene
	policy policy
	seed   uint64
}

func (c cell) String() string {
	return strings.Join([]string{c.scene.Name, c.policy.Name, fmt.Sprint(c.seed)}, "-")
}
