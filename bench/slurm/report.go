package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
)

// The figures, in milliseconds.
const (
	squeue     = "squeue, the same list"
	writes     = "scontrol, 10 writes"
	wholeCycle = "pba rebalance, 10 class changes"
	idle       = "pba rebalance, nothing to do"
	without    = "sbatch without the filter"
	with       = "sbatch with the filter"
)

// figures holds the measured times, by name.
type figures map[string][]time.Duration

// measure measures something once.
func (f figures) measure(name string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	f[name] = append(f[name], time.Since(began))
	return nil
}

func (f figures) median(name string) time.Duration { return quantile.Median(f[name]) }

func (f figures) printTable(names ...string) {
	fmt.Println()
	for _, name := range names {
		all := f[name]
		printf("%-32s %8.1f ms  (%.1f to %.1f, %d times)", name, milliseconds(f.median(name)), milliseconds(slices.Min(all)), milliseconds(slices.Max(all)), len(all))
	}
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// printMachine prints what the figures depend on.
func printMachine(o options) error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	printf("%d processors, %s, load %s before; %d pending jobs, %d entitled in %d projects; medians of %d",
		runtime.NumCPU(), runtime.Version(), busy, o.pending, o.pending/5, o.projects, o.rounds)
	return nil
}

// judge prints each budget with its verdict; false: one is missed. The first is in
// docs/design.md, "Budgets".
func judge(cycles, submissions figures) bool {
	const listed, filtered = 1.5, 1.15
	allowed := time.Duration(listed*float64(cycles.median(squeue))) + cycles.median(writes)
	cycle := verdict(fmt.Sprintf("a whole cycle ≤ %g × squeue + the writes", listed), cycles.median(wholeCycle), allowed)
	sbatch := verdict(fmt.Sprintf("sbatch with the filter ≤ %g × without", filtered), submissions.median(with), time.Duration(filtered*float64(submissions.median(without))))
	return cycle && sbatch
}

func verdict(what string, took, allowed time.Duration) bool {
	word := "met"
	if took > allowed {
		word = "missed"
	}
	printf("  %-6s  %s: %.1f of %.1f ms", word, what, milliseconds(took), milliseconds(allowed))
	return took <= allowed
}
