// Command state compares where jobs' state is kept: in state objects on their hosts, of which
// allotd knows the places alone, or in a central PostgreSQL. Both get the same events of the same
// jobs, on this machine, in one run. `make bench-state` runs it:
//
//	state [-jobs 10000] [-hosts 100] [-clients 100] [-for 20s] [-rounds 3]
//
// Each side writes twice: each event by itself, and gathered for 5 s by each host. Then clients
// ask for random jobs. It exits with 1 where a budget of docs/design.md is missed. Where
// PostgreSQL is not installed it is skipped with a line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	jobs, hosts, clients, rounds int
	lasts                        time.Duration
	below                        string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == centreArgument {
		if err := beCentre(ctx, os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "state: the centre:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.jobs, "jobs", 10_000, "so many jobs")
	flag.IntVar(&o.hosts, "hosts", 100, "on so many hosts")
	flag.IntVar(&o.clients, "clients", 100, "so many clients ask at a time")
	flag.DurationVar(&o.lasts, "for", 20*time.Second, "they ask for so long")
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds: each figure is their median")
	flag.Parse()
	if flag.NArg() > 0 || o.hosts < 1 || o.jobs < o.hosts || o.clients < 1 || o.rounds < 1 || o.lasts <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	if o.below = os.Getenv("TMPDIR"); o.below == "" { // /tmp is in memory on some machines
		o.below = "/var/tmp"
	}
	met, err := compare(ctx, os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "state:", err)
	}
	if err != nil || !met {
		stop()
		os.Exit(1)
	}
}

// compare measures both sides in turn, and reports whether all budgets are met.
func compare(ctx context.Context, out io.Writer, o options) (met bool, err error) {
	dir, err := os.MkdirTemp(o.below, "bench-state-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL's account finds its own directory there
		return false, err
	}
	p, err := startPostgres(ctx, dir)
	version := "without PostgreSQL"
	switch {
	case errors.Is(err, errNoPostgres):
		fmt.Fprintf(out, "skip PostgreSQL: %v\n", err)
		p = nil
	case err != nil:
		return false, err
	default:
		version = "PostgreSQL " + p.version
		defer func() { err = errors.Join(err, p.stop()) }()
	}
	if err := printMachine(out, o, version); err != nil {
		return false, err
	}
	r := results{}
	ours := filepath.Join(dir, "hosts")
	if err := os.Mkdir(ours, 0o700); err != nil {
		return false, err
	}
	for round := range o.rounds {
		turns := []struct {
			side string
			turn func(last bool) (figures, error)
		}{
			{oursApart, func(last bool) (figures, error) { return ourTurn(ctx, ours, o, true, last) }},
			{theirsApart, func(last bool) (figures, error) { return p.turn(ctx, o, true, last) }},
			{oursTogether, func(bool) (figures, error) { return ourTurn(ctx, ours, o, false, false) }},
			{theirsTogether, func(bool) (figures, error) { return p.turn(ctx, o, false, false) }},
		}
		for i := range turns {
			t := turns[i^round%2] // sides take turns in being first
			if p == nil && (t.side == theirsApart || t.side == theirsTogether) {
				continue
			}
			m, err := t.turn(round == o.rounds-1)
			if err != nil {
				return false, fmt.Errorf("%s: %w", t.side, err)
			}
			r[t.side] = append(r[t.side], m)
		}
	}
	r.print(out)
	return r.judge(out), nil
}
