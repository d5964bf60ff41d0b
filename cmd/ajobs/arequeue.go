package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func requeueApp(s site) *cli.App {
	return actApp(s, "arequeue", "put running jobs back into the queue, to start anew", runRequeue)
}

// runRequeue is arequeue.
func runRequeue(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return deed{verb: bsub.Requeue, how: func(state backends.State) (operation, error) {
		switch state {
		case backends.Running, backends.Suspended:
			return requeue, nil
		case backends.Pending, backends.Held:
			return 0, errNotStarted
		case backends.Done, backends.Exited:
		}
		return 0, errFinished
	}}.run(ctx, s, o, out)
}
