package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// queuesOptions are the options of aqueues.
type queuesOptions struct {
	names      []string // empty: all
	wide, json bool
}

func queuesApp(s site) *cli.App {
	return &cli.App{
		Name: "aqueues", Usage: "list queues and what their jobs do", ArgsUsage: "[QUEUE...]",
		Description: "The figures are slots: of all unfinished jobs, of pending, running, and stopped or held ones.\n" +
			"PRIO orders the queues; an allocation puts jobs of any queue before others.",
		UseShortOptionHandling: true,
		Metadata: map[string]any{grammar.Examples: []grammar.Example{
			{Line: "aqueues", Does: "all queues"},
		}},
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "w", Usage: "cut nothing short", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			o := queuesOptions{names: c.Args().Slice(), wide: c.Bool("w"), json: c.Bool("json")}
			return runQueues(c.Context, s, o, c.App.Writer)
		},
	}
}

// runQueues is aqueues.
func runQueues(ctx context.Context, s site, o queuesOptions, out io.Writer) error {
	queue, err := s.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	var queues []backends.Queue
	if list := queue.Abilities().Queues; list != nil {
		if queues, err = list(ctx); err != nil {
			return err
		}
	}
	farm, err := queue.Farm(ctx, s.now())
	if err != nil {
		return err
	}
	uses := bsub.UseQueues(queues, farm)
	var unknown []string
	for _, name := range o.names {
		if !slices.ContainsFunc(uses, func(q bsub.QueueUse) bool { return q.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(o.names) > 0 {
		uses = slices.DeleteFunc(uses, func(q bsub.QueueUse) bool { return !slices.Contains(o.names, q.Name) })
	}
	switch {
	case o.json:
		err = shell.PrintJSON(out, queuesJSON(uses))
	case len(uses) > 0:
		err = bsub.WriteQueues(out, uses, o.wide)
	}
	for _, name := range unknown {
		fmt.Fprintf(s.stderr, "%s: No such queue\n", bsub.Visible(name))
	}
	if err == nil && len(unknown) > 0 {
		err = &shell.ExitError{Code: shell.ExitFailure}
	}
	return err
}

// queueJSON is a queue as --json prints it; the figures are slots.
type queueJSON struct {
	Name      string `json:"name"`
	Default   bool   `json:"default"`
	Level     string `json:"level"`
	Pending   int    `json:"pending_slots"`
	Running   int    `json:"running_slots"`
	Suspended int    `json:"suspended_slots"`
}

func queuesJSON(queues []bsub.QueueUse) []queueJSON {
	all := make([]queueJSON, len(queues))
	for i, q := range queues {
		all[i] = queueJSON{q.Name, q.Default, q.Level.String(), q.Pending, q.Running, q.Suspended}
	}
	return all
}
