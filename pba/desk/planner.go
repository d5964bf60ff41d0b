package desk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// planner checks changes of allocations by any user and any command.
type planner struct {
	*Desk
	farm  map[string]size // now, by host set; nil: not needed
	users map[string]error
}

// planner looks up what the checks of some changes need and a lock should not
// wait for.
func (d *Desk) planner(ctx context.Context, changes []ledger.Change) (*planner, error) {
	p := &planner{Desk: d, users: map[string]error{}}
	if slices.ContainsFunc(changes, func(c ledger.Change) bool { return c.Slots > 0 }) {
		var err error
		if p.farm, err = d.farm(ctx); err != nil {
			return nil, fmt.Errorf("look up the farm's size: %w", err)
		}
	}
	return p, nil
}

// apply makes all of the changes, or none, and returns their number in the log; 0 if all is
// so already. Under the edit lock it first calls precondition, unless nil, which returns an
// error if they are no longer what is meant.
func (p *planner) apply(ctx context.Context, n note, changes []ledger.Change, precondition func() error) (id int64, err error) {
	err = p.applyBy(ctx, n, changes, precondition, func(how ledger.Edit) (err error) {
		id, err = p.ledger.ChangeAllocations(ctx, how, changes)
		return err
	})
	return id, err
}

// applyBy is apply where the ledger records more with the changes.
func (p *planner) applyBy(ctx context.Context, n note, changes []ledger.Change, precondition func() error, record func(ledger.Edit) error) error {
	how := ledger.Edit{
		Editor: p.editor(), ThisWeek: p.thisWeek(), Grace: time.Duration(p.PBA.LoweredGrace),
		Command: n.command, Comment: n.comment, Undoes: n.undoes,
	}
	return p.edit(ctx, func() error {
		if precondition != nil {
			if err := precondition(); err != nil {
				return err
			}
		}
		if err := p.checkAll(ctx, changes); err != nil {
			return err
		}
		return record(how)
	})
}

// changePart is the part of a change that an error is about.
type changePart string

// The parts of a change.
const (
	partProject changePart = "project"
	partStep    changePart = "step"
	partUser    changePart = "user"
	partHosts   changePart = "hosts"
	partWeek    changePart = "week"
	partSlots   changePart = "slots"
)

// changeError is what is wrong with a change.
type changeError struct {
	change ledger.Change
	part   changePart
	err    error
	sum    string // what is wrong with its week's sum; "": nothing
}

func (e *changeError) Error() string { return e.err.Error() }
func (e *changeError) Unwrap() error { return e.err }

// checkAll checks all of the changes; its error has all faults.
func (p *planner) checkAll(ctx context.Context, changes []ledger.Change) error {
	all, err := p.wrong(ctx, changes)
	if err == nil && len(all) > 0 {
		return wrongChanges(all)
	}
	return err
}

// wrong returns what is wrong with changes in themselves, and then what is wrong with the
// sums of their weeks.
func (p *planner) wrong(ctx context.Context, changes []ledger.Change) ([]*changeError, error) {
	projects, err := p.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	flows, err := p.ledger.Flows(ctx)
	if err != nil {
		return nil, err
	}
	var all []*changeError
	for _, c := range changes {
		if part, err := p.check(c, projects, flows); err != nil {
			all = append(all, &changeError{change: c, part: part, err: err})
		}
	}
	planned, err := p.ledger.Allocations(ctx, p.thisWeek(), p.horizon())
	return append(all, p.fits(planned, changes)...), err
}

func (p *planner) check(c ledger.Change, projects []ledger.Project, flows []ledger.Flow) (changePart, error) {
	project, err := named(projects, c.Project)
	if err != nil {
		return partProject, err
	}
	if err := p.mayPlan(project); err != nil {
		return partProject, err
	}
	if err := p.mayBePlanned(c.Week, c.Week, "week "+c.Week.String()); err != nil {
		return partWeek, err
	}
	if c.Slots == 0 {
		return "", nil // what is withdrawn needs no valid step or user any more
	}
	if err := p.checkStep(c.Step, project, flows); err != nil {
		return partStep, err
	}
	if err := p.checkHostSet(c.Hosts); err != nil {
		return partHosts, err
	}
	return partUser, p.checkKnown(c.User)
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

func (p *planner) checkKnown(name string) error {
	if name == "" {
		return nil
	}
	err, known := p.users[name]
	if !known {
		err = p.checkUser(name)
		p.users[name] = err
	}
	return err
}

// mayBePlanned is an error for weeks in the past, or beyond the horizon (R24). What names
// them.
func (d *Desk) mayBePlanned(first, last calendar.Week, what string) error {
	this, horizon := d.thisWeek(), d.horizon()
	if first.Compare(this) < 0 {
		return fmt.Errorf("week %s is over: this week is %s", first, this)
	}
	if last.Compare(horizon) > 0 {
		return fmt.Errorf("%s: the last week that may be planned is %s (pba.horizon: %d weeks ahead)", what, horizon, d.PBA.Horizon)
	}
	return nil
}

// allocatable is max_allocated of some hosts' slots (R24).
func (d *Desk) allocatable(slots int) int {
	return int(float64(slots)*float64(d.PBA.MaxAllocated) + 1e-9)
}

// share is what max_allocated limits (R24): a week's slots on the hosts of one set, or of
// none.
type share struct {
	calendar.Week
	hosts string
}

// fits checks each week's sums after all of the changes against max_allocated, for each
// host set and for the hosts in none, and returns an error for the first change of each that
// is too large. What makes a sum no larger is always possible.
func (p *planner) fits(planned []ledger.Allocation, changes []ledger.Change) (all []*changeError) {
	was, before, after := map[ledger.Change]int{}, map[share]int{}, map[share]int{}
	for _, a := range planned {
		was[ledger.Change{Pool: a.Pool, Week: a.Week}] = a.Slots
		before[share{a.Week, a.Hosts}] += a.Slots
		after[share{a.Week, a.Hosts}] += a.Slots
	}
	for _, c := range changes {
		after[share{c.Week, c.Hosts}] += c.Slots - was[ledger.Change{Pool: c.Pool, Week: c.Week}]
	}
	named := map[share]bool{}
	for _, c := range changes {
		at, has := share{c.Week, c.Hosts}, p.farm[c.Hosts]
		limit := p.allocatable(has.slots)
		if c.Slots == 0 || excess(before[at], after[at], limit) == 0 || named[at] {
			continue
		}
		named[at] = true
		others := after[at] - c.Slots
		text := fmt.Sprintf("%d slots don't fit into %s: %d are free there (max_allocated is %v of %s, that is %d; others hold %d)",
			c.Slots, c.Week, max(0, limit-others), p.PBA.MaxAllocated, p.describeSize(c.Hosts, has.slots), limit, others)
		if has.down > 0 {
			text += fmt.Sprintf("; %d more slots are on hosts that are down", has.down)
		}
		sum := fmt.Sprintf("%s would have %d slots too many: %d of the %d that max_allocated (%v of %s) allows",
			c.Week, after[at]-limit, after[at], limit, p.PBA.MaxAllocated, p.describeSize(c.Hosts, has.slots))
		all = append(all, &changeError{change: c, part: partSlots, err: errors.New(text), sum: sum})
	}
	return all
}

// excess returns by how much a sum of slots exceeds its limit after a change, 0 where the
// change makes it no larger.
func excess(before, after, limit int) int {
	if after <= before {
		return 0
	}
	return max(0, after-limit)
}

// Terms are what a pool is guaranteed in a week.
type Terms = ledger.Terms

// SLA is how a pool's guarantee is kept (R26).
type SLA = plan.SLA

// DefaultSLA is the SLA where none is given.
const DefaultSLA = string(plan.Velocity)

// NewTerms are so many slots, for all time or for a number of jobs a week.
func NewTerms(slots int, sla string, jobs int) (Terms, error) {
	t := Terms{Slots: slots, SLA: plan.SLA(sla), Jobs: jobs}
	return t, checkTerms(t)
}

// InWords describes terms: 3 slots for 600 jobs a week.
func InWords(t Terms) string {
	text := printable.Count(t.Slots, "slot")
	if t.SLA == plan.Throughput {
		text += " for " + printable.Count(t.Jobs, "job") + " a week"
	}
	return text
}

// checkTerms says what is wrong with terms in themselves (R26).
func checkTerms(t Terms) error {
	switch {
	case t.Slots < 1 || t.Slots > math.MaxInt32:
		return fmt.Errorf("%d slots: want one or more", t.Slots)
	case t.SLA != plan.Velocity && t.SLA != plan.Throughput:
		return fmt.Errorf("%q is no SLA (known: %s, %s)", t.SLA, plan.Velocity, plan.Throughput)
	case t.SLA == plan.Velocity && t.Jobs != 0:
		return fmt.Errorf("a number of jobs goes with %s only", plan.Throughput)
	case t.SLA == plan.Throughput && (t.Jobs < 1 || t.Jobs > math.MaxInt32):
		return fmt.Errorf("%s needs a number of jobs, one or more", plan.Throughput)
	}
	return nil
}
