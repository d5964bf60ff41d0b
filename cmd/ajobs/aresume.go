package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func resumeApp(s site) *cli.App {
	return actApp(s, "aresume", "let suspended and held jobs go on", runResume)
}

// runResume is aresume.
func runResume(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return deed{verb: bsub.Resume, how: func(state backends.State) (operation, error) {
		switch state {
		case backends.Suspended:
			return resume, nil
		case backends.Held:
			return release, nil
		case backends.Pending, backends.Running:
			return 0, errNotStopped
		case backends.Done, backends.Exited:
		}
		return 0, errFinished
	}}.run(ctx, s, o, out)
}
