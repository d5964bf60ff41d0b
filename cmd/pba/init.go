package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func initCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "make the config file and the ledger (the file with the plan and its history); overwrites nothing",
		Flags: []cli.Flag{&cli.StringFlag{Name: "backend", Usage: "the queue's `NAME`: miniq (the bundled one), slurm or lsf"}},
		Action: func(c *cli.Context) error {
			d, err := desk.New(p.System)
			if err != nil {
				return err
			}
			made, err := d.Init(c.Context, c.String("backend"))
			if err != nil {
				return err
			}
			printMade(c.App.Writer, made)
			return nil
		},
	}
}

func printMade(out io.Writer, made *desk.Made) {
	if made.Written {
		fmt.Fprintf(out, "Wrote  %s  (every key with its default; all of it may stay as it is)\n", shell.Printable(made.Config))
	} else {
		fmt.Fprintf(out, "Kept   %s\n", shell.Printable(made.Config))
	}
	fmt.Fprintf(out, "Made   %s\n", shell.Printable(made.Ledger))
	if made.Hook != "" {
		fmt.Fprintf(out, "Made   %s  (the submit filter; kept up to date by pba rebalance)\n", shell.Printable(made.Hook))
	}
	if len(made.Setup) > 0 {
		fmt.Fprintln(out, "\nThe queue's own configuration was not changed. It needs (`pba doctor` repeats this):")
	}
	for _, f := range made.Setup {
		fmt.Fprintf(out, "  - %s\n      %s\n", shell.OneLine(f.What), shell.Printable(f.Remedy))
	}
	fmt.Fprintf(out, `
Next:
  1. pba project add NAME --group UNIXGROUP    who may use it
  2. pba alloc set NAME SLOTS                  how many slots it has this week
  3. pba rebalance --dry-run                   what would be done now, and why
  4. let cron do it: %s
`, made.Cron)
}
