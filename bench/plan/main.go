// Command benchplan runs plan.Make's benchmarks and compares them with the budgets in
// docs/design.md, "Budgets": 1,000,000 jobs in 1 s on one core and 1 GiB, and in no more
// than 12 times the time that 100,000 take; and farms on which a search for victims is long,
// each in a time of its own. `make bench-plan` runs it. Each round runs both
// sizes equally often, one after the other, so that the collector and the machine's other
// load affect them alike; the medians count.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"

	"github.com/allotment-hpc/allotment/internal/command"
	"github.com/allotment-hpc/allotment/internal/quantile"
)

const (
	maxSeconds = 1.0
	maxBytes   = 1 << 30
	maxRatio   = 12.0

	plans  = "10x" // of each size in a round: long enough for a few runs of the collector
	rounds = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchplan:", err)
		os.Exit(1)
	}
}

var line = regexp.MustCompile(`(?m)^BenchmarkMake/\d+\S*\s+\d+\s+\S+ ns/op\s+(\S+) cpu-ns/op\s+(\d+) B/op`)

func run(ctx context.Context) error {
	var seconds, bytes [sizes][]float64
	var ratios []float64
	for range rounds {
		text, err := command.Run(ctx, command.Command{
			Argv: []string{"go", "test", "./pba/plan", "-run", "^$", "-bench", "^BenchmarkMake$", "-cpu", "1", "-benchtime", plans, "-count", "1"},
			Env:  os.Environ(),
		})
		if err != nil {
			return err
		}
		of, err := parse(string(text))
		if err != nil {
			return err
		}
		for i := range of {
			seconds[i], bytes[i] = append(seconds[i], of[i].seconds), append(bytes[i], of[i].bytes)
		}
		ratios = append(ratios, of[million].seconds/of[million-1].seconds)
	}
	fmt.Printf("%9s  %11s  %12s\n", "jobs", "CPU time", "allocated")
	for i, jobs := range [sizes]int{10_000, 100_000, 1_000_000} {
		fmt.Printf("%9d  %8.1f ms  %8.1f MiB\n", jobs, 1e3*quantile.Median(seconds[i]), quantile.Median(bytes[i])/(1<<20))
	}
	large, memory, ratio := quantile.Median(seconds[million]), quantile.Median(bytes[million]), quantile.Median(ratios)
	fmt.Printf("1,000,000 jobs: %.2f s (budget %.0f s), %.0f MiB (budget %d), %.1f times the time for 100,000 (budget %.0f)\n",
		large, maxSeconds, memory/(1<<20), maxBytes>>20, ratio, maxRatio)
	within, err := runScenes(ctx)
	if err != nil {
		return err
	}
	if large > maxSeconds || memory > maxBytes || ratio > maxRatio || !within {
		return errors.New("beyond the budget")
	}
	return nil
}

// scenes are the farms of BenchmarkScenes, with the seconds that one plan may take.
var scenes = []struct {
	name, what string
	budget     float64
}{
	{"hosts", "50 hosts of 128 slots, no two jobs of the same memory, 4 due jobs", 1},
	{"host", "a host of 192 slots, no two jobs of the same memory, a due job", 0.05},
	{"projects", "2,000 projects, each with a due job", 0.5},
}

var sceneLine = regexp.MustCompile(`(?m)^BenchmarkScenes/(\w+)\S*\s+\d+\s+\S+ ns/op\s+(\S+) cpu-ns/op`)

// runScenes prints what a plan costs on each of the scenes, and reports whether that is within
// the budgets.
func runScenes(ctx context.Context) (within bool, err error) {
	text, err := command.Run(ctx, command.Command{
		Argv: []string{"go", "test", "./pba/plan", "-run", "^$", "-bench", "^BenchmarkScenes$", "-cpu", "1", "-benchtime", "3x", "-count", strconv.Itoa(rounds)},
		Env:  os.Environ(),
	})
	if err != nil {
		return false, err
	}
	seconds := map[string][]float64{}
	for _, m := range sceneLine.FindAllStringSubmatch(string(text), -1) {
		nanos, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return false, fmt.Errorf("read %q: %w", m[0], err)
		}
		seconds[m[1]] = append(seconds[m[1]], nanos/1e9)
	}
	within = true
	for _, s := range scenes {
		if len(seconds[s.name]) != rounds {
			return false, fmt.Errorf("the benchmark did not print %d figures of %s:\n%s", rounds, s.name, text)
		}
		took := quantile.Median(seconds[s.name])
		fmt.Printf("%s: %.1f ms (budget %.0f)\n", s.what, 1e3*took, 1e3*s.budget)
		within = within && took <= s.budget
	}
	return within, nil
}

// sizes of the benchmark; the last one is a million, ten times the one before.
const (
	sizes   = 3
	million = sizes - 1
)

// plan is the cost of one plan.
type plan struct{ seconds, bytes float64 }

// parse returns the costs that one round of the benchmark printed, by size.
func parse(text string) (of [sizes]plan, err error) {
	found := line.FindAllStringSubmatch(text, -1)
	if len(found) != sizes {
		return of, fmt.Errorf("the benchmark did not print %d figures:\n%s", sizes, text)
	}
	for i, m := range found {
		nanos, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return of, fmt.Errorf("read %q: %w", m[0], err)
		}
		if of[i].bytes, err = strconv.ParseFloat(m[2], 64); err != nil {
			return of, fmt.Errorf("read %q: %w", m[0], err)
		}
		of[i].seconds = nanos / 1e9
	}
	return of, nil
}
