// Package agents tests that guaranteed slots need no agent: ahostd and allotd are killed
// at random beside a working farm, whose jobs start, are preempted and end as without them.
package agents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/internal/quantile"
	queue "github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/judge"
)

const (
	slots      = 8 // of the farm
	guaranteed = 3 // of these, chipA's
	work       = 6 * time.Second
	ownWork    = time.Second
	fewest     = 2 // rounds
	mostAlive  = 2 * time.Second

	config = `miniq: {nodes: ["n1:8:8G"]}
pba: {every: 1s, pending_threshold: 2s, min_runtime: 1s}
ahostd: {every: 1s}
`
)

// duration is how long the test takes at least: ALLOTMENT_AGENTS_TIME, or two rounds.
func duration(t *testing.T) time.Duration {
	text := os.Getenv("ALLOTMENT_AGENTS_TIME")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const programs = "../../bin"

// needed skips a test where the programs are not built.
func needed(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(programs, "ahostd")); err != nil {
		t.Skip("skip: there is no bin/ahostd; make test-kill builds it")
	}
}

// TestAgentsDie compares a farm whose agents are killed all the time with one that has none.
func TestAgentsDie(t *testing.T) {
	needed(t)
	limit := duration(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+4*limit)
	defer cancel()
	for _, agents := range [][]string{nil, {"ahostd", "allotd"}} {
		waits, kills, err := scenario(ctx, programs, agents, limit)
		if err != nil {
			t.Fatalf("agents %v: %v", agents, err)
		}
		fmt.Printf("agents %v, killed %d times: %d jobs of the pool, median wait %v, longest %v\n",
			agents, kills, len(waits), quantile.Median(waits).Round(time.Millisecond), quantile.Of(waits, 100).Round(time.Millisecond))
		if agents != nil && kills == 0 {
			t.Error("no agent was killed")
		}
	}
}

// scenario runs rounds on a farm of its own, and returns how long each job of the pool waited.
func scenario(ctx context.Context, programs string, agents []string, limit time.Duration) (waits []time.Duration, kills int64, err error) {
	f, err := farm.Start(ctx, farm.Options{Programs: programs, Config: config})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	group, err := farm.OwnGroup()
	if err != nil {
		return nil, 0, err
	}
	for _, args := range [][]string{
		{"init"}, {"project", "add", "chipA", "--group", group}, {"alloc", "set", "chipA", fmt.Sprint(guaranteed), "--weeks", "2"},
	} {
		if _, err := f.Run(ctx, "pba", args...); err != nil {
			return nil, 0, err
		}
	}
	running, stop := context.WithCancel(ctx)
	var programsEnd sync.WaitGroup
	defer programsEnd.Wait()
	defer stop()
	engine := f.Background(running, "pba", "rebalance", "--every", "1s")
	if err := engine.Start(); err != nil {
		return nil, 0, err
	}
	programsEnd.Go(func() { _ = engine.Wait() }) // SIGTERM ends it
	var killed atomic.Int64
	for _, agent := range agents {
		programsEnd.Go(func() { killAtRandom(running, f, agent, &killed) })
	}
	var all []judge.Tally
	began := time.Now()
	for round := 0; round < fewest || time.Since(began) < limit; round++ {
		tallies, waited, err := oneRound(ctx, f, round)
		if err != nil {
			return nil, 0, fmt.Errorf("round %d: %w", round+1, err)
		}
		all, waits = append(all, tallies...), append(waits, waited...)
		// On a busy machine a job may end by itself just before it is preempted.
		if n, most := judge.Reruns(all), (round+1)*guaranteed; n == 0 || n > most {
			return nil, 0, fmt.Errorf("after %d rounds %d jobs were requeued, want 1 to %d: at most one for each job of the pool", round+1, n, most)
		}
	}
	return waits, killed.Load(), nil
}

// killAtRandom starts an agent and kills it, again and again.
func killAtRandom(ctx context.Context, f *farm.Farm, agent string, killed *atomic.Int64) {
	for ctx.Err() == nil {
		cmd := f.Background(ctx, agent)
		if cmd.Start() != nil {
			return // the farm was closed
		}
		kill := time.AfterFunc(rand.N(mostAlive), func() {
			if cmd.Process.Kill() == nil {
				killed.Add(1)
			}
		})
		_ = cmd.Wait() // it was killed
		kill.Stop()
	}
}

// oneRound fills the farm, submits jobs of the pool, and waits until all have ended.
func oneRound(ctx context.Context, f *farm.Farm, round int) (all []judge.Tally, waits []time.Duration, err error) {
	client := miniq.Open(miniq.Options{Paths: home.Paths{Config: filepath.Join(f.Home, "config.yaml"), State: f.Home, Runtime: f.Home}, Config: queue.DefaultConfig()})
	defer func() { err = errors.Join(err, client.Close()) }()
	dir := filepath.Join(f.Home, fmt.Sprint("round", round))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	var ids []backends.ID
	submit := func(name, project string, d time.Duration) error {
		spec := backends.Spec{
			Name: name, Project: project, Slots: 1, OneHost: true, Dir: dir, Stdout: "/dev/null", Env: os.Environ(),
			Command: []string{"/bin/sh", "-c", fmt.Sprintf("echo start >>%s; sleep %g; echo end >>%s", name, d.Seconds(), name)},
		}
		for _, s := range client.Submit(ctx, []backends.Spec{spec}) {
			ids, err = append(ids, s.ID), errors.Join(err, s.Err)
		}
		return err
	}
	var names []string
	for i := range slots {
		names = append(names, fmt.Sprint("other", i))
		if err := submit(names[i], "", work); err != nil {
			return nil, nil, err
		}
	}
	if _, err := await.Jobs(ctx, client, ids, await.In(backends.Running)); err != nil {
		return nil, nil, err
	}
	others := len(ids)
	for i := range guaranteed {
		names = append(names, fmt.Sprint("chipA", i))
		if err := submit(names[others+i], "chipA", ownWork); err != nil {
			return nil, nil, err
		}
	}
	jobs, err := await.Jobs(ctx, client, ids, allEnded)
	if err != nil {
		return nil, nil, err
	}
	for _, j := range jobs[others:] {
		waits = append(waits, j.Started.Sub(j.Submitted))
	}
	for _, name := range names {
		tally, err := judge.CountRuns(name, filepath.Join(dir, name))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, tally)
	}
	if wrong := judge.EndedOnce(all); len(wrong) > 0 {
		return nil, nil, errors.New(judge.ButList(wrong, ""))
	}
	return all, waits, nil
}

func allEnded(jobs []backends.Job) bool {
	return !slices.ContainsFunc(jobs, func(j backends.Job) bool { return !j.State.Ended() })
}
