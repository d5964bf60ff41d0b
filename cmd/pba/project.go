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

func projectCommand(p process) *cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "group", Usage: "UNIX `GROUP` whose members may submit for it"},
			&cli.StringSliceFlag{Name: "manager", Usage: "`USER` who plans its allocations; may be given several times"},
			&cli.StringFlag{Name: "flow", Usage: "`FLOW` (see pba flow) whose steps its jobs may name; '': any step"},
		}
	}
	return &cli.Command{
		Name: "project", Usage: "add, change, list and remove projects",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a project", ArgsUsage: "NAME --group GROUP [--manager USER]… [--flow FLOW]", Flags: flags(),
				Action: func(c *cli.Context) error {
					return withProject(c, p, (*desk.Desk).AddProject, "Project %s is added. Next: pba alloc set %[1]s SLOTS\n")
				},
			},
			{
				Name: "set", Usage: "change a project's group, managers or flow", ArgsUsage: "PROJECT [--group GROUP] [--manager USER]… [--flow FLOW]", Flags: flags(),
				Action: func(c *cli.Context) error {
					return withProject(c, p, (*desk.Desk).SetProject, "Project %s is changed.\n")
				},
			},
			{
				Name: "remove", Usage: "remove a project that has no slots in this week or later", ArgsUsage: "PROJECT",
				Action: func(c *cli.Context) error {
					remove := func(d *desk.Desk, ctx context.Context, o desk.ProjectChange) error {
						return d.RemoveProject(ctx, o.Name)
					}
					return withProject(c, p, remove, "Project %s is removed.\n")
				},
			},
			{
				Name: "list", Usage: "list the projects", Flags: table.Flags(),
				Action: p.tableAction(listProjects),
			},
		},
	}
}

// withProject changes a project, and says so.
func withProject(c *cli.Context, p process, change func(*desk.Desk, context.Context, desk.ProjectChange) error, done string) error {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return err
	}
	o := desk.ProjectChange{Name: args[0]}
	if c.IsSet("group") {
		group := c.String("group")
		o.Group = &group
	}
	if c.IsSet("manager") {
		managers := c.StringSlice("manager")
		o.Managers = &managers
	}
	if c.IsSet("flow") {
		flow := c.String("flow")
		o.Flow = &flow
	}
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		if err := change(d, ctx, o); err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, done, shell.Printable(o.Name))
		return nil
	})
}

func listProjects(ctx context.Context, d *desk.Desk, _ *cli.Context) (*table.Table, any, error) {
	all, err := d.Projects(ctx)
	t := table.New("name", "group", "managers", "flow")
	for _, p := range all {
		t.Row(p.Name, p.Group, dash(strings.Join(p.Managers, " ")), dash(p.Flow))
	}
	return t, all, err
}
