package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
)

func killApp(s site) *cli.App { return actApp(s, "akill", "end jobs, pending ones too", runKill) }

// runKill is akill.
func runKill(ctx context.Context, s site, o actOptions, out io.Writer) error {
	return deed{bsub.Kill, func(state backends.State) (operation, error) {
		if state.Ended() {
			return 0, errFinished
		}
		return kill, nil
	}}.run(ctx, s, o, out)
}
