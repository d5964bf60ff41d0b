package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// on returns the action with an operation for each of some states; why is the error of
// unfinished jobs in other states.
func on(verb bsub.Verb, does map[backends.State]operation, why error) deed {
	return deed{verb: verb, how: func(state backends.State) (operation, error) {
		op, suits := does[state]
		switch {
		case suits:
			return op, nil
		case state.Ended():
			return 0, errFinished
		}
		return 0, why
	}}
}

func stopApp(s site) *cli.App {
	return actApp(s, "astop", "suspend running jobs, hold pending ones", runStop)
}

// runStop is astop.
func runStop(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return on(bsub.Stop, map[backends.State]operation{backends.Running: suspend, backends.Pending: hold}, errStopped).run(ctx, s, o, out)
}

func resumeApp(s site) *cli.App {
	return actApp(s, "aresume", "resume suspended jobs, release held ones", runResume)
}

// runResume is aresume.
func runResume(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return on(bsub.Resume, map[backends.State]operation{backends.Suspended: resume, backends.Held: release}, errNotStopped).run(ctx, s, o, out)
}

func requeueApp(s site) *cli.App {
	return actApp(s, "arequeue", "requeue running jobs: they start again from the beginning", runRequeue)
}

// runRequeue is arequeue.
func runRequeue(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return on(bsub.Requeue, map[backends.State]operation{backends.Running: requeue, backends.Suspended: requeue}, errNotStarted).run(ctx, s, o, out)
}
