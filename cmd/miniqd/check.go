package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/daemon"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name: "check", ArgsUsage: "[DIRECTORY]",
		Usage: "check the queue's state, or a copy of it, for damage, and print what to do (exit code 1 if there is any)",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "repair", Usage: "make only lossless repairs: set damaged and left-over files aside, close files to other users", DisableDefaultText: true},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", DisableDefaultText: true},
		},
		Action: func(c *cli.Context) error {
			state, err := stateDir(c)
			if err != nil {
				return err
			}
			found, err := daemon.Check(c.Context, state, c.Bool("repair"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = shell.PrintJSON(c.App.Writer, found)
			} else {
				err = printChecked(c.App.Writer, found)
			}
			if err == nil && found.Left() > 0 {
				err = &shell.ExitError{Code: shell.ExitFailure}
			}
			return err
		},
	}
}

// stateDir returns the named directory, or this run's.
func stateDir(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 0:
		config, err := configfile.Load(yamlplain.Convert)
		return miniq.StateDir(config.Paths), err
	case 1:
		return c.Args().First(), nil
	}
	return "", shell.Usagef("unexpected argument %q", c.Args().Get(1))
}

func printChecked(out io.Writer, found *daemon.Checked) error {
	for _, f := range found.Findings {
		what := f.Remedy
		if f.Repaired != "" {
			what = "repaired: " + f.Repaired
		}
		fmt.Fprintf(out, "%s: %s: %s\n", shell.Printable(f.File), shell.Printable(f.Problem), shell.Printable(what))
	}
	if found.Serving {
		fmt.Fprintln(out, "miniqd is running on it: only what was wrong in two checks, one after the other, is listed.")
	}
	if found.Aside > 0 {
		fmt.Fprintf(out, "%d files were set aside earlier, in %s/aside: remove them when they are no longer needed.\n", found.Aside, shell.Printable(found.State))
	}
	_, err := fmt.Fprintf(out, "%s: format %d, %d jobs, %d segments of journal, %d state objects, %d keepers' records: %s.\n",
		shell.Printable(found.State), found.Format, found.Jobs, found.Segments, found.Objects, found.Records, verdict(found))
	return err
}

func verdict(found *daemon.Checked) string {
	switch n := len(found.Findings); {
	case n == 0:
		return "nothing is wrong"
	case found.Left() == 0:
		return fmt.Sprintf("%d findings, all repaired", n)
	default:
		return fmt.Sprintf("%d findings", found.Left())
	}
}
