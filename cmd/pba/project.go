package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/cmd/internal/commands"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/cmd/internal/table"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

type projectOptions struct {
	name     string
	group    string
	managers []string
	flow     string
	hasGroup bool
	hasUsers bool
	hasFlow  bool
}

func projectCommand(p process) *cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "group", Usage: "UNIX `GROUP` of those who may submit for it"},
			&cli.StringSliceFlag{Name: "manager", Usage: "`USER` who plans its allocations; may be given several times"},
			&cli.StringFlag{Name: "flow", Usage: "`FLOW` whose steps its jobs may name; '': any step"},
		}
	}
	return &cli.Command{
		Name: "project", Usage: "add, change, list and remove projects",
		Subcommands: []*cli.Command{
			{
				Name: "add", Usage: "add a project", ArgsUsage: "NAME --group GROUP [--manager USER]… [--flow FLOW]", Flags: flags(),
				Action: func(c *cli.Context) error { return withProject(c, p, addProject) },
			},
			{
				Name: "set", Usage: "change a project's group, managers or flow", ArgsUsage: "PROJECT [--group GROUP] [--manager USER]… [--flow FLOW]", Flags: flags(),
				Action: func(c *cli.Context) error { return withProject(c, p, setProject) },
			},
			{
				Name: "remove", Usage: "remove a project that has no slots in this week or later", ArgsUsage: "PROJECT",
				Action: func(c *cli.Context) error { return withProject(c, p, removeProject) },
			},
			{
				Name: "list", Usage: "list the projects", Flags: table.Flags(),
				Action: func(c *cli.Context) error {
					format, err := table.FormatOf(c)
					if err != nil {
						return err
					}
					return withSite(c.Context, p, p.open, func(s *site) error { return listProjects(c.Context, s, format, c.App.Writer) })
				},
			},
		},
	}
}

func withProject(c *cli.Context, p process, run func(context.Context, *site, projectOptions, io.Writer) error) error {
	args, err := commands.Args(c, 1, 1)
	if err != nil {
		return err
	}
	o := projectOptions{
		name: args[0], group: c.String("group"), managers: c.StringSlice("manager"),
		hasGroup: c.IsSet("group"), hasUsers: c.IsSet("manager"),
		flow: c.String("flow"), hasFlow: c.IsSet("flow"),
	}
	return withSite(c.Context, p, p.open, func(s *site) error {
		if err := s.mustBeAdmin("change a project"); err != nil {
			return err
		}
		return run(c.Context, s, o, c.App.Writer)
	})
}

// name is what a project, a step and a queue may be called: it must survive a
// command line, a file name and LSF's and Slurm's own lists.
var nameIs = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,62}$`)

func checkName(what, name string) error {
	if !nameIs.MatchString(name) {
		return shell.Usagef("%q can't be the name of a %s: want letters, digits and _ . + @ -, at most 63, the first a letter, a digit or _", name, what)
	}
	return nil
}

// check asks the system whether the group and the managers exist.
func (o *projectOptions) check(s *site) error {
	if o.hasGroup {
		if err := s.checkGroup(o.group); err != nil {
			return err
		}
	}
	for _, user := range o.managers {
		if err := s.checkUser(user); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) checkGroup(group string) error {
	if err := s.lookup.group(group); err != nil {
		return fmt.Errorf("group %q: the system knows no such group: see `getent group`", group)
	}
	return nil
}

func (s *site) checkUser(user string) error {
	if err := s.lookup.user(user); err != nil {
		return fmt.Errorf("user %q: the system knows no such user: see `getent passwd`", user)
	}
	return nil
}

func addProject(ctx context.Context, s *site, o projectOptions, out io.Writer) error {
	if err := checkName("project", o.name); err != nil {
		return err
	}
	if !o.hasGroup {
		return shell.Usagef("project %s needs a group: add --group GROUP", o.name)
	}
	if err := o.check(s); err != nil {
		return err
	}
	err := s.edit(ctx, func() error {
		return s.ledger.AddProject(ctx, s.editor(), ledger.Project{Name: o.name, Group: o.group, Managers: o.managers, Flow: o.flow})
	})
	if err != nil {
		return knownFlows(err)
	}
	fmt.Fprintf(out, "Project %s is added. Next: pba alloc set %s SLOTS\n", o.name, o.name)
	return nil
}

func setProject(ctx context.Context, s *site, o projectOptions, out io.Writer) error {
	if !o.hasGroup && !o.hasUsers && !o.hasFlow {
		return shell.Usagef("nothing to change: give --group, --manager or --flow")
	}
	if err := o.check(s); err != nil {
		return err
	}
	err := s.edit(ctx, func() error {
		project, err := s.project(ctx, o.name)
		if err != nil {
			return err
		}
		if o.hasGroup {
			project.Group = o.group
		}
		if o.hasUsers {
			project.Managers = o.managers
		}
		if o.hasFlow {
			project.Flow = o.flow
		}
		return s.ledger.SetProject(ctx, s.editor(), project, s.thisWeek())
	})
	if err != nil {
		return knownFlows(err)
	}
	fmt.Fprintf(out, "Project %s is changed.\n", o.name)
	return nil
}

// knownFlows adds to an unknown flow where the known ones are to be seen.
func knownFlows(err error) error {
	if errors.Is(err, ledger.ErrUnknownFlow) {
		return fmt.Errorf("%w: see `pba flow list`, or add it: pba flow add NAME --steps STEP,STEP…", err)
	}
	return err
}

func removeProject(ctx context.Context, s *site, o projectOptions, out io.Writer) error {
	err := s.edit(ctx, func() error {
		return s.ledger.RemoveProject(ctx, s.editor(), o.name, calendar.WeekOf(s.now(), s.zone()))
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Project %s is removed.\n", shell.Printable(o.name))
	return nil
}

func listProjects(ctx context.Context, s *site, format table.Format, out io.Writer) error {
	all, err := s.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	t := table.New("name", "group", "managers", "flow")
	for _, p := range all {
		t.Row(p.Name, p.Group, dash(strings.Join(p.Managers, " ")), dash(p.Flow))
	}
	if all == nil {
		all = []ledger.Project{}
	}
	return table.Print(out, format, t, all)
}
