package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func backupCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "backup", Usage: "copy the ledger to a new file; cycles may run meanwhile", ArgsUsage: "FILE",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
				if err := d.Backup(ctx, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(c.App.Writer, "Copied %s to %s.\n", shell.Printable(d.LedgerPath()), shell.Printable(args[0]))
				return err
			})
		},
	}
}
