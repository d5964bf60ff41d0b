package main

import (
	"cmp"
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func queuesApp(p process) *cli.App {
	return listApp(p, runQueues, "don't shorten columns", "all about each queue, and the slots of each user's jobs in it", &cli.App{
		Name: "aqueues", Usage: "list queues and the slots of their jobs", ArgsUsage: "[QUEUE...]",
		Description: "The figures are slots: of all unfinished jobs, of pending, running, and stopped or held ones.\n" +
			"Jobs of a queue with a higher PRIO start first, but jobs within an allocation start before all others. On LSF the figures are those of bqueues.",
		Metadata: map[string]any{commands.Examples: []grammar.Example{
			{Line: "aqueues", Does: "all queues"},
		}},
	})
}

// runQueues is aqueues.
func runQueues(ctx context.Context, p process, o listOptions, out io.Writer) error {
	queue, err := p.open(ctx, false)
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
	farm, err := queue.Snapshot(ctx, p.now())
	if err != nil {
		return err
	}
	uses, unknown := selectNamed(bsub.UseQueues(queues, farm), o.names, func(q bsub.QueueUse) string { return q.Name })
	switch {
	case o.json:
		err = shell.PrintJSON(out, queuesJSON(uses))
	case o.long && len(uses) > 0:
		err = bsub.WriteQueueDetails(out, uses, farm.Jobs)
	case len(uses) > 0:
		err = bsub.WriteQueues(out, uses, o.wide)
	}
	return cmp.Or(err, reportUnknown(p, "%s: No such queue\n", unknown))
}

// queueJSON is a queue as --json prints it; the figures are slots.
type queueJSON struct {
	Name      string `json:"name"`
	Default   bool   `json:"default"`
	Level     string `json:"level"`
	Priority  int    `json:"priority"`
	Status    string `json:"status"`
	Pending   int    `json:"pending_slots"`
	Running   int    `json:"running_slots"`
	Suspended int    `json:"suspended_slots"`
}

func queuesJSON(queues []bsub.QueueUse) []queueJSON {
	all := make([]queueJSON, len(queues))
	for i, q := range queues {
		r := q.Row()
		all[i] = queueJSON{q.Name, q.Default, q.Level.String(), r.Priority, r.Status, r.Pending, r.Running, r.Suspended}
	}
	return all
}
