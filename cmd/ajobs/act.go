package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// actionOptions are the options of the commands that do something to jobs.
type actionOptions struct {
	choice
	args   []bsub.JobArg
	signal string // akill -s; "": none

	requeues requeues // arequeue -e, -d and -a
	now      bool     // akill -r
}

// actionApp is a command that does something to jobs.
func actionApp(p process, name, usage string, run func(context.Context, process, actionOptions, io.Writer) error) *cli.App {
	return &cli.App{
		Name: name, Usage: usage, ArgsUsage: "JOB... | 0",
		Description: "JOB is a job's ID: 12, an array's element 12[3], some of its elements 12[1-3,7], or for the whole\n" +
			"array 12. The name of one of your own jobs will do, if no other has it. 0 means all of your own unfinished jobs, or those that the options choose.",
		Flags: choiceFlags(),
		Action: func(c *cli.Context) error {
			args, err := jobArgs(c.Args().Slice())
			if err != nil {
				return err
			}
			chosen, err := choiceOf(c, p.user())
			if err != nil {
				return err
			}
			all := slices.ContainsFunc(args, func(a bsub.JobArg) bool { return a.All })
			switch {
			case len(args) == 0:
				return shell.Usagef("no job named: give job IDs, or 0 for all jobs that the options choose")
			case all && len(args) > 1:
				return shell.Usagef("0 means all jobs; name no others beside it")
			case !all && (countChoices(c) > 0 || c.IsSet("m") || c.IsSet("g") || c.IsSet("app")):
				return shell.Usagef("the options choose among all jobs: give 0 instead of job IDs")
			}
			return run(c.Context, p, actionOptions{choice: chosen, args: args, signal: c.String("s"), requeues: requeues{c.Bool("e"), c.Bool("d"), c.Bool("a")}, now: c.Bool("r")}, c.App.Writer)
		},
	}
}

// operation is one verb of the backends' interface.
type operation uint8

// The operations in the order in which they are carried out: a job that is to be
// held must not start on the slots of one that is suspended beside it.
const (
	kill operation = iota
	hold
	suspend
	resume
	release
	requeue
	reopen
	sendSignal
	killNow
	operations
)

// Why a job can't be acted upon, in LSF's words where it has some.
var (
	errFinished   = errors.New("Job has already finished")       //nolint:staticcheck // LSF's own words
	errHasStarted = errors.New("Job has started already")        //nolint:staticcheck // in their manner
	errNotStarted = errors.New("Job has not started yet")        //nolint:staticcheck // LSF's own words
	errStopped    = errors.New("Job has already been stopped")   //nolint:staticcheck // in their manner
	errNotEnded   = errors.New("Job has not ended")              //nolint:staticcheck // in their manner
	errNotFailed  = errors.New("Job is done: -d requeues it")    //nolint:staticcheck // in their manner
	errNotDone    = errors.New("Job has failed: -e requeues it") //nolint:staticcheck // in their manner
	errNotStopped = errors.New("Job is not stopped")             //nolint:staticcheck // in their manner
	errNoJob      = errors.New("No matching job found")          //nolint:staticcheck // LSF's own words
	errDenied     = errors.New("User permission denied")         //nolint:staticcheck // LSF's own words
)

// errGone is errNoJob for what is done to jobs that have ended.
var errGone = fmt.Errorf("%w: a queue keeps jobs that have ended for a while only: submit it again", errNoJob)

// errUnableToKillNow is for Slurm: it takes a job off a host when the host has answered or is down.
var errUnableToKillNow = fmt.Errorf("end a job without waiting for it (-r): %w: akill without -r ends it; if its host can't be reached, its slots are free once an administrator has set the host down: scontrol update nodename=HOST state=down reason=TEXT", backends.ErrUnable)

var errUnableToReopen = fmt.Errorf("requeue a job that has ended: %w: submit it again", backends.ErrUnable)

// action is what a command does to jobs.
type action struct {
	verb   bsub.Verb
	signal int // of the operation sendSignal
	// operationFor returns the operation for a job in a state, or why there is none.
	operationFor func(backends.State) (operation, error)
	// missing is the error of a job that the queue does not have; nil: errNoJob.
	missing error
}

// target is one thing that the command line names, and the jobs that it is.
type target struct {
	label string
	jobs  []backends.Job
	done  bool
	err   error
}

// run acts on the jobs that the options name, and prints a line for each. An
// array is acted upon in those of its elements that are in a state for it.
func (a action) run(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	targets, err := o.find(ctx, queue, p, func(j *backends.Job) bool {
		_, err := a.operationFor(j.State)
		return err == nil
	})
	if err != nil {
		return err
	}
	if o.args[0].All && len(targets) == 0 {
		return errNoJob
	}
	a.perform(ctx, queue, targets)
	if o.args[0].All && a.ends() {
		targets = slices.DeleteFunc(targets, (*target).hasJustEnded)
	}
	return a.report(p, targets, out)
}

// ends reports whether a job that has ended is as if the command had acted on it.
func (a action) ends() bool { return a.verb == bsub.Kill || a.verb == bsub.Signal }

// hasJustEnded reports whether all jobs of a target ended by themselves before the queue was asked.
func (t *target) hasJustEnded() bool {
	return !t.done && (errors.Is(t.err, backends.ErrWrongState) || errors.Is(t.err, backends.ErrUnknownJob))
}

// find finds the named jobs; of all jobs (0) those that suit.
func (o actionOptions) find(ctx context.Context, queue backends.Backend, p process, suits func(*backends.Job) bool) ([]*target, error) {
	var targets []*target
	if o.args[0].All {
		if err := o.ask(ctx, queue); err != nil {
			return nil, err
		}
		since := p.now()
		if o.requeues.ended() {
			since = since.Add(-endedFor)
		}
		farm, err := queue.Snapshot(ctx, since)
		if err != nil {
			return nil, err
		}
		jobs := farm.Jobs
		if o.requeues.ended() {
			jobs = append(slices.Clip(jobs), farm.Ended...)
		}
		return targetsOf(jobs, func(j *backends.Job) bool { return o.includes(j) && suits(j) }), nil
	}
	ids, err := idsOf(ctx, queue, p, o.args)
	if err != nil {
		return nil, err
	}
	jobs, err := queue.Jobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := byID(jobs)
	for _, id := range ids {
		targets = append(targets, &target{label: id.String(), jobs: found[id]})
	}
	return targets, nil
}

// targetsOf returns a target for each job that is chosen, and one for each array: under the array's
// ID if all of its elements among jobs are chosen, else with their indices.
func targetsOf(jobs []backends.Job, chosen func(*backends.Job) bool) []*target {
	var targets []*target
	arrays := map[int64]*target{}
	elements := map[int64]int{}
	for i := range jobs {
		j := &jobs[i]
		if j.ID.Index != 0 {
			elements[j.ID.Job]++
		}
		switch t := arrays[j.ID.Job]; {
		case !chosen(j):
		case t != nil:
			t.jobs = append(t.jobs, *j)
		default:
			t = &target{label: j.ID.String(), jobs: []backends.Job{*j}}
			targets = append(targets, t)
			if j.ID.Index != 0 {
				arrays[j.ID.Job] = t
			}
		}
	}
	for id, t := range arrays {
		t.label = backends.ID{Job: id}.String()
		if len(t.jobs) < elements[id] {
			var indices []int
			for i := range t.jobs {
				indices = append(indices, max(t.jobs[i].ID.Index, 0))
			}
			slices.Sort(indices)
			t.label += "[" + bsub.FormatIndices(indices) + "]"
		}
	}
	return targets
}

// perform calls each operation once, and acts on each job once.
func (a action) perform(ctx context.Context, queue backends.Backend, targets []*target) {
	var ids [operations][]backends.ID
	results := map[backends.ID]error{}
	for _, t := range targets {
		for _, j := range t.jobs {
			op, err := a.operationFor(j.State)
			if _, seen := results[j.ID]; err == nil && !seen {
				ids[op] = append(ids[op], j.ID)
			}
			results[j.ID] = err
		}
	}
	acted := map[backends.ID]bool{}
	for op := range operations {
		if len(ids[op]) == 0 {
			continue
		}
		for i, err := range a.operate(ctx, queue, op, ids[op]) {
			results[ids[op][i]], acted[ids[op][i]] = err, true
		}
	}
	for _, t := range targets {
		t.summarize(results, acted)
	}
}

// summarize summarizes the results of a target's jobs: it is done if one of them is;
// else the queue's own errors go before what the jobs' states forbade.
func (t *target) summarize(results map[backends.ID]error, acted map[backends.ID]bool) {
	t.err = backends.ErrUnknownJob
	for _, wasActed := range []bool{false, true} {
		for _, j := range t.jobs {
			if acted[j.ID] != wasActed {
				continue
			}
			err := results[j.ID]
			t.done = t.done || err == nil
			if !errors.Is(t.err, backends.ErrUnreachable) {
				t.err = err
			}
		}
	}
}

func (a action) operate(ctx context.Context, queue backends.Backend, op operation, ids []backends.ID) backends.Errors {
	acts := make([]backends.Act, len(ids))
	for i, id := range ids {
		acts[i].ID = id
	}
	switch op {
	case kill:
		return queue.Kill(ctx, ids)
	case suspend:
		return queue.Suspend(ctx, acts)
	case hold:
		return queue.Hold(ctx, ids)
	case resume:
		return queue.Resume(ctx, ids)
	case release:
		return queue.Release(ctx, ids)
	case sendSignal:
		if send := queue.Abilities().Signal; send != nil {
			return send(ctx, ids, a.signal)
		}
		return backends.Fail(len(ids), backends.ErrUnable)
	case killNow:
		if end := queue.Abilities().KillNow; end != nil {
			return end(ctx, ids)
		}
		return backends.Fail(len(ids), errUnableToKillNow)
	case reopen:
		if again := queue.Abilities().Reopen; again != nil {
			return again(ctx, ids)
		}
		return backends.Fail(len(ids), errUnableToReopen)
	default:
		return queue.Requeue(ctx, acts)
	}
}

// report prints one line for each target and returns an error unless all succeeded.
func (a action) report(p process, targets []*target, out io.Writer) error {
	var failed, unreachable error
	for _, t := range targets {
		switch {
		case errors.Is(t.err, backends.ErrUnreachable):
			unreachable = t.err
		case t.done:
			if _, err := fmt.Fprintln(out, a.verb.Line(t.label)); err != nil {
				return err
			}
		default:
			fmt.Fprintf(p.stderr, "Job <%s>: %s\n", t.label, a.errorText(t.err))
			failed = &shell.ExitError{Code: shell.ExitFailure}
		}
	}
	if unreachable != nil {
		return unreachable
	}
	return failed
}

// errorText returns an error's text: LSF's own, where LSF has one.
func (a action) errorText(err error) string {
	switch {
	case errors.Is(err, backends.ErrUnknownJob):
		err = cmp.Or(a.missing, errNoJob)
	case errors.Is(err, backends.ErrDenied):
		err = errDenied
	case errors.Is(err, backends.ErrWrongState) && a.verb == bsub.Kill:
		err = errFinished
	}
	return shell.OneLine(err.Error())
}
