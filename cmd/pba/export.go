package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func exportCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the plan as YAML: for review, and for `pba alloc import`",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "project", Usage: "only this `PROJECT`; may be given several times (default: all that have slots in these weeks)"},
			&cli.StringFlag{Name: "week", Usage: "first ISO `WEEK`, such as 2026-W48 (default: this week)"},
			&cli.IntFlag{Name: "weeks", Usage: "`NUMBER` of weeks (default: all that may be planned)"},
		},
		Action: func(c *cli.Context) error {
			weeks := c.Int("weeks")
			if c.IsSet("weeks") && weeks < 1 {
				return shell.Usagef("--weeks %d: want one week or more", weeks)
			}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				f, err := d.Export(ctx, c.StringSlice("project"), c.String("week"), weeks)
				if err != nil {
					return err
				}
				return f.Write(c.App.Writer)
			})
		},
	}
}
