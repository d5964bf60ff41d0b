package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/internal/nearest"
)

func switchApp(p process) *cli.App {
	return &cli.App{
		Name: "aswitch", Usage: "move pending jobs to another queue", ArgsUsage: "QUEUE JOB...",
		Description: "The submit filter checks the job as asub -q does, and may send it to another queue than the named\n" +
			"one: the queue where it is afterwards is printed. Jobs that have started stay in their queue.",
		Metadata: map[string]any{commands.Examples: []grammar.Example{
			{Line: "aswitch low 12", Does: "move job 12 to the queue low"},
		}},
		Action: func(c *cli.Context) error {
			words, err := commands.Args(c, 2, -1)
			if err != nil {
				return err
			}
			args, err := jobArgs(words[1:])
			if err != nil {
				return err
			}
			if args[0].All {
				return shell.Usagef("no job named: give the IDs of pending jobs")
			}
			return runSwitch(c.Context, p, words[0], args, c.App.Writer)
		},
	}
}

// runSwitch is aswitch.
func runSwitch(ctx context.Context, p process, to string, args []bsub.JobArg, out io.Writer) error {
	line, err := bsub.ScanChange([]string{"-q", to})
	if err != nil {
		return shell.Usagef("%w", err)
	}
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	if queue.Abilities().Modify == nil {
		return errUnableToModify
	}
	if err := checkQueue(ctx, queue, to); err != nil {
		return err
	}
	o := actionOptions{args: args}
	targets, err := o.find(ctx, queue, p, nil)
	if err != nil {
		return err
	}
	m := modification{process: p, line: line, queue: queue, warned: map[string]bool{}}
	var failed error
	for _, t := range targets {
		now, err := m.move(ctx, t)
		switch {
		case errors.Is(err, backends.ErrUnreachable), errors.Is(err, submit.ErrRejected):
			return err
		case err != nil:
			fmt.Fprintf(p.stderr, "Job <%s>: %s\n", t.label, action{verb: bsub.Requeue}.errorText(err))
			failed = &shell.ExitError{Code: shell.ExitFailure}
		default:
			fmt.Fprintf(out, "Job <%s> is switched to queue <%s>\n", t.label, bsub.Visible(now))
		}
	}
	return failed
}

// checkQueue refuses a queue that there is not, where the queues are known.
func checkQueue(ctx context.Context, queue backends.Backend, name string) error {
	list := queue.Abilities().Queues
	if list == nil {
		return nil
	}
	queues, err := list(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, q := range queues {
		if q.Name == name {
			return nil
		}
		names = append(names, q.Name)
	}
	return &shell.ExitError{Code: shell.ExitFailure, Err: fmt.Errorf("%s: No such queue%s", bsub.Visible(name), nearest.Hint(name, names))}
}

// move changes the queue of a job, or of an array's waiting elements, and returns the one where
// it is then.
func (m *modification) move(ctx context.Context, t *target) (string, error) {
	if len(t.jobs) == 0 {
		return "", errNoJob
	}
	if err := m.change(ctx, t, io.Discard); err != nil { // a new queue changes no run limit
		return "", err
	}
	id, err := backends.ParseID(t.label)
	if err != nil {
		return "", err
	}
	jobs, err := m.queue.Jobs(ctx, []backends.ID{id})
	if err != nil {
		return "", err
	}
	for i := range jobs {
		if state := jobs[i].State; state == backends.Pending || state == backends.Held || len(jobs) == 1 {
			return jobs[i].Queue, nil
		}
	}
	return "", errHasStarted
}
