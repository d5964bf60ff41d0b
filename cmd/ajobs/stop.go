package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

// actionByState returns the action with an operation for each of some states; why is the error of
// unfinished jobs in other states.
func actionByState(verb bsub.Verb, byState map[backends.State]operation, why error) action {
	return action{verb: verb, operationFor: func(state backends.State) (operation, error) {
		op, suits := byState[state]
		switch {
		case suits:
			return op, nil
		case state.Ended():
			return 0, errFinished
		}
		return 0, why
	}}
}

func stopApp(p process) *cli.App {
	return actionApp(p, "astop", "suspend running jobs, hold pending ones", runStop)
}

// runStop is astop.
func runStop(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	return actionByState(bsub.Stop, map[backends.State]operation{backends.Running: suspend, backends.Pending: hold}, errStopped).run(ctx, p, o, out)
}

func resumeApp(p process) *cli.App {
	return actionApp(p, "aresume", "resume suspended jobs, release held ones", runResume)
}

// runResume is aresume.
func runResume(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	return actionByState(bsub.Resume, map[backends.State]operation{backends.Suspended: resume, backends.Held: release}, errNotStopped).run(ctx, p, o, out)
}

func requeueApp(p process) *cli.App {
	app := actionApp(p, "arequeue", "requeue running jobs: they start again from the beginning", runRequeue)
	const ended = "a job that has ended is not requeued: submit it again; on LSF use brequeue"
	addRefused(app, []refusedOption{{"e", "", ended}, {"d", "", ended}, {"a", "", ended}})
	return app
}

// runRequeue is arequeue.
func runRequeue(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	return actionByState(bsub.Requeue, map[backends.State]operation{backends.Running: requeue, backends.Suspended: requeue}, errNotStarted).run(ctx, p, o, out)
}
