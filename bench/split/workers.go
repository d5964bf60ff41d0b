package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
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
	dispatched, err := measureTasks(ctx, o)
	if err != nil {
		return false, err
	}
	straggled, err := measureStragglers(ctx, o)
	if err != nil {
		return false, err
	}
	resident, err := measureResident(ctx, o)
	if err != nil {
		return false, err
	}
	crowded, err := measureCrowd(ctx, o.crowd)
	if err != nil {
		return false, err
	}
	return judge(slices.Concat(all, spawned, granted, dispatched, straggled, resident, crowded), nil)
}

// judge prints budgets, unless they could not be measured, and reports whether all are met.
func judge(all []budget, err error) (met bool, _ error) {
	if err != nil {
		return false, err
	}
	met = true
	printf("\nbudgets")
	for _, l := range all {
		printf("  %-10s  %s: %.3f of %.3f", l.verdict(), l.what, l.value, l.limit)
		met = met && l.verdict() != "missed"
	}
	return met, nil
}

// measureRounds returns the median time in seconds of a round of one item on a farm of one slot,
// with workers and without: what more rounds take longer than a few, for each more round.
func measureRounds(ctx context.Context, name string, on farm.Options, rounds map[string]int, pairs int) (with, without float64, err error) {
	times := map[string][]float64{}
	err = onFarm(ctx, on, func(f *farm.Farm, work string) error {
		for i := range 2 * pairs {
			workers := []string{"auto", "no"}[i%2]
			few, err := runRounds(ctx, f, work, workers, fewestRounds)
			if err != nil {
				return err
			}
			many, err := runRounds(ctx, f, work, workers, fewestRounds+rounds[workers])
			if err != nil {
				return err
			}
			times[workers] = append(times[workers], (many-few).Seconds()/float64(rounds[workers]))
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	for _, workers := range []string{"auto", "no"} {
		if quantile.Median(times[workers]) <= 0 {
			return 0, 0, fmt.Errorf("--workers %s: more rounds took no longer than %d: this machine is too busy, or -pairs too few", workers, fewestRounds)
		}
		printf("%-36s %6d  %6.1f ms", name+", --workers "+workers, rounds[workers], 1000*quantile.Median(times[workers]))
	}
	return quantile.Median(times["auto"]), quantile.Median(times["no"]), nil
}

// runRounds runs so many rounds of one item, and returns how long they took.
func runRounds(ctx context.Context, f *farm.Farm, work, workers string, rounds int) (time.Duration, error) {
	cmd := f.Background(ctx, "asplit", "--no-qualify", "--quiet", "--round", "1", "--slots", "1", "--workers", workers, "echo", "{}")
	return timed(cmd, work, rounds, func(results string) error { return checkSide(results, rounds, true) })
}

// silent is the check of results that there are none.
func silent(results string) error {
	if results != "" {
		return fmt.Errorf("it printed %.100q", results)
	}
	return nil
}

// measureSpawned compares the rates at which asplit and others run items that do nothing with
// that of a loop that starts them and waits.
func measureSpawned(ctx context.Context, o *options) (all []budget, err error) {
	slots := strconv.Itoa(sideSlots)
	names := []string{"a loop", "asplit", "xargs"}
	if missing := missingParallel(ctx); missing != "" {
		printf("not compared: %s", missing)
	} else {
		names = append(names, parallelName)
	}
	times := map[string][]float64{}
	err = onFarm(ctx, oneHost(o.programs), func(f *farm.Farm, work string) error {
		run := func(cmd *exec.Cmd) (time.Duration, error) { return timed(cmd, work, o.spawned, silent) }
		tools := map[string]func() (time.Duration, error){
			"a loop": func() (time.Duration, error) { return spawnAll(ctx, o.spawned) },
			"asplit": func() (time.Duration, error) {
				return run(f.Background(ctx, "asplit", "--no-qualify", "--quiet", "true", "{}"))
			},
			"xargs": func() (time.Duration, error) {
				return run(exec.CommandContext(ctx, "xargs", "-P"+slots, "-n1", "true"))
			},
			parallelName: func() (time.Duration, error) {
				cmd := exec.CommandContext(ctx, "parallel", "--will-cite", "-j"+slots, "true")
				cmd.Env = append(os.Environ(), "HOME="+work, "SHELL=/bin/sh")
				return run(cmd)
			},
		}
		for range o.pairs {
			for _, name := range names {
				took, err := tools[name]()
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				times[name] = append(times[name], took.Seconds())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
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
	for _, name := range names {
		printf("%-36s %6d  %9.0f", name, o.spawned, float64(o.spawned)/quantile.Median(times[name]))
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
