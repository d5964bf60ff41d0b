package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

var errTagged = fmt.Errorf("change the description: %w: on this queue it begins with the submit filter's tag, which must stay", backends.ErrUnable)

var errUnableToModify = fmt.Errorf("change a pending job: %w: kill it with akill and submit it again", backends.ErrUnable)

// runModify is amod. Its grammar is asub's.
func runModify(ctx context.Context, p process, args []string, out io.Writer) error {
	line, err := bsub.ScanChange(args)
	switch {
	case err != nil:
		return shell.Usagef("%w", err)
	case line.Help:
		_, err := io.WriteString(out, modifyHelp())
		return err
	case line.Version:
		_, err := fmt.Fprintln(out, "amod", shell.VersionText())
		return err
	case line.Nothing():
		return shell.Usagef("nothing to change: give asub options and job IDs; see amod --help")
	}
	jobs, err := jobArgs(line.Jobs)
	if err != nil {
		return err
	}
	if len(jobs) == 0 || jobs[0].All {
		return shell.Usagef("no job named: give the IDs of pending jobs")
	}
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	if queue.Abilities().Modify == nil {
		return errUnableToModify
	}
	m := modification{process: p, line: line, queue: queue, warned: map[string]bool{}}
	return m.run(ctx, actionOptions{args: jobs}, out)
}

// modification is one run of amod.
type modification struct {
	process
	line   bsub.ChangeLine
	queue  backends.Backend
	warned map[string]bool
}

// run changes the named jobs, one after the other.
func (m *modification) run(ctx context.Context, o actionOptions, out io.Writer) error {
	targets, err := o.find(ctx, m.queue, m.process, nil)
	if err != nil {
		return err
	}
	var failed error
	for _, t := range targets {
		err := errNoJob
		if len(t.jobs) > 0 {
			err = m.change(ctx, t, out)
		}
		var exit *shell.ExitError
		switch {
		case errors.As(err, &exit), errors.Is(err, backends.ErrUnreachable), errors.Is(err, submit.ErrRejected):
			return err
		case err != nil:
			fmt.Fprintf(m.stderr, "Job <%s>: %s\n", t.label, action{verb: bsub.Requeue}.errorText(err))
			failed = &shell.ExitError{Code: shell.ExitFailure}
		default:
			fmt.Fprintf(out, "Parameters of job <%s> are being changed\n", t.label)
		}
	}
	return failed
}

// change changes one job, or an array as a whole.
func (m *modification) change(ctx context.Context, t *target, out io.Writer) error {
	job := &t.jobs[0]
	for i := range t.jobs { // of an array one that can still be changed
		if state := t.jobs[i].State; state == backends.Pending || state == backends.Held {
			job = &t.jobs[i]
			break
		}
	}
	if job.State.Ended() {
		return errFinished
	}
	submitContext, err := m.submitContext()
	if err != nil {
		return err
	}
	if queueOptions := m.queue.Abilities().Options; queueOptions != nil {
		submitContext.Options = queueOptions()
	}
	submitContext.QueuePriorities, submitContext.Resources = m.queue.Abilities().CountsPriorities, m.queue.Abilities().Resources
	c, warnings, err := m.line.Change(submitContext, job)
	if err != nil {
		return shell.Usagef("%w", err)
	}
	for _, warning := range warnings {
		if !m.warned[warning] {
			m.warned[warning] = true
			fmt.Fprintf(m.stderr, "amod: warning: %s\n", warning)
		}
	}
	id, err := backends.ParseID(t.label)
	if err != nil {
		return err
	}
	if job.State == backends.Running || job.State == backends.Suspended {
		return m.changeStarted(ctx, id, job, c, out)
	}
	switch {
	case !m.queue.Abilities().Filters:
		spec, err := m.spec(ctx, job)
		if err != nil {
			return err
		}
		if c, err = m.filter(ctx, submit.Pending{Spec: spec, Others: job.User != m.user()}, c, m.stderr); err != nil {
			return err
		}
	case c.Description != nil && job.Tag != "":
		return errTagged
	}
	return m.queue.Abilities().Modify(ctx, []backends.ID{id}, c).First()
}

// spec returns what the queue knows of a job's submission.
func (m *modification) spec(ctx context.Context, job *backends.Job) (backends.Spec, error) {
	if read := m.queue.Abilities().Record; read != nil {
		record, err := read(ctx, job.ID)
		if err != nil {
			return backends.Spec{}, err
		}
		return record.Spec, nil
	}
	return backends.Spec{Description: job.Tag, Queue: job.Queue, Slots: job.Slots, Memory: job.Memory}, nil
}

// changeStarted changes the run limit of a job that has started, and says what it is now: some
// queues let only their operators raise one.
func (m *modification) changeStarted(ctx context.Context, id backends.ID, job *backends.Job, c backends.Change, out io.Writer) error {
	if !c.LimitOnly() {
		return errHasStarted
	}
	failed := m.queue.Abilities().Modify(ctx, []backends.ID{id}, c).First()
	if errors.Is(failed, backends.ErrUnreachable) {
		return failed
	}
	now, err := m.queue.Jobs(ctx, []backends.ID{job.ID})
	switch {
	case failed != nil && (err != nil || len(now) == 0):
		return failed
	case err != nil:
		return err
	case len(now) == 0 || now[0].State.Ended() || now[0].Ending && failed == nil:
		fmt.Fprintf(out, "Run limit of job <%s> is over: the job ends\n", job.ID)
		return nil
	case failed != nil:
		return errors.New(failed.Error() + ": its run limit is " + limitText(now[0].RunLimit) + " as before") // without its kind: LSF's words would replace the reason
	case now[0].RunLimit != *c.RunLimit:
		return fmt.Errorf("asked for a run limit of %s: the queue has it as %s", limitText(*c.RunLimit), limitText(now[0].RunLimit))
	}
	fmt.Fprintf(out, "Run limit of job <%s> is %s now\n", job.ID, limitText(*c.RunLimit))
	return nil
}

func limitText(limit time.Duration) string {
	if limit <= 0 {
		return "none"
	}
	return bsub.FormatMinutes(limit) + " min"
}

// modifyGrammar is what can be typed at amod.
func modifyGrammar() *grammar.Command {
	c := &grammar.Command{
		Name: "amod", Brief: modifyBrief, Description: modifyDescription,
		Synopsis: []string{"amod [options] JOB..."}, Arguments: []grammar.Argument{{Name: "JOB", Many: true}},
		Examples: []grammar.Example{
			{Line: "amod -n 2 -W 1:00 12", Does: "change job 12 to two slots and an hour"},
			{Line: "amod -bn 12", Does: "remove job 12's begin time"},
			{Line: "amod -W 4:00 12", Does: "give job 12, which runs, four hours in all"},
		},
	}
	for _, o := range bsub.ChangeOptions() {
		c.Options = append(c.Options, grammar.Option{Names: []string{o.Name}, Value: o.Arg, Usage: o.Note})
		if o.Revocable {
			c.Options = append(c.Options, grammar.Option{Names: []string{o.Name + "n"}, Usage: "removes " + o.Name})
		}
	}
	c.Options = append(c.Options, grammar.Option{Names: []string{"-V", "--version"}, Usage: "print version and commit"})
	return c
}

// modifyHelp is what amod --help prints.
func modifyHelp() string {
	var b strings.Builder
	b.WriteString(`NAME:
   amod - ` + modifyBrief + `

USAGE:
   amod [options] JOB...

DESCRIPTION:
` + shell.Indented(modifyDescription) + `
OPTIONS:
`)
	for _, o := range bsub.ChangeOptions() {
		name := o.Name + " " + o.Arg
		if o.Revocable {
			name += ", " + o.Name + "n"
		}
		fmt.Fprintf(&b, "   %-40s %s\n", name, o.Note)
	}
	fmt.Fprintf(&b, "   %-40s %s\n", "-h, --help", "print this")
	fmt.Fprintf(&b, "   %-40s %s\n", "-V, --version", "print version and commit")
	return b.String() + "\n" + shell.ExitCodes
}

const (
	modifyBrief       = "change pending jobs, and the run limit of running ones"
	modifyDescription = `The options are asub's; -bn, -Wn and the like remove one. What is not named stays as
it is. JOB is a job's or a whole array's ID, or one element as 12[3]. Of a job that has
started its run limit can be changed alone (-W, -Wn); some queues let only their
administrators raise it. The submit filter checks another project as it does a new job's:
a job that fails the tests is lowered, or the change is refused.`
)
