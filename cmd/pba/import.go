package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

type importOptions struct {
	file   string
	dryRun bool
	yes    bool
	force  bool
	why    string
}

func importCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "apply an edited plan of `pba alloc export`; prints what changes, and asks",
		ArgsUsage:   "FILE (-: standard input)",
		Description: importHelp,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "only check it and show what would change", DisableDefaultText: true},
			&cli.BoolFlag{Name: "yes", Usage: "apply it without asking", DisableDefaultText: true},
			&cli.BoolFlag{Name: "force", Usage: "apply cells of a table that others changed since it was exported, too", DisableDefaultText: true},
			commentFlag(),
		},
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			o := importOptions{file: args[0], dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), force: c.Bool("force"), why: c.String("comment")}
			if o.dryRun && o.yes {
				return shell.Usagef("--dry-run and --yes exclude each other")
			}
			if !o.dryRun && !o.yes && (o.file == "-" || !term.IsTerminal(int(os.Stdin.Fd()))) {
				return shell.Usagef("can't ask for confirmation, since standard input is not a terminal: check the changes with --dry-run, then apply them with --yes")
			}
			return p.withDeskAndQueue(c, func(ctx context.Context, d *desk.Desk) error {
				return importPlan(ctx, d, o, os.Stdin, c.App.Writer, c.App.ErrWriter)
			})
		},
	}
}

func importPlan(ctx context.Context, d *desk.Desk, o importOptions, stdin io.Reader, out, stderr io.Writer) error {
	i, err := d.Import(ctx, o.file, stdin, o.force, o.why)
	if err != nil {
		return listFaults(stderr, err)
	}
	printKept(out, i.Kept)
	if len(i.Differences) == 0 {
		fmt.Fprintln(out, "Nothing to change: the plan matches the file.")
		return nil
	}
	changed := len(i.Differences)
	if i.Cells {
		printCells(out, i.Differences)
	} else {
		printLines(out, i.Lines)
		changed = len(i.Lines)
	}
	if o.dryRun {
		return nil
	}
	if !o.yes {
		if err := d.MayWrite(); err != nil {
			return err
		}
		if !confirm(stdin, out) {
			fmt.Fprintln(out, "Nothing is changed.")
			return nil
		}
	}
	if _, err := i.Apply(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "Applied: %s.\n", printable.Count(changed, "change"))
	return nil
}

// printLines prints changes of the plan, a line for the same change in weeks in a row.
func printLines(out io.Writer, all []desk.Line) {
	for _, l := range all {
		fmt.Fprintln(out, shell.Printable(l.InWords()))
	}
}

// confirm asks for confirmation, and reports whether it was given.
func confirm(stdin io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "Apply this? [y/N] ")
	answer, err := bufio.NewReader(stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(out)
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
