package desk

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/allotment-hpc/allotment/internal/account"
	"github.com/allotment-hpc/allotment/internal/nearest"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Project is a project of the plan.
type Project = ledger.Project

// ProjectChange is how a project shall be. What is nil stays as it is.
type ProjectChange struct {
	Name     string
	Group    *string
	Managers *[]string
	Flow     *string // "": its jobs may name any step
}

// Projects lists the projects by name.
func (d *Desk) Projects(ctx context.Context) ([]ledger.Project, error) {
	all, err := d.ledger.Projects(ctx)
	return append([]ledger.Project{}, all...), err
}

// maxMembers is the number of members of a project that are listed.
const maxMembers = 10000

// ProjectMembers are the users who may submit for a project.
type ProjectMembers struct {
	Name    string   `json:"name"`
	Group   string   `json:"group"`
	Unknown bool     `json:"unknown_group,omitempty"` // the system knows no such group
	Members []string `json:"members"`
	More    int      `json:"more,omitempty"` // members beyond those that are listed
}

// Members lists the projects by name, with the members of their groups as this machine knows them.
func (d *Desk) Members(ctx context.Context) ([]ProjectMembers, error) {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	var groups []string
	for i := range projects {
		groups = append(groups, projects[i].Group)
	}
	slices.Sort(groups)
	known := map[string][]string{}
	if groups = slices.Compact(groups); len(groups) > 0 {
		if known, err = account.Members(ctx, groups); err != nil {
			return nil, fmt.Errorf("list the members of the projects' groups: %w", err)
		}
	}
	all := []ProjectMembers{}
	for i := range projects {
		members, found := known[projects[i].Group]
		shown := min(len(members), maxMembers)
		all = append(all, ProjectMembers{
			Name: projects[i].Name, Group: projects[i].Group, Unknown: !found,
			Members: append([]string{}, members[:shown]...), More: len(members) - shown,
		})
	}
	return all, nil
}

// AddProject adds a project.
func (d *Desk) AddProject(ctx context.Context, c ProjectChange) error {
	if err := d.mayChange("change a project"); err != nil {
		return err
	}
	if err := checkName("project", c.Name); err != nil {
		return err
	}
	if c.Group == nil {
		return invalidf("project %s needs a group: add --group GROUP", c.Name)
	}
	return d.changeProject(ctx, c, func() error {
		return d.ledger.AddProject(ctx, d.editor(), c.applyTo(ledger.Project{Name: c.Name}))
	})
}

// SetProject changes a project's group, managers or flow.
func (d *Desk) SetProject(ctx context.Context, c ProjectChange) error {
	if err := d.mayChange("change a project"); err != nil {
		return err
	}
	if c.Group == nil && c.Managers == nil && c.Flow == nil {
		return invalidf("nothing to change: give --group, --manager or --flow")
	}
	return d.changeProject(ctx, c, func() error {
		project, err := d.project(ctx, c.Name)
		if err != nil {
			return err
		}
		return d.ledger.SetProject(ctx, d.editor(), c.applyTo(project), d.thisWeek())
	})
}

// changeProject makes a change whose group and managers the system knows.
func (d *Desk) changeProject(ctx context.Context, c ProjectChange, do func() error) error {
	if c.Group != nil {
		if err := d.sys.Group(*c.Group); err != nil {
			return fmt.Errorf("group %q: the system knows no such group: see `getent group`", *c.Group)
		}
	}
	if c.Managers != nil {
		for _, user := range *c.Managers {
			if err := d.checkUser(user); err != nil {
				return err
			}
		}
	}
	return knownFlows(d.edit(ctx, do))
}

func (d *Desk) checkUser(user string) error {
	if err := d.sys.User(user); err != nil {
		return fmt.Errorf("user %q: the system knows no such user: see `getent passwd`", user)
	}
	return nil
}

// applyTo returns a project after the change.
func (c ProjectChange) applyTo(p ledger.Project) ledger.Project {
	if c.Group != nil {
		p.Group = *c.Group
	}
	if c.Managers != nil {
		p.Managers = *c.Managers
	}
	if c.Flow != nil {
		p.Flow = *c.Flow
	}
	return p
}

// RemoveProject removes a project that has no slots in this week or later.
func (d *Desk) RemoveProject(ctx context.Context, name string) error {
	if err := d.mayChange("change a project"); err != nil {
		return err
	}
	return d.edit(ctx, func() error { return d.ledger.RemoveProject(ctx, d.editor(), name, d.thisWeek()) })
}

// project finds a project.
func (d *Desk) project(ctx context.Context, name string) (ledger.Project, error) {
	all, err := d.ledger.Projects(ctx)
	if err != nil {
		return ledger.Project{}, err
	}
	return named(all, name)
}

func named(all []ledger.Project, name string) (ledger.Project, error) {
	i := slices.IndexFunc(all, func(p ledger.Project) bool { return p.Name == name })
	if i < 0 {
		if k := slices.IndexFunc(all, func(p ledger.Project) bool { return slices.Contains(p.Former, name) }); k >= 0 {
			return ledger.Project{}, fmt.Errorf("%w %q: it is called %s now", ledger.ErrUnknownProject, name, all[k].Name)
		}
		var names []string
		for k := range all {
			names = append(names, all[k].Name)
		}
		return ledger.Project{}, fmt.Errorf("%w %q%s: see `pba project list`, or add it: pba project add NAME --group GROUP", ledger.ErrUnknownProject, name, nearest.Hint(name, names))
	}
	return all[i], nil
}

// requireProject is an error where a project is named of which nothing is known, neither a
// past nor a plan. "" names none.
func (d *Desk) requireProject(ctx context.Context, name string, known bool) error {
	if name == "" || known {
		return nil
	}
	_, err := d.project(ctx, name)
	return err
}

// Flows lists the flows by name.
func (d *Desk) Flows(ctx context.Context) ([]ledger.Flow, error) {
	all, err := d.ledger.Flows(ctx)
	return append([]ledger.Flow{}, all...), err
}

// AddFlow adds a flow of steps.
func (d *Desk) AddFlow(ctx context.Context, name string, steps []string) error {
	if err := checkName("flow", name); err != nil {
		return err
	}
	return d.changeFlow(ctx, steps, func() error { return d.ledger.AddFlow(ctx, d.editor(), name, steps) })
}

// SetFlow replaces a flow's steps.
func (d *Desk) SetFlow(ctx context.Context, name string, steps []string) error {
	return d.changeFlow(ctx, steps, func() error { return d.ledger.SetFlow(ctx, d.editor(), name, steps, d.thisWeek()) })
}

// RemoveFlow removes a flow that no project uses.
func (d *Desk) RemoveFlow(ctx context.Context, name string) error {
	return d.changeFlow(ctx, nil, func() error { return d.ledger.RemoveFlow(ctx, d.editor(), name) })
}

func (d *Desk) changeFlow(ctx context.Context, steps []string, do func() error) error {
	for i, step := range steps {
		if err := checkName("step", step); err != nil {
			return err
		}
		if slices.Contains(steps[:i], step) {
			return invalidf("--steps: %s is given twice", step)
		}
	}
	if err := d.mayChange("change a flow"); err != nil {
		return err
	}
	return knownFlows(d.edit(ctx, do))
}

// knownFlows adds to an unknown flow where the known ones are to be seen.
func knownFlows(err error) error {
	if errors.Is(err, ledger.ErrUnknownFlow) {
		return fmt.Errorf("%w: see `pba flow list`, or add it: pba flow add NAME --steps STEP,STEP…", err)
	}
	return err
}

// nameIs is what a project, a step and a flow may be called: it must survive a
// command line, a file name and LSF's and Slurm's own lists.
var nameIs = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,62}$`)

func checkName(what, name string) error {
	if !nameIs.MatchString(name) {
		return invalidf("%q can't be the name of a %s: want letters, digits and _ . + @ -, at most 63, the first a letter, a digit or _", name, what)
	}
	return nil
}
