package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func doctorCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "check this installation, and print what is wrong and what to do (exit code 1 if anything is)",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true}},
		Action: func(c *cli.Context) error {
			found, err := desk.Examine(c.Context, p.System)
			if err != nil {
				return err
			}
			if err := printFindings(c.App.Writer, found, c.Bool("json")); err != nil {
				return err
			}
			if len(found.Findings) > 0 {
				return &shell.ExitError{Code: shell.ExitFailure}
			}
			return nil
		},
	}
}

func printFindings(out io.Writer, found *desk.Examined, asJSON bool) error {
	if asJSON {
		return shell.PrintJSON(out, found)
	}
	all := found.Findings
	if found.Requests > 0 {
		fmt.Fprintf(out, "Note: %s for you to decide: pba alloc requests\n", waits(found.Requests))
	}
	for _, r := range found.Remarks {
		fmt.Fprintf(out, "Note: %s: %s\n", r.Check, shell.OneLine(r.What))
	}
	for _, f := range all {
		fmt.Fprintf(out, "%s: %s\n    %s\n", f.Check, shell.OneLine(f.What), shell.Printable(f.Remedy))
	}
	if len(all) == 0 {
		fmt.Fprintln(out, "Nothing is wrong.")
		return nil
	}
	_, err := fmt.Fprintf(out, "%s.\n", printable.Count(len(all), "finding"))
	return err
}
