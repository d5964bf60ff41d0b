package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
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

// where prints the hosts that have state of a job, the one that holds it first. A queue that
// keeps the state itself serves one machine, this one.
func (p process) where(c *cli.Context, id backends.ID) error {
	queue, err := p.open(c.Context)
	if err != nil {
		return err
	}
	defer func() { _ = queue.Close() }()
	able := queue.Abilities()
	if able.Set == nil {
		socket, name, err := p.allotd()
		if err != nil {
			return err
		}
		s, err := ask.StateOf(c.Context, socket, name, id)
		if err != nil {
			return err
		}
		if s.Moving {
			fmt.Fprintf(p.stderr, "The state of job <%s> is on its way to the first host\n", id)
		}
		return printPlaces(c, s.Places)
	}
	r, err := able.Record(c.Context, id)
	if err != nil {
		return err
	}
	here := ask.Place{Status: "here"}
	if here.Host, err = p.host(); err != nil {
		return err
	}
	if n := len(r.Runs); n > 0 {
		here.Run, here.Live = r.Runs[n-1].Run, r.Runs[n-1].Ended.IsZero()
	}
	return printPlaces(c, []ask.Place{here})
}

func printPlaces(c *cli.Context, places []ask.Place) error {
	t := table.New("host", "status", "run", "running")
	for _, p := range places {
		running := "no"
		if p.Live {
			running = "yes"
		}
		t.Row(p.Host, p.Status, p.Run, running)
	}
	return table.Print(c.App.Writer, table.Text, t, nil)
}
