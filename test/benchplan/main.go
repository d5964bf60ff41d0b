// Command benchplan runs plan.Make's benchmark and holds it against section 10's
// budget: 1,000,000 jobs in 1 s on one core and 1 GiB, and in no more than 12
// times the time that 100,000 take. `make bench-plan` runs it.
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
)

const (
	mostSeconds = 1.0
	mostBytes   = 1 << 30
	mostRatio   = 12.0
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchplan:", err)
		os.Exit(1)
	}
}

var line = regexp.MustCompile(`(?m)^BenchmarkMake/(\d+)\S*\s+\d+\s+\S+ ns/op\s+(\S+) cpu-ns/op\s+(\d+) B/op`)

func run(ctx context.Context) error {
	text, err := command.Run(ctx, command.Command{
		Argv: []string{"go", "test", "./pba/plan", "-run", "^$", "-bench", "^BenchmarkMake$", "-cpu", "1", "-count", "1"},
		Env:  os.Environ(),
	})
	if err != nil {
		return err
	}
	seconds, bytes := map[string]float64{}, map[string]float64{}
	fmt.Printf("%9s  %11s  %12s\n", "jobs", "CPU time", "allocated")
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		nanos, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return fmt.Errorf("read %q: %w", m[0], err)
		}
		if bytes[m[1]], err = strconv.ParseFloat(m[3], 64); err != nil {
			return fmt.Errorf("read %q: %w", m[0], err)
		}
		seconds[m[1]] = nanos / 1e9
		fmt.Printf("%9s  %8.1f ms  %8.1f MiB\n", m[1], nanos/1e6, bytes[m[1]]/(1<<20))
	}
	small, large := seconds["100000"], seconds["1000000"]
	if small == 0 || large == 0 {
		return fmt.Errorf("no figures in what the benchmark printed:\n%s", text)
	}
	fmt.Printf("1,000,000 jobs: %.2f s (budget %.0f s), %.0f MiB (budget %d), %.1f times the time for 100,000 (budget %.0f)\n",
		large, mostSeconds, bytes["1000000"]/(1<<20), mostBytes>>20, large/small, mostRatio)
	if large > mostSeconds || bytes["1000000"] > mostBytes || large/small > mostRatio {
		return errors.New("beyond the budget")
	}
	return nil
}
