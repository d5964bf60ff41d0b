package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/test/farm"
)

// The bounds of standing workers (docs/design.md, "Budgets").
const (
	maxRound     = 50 * time.Millisecond // of one item's rounds on Slurm
	minSpawned   = 0.8                   // of the machine's own rate
	minXargs     = 1.0
	minParallel  = 3.0
	fewestRounds = 5
)

// standing measures standing workers: rounds of one item with and without them, items that do
// nothing beside other tools, and grants of asplit serve; false: a budget is missed.
func standing(ctx context.Context, o *options) (met bool, err error) {
	var all []budget
	printf("%-36s %6s  %9s", "rounds of one item", "rounds", "a round")
	for _, q := range []struct {
		name   string
		on     farm.Options
		rounds map[string]int
		most   time.Duration
	}{
		{"miniq", farm.Options{Programs: o.programs, Config: "miniq: {nodes: [\"n1:1\"]}\n"}, map[string]int{"auto": 200, "no": 50}, 0},
		{"Slurm", farm.Options{Programs: o.programs, Slurm: &farm.Slurm{Nodes: 1, Slots: 1}}, map[string]int{"auto": 100, "no": 5}, maxRound},
	} {
		if q.on.Slurm != nil && (os.Getuid() != 0 || exec.CommandContext(ctx, "slurmctld", "-V").Run() != nil) {
			printf("skip: rounds on Slurm need root and slurmctld")
			continue
		}
		with, without, err := measureRounds(ctx, q.name, q.on, q.rounds, o.pairs)
		if err != nil {
			return false, fmt.Errorf("rounds on %s: %w", q.name, err)
		}
		all = append(all, budget{"a round on " + q.name + " with workers ÷ without", with / without, 1})
		if q.most > 0 {
			all = append(all, budget{"a round on " + q.name + ", in ms", 1000 * with, float64(q.most.Milliseconds())})
		}
	}
	spawned, err := measureSpawned(ctx, o)
	if err != nil {
		return false, err
	}
	granted, err := measureGrants(ctx, o)
	if err != nil {
		return false, err
	}
	met = true
	printf("\nbudgets")
	for _, l := range append(append(all, spawned...), granted...) {
		printf("  %-10s  %s: %.3f of %.3f", l.verdict(), l.what, l.value, l.limit)
		met = met && l.verdict() != "missed"
	}
	return met, nil
}

// measureRounds returns the median time in seconds of a round of one item on a farm of one slot,
// with workers and without: what more rounds take longer than a few, for each more round.
func measureRounds(ctx context.Context, name string, on farm.Options, rounds map[string]int, pairs int) (with, without float64, err error) {
	f, err := farm.Start(ctx, on)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	work := filepath.Join(f.Home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return 0, 0, err
	}
	times := map[string][]float64{}
	for range pairs {
		for _, workers := range []string{"auto", "no"} {
			few, err := runRounds(ctx, f, work, workers, fewestRounds)
			if err != nil {
				return 0, 0, err
			}
			many, err := runRounds(ctx, f, work, workers, fewestRounds+rounds[workers])
			if err != nil {
				return 0, 0, err
			}
			times[workers] = append(times[workers], (many-few).Seconds()/float64(rounds[workers]))
		}
	}
	for _, workers := range []string{"auto", "no"} {
		printf("%-36s %6d  %6.1f ms", name+", --workers "+workers, rounds[workers], 1000*quantile.Median(times[workers]))
	}
	return quantile.Median(times["auto"]), quantile.Median(times["no"]), nil
}

// runRounds runs so many rounds of one item, and returns how long they took.
func runRounds(ctx context.Context, f *farm.Farm, work, workers string, rounds int) (time.Duration, error) {
	cmd := f.Background(ctx, "asplit", "--no-qualify", "--quiet", "--round", "1", "--slots", "1", "--workers", workers, "echo", "{}")
	return timed(cmd, work, rounds, true)
}

// timed runs a command on so many items, and checks that each has its result, if it has one.
func timed(cmd *exec.Cmd, work string, items int, printed bool) (time.Duration, error) {
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = work, bytes.NewReader(numbers(items)), &out, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	took := time.Since(began)
	if printed {
		return took, checkSide(out.String(), items, true)
	}
	if out.Len() > 0 {
		return 0, fmt.Errorf("%s printed %.100q", cmd.Args[0], out.String())
	}
	return took, nil
}

// measureSpawned compares the rates at which asplit and others run items that do nothing with
// that of a loop that starts them and waits.
func measureSpawned(ctx context.Context, o *options) (all []budget, err error) {
	f, err := farm.Start(ctx, farm.Options{Programs: o.programs, Config: fmt.Sprintf("miniq: {nodes: [\"n1:%d\"]}\n", sideSlots)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	work := filepath.Join(f.Home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	slots := strconv.Itoa(sideSlots)
	tools := []struct {
		name string
		run  func() (time.Duration, error)
	}{
		{"a loop", func() (time.Duration, error) { return spawnAll(ctx, o.spawned) }},
		{"asplit", func() (time.Duration, error) {
			return timed(f.Background(ctx, "asplit", "--no-qualify", "--quiet", "true", "{}"), work, o.spawned, false)
		}},
		{"xargs", func() (time.Duration, error) {
			return timed(exec.CommandContext(ctx, "xargs", "-P"+slots, "-n1", "true"), work, o.spawned, false)
		}},
	}
	if missing := missingParallel(ctx); missing != "" {
		printf("not compared: %s", missing)
	} else {
		tools = append(tools, tools[0])
		tools[3].name = parallelName
		tools[3].run = func() (time.Duration, error) {
			cmd := exec.CommandContext(ctx, "parallel", "--will-cite", "-j"+slots, "true")
			cmd.Env = append(os.Environ(), "HOME="+work, "SHELL=/bin/sh")
			return timed(cmd, work, o.spawned, false)
		}
	}
	times := map[string][]float64{}
	for range o.pairs {
		for _, tool := range tools {
			took, err := tool.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", tool.name, err)
			}
			times[tool.name] = append(times[tool.name], took.Seconds())
		}
	}
	printf("\n%-36s %6s  %9s", "items that do nothing, "+slots+" side by side", "items", "a second")
	// rate returns how many times asplit's rate another tool's time is: the median of pairs.
	rate := func(other string) float64 {
		var ratios []float64
		for i, t := range times[other] {
			ratios = append(ratios, t/times["asplit"][i])
		}
		if len(ratios) == 0 {
			return math.NaN()
		}
		return quantile.Median(ratios)
	}
	for _, tool := range tools {
		printf("%-36s %6d  %9.0f", tool.name, o.spawned, float64(o.spawned)/quantile.Median(times[tool.name]))
	}
	// A budget is an upper bound: these are the other's rate ÷ asplit's.
	return []budget{
		{"items that do nothing: a loop's rate ÷ asplit's", 1 / rate("a loop"), 1 / minSpawned},
		{"items that do nothing: xargs's rate ÷ asplit's", 1 / rate("xargs"), 1 / minXargs},
		{"items that do nothing: GNU parallel's rate ÷ asplit's", 1 / rate(parallelName), 1 / minParallel},
	}, nil
}

// spawnAll starts /bin/true so many times, sideSlots at a time, and waits for each.
func spawnAll(ctx context.Context, n int) (time.Duration, error) {
	path, err := exec.LookPath("true")
	if err != nil {
		return 0, err
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		wrong error
		next  = make(chan int)
	)
	began := time.Now()
	for range sideSlots {
		group.Go(func() {
			for i := range next {
				p, err := os.StartProcess(path, []string{"true", strconv.Itoa(i)}, &os.ProcAttr{Sys: &syscall.SysProcAttr{}})
				if err == nil {
					_, err = p.Wait()
				}
				if err != nil {
					mu.Lock()
					wrong = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	group.Wait()
	return time.Since(began), errors.Join(wrong, context.Cause(ctx))
}
