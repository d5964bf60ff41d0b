package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// planner checks changes of allocations: whoever makes them, by whatever command.
type planner struct {
	s          *site
	farm, down int // slots
	users      map[string]error
}

// planner looks up what the checks of some changes need and a lock should not
// wait for.
func (s *site) planner(ctx context.Context, changes []ledger.Change) (*planner, error) {
	p := &planner{s: s, users: map[string]error{}}
	if slices.ContainsFunc(changes, func(c ledger.Change) bool { return c.Slots > 0 }) {
		var err error
		if p.farm, p.down, err = s.farm(ctx); err != nil {
			return nil, fmt.Errorf("look up the farm's size: %w", err)
		}
	}
	return p, nil
}

// edit is how the ledger makes the changes.
func (p *planner) edit() ledger.Edit {
	return ledger.Edit{Editor: p.s.editor(), ThisWeek: p.s.thisWeek(), Grace: time.Duration(p.s.PBA.LoweredGrace), Check: p.fits}
}

// changeError is what is wrong with a change.
type changeError struct {
	change ledger.Change
	err    error
}

func (e *changeError) Error() string { return e.err.Error() }
func (e *changeError) Unwrap() error { return e.err }

// checkAll checks all that concerns each change alone; fits the rest.
func (p *planner) checkAll(ctx context.Context, changes []ledger.Change) error {
	projects, err := p.s.ledger.Projects(ctx)
	if err != nil {
		return err
	}
	flows, err := p.s.ledger.Flows(ctx)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := p.check(c, projects, flows); err != nil {
			return &changeError{c, err}
		}
	}
	return nil
}

func (p *planner) check(c ledger.Change, projects []ledger.Project, flows []ledger.Flow) error {
	i := slices.IndexFunc(projects, func(q ledger.Project) bool { return q.Name == c.Project })
	if i < 0 {
		return fmt.Errorf("%w %q: see `pba project list`, or add it: pba project add NAME --group GROUP", ledger.ErrUnknownProject, c.Project)
	}
	project := projects[i]
	if !p.s.PBA.Roles.MayPlan(p.s.caller.Caller, project.Managers) {
		return fmt.Errorf("plan for %s: you are %s: only its managers (`pba project list`) and admins may", project.Name, p.s.caller)
	}
	this := p.s.thisWeek()
	if c.Week.Compare(this) < 0 {
		return over(c.Week, this)
	}
	if horizon := calendar.AddWeeks(this, p.s.PBA.Horizon); c.Week.Compare(horizon) > 0 {
		return fmt.Errorf("week %s: the last week that may be planned is %s (pba.horizon: %d weeks ahead)", c.Week, horizon, p.s.PBA.Horizon)
	}
	if c.Slots == 0 {
		return nil // what is taken back needs no valid step or user any more
	}
	if err := p.checkStep(c.Step, project, flows); err != nil {
		return err
	}
	return p.checkUser(c.User)
}

func (p *planner) checkStep(step string, project ledger.Project, flows []ledger.Flow) error {
	if step == "" || project.Flow == "" {
		return nil
	}
	i := slices.IndexFunc(flows, func(f ledger.Flow) bool { return f.Name == project.Flow })
	if i >= 0 && slices.Contains(flows[i].Steps, step) {
		return nil
	}
	steps := ""
	if i >= 0 {
		steps = strings.Join(flows[i].Steps, ", ")
	}
	return fmt.Errorf("%s has no step %q: its flow %s has %s", project.Name, step, project.Flow, steps)
}

func (p *planner) checkUser(name string) error {
	if name == "" {
		return nil
	}
	err, known := p.users[name]
	if !known {
		err = p.s.checkUser(name)
		p.users[name] = err
	}
	return err
}

// fits checks a week's sum against max_allocated. What makes the sum no larger
// is always possible.
func (p *planner) fits(c ledger.Change, week ledger.Sums) error {
	limit := int(float64(p.farm)*float64(p.s.PBA.MaxAllocated) + 1e-9)
	if c.Slots == 0 || week.After <= week.Before || week.After <= limit {
		return nil
	}
	others := week.After - c.Slots
	text := fmt.Sprintf("%d slots don't fit into %s: %d are free there (max_allocated is %v of the farm's %d slots, that is %d; others hold %d)",
		c.Slots, c.Week, max(0, limit-others), p.s.PBA.MaxAllocated, p.farm, limit, others)
	if p.down > 0 {
		text += fmt.Sprintf("; %d more slots are on hosts that are down", p.down)
	}
	return &changeError{c, errors.New(text)}
}
