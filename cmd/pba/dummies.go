package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func dummiesCommand(p process) *cli.Command {
	dryRun := &cli.BoolFlag{Name: "dry-run", Usage: "print what would be ended, and end nothing", DisableDefaultText: true}
	return &cli.Command{
		Name: "dummies", Usage: "dummy jobs, which hold slots so that their memory stays free for jobs that need much",
		Subcommands: []*cli.Command{{
			Name: "prune", Usage: "end dummy jobs that no longer have a heavy job; cycles do it by themselves",
			Flags: []cli.Flag{dryRun},
			Action: func(c *cli.Context) error {
				return prune(c, p, c.Bool("dry-run"))
			},
		}},
	}
}

// prune is pba dummies prune.
func prune(c *cli.Context, p process, dryRun bool) error {
	what := "ended"
	if dryRun {
		what = "would be ended"
	}
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		all, err := d.Prune(ctx, dryRun)
		if err != nil {
			return err
		}
		n := 0
		for _, x := range all {
			n += x.Dummies
			fmt.Fprintf(c.App.Writer, "%s %s: %s\n", printable.Count(x.Dummies, "dummy job"), what, x.Reason)
		}
		if n == 0 {
			fmt.Fprintln(c.App.Writer, "There is no dummy job without a heavy job.")
		}
		return nil
	})
}
