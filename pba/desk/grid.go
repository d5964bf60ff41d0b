package desk

import (
	"cmp"
	"context"
	"slices"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Grid is a plan as a table of weeks: what its pools have, and what is left.
type Grid struct {
	This     calendar.Week   `json:"this_week"`
	Weeks    []calendar.Week `json:"weeks"`
	Rows     []GridRow       `json:"rows"`
	Slots    []int           `json:"slots"`     // of all rows, by week
	Total    int             `json:"total"`     // of all rows and weeks, in slot-weeks
	HostSets []GridHosts     `json:"host_sets"` // those of the hosts in no set first
	Revision int64           `json:"revision"`  // of the plan; it grows with each edit

	Away error `json:"-"` // why the capacity is not known; nil: it is
}

// GridRow has the slots of the pools that it sums up, by week.
type GridRow struct {
	ledger.Pool
	SLA   plan.SLA `json:"sla,omitempty"`  // only where rows are by terms
	Jobs  int      `json:"jobs,omitempty"` // too
	Slots []int    `json:"slots"`
	Total int      `json:"total"` // in slot-weeks
}

// GridHosts is what is planned on the hosts of a set, for all projects, and what is left.
type GridHosts struct {
	Hosts     string `json:"hosts"`     // "": the hosts in no set
	Capacity  *int   `json:"capacity"`  // slots that may be allocated in a week; null: not known
	Allocated []int  `json:"allocated"` // by week
	Free      []int  `json:"free"`      // by week, below zero where too much is allocated; null: not known
}

// GridQuery says which rows a grid has. Rows are by project, and by what else is said.
type GridQuery struct {
	Projects []string // none: all
	Hosts    *string  // only on the hosts of this set, "" for those in none; nil: on any

	ByStep, ByUser, ByHosts, ByTerms bool
}

// row returns the row that an allocation counts in, without slots.
func (q *GridQuery) row(a ledger.Allocation) GridRow {
	r := GridRow{Pool: ledger.Pool{Project: a.Project}}
	if q.ByStep {
		r.Step = a.Step
	}
	if q.ByUser {
		r.User = a.User
	}
	if q.ByHosts {
		r.Hosts = a.Hosts
	}
	if q.ByTerms {
		r.SLA, r.Jobs = a.SLA, a.Jobs
	}
	return r
}

// gridInput is what a grid is made of.
type gridInput struct {
	this    calendar.Week
	weeks   []calendar.Week // one after the other
	planned []ledger.Allocation
	limits  map[string]int      // slots that may be allocated, by host set; nil: not known
	sets    []string            // the host sets of the config
	steps   map[string][]string // of projects with a flow
	blank   []ledger.Pool       // that have rows without slots, too

	revision int64 // of the plan, or of an older one: it is read first, so that no edit is missed
}

// makeGrid sums up what is planned. Its rows are in the order of projects, users, steps as
// in the project's flow, host sets and terms.
func makeGrid(in gridInput, q GridQuery) *Grid {
	n := len(in.weeks)
	g := &Grid{This: in.this, Weeks: in.weeks, Rows: []GridRow{}, Slots: make([]int, n)}
	on := map[string]*GridHosts{}
	for _, set := range append([]string{""}, in.sets...) {
		on[set] = &GridHosts{Hosts: set, Allocated: make([]int, n)}
	}
	rows := map[string]*GridRow{}
	rowOf := func(a ledger.Allocation) *GridRow {
		r := q.row(a)
		key := r.key()
		if rows[key] == nil {
			r.Slots = make([]int, n)
			rows[key] = &r
		}
		return rows[key]
	}
	for _, pool := range in.blank {
		rowOf(ledger.Allocation{Pool: pool, Terms: ledger.Terms{SLA: plan.Velocity}})
	}
	for _, a := range in.planned {
		i := 0
		if n > 0 {
			i = calendar.WeeksBetween(in.weeks[0], a.Week)
		}
		if i < 0 || i >= n {
			continue
		}
		if on[a.Hosts] == nil { // a set that the config had once
			on[a.Hosts] = &GridHosts{Hosts: a.Hosts, Allocated: make([]int, n)}
		}
		on[a.Hosts].Allocated[i] += a.Slots
		if !q.wants(a.Pool) {
			continue
		}
		r := rowOf(a)
		r.Slots[i] += a.Slots
		r.Total += a.Slots
		g.Slots[i] += a.Slots
		g.Total += a.Slots
	}
	for _, r := range rows {
		g.Rows = append(g.Rows, *r)
	}
	order := newStepOrder(in.steps)
	slices.SortFunc(g.Rows, func(a, b GridRow) int { return a.compare(b, order) })
	for _, h := range on {
		if q.Hosts != nil && *q.Hosts != h.Hosts {
			continue
		}
		if in.limits != nil {
			h.leave(in.limits[h.Hosts])
		}
		g.HostSets = append(g.HostSets, *h)
	}
	slices.SortFunc(g.HostSets, func(a, b GridHosts) int { return cmp.Compare(a.Hosts, b.Hosts) })
	return g
}

// wants reports whether a pool's slots are in the rows.
func (q *GridQuery) wants(p ledger.Pool) bool {
	return (len(q.Projects) == 0 || slices.Contains(q.Projects, p.Project)) && (q.Hosts == nil || *q.Hosts == p.Hosts)
}

// leave sets what is left of a capacity.
func (h *GridHosts) leave(capacity int) {
	h.Capacity = &capacity
	h.Free = make([]int, len(h.Allocated))
	for i, slots := range h.Allocated {
		h.Free[i] = capacity - slots
	}
}

// key is the same for the same row.
func (r *GridRow) key() string {
	return r.Project + "\x00" + r.User + "\x00" + r.Step + "\x00" + r.Hosts + "\x00" + r.terms()
}

// terms are a row's terms without its slots.
func (r *GridRow) terms() string { return ledger.Terms{Slots: 1, SLA: r.SLA, Jobs: r.Jobs}.String() }

// compare orders rows by project, user, step, host set and terms.
func (r GridRow) compare(s GridRow, order stepOrder) int {
	return cmp.Or(cmp.Compare(r.Project, s.Project), cmp.Compare(r.User, s.User),
		order.compareSteps(r.Project, r.Step, s.Step), r.Pool.Compare(s.Pool),
		-cmp.Compare(r.SLA, s.SLA), cmp.Compare(r.Jobs, s.Jobs))
}

// maxGridWeeks is a number of weeks that a table still has columns for: two years and one.
const maxGridWeeks = 106

// Grid returns what is planned in weeks in a row as a table: from this week on where no first
// one is named, up to the last that may be planned where their number is not given. Where the
// queue is away the capacity is not known.
func (d *Desk) Grid(ctx context.Context, q GridQuery, when When) (*Grid, error) {
	in, err := d.gridInput(ctx, q, when)
	if err != nil {
		return nil, err
	}
	return d.grid(ctx, in, q)
}

func (d *Desk) grid(ctx context.Context, in gridInput, q GridQuery) (*Grid, error) {
	away := d.addLimits(ctx, &in)
	g := makeGrid(in, q)
	g.Away, g.Revision = away, in.revision
	return g, nil
}

// gridInput reads what a grid is made of, all but the farm.
func (d *Desk) gridInput(ctx context.Context, q GridQuery, when When) (in gridInput, err error) {
	for _, name := range q.Projects {
		if _, err := d.project(ctx, name); err != nil {
			return in, err
		}
	}
	if q.Hosts != nil {
		if err := d.checkHostSet(*q.Hosts); err != nil {
			return in, err
		}
	}
	if in.weeks, err = d.gridWeeks(when); err != nil {
		return in, err
	}
	in.this = d.thisWeek()
	for set := range d.PBA.HostSets {
		in.sets = append(in.sets, set)
	}
	if in.steps, err = d.stepsOfProjects(ctx); err != nil {
		return in, err
	}
	if in.revision, err = d.ledger.Revision(ctx); err != nil {
		return in, err
	}
	in.planned, err = d.ledger.Allocations(ctx, in.weeks[0], in.weeks[len(in.weeks)-1])
	return in, err
}

// gridWeeks are the weeks of a table's columns.
func (d *Desk) gridWeeks(when When) ([]calendar.Week, error) {
	weeks, err := when.weeks(d.reader(), 1)
	if err == nil {
		err = inARow("a grid", weeks)
	}
	if err != nil {
		return nil, err
	}
	n := len(weeks)
	if when.Weeks == "" {
		n = min(max(1, calendar.WeeksBetween(weeks[0], d.horizon())+1), maxGridWeeks)
	}
	if n > maxGridWeeks {
		return nil, invalidf("--weeks %s: want 1 to %d weeks", when.Weeks, maxGridWeeks)
	}
	return calendar.From(weeks[0], n), nil
}

// stepsOfProjects returns the steps of the flow of each project that has one.
func (d *Desk) stepsOfProjects(ctx context.Context) (map[string][]string, error) {
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	flows, err := d.ledger.Flows(ctx)
	if err != nil {
		return nil, err
	}
	steps := map[string][]string{}
	for _, p := range projects {
		if i := slices.IndexFunc(flows, func(f ledger.Flow) bool { return f.Name == p.Flow }); i >= 0 {
			steps[p.Name] = flows[i].Steps
		}
	}
	return steps, nil
}
