package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func restoreCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "restore", Usage: "undo what pba did to the queue's jobs, and pause",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "forget", Usage: "also remove what the submit filter wrote into jobs: before pba is removed", DisableDefaultText: true},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "print each action", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				if c.Bool("forget") && !d.CanForget() {
					return shell.Usagef("--forget: on this queue the submit filter's tags stay in the jobs' descriptions; omit the option")
				}
				err := d.Restore(ctx, func(shown *desk.Cycle) error {
					return printCycle(c.App.Writer, shown, rebalanceOptions{verbose: c.Bool("verbose")})
				})
				if err != nil {
					return err
				}
				fmt.Fprintln(c.App.Writer, "All changes are undone. Cycles are paused: `pba resume` resumes them.")
				if !c.Bool("forget") {
					return nil
				}
				forgotten, err := d.Forget(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.App.Writer, "%s.\n", forgotten)
				return nil
			})
		},
	}
}
