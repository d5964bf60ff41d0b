package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// commentFlag is the option of a change's comment.
func commentFlag() cli.Flag {
	return &cli.StringFlag{Name: "comment", Aliases: []string{"m"}, Usage: "why: a `TEXT` for the log, at most 200 characters"}
}

func copyCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "copy", Usage: "give weeks the plan of another week; prints what changes", ArgsUsage: "WEEK [--weeks WEEKS] [--project PROJECT]… [--dry-run]",
		Description: "The projects that have slots in the week get the same ones in the weeks after it, or in those\n" +
			"that are given, in place of what they have there. Other projects keep their slots. If any of\n" +
			"it can't be, nothing changes.\n\n" + weekForms,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "weeks", Value: "1", Usage: "the `WEEKS` to copy to: a number of weeks after it, or the weeks, such as 49-52"},
			&cli.StringSliceFlag{Name: "project", Usage: "only this `PROJECT`; may be given several times"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only check it and show what would change", DisableDefaultText: true},
			commentFlag(),
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			return p.askWithQueue(c, func(ctx context.Context, d answers) error {
				copied, err := d.Copy(ctx, args[0], c.String("weeks"), c.StringSlice("project"), c.String("comment"))
				if err != nil {
					return err
				}
				return applyProposal(ctx, copied, c.Bool("dry-run"), c.App.Writer)
			})
		},
	}
}

// applyProposal prints what changes and, but in a dry run, does it.
func applyProposal(ctx context.Context, p *desk.Proposal, dryRun bool, out io.Writer) error {
	if len(p.Lines) == 0 {
		fmt.Fprintln(out, "Nothing to change: the plan is so already.")
		return nil
	}
	printLines(out, p.Lines)
	if dryRun {
		return nil
	}
	if _, err := p.Apply(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "Applied: %s.\n", printable.Count(len(p.Lines), "change"))
	return nil
}
