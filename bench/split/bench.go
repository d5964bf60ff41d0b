package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// run is the result of one way to have the items done.
type run struct {
	name   string
	items  int
	began  time.Time
	took   time.Duration
	idle   float64 // part of the machine's processor time
	rounds []round // asplit's alone
	halved time.Time
}

// overIdeal returns the makespan ÷ the ideal one.
func (r *run) overIdeal() float64 { return r.took.Seconds() / ideal(r.items).Seconds() }

// bench is a comparison, with its results so far.
type bench struct {
	options
	dir    string
	worker worker
	hosts  *hosts
	runs   []run
	found  []float64 // by asplit qualify: each host's part of all hosts' C
}

// measure runs the whole comparison; false: a budget is missed.
func measure(ctx context.Context, o options) (met bool, err error) {
	b := &bench{options: o}
	if b.dir, err = os.MkdirTemp("", "allotment-split-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.programs, err = filepath.Abs(o.programs); err != nil {
		return false, err
	}
	if b.reports == "" {
		b.reports = b.dir
	}
	if b.reports, err = filepath.Abs(b.reports); err != nil {
		return false, err
	}
	if err := printMachine(); err != nil {
		return false, err
	}
	if b.hosts, err = startHosts(ctx, b.programs); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.hosts.close(ctx)) }()
	if b.worker, err = buildWorker(ctx, b.dir); err != nil {
		return false, err
	}
	if err := b.qualify(ctx); err != nil { // asplit caches the result
		return false, err
	}
	printf("\n%-36s %6s  %8s  %7s  %9s  %s", "", "items", "makespan", "÷ ideal", "from 3rd", "idle")
	if err := b.runSplits(ctx); err != nil {
		return false, err
	}
	if err := b.runParallels(ctx); err != nil {
		return false, err
	}
	b.printRounds()
	return b.judge(), nil
}

// The names of what is compared.
const (
	equal    = "asplit, equal shares"
	step     = "asplit, step"
	rate     = "asplit, rate"
	rateEach = "asplit, rate, a process an item"

	halvedStep = "step, node4 halved"
	halvedRate = "rate, node4 halved"
)

func (b *bench) runSplits(ctx context.Context) error {
	round := b.round.String()
	for _, w := range []struct {
		part string
		variant
	}{
		{"rate", variant{name: rate, adjust: "rate", items: b.items, round: round}},
		{"rate", variant{name: rateEach, adjust: "rate", items: b.single, round: round, each: true}},
		{"step", variant{name: step, adjust: "step", items: b.items, round: round}},
		{"halved", variant{name: halvedRate, adjust: "rate", items: b.halved, round: (b.round / 2).String(), halve: true}},
		{"halved", variant{name: halvedStep, adjust: "step", items: b.halved, round: (b.round / 2).String(), halve: true}},
		{"equal", variant{name: equal, adjust: "equal", items: b.items, round: strconv.Itoa(b.items)}}, // sizes that are never adjusted need no rounds
	} {
		if !b.wants(w.part) {
			continue
		}
		if err := b.record(b.runSplit(ctx, w.variant)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) runParallels(ctx context.Context) error {
	if !b.wants("parallel") {
		return nil
	}
	if missing := missingParallel(ctx); missing != "" {
		printf("skipped: %s", missing)
		return nil
	}
	if err := b.record(b.runParallel(ctx, b.items, lotSize)); err != nil {
		return err
	}
	return b.record(b.runParallel(ctx, b.single, 1))
}

// lotSize is the number of items that GNU parallel dispatches at a time, unless one by one.
const lotSize = 50

// execute runs a program that distributes a run's items, in the group dispatchers.
func (b *bench) execute(r *run, cmd *exec.Cmd) error {
	var results, message bytes.Buffer
	cmd.Stdout, cmd.Stderr = &results, &message
	before, err := processors()
	if err != nil {
		return err
	}
	r.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	err = b.hosts.dispatchers.add(cmd.Process.Pid)
	if ended := cmd.Wait(); ended != nil {
		return fmt.Errorf("%w: %s", ended, bytes.TrimSpace(message.Bytes()))
	}
	r.took = time.Since(r.began)
	if err != nil {
		return err
	}
	if r.idle, err = before.idleSince(); err != nil {
		return err
	}
	return check(results.Bytes(), r.items)
}

// record adds and prints a run.
func (b *bench) record(r run, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	b.runs = append(b.runs, r)
	later := ""
	if ratio, ok := fromRound(3, r.rounds); ok && r.halved.IsZero() {
		later = fmt.Sprintf("%.3f", ratio)
	}
	printf("%-36s %6d  %6.1f s  %7.3f  %9s  %2.0f %%", r.name, r.items, r.took.Seconds(), r.overIdeal(), later, 100*r.idle)
	return nil
}

// find returns the run of a name; nil: it was not done.
func (b *bench) find(name string) *run {
	if n := slices.IndexFunc(b.runs, func(r run) bool { return r.name == name }); n >= 0 {
		return &b.runs[n]
	}
	return nil
}

// printMachine prints what the figures depend on.
func printMachine() error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	busy, _, _ := strings.Cut(string(load), " ")
	printf("%d processors, %s, load %s before; hosts of %v cores", runtime.NumCPU(), runtime.Version(), busy, cores)
	return nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
