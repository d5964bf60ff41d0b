package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// printMachine prints what the figures depend on. A file system in memory is an error: nothing
// would wait for a disk there.
func (b *bench) printMachine() error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	b.printf("%d processors, Linux %s, %s, load %s before; %d slots each; medians of %d",
		runtime.NumCPU(), strings.TrimSpace(string(release)), runtime.Version(), busy, slots, b.rounds)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(b.below, &fs); err != nil {
		return fmt.Errorf("stat the file system of %s: %w", b.below, err)
	}
	const inMemory = 0x01021994
	if fs.Type == inMemory {
		return fmt.Errorf("%s is in memory, where no write waits for a disk: set TMPDIR to a directory on a disk", b.below)
	}
	return nil
}

// printTable prints figures, a line each, with miniq's ratio to them.
func (b *bench) printTable(metrics ...string) {
	for _, metric := range metrics {
		b.printf("\n%s", metric)
		for _, queueName := range []string{miniqName, slurmName, spoolerName, bareName} {
			value, ok := b.median(metric, queueName)
			if !ok {
				continue
			}
			suffix := ""
			if ratio, ok := b.ratio(metric, queueName); ok && queueName != miniqName {
				suffix = fmt.Sprintf("  miniq is %.2f of it", ratio)
			}
			b.printf("  %-14s %10.2f%s", queueName, value, suffix)
		}
	}
}

// budget bounds one figure of miniq by another queue's.
type budget struct {
	metric, queueName string
	times             float64
	atMost            bool // else at least
}

// budgets returns miniq's budgets (docs/design.md, "Budgets").
func budgets() []budget {
	return []budget{
		{submitMany, slurmName, 25, false},
		{completion, slurmName, 20, false},
		{completion, bareName, 0.5, false},
		{completion, spoolerName, 1.1, false},
		{oneCommand, slurmName, 0.7, true},
	}
}

// judge prints each budget with its verdict; false: one is missed.
func (b *bench) judge() bool {
	met := true
	b.printf("\nbudgets")
	for _, l := range budgets() {
		sign := "≥"
		if l.atMost {
			sign = "≤"
		}
		text := fmt.Sprintf("%s: miniq %s %g × %s", l.metric, sign, l.times, l.queueName)
		ratio, ok := b.ratio(l.metric, l.queueName)
		if !ok {
			b.printf("  not judged  %s: not measured", text)
			continue
		}
		verdict := "met"
		if ratio < l.times && !l.atMost || ratio > l.times && l.atMost {
			verdict, met = "missed", false
		}
		b.printf("  %-10s  %s: it is %.2f", verdict, text, ratio)
	}
	met = b.judgeMemory() && met
	met = b.judgeEnded() && met
	return b.judgePause() && met
}
