package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

const importHelp = "The file is what `pba alloc export` writes, in YAML, CSV or XLSX. It is the whole plan of its projects in its\n" +
	"weeks: what they have there and is not in it is removed. In a table those are the projects that its rows name, and the weeks that\n" +
	"its columns name; an empty cell is no allocation, and what stands in (parentheses) is ignored. The table also names\n" +
	"the plan's revision: a cell that another user changed since the export, and the file did not, keeps what it has; where\n" +
	"both did, the import is refused without --force. All faults are listed by cell, and nothing is changed."

// exportKind returns the format of an export.
func exportKind(c *cli.Context) (desk.FileKind, error) {
	if c.IsSet("output") && c.String("output") == "" {
		return "", shell.Usagef("--output needs the name of a file")
	}
	kind, err := desk.KindOf(c.String("format"), c.String("output"))
	if err != nil {
		return "", withExitCode(err)
	}
	if kind == desk.XLSXFile && c.String("output") == "" && shell.Terminal(c.App.Writer) {
		return "", shell.Usagef("a spreadsheet can't be printed on a terminal: add -o FILE.xlsx")
	}
	return kind, nil
}

// writePlan writes an export in a format.
func writePlan(ctx context.Context, d *desk.Desk, c *cli.Context, kind desk.FileKind, out io.Writer) error {
	projects, when := c.StringSlice("project"), when(c)
	if kind == desk.YAMLFile {
		f, err := d.Export(ctx, projects, when)
		if err != nil {
			return err
		}
		return f.Write(out)
	}
	g, err := d.ExportGrid(ctx, projects, when)
	if err != nil {
		return err
	}
	if g.Away != nil {
		fmt.Fprintf(c.App.ErrWriter, "pba: the file has no rows of what is free: %s\n", shell.OneLine(g.Away.Error()))
	}
	return g.Write(kind, out)
}

// listFaults prints the faults of a table, a line for each, and returns an error that counts
// them. Another error it returns as it is.
func listFaults(stderr io.Writer, err error) error {
	var faults *desk.FileFaults
	if !errors.As(err, &faults) || len(faults.Faults) == 1 && faults.More == 0 {
		return err
	}
	for _, line := range faults.Lines() {
		fmt.Fprintln(stderr, shell.OneLine(line))
	}
	return fmt.Errorf("%s: %s: nothing is changed", faults.File, printable.Count(len(faults.Faults)+faults.More, "fault"))
}

// printCells prints what a table would change, by cell.
func printCells(out io.Writer, all []desk.Difference) {
	for _, d := range all {
		fmt.Fprintf(out, "%s %s: %s -> %s\n", shell.Printable(d.Pool.String()), d.Week, cellTerms(d.Was), cellTerms(d.Terms))
	}
}

func cellTerms(t desk.Terms) string {
	if t.Slots == 0 {
		return "none"
	}
	if t.Jobs > 0 {
		return fmt.Sprintf("%d for %d jobs", t.Slots, t.Jobs)
	}
	return fmt.Sprint(t.Slots)
}

// printKept says which cells keep what another user planned, and of many how many.
func printKept(out io.Writer, kept []desk.Difference) {
	const most = 20
	for i, d := range kept {
		if i == most {
			fmt.Fprintf(out, "%d more keep what they have\n", len(kept)-most)
			return
		}
		fmt.Fprintf(out, "%s %s keeps %s: it was changed after the export, and not in the file\n", shell.Printable(d.Pool.String()), d.Week, cellTerms(d.Was))
	}
}
