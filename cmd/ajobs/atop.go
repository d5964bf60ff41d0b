package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// maxPosition is beyond the number of jobs of any queue.
const maxPosition = 1 << 30

// reorderApp is atop, or abot if bottom.
func reorderApp(p process, name string, bottom bool) *cli.App {
	end, other := "first", "before"
	if bottom {
		end, other = "last", "behind"
	}
	return &cli.App{
		Name: name, Usage: "start one of your waiting jobs " + other + " your other ones", ArgsUsage: "JOB [POSITION]",
		Description: "The job goes to POSITION among your own waiting jobs, 1 being the " + end + " one (default). It changes places\n" +
			"only with your jobs of the same queue and priority: no other user's job moves, and pools are served\n" +
			"as before. An array's waiting elements move together.",
		Metadata: map[string]any{commands.Examples: []grammar.Example{
			{Line: name + " 12", Does: "job 12 is the " + end + " one of yours to start"},
			{Line: name + " 12 2", Does: "it goes " + other + " all but one"},
		}},
		Action: func(c *cli.Context) error {
			words, err := commands.Args(c, 1, 2)
			if err != nil {
				return err
			}
			position := 1
			if len(words) == 2 {
				n, err := strconv.Atoi(words[1])
				if err != nil || n < 1 || n > maxPosition {
					return shell.Usagef("position %s: want a number from 1 on", bsub.Visible(words[1]))
				}
				position = n
			}
			args, err := jobArgs(words[:1])
			if err != nil {
				return err
			}
			if args[0].All {
				return shell.Usagef("no job named: give the ID or the name of a waiting job")
			}
			return reorderJob(c.Context, p, args, position, bottom, c.App.Writer)
		},
	}
}

// errUnableToReorder is for queues that have no order of a user's own.
var errUnableToReorder = fmt.Errorf("change the order of your jobs: %w: lower the others by amod -sp, such as amod -sp 10 JOB", backends.ErrUnable)

// reorderJob moves the jobs that one word names.
func reorderJob(ctx context.Context, p process, args []bsub.JobArg, position int, bottom bool, out io.Writer) error {
	queue, err := p.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	reorder := queue.Abilities().Reorder
	if reorder == nil {
		return errUnableToReorder
	}
	ids, err := idsOf(ctx, queue, p, args)
	if err != nil {
		return err
	}
	from := map[bool]string{false: "top", true: "bottom"}[bottom]
	var failed error
	for i, err := range reorder(ctx, ids, position, bottom) {
		switch {
		case errors.Is(err, backends.ErrUnreachable):
			return err
		case err != nil:
			fmt.Fprintf(p.stderr, "Job <%s>: %s\n", ids[i], action{verb: bsub.Requeue}.errorText(err))
			failed = &shell.ExitError{Code: shell.ExitFailure}
		default:
			fmt.Fprintf(out, "Job <%s> has been moved to position %d from %s.\n", ids[i], position, from)
		}
	}
	return failed
}
