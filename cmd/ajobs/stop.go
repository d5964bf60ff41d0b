package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/grammar"
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
	app := actionApp(p, "arequeue", "requeue jobs: they start again from the beginning", runRequeue)
	app.Description += "\nWithout an option it requeues jobs that have started; -e, -d and -a those that have ended, too, while the queue\n" +
		"still has them (0: those of the last hour). These go behind all others, and what they waited for (-w) counts no more."
	app.Metadata = map[string]any{commands.Clusters: true, commands.Examples: []grammar.Example{
		{Line: "arequeue 12", Does: "end job 12's run, and start it again"},
		{Line: "arequeue -e 12", Does: "run again all elements of the array 12 that failed"},
		{Line: "arequeue -e -J 'sweep*' 0", Does: "all jobs of these names that failed within the last hour"},
	}}
	app.Flags = append(app.Flags,
		&cli.BoolFlag{Name: "e", Usage: "jobs that have failed (EXIT)", DisableDefaultText: true},
		&cli.BoolFlag{Name: "d", Usage: "jobs that are done (DONE)", DisableDefaultText: true},
		&cli.BoolFlag{Name: "a", Usage: "jobs in every state but those that have not started, all elements of an array", DisableDefaultText: true},
	)
	return app
}

// requeues says which jobs arequeue is for.
type requeues struct{ exited, done, all bool }

// ended reports whether it is for jobs that have ended.
func (r requeues) ended() bool { return r.exited || r.done || r.all }

// operationFor returns what requeues a job in a state.
func (r requeues) operationFor(state backends.State) (operation, error) {
	switch state {
	case backends.Running, backends.Suspended:
		if r.all || !r.ended() {
			return requeue, nil
		}
		return 0, errNotEnded
	case backends.Exited:
		switch {
		case r.exited || r.all:
			return reopen, nil
		case r.done:
			return 0, errNotDone
		}
		return 0, errFinished
	case backends.Done:
		switch {
		case r.done || r.all:
			return reopen, nil
		case r.exited:
			return 0, errNotFailed
		}
		return 0, errFinished
	case backends.Pending, backends.Held:
	}
	return 0, errNotStarted
}

// runRequeue is arequeue.
func runRequeue(ctx context.Context, p process, o actionOptions, out io.Writer) error {
	again := action{verb: bsub.Requeue, operationFor: o.requeues.operationFor}
	if o.requeues.ended() {
		again.missing = errGone
	}
	return again.run(ctx, p, o, out)
}
