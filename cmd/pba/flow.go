package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func flowCommand(p process) *cli.Command {
	steps := func() []cli.Flag {
		return []cli.Flag{&cli.StringFlag{Name: "steps", Usage: "`STEPS` in their order, separated by commas"}}
	}
	return &cli.Command{
		Name: "flow", Usage: "define flows: the steps that jobs of a project may name",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a flow", ArgsUsage: "NAME --steps STEP,STEP…", Flags: steps(),
				Action: func(c *cli.Context) error {
					return withFlow(c, p, (*desk.Desk).AddFlow, "Flow %s is added. Next: pba project set PROJECT --flow %[1]s\n")
				},
			},
			{
				Name: "set", Usage: "replace a flow's steps", ArgsUsage: "NAME --steps STEP,STEP…", Flags: steps(),
				Action: func(c *cli.Context) error { return withFlow(c, p, (*desk.Desk).SetFlow, "Flow %s is changed.\n") },
			},
			{
				Name: "remove", Usage: "remove a flow that no project uses", ArgsUsage: "NAME",
				Action: func(c *cli.Context) error {
					remove := func(d *desk.Desk, ctx context.Context, name string, _ []string) error { return d.RemoveFlow(ctx, name) }
					return withFlow(c, p, remove, "Flow %s is removed.\n")
				},
			},
			{
				Name: "list", Usage: "list the flows", Flags: table.Flags(),
				Action: p.tableAction(listFlows),
			},
		},
	}
}

// withFlow changes a flow, and says so.
func withFlow(c *cli.Context, p process, change func(*desk.Desk, context.Context, string, []string) error, done string) error {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return err
	}
	var steps []string
	if c.Command.Name != "remove" {
		if c.String("steps") == "" {
			return shell.Usagef("a flow needs steps: add --steps STEP,STEP…")
		}
		steps = strings.Split(c.String("steps"), ",")
	}
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		if err := change(d, ctx, args[0], steps); err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, done, shell.Printable(args[0]))
		return nil
	})
}

func listFlows(ctx context.Context, d *desk.Desk, _ *cli.Context) (*table.Table, any, error) {
	all, err := d.Flows(ctx)
	t := table.New("name", "steps", "projects")
	for _, f := range all {
		t.Row(f.Name, strings.Join(f.Steps, ","), strings.Join(f.Projects, " "))
	}
	return t, all, err
}
