package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func logCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "log", Usage: "list who changed what, when and why, the latest change first",
		Description: "Changes of allocations, projects and flows. The same change in weeks in a row is one line.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "project", Usage: "only what concerns this `PROJECT`"},
			&cli.StringFlag{Name: "since", Usage: "only changes from this `WEEK` or date on"},
			&cli.IntFlag{Name: "limit", Value: 50, Usage: "the latest `NUMBER` of changes"},
		}, table.Flags()...),
		Action: tableAction(p.ask, func(ctx context.Context, d answers, c *cli.Context) (*table.Table, any, error) {
			all, err := d.Changes(ctx, desk.LogQuery{Project: c.String("project"), Since: c.String("since"), Limit: c.Int("limit")})
			return logTable(all), all, err
		}),
	}
}

func logTable(all []desk.Logged) *table.Table {
	t := table.New("change", "when", "who", "command", "weeks", "subject", "was", "is", "comment")
	for _, l := range all {
		command := l.Command
		if l.Undoes != 0 {
			command += " " + strconv.FormatInt(l.Undoes, 10)
		}
		if l.UndoneBy != 0 {
			command += fmt.Sprintf(" (undone by %d)", l.UndoneBy)
		}
		row := func(weeks, subject, was, is string) {
			t.Row(l.ID, l.At.Format("2006-01-02 15:04"), l.Who, command, weeks, dash(subject), dash(was), dash(is), dash(l.Comment))
		}
		for _, a := range l.Lines {
			row(a.Weeks.String(), a.Pool.String(), a.Was.String(), a.Terms.String())
		}
		for _, e := range l.Edits {
			row("-", e.Subject, e.Was, e.Is)
		}
	}
	return t
}

func undoCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "undo", Usage: "undo your last change of allocations, or any by its number in `pba alloc log`", ArgsUsage: "[CHANGE] [--dry-run]",
		Description: "Without a number it is your last change that is not undone yet. It is refused if what the change\n" +
			"did was changed again since. Weeks that are over stay as they are. A request that the change\n" +
			"granted is open again. An undo is a change, too: to undo it, give its number.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "only check it and show what would change", DisableDefaultText: true},
			commentFlag(),
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 0, 1)
			if err != nil {
				return err
			}
			var id int64
			if len(args) > 0 {
				if id, err = numberOf(args[0], "change", "log"); err != nil {
					return err
				}
			}
			return p.askWithQueue(c, func(ctx context.Context, d answers) error {
				undo, err := d.Undo(ctx, id, c.String("comment"))
				if err != nil {
					return err
				}
				return applyUndo(ctx, undo, c)
			})
		},
	}
}

// applyUndo prints what an undo changes and, but in a dry run, does it.
func applyUndo(ctx context.Context, undo *desk.Proposal, c *cli.Context) error {
	out := c.App.Writer
	printLines(out, undo.Lines)
	if r := undo.Request; r != nil {
		becomes := desk.RequestOpen
		if r.State != desk.RequestGranted {
			becomes = desk.RequestGranted
		}
		fmt.Fprintf(out, "~ request %d of %s: %s, was %s\n", r.ID, shell.Printable(r.By), becomes, r.State)
	}
	if len(undo.Over) > 0 {
		fmt.Fprintf(out, "Over, and not changed: %s.\n", joinRanges(undo.Over))
	}
	if c.Bool("dry-run") {
		return nil
	}
	id, err := undo.Apply(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Change %d is undone. To make it again: pba alloc undo %d\n", undo.Undoes, id)
	return nil
}
