package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

func whereCommand(p process) *cli.Command {
	return &cli.Command{
		Name: "where", Usage: "print which host keeps a job's state", ArgsUsage: "JOB",
		Action: func(c *cli.Context) error {
			args, err := commands.Args(c, 1, 1)
			if err != nil {
				return err
			}
			id, err := backends.ParseID(args[0])
			if err != nil {
				return shell.Usagef("%w", err)
			}
			return p.where(c, id)
		},
	}
}

// where prints the hosts: of a queue that keeps the state itself, which serves one machine, this
// one.
func (p process) where(c *cli.Context, id backends.ID) error {
	queue, err := p.open(c.Context)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	able := queue.Abilities()
	if able.Set == nil {
		return fmt.Errorf("find the state of job %s: %w: the agents of its hosts keep it", id, backends.ErrUnable)
	}
	if _, err := able.Record(c.Context, id); err != nil {
		return err
	}
	host, err := p.host()
	if err != nil {
		return err
	}
	return write(c.App.Writer, host, "\n")
}
