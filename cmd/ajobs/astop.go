package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func stopApp(s site) *cli.App {
	return actApp(s, "astop", "suspend running jobs, hold pending ones", runStop)
}

// runStop is astop.
func runStop(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return deed{verb: bsub.Stop, how: func(state backends.State) (operation, error) {
		switch state {
		case backends.Running:
			return suspend, nil
		case backends.Pending:
			return hold, nil
		case backends.Suspended, backends.Held:
			return 0, errStopped
		case backends.Done, backends.Exited:
		}
		return 0, errFinished
	}}.run(ctx, s, o, out)
}
