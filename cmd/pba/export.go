package main

import (
	"bytes"
	"context"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/pba/desk"
)

func exportCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "print the plan as YAML, CSV or a spreadsheet: for review, and for `pba alloc import`",
		Description: weekForms + "\nWithout --weeks it prints all that may be planned. A table, csv or xlsx, has rows for\n" +
			"the projects that you may plan, too, where they have no slots yet.",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "project", Usage: "only this `PROJECT`; may be given several times (default: all that have slots in these weeks)"},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the file: yaml, csv or xlsx (default: by the file's ending, or yaml)"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write it to this `FILE`"},
		}, weekFlags("")...),
		Action: func(c *cli.Context) error {
			kind, err := exportKind(c)
			if err != nil {
				return err
			}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				var b bytes.Buffer
				if err := writePlan(ctx, d, c, kind, &b); err != nil {
					return err
				}
				if c.String("output") != "" {
					return d.WriteNamed("write the plan", c.String("output"), b.Bytes())
				}
				_, err := c.App.Writer.Write(b.Bytes())
				return err
			})
		},
	}
}
