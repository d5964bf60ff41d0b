package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func backupCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "backup", Usage: "copy the ledger to a new file, while cycles go on", ArgsUsage: "FILE",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			if err := p.mayName("copy the ledger to a file"); err != nil {
				return err
			}
			return withSite(c.Context, p, p.open, func(s *site) error {
				if err := s.ledger.Backup(c.Context, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(c.App.Writer, "Copied %s to %s.\n", shell.Printable(ledgerPath(s.Config)), shell.Printable(args[0]))
				return err
			})
		},
	}
}
