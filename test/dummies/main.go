// Command dummies shows that memory-hungry jobs never meet on a host whose queue
// schedules slots and no memory: on throw-away farms of its own, with the real programs,
// it plays one load without dummy jobs, where they do meet, with them, with an engine that
// is killed now and then, and with one that is killed for good. It judges by what the jobs
// themselves wrote. `make scenario-dummy` runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/diary"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

const usage = "usage: [ALLOTMENT_BACKEND=miniq|slurm] [RUN=without|with|killed|gone] [SEED=NUMBER] dummies"

func main() {
	if len(os.Args) == 4 && os.Args[1] == "job" {
		os.Exit(diary.Main(os.Args[2], os.Args[3], false))
	}
	on, plays, seed, err := parseEnv(os.Getenv)
	if err != nil || len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, errors.Join(err, errors.New(usage)))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := scenario(farm.WithParent(ctx), os.Stdout, on, plays, seed); err != nil {
		fmt.Fprintln(os.Stderr, "dummies:", err)
		stop()
		os.Exit(1)
	}
}

// parseEnv returns the farms, the plays and the seed that the environment asks for.
func parseEnv(env func(string) string) (on []stage, plays []play, seed uint64, err error) {
	switch name := env("ALLOTMENT_BACKEND"); name {
	case "miniq":
		on = []stage{bundled()}
	case "slurm":
		on = []stage{onSlurm()}
	case "":
		on = []stage{bundled(), onSlurm()}
	default:
		return nil, nil, 0, fmt.Errorf("ALLOTMENT_BACKEND=%s: there is no such farm", name)
	}
	plays = all()
	if name := env("RUN"); name != "" {
		plays = slices.DeleteFunc(plays, func(p play) bool { return p.name != name })
		if len(plays) == 0 {
			return nil, nil, 0, fmt.Errorf("RUN=%s: there is no such run", name)
		}
	}
	seed = rand.Uint64N(1_000_000)
	if text := env("SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
	}
	return on, plays, seed, err
}

// scenario plays everything on every farm. It returns an error unless all checks pass.
func scenario(ctx context.Context, out io.Writer, on []stage, plays []play, seed uint64) error {
	fmt.Fprintf(out, "The seed is %d: SEED=%d make scenario-dummy has the same load and the same chance.\n", seed, seed)
	// Each farm waits most of the time: they are played at once, and printed one after
	// the other.
	outputs := make([]bytes.Buffer, len(on))
	results := make([]error, len(on))
	var all sync.WaitGroup
	for i, s := range on {
		all.Go(func() { results[i] = s.playAll(ctx, &outputs[i], plays, seed) })
	}
	all.Wait()
	for i := range outputs {
		_, _ = outputs[i].WriteTo(out)
	}
	return errors.Join(results...)
}

// playAll plays everything on one farm and prints it.
func (on stage) playAll(ctx context.Context, out io.Writer, plays []play, seed uint64) error {
	var failed error
	if missing := cluster.Missing(); on.options.Slurm != nil && missing != "" {
		if os.Getenv(cluster.Required) == "1" {
			return fmt.Errorf("%s=1 and %s", cluster.Required, missing)
		}
		fmt.Fprintf(out, "\nskip: nothing is played on Slurm: %s\n", missing)
		return nil
	}
	for _, p := range plays {
		fmt.Fprintf(out, "\n== On %s, %s\n", on.name, p.title)
		e, err := on.play(ctx, out, p, seed)
		if err != nil {
			return err
		}
		worked, took := e.usage()
		fmt.Fprintf(out, "utilization: %.0f %% of %d slots for %.1f s\n", 100*worked.Seconds()/(took.Seconds()*hosts*slots), hosts*slots, took.Seconds())
		if err := judge.Print(out, p.judge(e)); err != nil {
			failed = err
		}
	}
	return failed
}
