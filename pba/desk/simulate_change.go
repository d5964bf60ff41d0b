package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// ChangeEffect is what a change of the plan would do to recorded jobs.
type ChangeEffect struct {
	Changes  []string         `json:"changes"`
	Over     []OverAllocation `json:"over_allocated"` // weeks in which the change can't be made
	Trace    simulate.Source  `json:"trace"`
	Farm     int              `json:"farm_slots"`
	Window   simulate.Window  `json:"window"`
	Projects []simulate.Yield `json:"projects"` // first those that give way
	Before   simulate.Outcome `json:"before"`
	After    simulate.Outcome `json:"after"`
	Notes    []string         `json:"notes"`
}

// OverAllocation is a week's slots beyond what may be allocated.
type OverAllocation struct {
	Week    calendar.Week `json:"week"`
	Hosts   string        `json:"hosts,omitempty"` // a host set
	Planned int           `json:"planned"`         // with the change
	Limit   int           `json:"limit"`           // max_allocated of these hosts
	Exceeds int           `json:"exceeds"`
	Lender  string        `json:"could_lend,omitempty"` // a project whose jobs left some of its slots unused all the week
	Lends   int           `json:"could_lend_slots,omitempty"`
}

// planChange changes the slots of a pool in some weeks.
type planChange struct {
	pool  Pool
	sign  byte // + and -: more and fewer, =: so many
	slots int
	weeks []calendar.Week
	text  string
}

var amountOf = regexp.MustCompile(`^([+=-])([0-9]{1,9})$`)

// readChange reads a change: PROJECT[:STEP] [user USER] [on SET] +N [WEEKS], or -N, or =N.
func readChange(text string, weeks calendar.Reader) (planChange, error) {
	c := planChange{text: text}
	bad := func(why string) (planChange, error) {
		return c, invalidf("--change %q: %s; write it like 'chipA +40 W50-W51', 'chipA:drc user bob on gpu -8' or 'chipA =20 now'", text, why)
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return bad("it is empty")
	}
	c.pool.Project, c.pool.Step, _ = strings.Cut(words[0], ":")
	for words = words[1:]; len(words) > 1 && (words[0] == "user" || words[0] == "on"); words = words[2:] {
		if words[0] == "user" {
			c.pool.User = words[1]
		} else {
			c.pool.Hosts = words[1]
		}
	}
	if len(words) == 0 {
		return bad("the number of slots is missing")
	}
	m := amountOf.FindStringSubmatch(words[0])
	if m == nil {
		return bad(fmt.Sprintf("%q is not a number of slots with +, - or =", words[0]))
	}
	c.sign = m[1][0]
	c.slots, _ = strconv.Atoi(m[2])
	if c.slots == 0 && c.sign != '=' {
		return bad("it changes nothing")
	}
	var err error
	if c.weeks, err = weeks.Weeks(cmp.Or(strings.Join(words[1:], ","), weeks.This.String())); err != nil {
		return bad(err.Error())
	}
	if first := c.weeks[0]; first.Compare(weeks.This) < 0 {
		return bad(fmt.Sprintf("week %s is over", first))
	}
	if last := c.weeks[len(c.weeks)-1]; last.Compare(weeks.Last) > 0 {
		return bad(fmt.Sprintf("week %s is beyond %s, the plan's last", last, weeks.Last))
	}
	return c, nil
}

// changePlan returns a plan with changes, one after the other.
func changePlan(base []ledger.Change, changes []planChange) ([]ledger.Change, error) {
	terms := map[cell]Terms{}
	for _, a := range base {
		terms[cell{a.Pool, a.Week}] = a.Terms
	}
	for _, c := range changes {
		for _, w := range c.weeks {
			t := terms[cell{c.pool, w}]
			if t.Slots == 0 {
				t = Terms{SLA: plan.Velocity}
			}
			had := t.Slots
			switch c.sign {
			case '+':
				t.Slots += c.slots
			case '-':
				t.Slots -= c.slots
			default:
				t.Slots = c.slots
			}
			if t.Slots < 0 || t.Slots > math.MaxInt32 {
				return nil, invalidf("--change %q: %s has %s in %s: it can't have %d", c.text, c.pool, printable.Count(had, "slot"), w, t.Slots)
			}
			terms[cell{c.pool, w}] = t
		}
	}
	var all []ledger.Change
	for k, t := range terms {
		if t.Slots > 0 {
			all = append(all, ledger.Change{Pool: k.Pool, Week: k.Week, Terms: t})
		}
	}
	slices.SortFunc(all, func(a, b ledger.Change) int { return cmp.Or(a.Week.Compare(b.Week), a.Pool.Compare(b.Pool)) })
	return all, nil
}

// overAllocated returns the weeks in which a change makes a sum exceed its limit, which
// limit returns by host set.
func overAllocated(before, after []ledger.Change, limit func(hosts string) int) []OverAllocation {
	sums := func(all []ledger.Change) map[share]int {
		sum := map[share]int{}
		for _, c := range all {
			sum[share{c.Week, c.Hosts}] += c.Slots
		}
		return sum
	}
	was, is := sums(before), sums(after)
	over := []OverAllocation{}
	for _, at := range slices.SortedFunc(maps.Keys(is), func(a, b share) int {
		return cmp.Or(a.Week.Compare(b.Week), strings.Compare(a.hosts, b.hosts))
	}) {
		most := limit(at.hosts)
		if by := excess(was[at], is[at], most); by > 0 {
			over = append(over, OverAllocation{Week: at.Week, Hosts: at.hosts, Planned: is[at], Limit: most, Exceeds: by})
		}
	}
	return over
}

// basePlan is the plan that changes are simulated on.
type basePlan struct {
	allocations []ledger.Change
	projects    []string
	weeks       calendar.Reader
}

// basePlan reads --plan, or the plan of the ledger from this week on.
func (d *Desk) basePlan(ctx context.Context, o *Simulation) (*basePlan, error) {
	if o.Plan != "" {
		f, err := d.namedPlan(o.Plan)
		if err != nil {
			return nil, err
		}
		b := &basePlan{f.Allocations, f.Projects, calendar.Reader{This: f.From, Last: f.To}}
		l, err := ledger.OpenToRead(d.LedgerPath())
		if errors.Is(err, ledger.ErrMissing) {
			return b, nil // another site's plan
		}
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // it was only read
		return b, b.addProjects(ctx, l)
	}
	l, err := ledger.OpenToRead(d.LedgerPath())
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // it was only read
	b := &basePlan{weeks: calendar.Reader{This: d.thisWeek(), Last: d.horizon()}}
	planned, err := l.Allocations(ctx, d.thisWeek(), forever)
	if err != nil {
		return nil, err
	}
	for _, a := range planned {
		b.allocations = append(b.allocations, ledger.Change{Pool: a.Pool, Week: a.Week, Terms: a.Terms})
	}
	return b, b.addProjects(ctx, l)
}

// addProjects adds the projects that the ledger has.
func (b *basePlan) addProjects(ctx context.Context, l *ledger.Ledger) error {
	projects, err := l.Projects(ctx)
	for _, p := range projects {
		b.projects = append(b.projects, p.Name)
	}
	return err
}

// siteHosts returns the hosts of the queue that are managed and up.
func (d *Desk) siteHosts(ctx context.Context) ([]backends.Host, error) {
	queue := d.queue // of a desk that is open
	if queue == nil {
		opened, err := d.sys.Open(ctx, d.Config)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // it was only read
		queue = opened
	}
	farm, err := queue.Snapshot(ctx, d.Now())
	if err != nil {
		return nil, fmt.Errorf("read the farm's hosts (or give --farm): %w", err)
	}
	managed, _, _ := farm.Managed(d.Hosts)
	var hosts []backends.Host
	for _, h := range managed {
		hosts = append(hosts, backends.Host{Name: h.Name, Slots: h.Slots, Memory: h.Memory})
	}
	if len(hosts) == 0 {
		return nil, errors.New("the queue has no host that is managed and up: give --farm")
	}
	return hosts, nil
}

// SimulateChange plays recorded jobs under the plan with changes and without them.
func (d *Desk) SimulateChange(ctx context.Context, o *Simulation) (*ChangeEffect, error) {
	base, err := d.basePlan(ctx, o)
	if err != nil {
		return nil, err
	}
	changes, err := d.readChanges(o.Changes, base)
	if err != nil {
		return nil, err
	}
	changed, err := changePlan(base.allocations, changes)
	if err != nil {
		return nil, err
	}
	first, last := spanOf(changes)
	raised := map[string]bool{}
	for _, c := range changes {
		raised[c.pool.Project] = raised[c.pool.Project] || c.sign != '-'
	}
	return d.simulateChanged(ctx, o, changedPlan{base.allocations, changed, first, last, raised})
}

// changedPlan is a plan before a change and after it.
type changedPlan struct {
	before, after []ledger.Change
	first, last   calendar.Week   // that the change is for
	raised        map[string]bool // projects that it may give more slots
}

// simulateChanged plays recorded jobs under both plans.
func (d *Desk) simulateChanged(ctx context.Context, o *Simulation, c changedPlan) (*ChangeEffect, error) {
	var err error
	if o.Farm == "" {
		if o.hosts, err = d.siteHosts(ctx); err != nil {
			return nil, err
		}
	}
	o.Policies = []string{simulate.PBA}
	s, err := d.setup(o)
	if err != nil {
		return nil, err
	}
	if o.Trace == "ledger" { // as many weeks as are changed, the latest
		o.since = calendar.PeriodOf(calendar.AddWeeks(d.thisWeek(), -1-calendar.WeeksBetween(c.first, c.last)), d.zone()).Begin
	}
	var store trace.Store
	defer func() { _ = store.Close() }() // nothing in it is kept
	s.Trace, s.Everyone = &store, true
	if s.Name, s.Format, err = d.readTrace(ctx, o, &store); err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", o.Trace, err)
	}
	if store.Jobs == 0 {
		return nil, fmt.Errorf("simulate: %w: %s", simulate.ErrNothing, leftOut(&store))
	}
	e := &ChangeEffect{Changes: o.Changes, Notes: []string{}}
	sizes := d.sizes(&backends.Snapshot{Hosts: s.Hosts})
	e.Over = overAllocated(c.before, c.after, func(hosts string) int { return d.allocatable(sizes[hosts].slots) })
	if note := moveInto(&s, c.first, c.last, d.zone()); note != "" {
		e.Notes = append(e.Notes, note)
	}
	if err := d.runBoth(ctx, s, c.before, c.after, e); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	d.findLenders(e, c)
	e.Before.Series, e.After.Series = simulate.Series{}, simulate.Series{}
	return e, nil
}

func (d *Desk) readChanges(texts []string, base *basePlan) ([]planChange, error) {
	var all []planChange
	for _, text := range texts {
		c, err := readChange(text, base.weeks)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(base.projects, c.pool.Project) {
			return nil, fmt.Errorf("--change %q: there is no project %q: see `pba project list`", text, c.pool.Project)
		}
		if err := d.checkHostSet(c.pool.Hosts); err != nil {
			return nil, fmt.Errorf("--change %q: %w", text, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// spanOf returns the first and the last week that changes are for.
func spanOf(changes []planChange) (first, last calendar.Week) {
	var all []calendar.Week
	for _, c := range changes {
		all = append(all, c.weeks...)
	}
	return slices.MinFunc(all, calendar.Week.Compare), slices.MaxFunc(all, calendar.Week.Compare)
}

// moveInto moves a trace by whole weeks into the weeks that are changed, unless it has
// jobs there; it returns what a reader must know of that.
func moveInto(s *simulate.Setup, first, last calendar.Week, zone *time.Location) string {
	begins, ends := calendar.WeekOf(s.Trace.First, zone), calendar.WeekOf(s.Trace.Last, zone)
	if begins.Compare(last) <= 0 && ends.Compare(first) >= 0 {
		return ""
	}
	s.Shift = shiftTo(first, s.Trace, zone)
	return fmt.Sprintf("The jobs are those recorded from %s to %s, played as if they began in %s.", begins, ends, first)
}

func (d *Desk) runBoth(ctx context.Context, s simulate.Setup, before, after []ledger.Change, e *ChangeEffect) error {
	for _, x := range []struct {
		plan []ledger.Change
		to   *simulate.Outcome
	}{{before, &e.Before}, {after, &e.After}} {
		s.Plan = nil
		for _, a := range x.plan {
			s.Plan = append(s.Plan, simulatedEntry(a, d.zone()))
		}
		r, err := simulate.Run(ctx, s)
		if err != nil {
			return err
		}
		*x.to = r.Policies[0]
		e.Trace, e.Farm, e.Window = r.Trace, r.Farm.Slots, r.Window
	}
	e.Projects = simulate.Yields(&e.Before, &e.After)
	return nil
}

// findLenders adds to each week that is over-allocated the project that left most of its
// guaranteed slots unused; not one that the changes raise.
func (d *Desk) findLenders(e *ChangeEffect, c changedPlan) {
	for i := range e.Over {
		o := &e.Over[i]
		week := calendar.PeriodOf(o.Week, d.zone())
		for _, a := range c.before {
			if a.Week != o.Week || a.Hosts != o.Hosts || c.raised[a.Project] {
				continue
			}
			if n := min(a.Slots, e.Before.Spare(a.Project, week.Begin, week.End)); n > o.Lends {
				o.Lender, o.Lends = a.Pool.String(), n
			}
		}
	}
}

// simulatedEntry returns an allocation for the simulator.
func simulatedEntry(a ledger.Change, zone *time.Location) simulate.PlanEntry {
	week := calendar.PeriodOf(a.Week, zone)
	return simulate.PlanEntry{
		Allocation: plan.Allocation{Project: a.Project, User: a.User, Step: a.Step, Hosts: a.Hosts, Guarantee: a.Slots, SLA: a.SLA, Jobs: a.Jobs, Begin: week.Begin, End: week.End},
		From:       week.Begin, To: week.End,
	}
}
