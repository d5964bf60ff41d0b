package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
)

var (
	errInterrupted = split.ErrInterrupted
	errBusy        = split.ErrBusy
)

// start begins a split.
func (p process) start(c *cli.Context, argv []string) error {
	d, err := definition(c, argv)
	if err != nil {
		return err
	}
	return p.runSplit(c, &d, func(ctx context.Context, o split.Options) error { return split.Start(ctx, d, o) })
}

// resume continues one.
func (p process) resume(c *cli.Context, args []string) error {
	for _, f := range []string{"P", "q", "M", "R", "W", "J", "range", "file", "null", "hosts", "slots", "round", "adjust", "profile", "no-qualify", "unordered"} {
		if c.IsSet(f) {
			return shell.Usagef("--resume uses the options of the first run: omit %s", f)
		}
	}
	if len(args) > 1 {
		return shell.Usagef("unexpected argument %q: want asplit --resume [NAME]; the command is that of the first run", args[1])
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
		if err := split.CheckName(name); err != nil {
			return shell.Usagef("--resume: %w", err)
		}
	}
	work, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	found, err := split.Find(c.Context, work, name)
	if err != nil {
		return withExitCode(err)
	}
	return p.runSplit(c, found.Definition, found.Resume)
}

// runSplit opens the queue and runs a split on it.
func (p process) runSplit(c *cli.Context, d *split.Definition, do func(context.Context, split.Options) error) error {
	program, err := p.taskProgram()
	if err != nil {
		return err
	}
	submitContext, err := p.submitContext()
	if err != nil {
		return err
	}
	spec, err := template(d.Options, submitContext)
	if err != nil {
		return err
	}
	config, err := p.load()
	if err != nil {
		return err
	}
	backend, err := p.open(c.Context, config)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Close() }()
	// SIGPIPE is caught: where a reader closes the results early, asplit gets a write
	// error and leaves no jobs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	s := newScreen(p.stderr, c.Bool("quiet"))
	jobs := withFilter(backend, &dedupWriter{to: s, seen: map[string]bool{}})
	var measure split.Measure
	if d.Measured {
		self, err := p.executable()
		if err != nil {
			return fmt.Errorf("find this program, which measures hosts: %w", err)
		}
		m := &measurer{queue: jobs, job: spec, program: self}
		defer m.close()
		measure = m.measure
	}
	err = do(c.Context, split.Options{
		Work: submitContext.Dir, Queue: jobs, Spec: spec, Program: []string{program}, Measure: measure,
		Stdin: p.stdin, Stdout: printableOn(c.App.Writer), Stderr: s, Reporter: s, Keep: c.Bool("keep"),
		Report: func(r *split.Report) error { return report(c, s, r) },
	})
	s.close()
	return withExitCode(err)
}

// template returns the job with the given options.
func template(options []string, submitContext bsub.Context) (backends.Spec, error) {
	line, err := bsub.Scan(append(append([]string(nil), options...), "asplit-task"))
	if err != nil {
		return backends.Spec{}, shell.Usagef("%w", err)
	}
	request, err := line.Request(nil, submitContext)
	if err != nil {
		return backends.Spec{}, shell.Usagef("%w", err)
	}
	return request.Spec, nil
}

// definition returns the split that a command line describes.
func definition(c *cli.Context, argv []string) (d split.Definition, err error) {
	d = split.Definition{Name: c.String("J"), Argv: argv, Unordered: c.Bool("unordered")}
	if d.Name != "" {
		if err := split.CheckName(d.Name); err != nil {
			return d, shell.Usagef("-J: %w", err)
		}
	}
	if argv[0] == "" {
		return d, shell.Usagef("the command is empty: see asplit --help")
	}
	if d.Mode, err = task.ModeOf(argv); err != nil {
		return d, shell.Usagef("%w", err)
	}
	if d.Input, err = input(c); err != nil {
		return d, err
	}
	if d.Balance, err = balance(c); err != nil {
		return d, err
	}
	d.Measured = d.Balance.Rule != metrics.Equal && !c.Bool("no-qualify")
	if d.Slots, err = slots(c, d.Mode); err != nil {
		return d, err
	}
	if c.IsSet("hosts") {
		for name := range strings.SplitSeq(c.String("hosts"), ",") {
			if name = strings.TrimSpace(name); name == "" {
				return d, shell.Usagef("--hosts %q: want HOST,HOST...", c.String("hosts"))
			}
			d.Hosts = append(d.Hosts, name)
		}
	}
	for _, option := range []string{"P", "q", "M", "R", "W"} {
		if c.IsSet(option) {
			d.Options = append(d.Options, "-"+option, c.String(option))
		}
	}
	return d, nil
}

// maxSlots is far above the slots of any host.
const maxSlots = 1 << 20

// slots returns Definition.Slots. A command that runs once a task uses one slot, unless
// the user knows that it uses more.
func slots(c *cli.Context, mode task.Mode) (int, error) {
	text := c.String("slots")
	switch {
	case text == "all":
		return 0, nil
	case text == "free":
		return split.FreeSlots, nil
	case text == "" && mode == task.Each:
		return split.FreeSlots, nil
	case text == "":
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, shell.Usagef("--slots %q: want a number from 1 to %d, free, or all", text, maxSlots)
	}
	return n, nil
}

func input(c *cli.Context) (in split.Input, err error) {
	in = split.Input{Kind: split.Stdin, Null: c.Bool("null")}
	switch {
	case c.IsSet("range") && (c.IsSet("file") || in.Null):
		return in, shell.Usagef("--range needs no --file and no --null: its items are numbers")
	case c.IsSet("range"):
		in.Kind = split.Range
		if in.From, in.To, err = split.ParseRange(c.String("range")); err != nil {
			return in, shell.Usagef("--range: %w", err)
		}
	case c.IsSet("file") && c.String("file") != "-":
		in.Kind = split.Lines
		if in.Path, err = filepath.Abs(c.String("file")); err != nil {
			return in, fmt.Errorf("find %s: %w", c.String("file"), err)
		}
		if _, err := os.Stat(in.Path); err != nil {
			return in, shell.Usagef("--file: %w", err)
		}
	}
	return in, nil
}

func balance(c *cli.Context) (o metrics.Options, err error) {
	if o.Rule, err = metrics.ParseRule(c.String("adjust")); err != nil {
		return o, shell.Usagef("--adjust: %w", err)
	}
	if o.Factors, err = factorsOf(c.String("profile")); err != nil {
		return o, shell.Usagef("--profile: %w", err)
	}
	round := c.String("round")
	if o.RoundItems, err = strconv.Atoi(round); err == nil && o.RoundItems > 0 {
		return o, nil
	}
	var length unit.Duration
	if err := length.UnmarshalText([]byte(round)); err != nil || length <= 0 {
		return o, shell.Usagef("--round %q: want a time such as 30s, or a number of items", round)
	}
	o.RoundItems, o.RoundTime = 0, time.Duration(length)
	return o, nil
}
