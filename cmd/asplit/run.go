package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
	"github.com/allotment-hpc/allotment/split/leased"
	"github.com/allotment-hpc/allotment/split/task"
	"github.com/allotment-hpc/allotment/split/try"
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
	return p.begin(c, &d)
}

// begin begins the split of a definition, or prints its command lines (--dry-run).
func (p process) begin(c *cli.Context, d *split.Definition) error {
	if err := checkProgram(d); err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return p.dryRun(c, d)
	}
	return p.runSplit(c, d, func(ctx context.Context, o split.Options) error { return split.Start(ctx, *d, o) })
}

// retryFailed begins a split of the items of a joblog that failed.
func (p process) retryFailed(c *cli.Context, args []string) error {
	if err := refuse(c, "--retry-failed", definitionFlags); err != nil {
		return err
	}
	if len(args) > 0 {
		return shell.Usagef("unexpected argument %q: the command is that of the joblog", args[0])
	}
	path, err := filepath.Abs(c.String("retry-failed"))
	if err != nil {
		return fmt.Errorf("find %s: %w", c.String("retry-failed"), err)
	}
	d, err := split.FailedItems(path)
	if err != nil {
		return fmt.Errorf("--retry-failed: %w", err)
	}
	if len(d.Input.Numbers) == 0 {
		fmt.Fprintln(p.stderr, "asplit: no item of the joblog failed: nothing to do")
		return nil
	}
	if err := again(c, &d); err != nil {
		return err
	}
	return p.begin(c, &d)
}

// definitionFlags are the options that a definition keeps; againFlags those of them that a
// new run of failed items may change.
var (
	definitionFlags = []string{
		"P", "q", "M", "R", "W", "range", "file", "null", "shell", "hosts", "slots", "round", "adjust", "profile", "threshold", "step", "no-qualify", "unordered", "joined", "join-dir", "from-here", "try",
	}
	againFlags = []string{"J", "retries", "timeout", "halt", "joblog", "speculate", "copies", "adds", "states"}
)

// refuse returns an error if one of these options is set.
func refuse(c *cli.Context, option string, names []string) error {
	for _, f := range names {
		if c.IsSet(f) {
			return shell.Usagef("%s uses the options of the first run: omit %s", option, f)
		}
	}
	return nil
}

// resume continues one.
func (p process) resume(c *cli.Context, args []string) error {
	if err := refuse(c, "--resume", append(append([]string{"dry-run"}, definitionFlags...), againFlags...)); err != nil {
		return err
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
	if err := refuseResident(c, found.Definition); err != nil {
		return errors.Join(err, found.Close())
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
	s := newScreen(p.stderr, c.Bool("quiet"))
	jobs, err := p.openQueue(c.Context, d, s)
	if err != nil {
		return err
	}
	defer func() { _ = jobs.Close() }()
	// SIGPIPE is caught: where a reader closes the results early, asplit gets a write
	// error and leaves no jobs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	standing, err := p.standing(c, d)
	if err != nil {
		return err
	}
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
	if c.Bool("tag") && d.Mode != task.Each {
		return shell.Usagef("--tag: the command has no {}: a task's output is that of all of its items")
	}
	err = do(c.Context, split.Options{
		Work: submitContext.Dir, Queue: jobs, Spec: spec, Program: []string{program}, Standing: standing, Measure: measure,
		Stdin: p.stdin, Stdout: printableOn(c.App.Writer), Stderr: s, Reporter: s, Keep: c.Bool("keep"), Tag: c.Bool("tag"),
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
	argv, words, hasWords, err := cutWords(argv)
	if err != nil {
		return d, err
	}
	if argv, err = commandOf(argv, c.Bool("shell"), hasWords); err != nil {
		return d, err
	}
	d = split.Definition{Argv: argv, Unordered: c.Bool("unordered")}
	if d.Mode, err = task.ModeOf(argv); err != nil {
		return d, shell.Usagef("%w", err)
	}
	if d.Try, err = variables(c, d.Mode); err != nil {
		return d, err
	}
	if d.Input, err = input(c, words, hasWords); err != nil {
		return d, err
	}
	if err := again(c, &d); err != nil {
		return d, err
	}
	if d.Balance, err = balance(c); err != nil {
		return d, err
	}
	d.Measured = d.Balance.Rule != metrics.Equal && !c.Bool("no-qualify")
	if d.Slots, err = slots(c, d.Mode); err != nil {
		return d, err
	}
	return d, where(c, &d)
}

// variables returns what is tried (R49).
func variables(c *cli.Context, mode task.Mode) (all []try.Variable, err error) {
	for _, text := range c.StringSlice("try") {
		v, err := try.Parse(text)
		if err != nil {
			return nil, shell.Usagef("--try: %w", err)
		}
		all = append(all, v)
	}
	if err := try.Check(all); err != nil {
		return nil, shell.Usagef("--try: %w", err)
	}
	if len(all) > 0 && mode != task.Each {
		return nil, shell.Usagef("--try compares items, and this command runs once a task: have it run once for each item, by {}")
	}
	return all, nil
}

// where sets on which hosts a split runs, and the options of its jobs.
func where(c *cli.Context, d *split.Definition) (err error) {
	if c.IsSet("hosts") {
		for name := range strings.SplitSeq(c.String("hosts"), ",") {
			if name = strings.TrimSpace(name); name == "" {
				return shell.Usagef("--hosts %q: want HOST,HOST...", c.String("hosts"))
			}
			d.Hosts = append(d.Hosts, name)
		}
	}
	d.Options = jobOptions(c, "P", "q", "M", "R", "W")
	if c.Bool("joined") {
		d.Joined, err = joinDir(c)
	} else if c.IsSet("join-dir") {
		err = shell.Usagef("--join-dir needs --joined")
	}
	if err == nil && c.Bool("from-here") {
		err = fromHere(c, d)
	}
	return err
}

// fromHere has a split run on leased slots. What is of jobs, or of hosts, has no meaning there.
func fromHere(c *cli.Context, d *split.Definition) error {
	for _, name := range []string{"P", "q", "R", "W", "joined", "join-dir", "hosts", "slots", "profile", "workers", "idle", "copies", "speculate"} {
		if c.IsSet(name) {
			return shell.Usagef("--from-here runs on slots that are granted one by one, on any host: omit %s", name)
		}
	}
	n, err := strconv.Atoi(c.String("max-workers"))
	if err != nil || n < 1 || n > leased.MaxSlots {
		return shell.Usagef("--from-here: say by --max-workers how many slots at a time, 1 to %d", leased.MaxSlots)
	}
	d.Leased, d.Slots, d.Measured = n, 1, false
	return nil
}

// jobOptions returns those of the options that are set, as of a job's submission.
func jobOptions(c *cli.Context, names ...string) (options []string) {
	for _, name := range names {
		if c.IsSet(name) {
			options = append(options, "-"+name, c.String(name))
		}
	}
	return options
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

// again sets what a new run of failed items may change.
func again(c *cli.Context, d *split.Definition) (err error) {
	if d.Name = c.String("J"); d.Name != "" {
		if err := split.CheckName(d.Name); err != nil {
			return shell.Usagef("-J: %w", err)
		}
	}
	if c.IsSet("retries") {
		if d.Retries, err = strconv.Atoi(c.String("retries")); err != nil || d.Retries < 0 || d.Retries > task.MaxRetries {
			return shell.Usagef("--retries %q: want a number from 0 to %d", c.String("retries"), task.MaxRetries)
		}
	}
	if c.IsSet("timeout") {
		var limit unit.Duration
		if err := limit.UnmarshalText([]byte(c.String("timeout"))); err != nil || limit <= 0 || time.Duration(limit) > task.MaxTimeout {
			return shell.Usagef("--timeout %q: want a time above 0 such as 10m, a year at most", c.String("timeout"))
		}
		d.Timeout = time.Duration(limit)
	}
	if c.IsSet("halt") {
		if d.Halt, err = split.ParseHalt(c.String("halt")); err != nil {
			return shell.Usagef("--halt: %w", err)
		}
	}
	d.Speculate, d.Adds, d.States = c.Bool("speculate") || d.Speculate, c.Bool("adds") || d.Adds, c.Bool("states") || d.States
	if c.IsSet("copies") {
		if d.Copies, err = strconv.Atoi(c.String("copies")); err != nil || d.Copies < 1 || d.Copies > split.MaxCopies {
			return shell.Usagef("--copies %q: want a number from 1 to %d", c.String("copies"), split.MaxCopies)
		}
	}
	if d.Copies > 1 && d.Speculate {
		return shell.Usagef("--copies begins each task on several hosts, --speculate those that take long: use one of the two")
	}
	if c.IsSet("joblog") {
		return setJoblog(c.String("joblog"), d)
	}
	return nil
}

func setJoblog(name string, d *split.Definition) (err error) {
	if name == "" {
		return shell.Usagef("--joblog: want the name of a new file")
	}
	if d.Joblog, err = filepath.Abs(name); err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if info, err := os.Lstat(d.Joblog); err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return shell.Usagef("--joblog %s: it exists; each item stands once in a joblog: name a new file", name)
	}
	return nil
}

// input returns where items come from: one source, or several in the order in which their
// items arrive.
func input(c *cli.Context, words []string, hasWords bool) (in split.Input, err error) {
	in = split.Input{Kind: split.Stdin, Null: c.Bool("null")}
	files := c.StringSlice("file")
	if c.IsSet("range") {
		if len(files) > 0 || in.Null || hasWords {
			return in, shell.Usagef("--range needs no --file, no --null and no %s: its items are numbers", wordsMark)
		}
		in.Kind = split.Range
		if in.From, in.To, err = split.ParseRange(c.String("range")); err != nil {
			return in, shell.Usagef("--range: %w", err)
		}
		return in, nil
	}
	for _, name := range files {
		s := split.Source{Kind: split.Stdin}
		if name != "-" {
			if s, err = fileSource(name); err != nil {
				return in, err
			}
		} else if slices.ContainsFunc(in.Sources, func(s split.Source) bool { return s.Kind == split.Stdin }) {
			return in, shell.Usagef("--file -: standard input is listed twice")
		}
		in.Sources = append(in.Sources, s)
	}
	if hasWords {
		if !in.Null && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, "\n") }) {
			return in, shell.Usagef("an item behind ::: contains a newline: use --null, which ends items in NUL")
		}
		in.Sources = append(in.Sources, split.Source{Kind: split.Words, Words: words})
	}
	if len(in.Sources) > split.MaxSources {
		return in, shell.Usagef("%d sources of items: %d at most", len(in.Sources), split.MaxSources)
	}
	switch {
	case len(in.Sources) == 0:
	case len(in.Sources) == 1 && !hasWords:
		in.Kind, in.Path, in.Sources = in.Sources[0].Kind, in.Sources[0].Path, nil
	default:
		in.Kind = split.Several
	}
	return in, nil
}

func fileSource(name string) (s split.Source, err error) {
	s.Kind = split.Lines
	if s.Path, err = filepath.Abs(name); err != nil {
		return s, fmt.Errorf("find %s: %w", name, err)
	}
	if _, err := os.Stat(s.Path); err != nil {
		return s, shell.Usagef("--file: %w", err)
	}
	return s, nil
}

func balance(c *cli.Context) (o metrics.Options, err error) {
	if o.Rule, err = metrics.ParseRule(c.String("adjust")); err != nil {
		return o, shell.Usagef("--adjust: %w", err)
	}
	if o.Factors, err = factorsOf(c.String("profile")); err != nil {
		return o, shell.Usagef("--profile: %w", err)
	}
	if o.Threshold, err = number(c, "threshold", 0, 100); err != nil {
		return o, err
	}
	const alwaysAbove = 1e-9 // 0 stands for the default
	if o.Threshold /= 100; c.IsSet("threshold") {
		o.Threshold = max(o.Threshold, alwaysAbove)
	}
	if o.Step, err = number(c, "step", math.SmallestNonzeroFloat64, 100); err != nil {
		return o, err
	}
	if c.IsSet("step") && o.Rule != metrics.Step {
		return o, shell.Usagef("--step needs --adjust step: no other rule has steps")
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

// number returns an option's value; 0 if it is not set.
func number(c *cli.Context, name string, least, most float64) (float64, error) {
	if !c.IsSet(name) {
		return 0, nil
	}
	v, err := strconv.ParseFloat(c.String(name), 64)
	if err != nil || !(v >= least && v <= most) {
		above := "from 0"
		if least > 0 {
			above = "above 0"
		}
		return 0, shell.Usagef("--%s %q: want a number %s to %g", name, c.String(name), above, most)
	}
	return v, nil
}
