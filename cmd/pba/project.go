package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/internal/printable"
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
		Name: "project", Usage: "add, change, rename, list and remove projects",
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
				Name: "rename", Usage: "rename a project, with its plan and its past", ArgsUsage: "PROJECT NAME [--dry-run]",
				Description: "Jobs that have the former name go on as the project's, and new ones may have it as long as\n" +
					"unfinished jobs do, a day at least. Until then no other project can have that name.",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "only check it and show what it concerns", DisableDefaultText: true}},
				Action: func(c *cli.Context) error { return renameProject(c, p) },
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
				Name: "list", Usage: "list the projects, or who is in them",
				Flags: append([]cli.Flag{
					&cli.BoolFlag{Name: "members", Usage: "the members of each project's group, as this machine knows them", DisableDefaultText: true},
					&cli.BoolFlag{Name: "wide", Aliases: []string{"w"}, Usage: "with --members: all of them, in lines as long as need be", DisableDefaultText: true},
				}, table.Flags()...),
				Action: tableAction(p.ask, listProjects),
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

func renameProject(c *cli.Context, p process) error {
	args, err := commands.Args(c, 2, 2)
	if err != nil {
		return err
	}
	from, to, dryRun := args[0], args[1], c.Bool("dry-run")
	return p.withDesk(c, func(ctx context.Context, d *desk.Desk) error {
		r, err := d.RenameProject(ctx, from, to, dryRun)
		if err != nil {
			return err
		}
		jobs := printable.Count(r.Jobs, "unfinished job")
		if r.Away != nil {
			jobs = "its unfinished jobs (their number is unknown: the queue is away)"
		}
		if dryRun {
			fmt.Fprintf(c.App.Writer, "Project %s would be %s: %s from this week on, %s, %s.\n", shell.Printable(from), to,
				printable.Count(r.Allocations, "allocation"), printable.Count(r.Requests, "open request"), jobs)
			return nil
		}
		fmt.Fprintf(c.App.Writer, "Project %s is %s now. Jobs that have the former name count for it: %s.\n", shell.Printable(from), to, jobs)
		return nil
	})
}

func listProjects(ctx context.Context, d answers, c *cli.Context) (*table.Table, any, error) {
	switch {
	case c.Bool("members"):
		return listMembers(ctx, d, c.Bool("wide") || c.Bool("csv"))
	case c.Bool("wide"):
		return nil, nil, shell.Usagef("--wide is for --members")
	}
	all, err := d.Projects(ctx)
	head, renamed := []string{"name", "group", "managers", "flow"}, slices.ContainsFunc(all, func(p desk.Project) bool { return len(p.Former) > 0 })
	if renamed {
		head = append(head, "former_names")
	}
	t := table.New(head...)
	for _, p := range all {
		row := []any{p.Name, p.Group, dash(strings.Join(p.Managers, " ")), dash(p.Flow)}
		if renamed {
			row = append(row, dash(strings.Join(p.Former, " ")))
		}
		t.Row(row...)
	}
	return t, all, err
}

func listMembers(ctx context.Context, d answers, wide bool) (*table.Table, any, error) {
	all, err := d.Members(ctx)
	t := table.New("name", "group", "members")
	for _, p := range all {
		shown := membersText(p.Members, p.More, wide)
		if p.Unknown {
			shown = "- (the system knows no such group)"
		}
		t.Row(p.Name, p.Group, shown)
	}
	return t, all, err
}

// membersText lists users, in a line of a terminal if it is not wide.
func membersText(members []string, more int, wide bool) string {
	const width = 50 // leaves room for project and group in 80 columns
	text := ""
	for i, name := range members {
		if !wide && len(text)+1+len(name) > width {
			more += len(members) - i
			break
		}
		text = strings.TrimPrefix(text+" "+name, " ")
	}
	if more > 0 {
		text = strings.TrimPrefix(text+fmt.Sprintf(" and %d more", more), " ")
	}
	return dash(text)
}
