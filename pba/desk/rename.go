package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Renaming is what a project's new name concerns.
type Renaming struct {
	Allocations int   // from this week on
	Requests    int   // open ones
	Jobs        int   // unfinished ones that have the present name, or a former one
	Away        error // why the jobs are not known; nil: they are
}

// RenameProject gives a project, with its past, a new name; nothing changes in a dry run. Jobs
// that have the former name count for it until they end, and the filter takes it until no
// unfinished job has it any more.
func (d *Desk) RenameProject(ctx context.Context, from, to string, dryRun bool) (*Renaming, error) {
	if err := d.mayChange("change a project"); err != nil {
		return nil, err
	}
	if err := checkName("project", to); err != nil {
		return nil, err
	}
	if from == to {
		return nil, invalidf("project %s has this name", from)
	}
	project, err := d.project(ctx, from)
	if err == nil {
		err = d.ledger.CheckRename(ctx, from, to)
	}
	if err == nil {
		err = d.configNames(from, to)
	}
	if err != nil {
		return nil, err
	}
	r, err := d.renaming(ctx, project)
	if err != nil || dryRun {
		return r, err
	}
	if err := d.edit(ctx, func() error { return d.ledger.RenameProject(ctx, d.editor(), from, to) }); err != nil {
		return r, err
	}
	if err := d.renamePast(ctx); err != nil {
		return r, fmt.Errorf("project %s is %s now, and each cycle renames some days more of its past: %w", from, to, err)
	}
	return r, nil
}

// betweenParts is how long the edit lock is free between two parts of the past: a cycle that
// waits for it tries more often.
const betweenParts = 50 * time.Millisecond

// renamePast renames the rest of the past in parts, and lets cycles go on between them.
func (d *Desk) renamePast(ctx context.Context) error {
	for {
		done := false
		err := d.locked(ctx, func() (err error) {
			done, err = d.ledger.RenamePast(ctx)
			return err
		})
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(betweenParts):
		}
	}
}

// configNames returns an error where the config has terms for a project's present name that it
// does not have for the new one: a ledger's edit does not change the config.
func (d *Desk) configNames(from, to string) error {
	var places []string
	in := func(place string, has func(name string) bool) {
		if has(from) && !has(to) {
			places = append(places, place)
		}
	}
	in("pba.projects", func(name string) bool { _, is := d.PBA.Projects[name]; return is })
	in("pba.never_victims.projects", func(name string) bool { return slices.Contains(d.PBA.NeverVictims.Projects, name) })
	in("dummies.heavy", func(name string) bool {
		return slices.ContainsFunc(d.Dummies.Policy().Rules, func(r dummy.Rule) bool { return r.Project == name })
	})
	in("prices.projects", func(name string) bool { _, is := d.Prices.Projects[name]; return is })
	in("prices.departments", func(name string) bool {
		for _, projects := range d.Prices.Departments {
			if slices.Contains(projects, name) {
				return true
			}
		}
		return false
	})
	if len(places) == 0 {
		return nil
	}
	return fmt.Errorf("rename project %s: the config has terms for %s in %s: write them for %s, too, rename it, and then remove those for %s", from, from, strings.Join(places, ", "), to, from)
}

func (d *Desk) renaming(ctx context.Context, project ledger.Project) (*Renaming, error) {
	r := &Renaming{}
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), forever)
	if err != nil {
		return nil, err
	}
	for _, a := range planned {
		if a.Project == project.Name {
			r.Allocations++
		}
	}
	open, err := d.ledger.Requests(ctx, d.thisWeek(), false)
	if err != nil {
		return nil, err
	}
	for _, q := range open {
		if q.Project == project.Name {
			r.Requests++
		}
	}
	rules, err := d.rules(ctx, d.Now())
	if err != nil {
		return nil, err
	}
	farm, err := d.queue.Snapshot(ctx, d.Now())
	if err != nil {
		if r.Away = err; !errors.Is(err, backends.ErrUnreachable) {
			return nil, fmt.Errorf("count the project's jobs: %w", err)
		}
		return r, nil
	}
	pba.Resolve(d.queue.Abilities().ForEngine, rules.Policy.Projects, farm.Jobs)
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.Project == project.Name && !j.IsDummy() {
			r.Jobs++
		}
	}
	return r, nil
}
