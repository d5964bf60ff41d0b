package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// CellEdit is what a user typed into a cell of the plan.
type CellEdit struct {
	Pool
	Week  string `json:"week"`
	Slots string `json:"slots"`          // none: "", 0 or -
	SLA   string `json:"sla,omitempty"`  // "": as it is, or velocity
	Jobs  string `json:"jobs,omitempty"` // "": as it is
	Since int64  `json:"since"`          // the revision of the plan that the user saw; 0: later edits are not looked for
}

// Draft is an edit of the plan that is checked and not made yet.
type Draft struct {
	Lines    []Line          `json:"lines"`  // what changes, joined where it is the same in weeks in a row
	Faults   []CellFault     `json:"faults"` // why it can't be made, at most 50; empty: it can
	More     int             `json:"more_faults,omitempty"`
	Weeks    []calendar.Week `json:"weeks"`
	HostSets []GridHosts     `json:"host_sets"` // what would be left in these weeks
	Revision int64           `json:"revision"`  // of the plan that it was checked against

	differences []Difference
	from        calendar.Week // that planned begins with
	planned     []ledger.Allocation
	planner     *planner
	note        note
	edits       []CellEdit
	places      map[cell]int // of edits
}

// CellFault is why a cell can't be as it was typed.
type CellFault struct {
	Pool
	Week     string    `json:"week"`
	Edit     int       `json:"edit"` // the place of the edit that it is about, from 0
	What     string    `json:"what"`
	Conflict *Conflict `json:"conflict,omitempty"` // another edit of the cell; nil: none
	Excess   bool      `json:"excess,omitempty"`   // its week's sum is too large

	denied bool
}

// Conflict is an edit of a cell that was made after the user saw it.
type Conflict struct {
	Who string    `json:"who"`
	At  time.Time `json:"at"`
	Was Terms     `json:"was"` // before that edit, as the user saw it
	Is  Terms     `json:"is"`  // now
}

// maxDraft is the largest number of cells that are edited at once.
const maxDraft = 20_000

// faulty adds a fault, up to a bound.
func (x *Draft) faulty(f CellFault) {
	if len(x.Faults) >= maxFaults {
		x.More++
		return
	}
	x.Faults = append(x.Faults, f)
}

// Draft checks edits of cells, and shows what they change. What is left is shown for the
// weeks of a calendar.
func (d *Desk) Draft(ctx context.Context, edits []CellEdit, comment string, when When) (*Draft, error) {
	n, err := newNote("alloc set", comment)
	if err != nil {
		return nil, err
	}
	if len(edits) > maxDraft {
		return nil, invalidf("%d cells at once: want at most %d", len(edits), maxDraft)
	}
	x := &Draft{Faults: []CellFault{}, note: n, edits: edits}
	if x.Revision, err = d.ledger.Revision(ctx); err != nil {
		return nil, err
	}
	if x.Weeks, err = d.gridWeeks(when); err != nil {
		return nil, err
	}
	if x.from = d.thisWeek(); x.Weeks[0].Compare(x.from) < 0 {
		x.from = x.Weeks[0]
	}
	if x.planned, err = d.ledger.Allocations(ctx, x.from, forever); err != nil {
		return nil, err
	}
	changes, places, faults := d.readEdits(edits, x.planned)
	x.places = places
	for _, f := range faults {
		x.faulty(f)
	}
	x.differences = changed(changes, x.planned)
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	x.Lines = append([]Line{}, planLines(x.differences, order)...)
	if err := d.addConflicts(ctx, x); err != nil {
		return nil, err
	}
	if err := x.check(ctx, d); err != nil {
		return nil, err
	}
	x.addLeft(ctx, d)
	return x, nil
}

// check adds what is wrong with the changes by the plan's rules.
func (x *Draft) check(ctx context.Context, d *Desk) (err error) {
	if x.planner, err = d.planner(ctx, x.changes()); err != nil {
		return err
	}
	wrong, err := x.planner.wrong(ctx, x.changes())
	for _, e := range wrong {
		at := cell{e.change.Pool, e.change.Week}
		x.faulty(CellFault{
			Pool: at.Pool, Week: at.Week.String(), Edit: x.places[at],
			What: cmp.Or(e.sum, e.Error()), Excess: e.sum != "", denied: errors.Is(e, ErrDenied),
		})
	}
	return err
}

func (x *Draft) changes() []ledger.Change {
	all := make([]ledger.Change, len(x.differences))
	for i, d := range x.differences {
		all[i] = d.Change
	}
	return all
}

// changed returns those changes that change something, in order.
func changed(changes []ledger.Change, planned []ledger.Allocation) []Difference {
	touched := map[cell]bool{}
	var wanted []ledger.Change
	for _, c := range changes {
		touched[cell{c.Pool, c.Week}] = true
		if c.Slots > 0 {
			wanted = append(wanted, c)
		}
	}
	return differ(wanted, planned, func(a ledger.Allocation) bool { return touched[cell{a.Pool, a.Week}] })
}

// readEdits reads what was typed. A cell that keeps its SLA keeps its jobs.
func (d *Desk) readEdits(edits []CellEdit, planned []ledger.Allocation) (changes []ledger.Change, places map[cell]int, faults []CellFault) {
	has := map[cell]Terms{}
	for _, a := range planned {
		has[cell{a.Pool, a.Week}] = a.Terms
	}
	weeks := d.reader()
	places = map[cell]int{}
	for i, e := range edits {
		w, terms, err := e.read(weeks, has)
		if err == nil && e.Step != "" {
			err = checkName("step", e.Step)
		}
		at := cell{e.Pool, w}
		if _, twice := places[at]; err == nil && twice {
			err = errors.New("it is given a second time")
		}
		if err != nil {
			faults = append(faults, CellFault{Pool: e.Pool, Week: short(e.Week), Edit: i, What: err.Error()})
			continue
		}
		places[at] = i
		changes = append(changes, ledger.Change{Pool: e.Pool, Week: w, Terms: terms})
	}
	return changes, places, faults
}

func (e *CellEdit) read(weeks calendar.Reader, has map[cell]Terms) (calendar.Week, Terms, error) {
	weeks.Kept = true
	w, err := weeks.Week(e.Week)
	if err != nil {
		return w, Terms{}, err
	}
	text := trimmed(e.Slots)
	if none(text) {
		return w, Terms{}, nil
	}
	slots, err := unknown.whole(text, "slots")
	if err != nil || slots == 0 {
		return w, Terms{}, err
	}
	terms := Terms{Slots: slots, SLA: plan.SLA(e.SLA)}
	if had := has[cell{e.Pool, w}]; terms.SLA == "" {
		terms.SLA, terms.Jobs = cmp.Or(had.SLA, plan.Velocity), had.Jobs
	} else if terms.SLA == had.SLA {
		terms.Jobs = had.Jobs
	}
	if text := trimmed(e.Jobs); text != "" {
		if terms.Jobs, err = unknown.whole(text, "jobs"); err != nil {
			return w, Terms{}, err
		}
	}
	return w, terms, checkTerms(terms)
}

// addConflicts adds a fault for each cell that was edited after the user saw it, the user's
// own edits, too: they may be another window's.
func (d *Desk) addConflicts(ctx context.Context, x *Draft) error {
	since := map[cell]int64{}
	oldest := int64(0)
	weeks := d.reader()
	for _, e := range x.edits {
		w, err := weeks.Week(e.Week)
		if err != nil || e.Since <= 0 {
			continue
		}
		since[cell{e.Pool, w}] = e.Since
		if oldest == 0 || e.Since < oldest {
			oldest = e.Since
		}
	}
	if oldest == 0 {
		return nil
	}
	edits, newest, err := d.ledger.EditedSince(ctx, oldest)
	if err != nil {
		return err
	}
	for _, s := range since {
		if s > newest {
			return invalidf("the plan is another one than the page shows, such as an older one from a backup: reload the page")
		}
	}
	for _, f := range conflicting(x.differences, edits, since) {
		x.faulty(CellFault{
			Pool: f.difference.Pool, Week: f.difference.Week.String(), Edit: x.places[cell{f.difference.Pool, f.difference.Week}],
			What:     f.inWords(d.zone()) + ", while you edited it",
			Conflict: &Conflict{Who: f.edit.Who, At: f.edit.At, Was: f.edit.Was, Is: f.difference.Was},
		})
	}
	return nil
}

// inWords says who changed the cell, and how.
func (c clash) inWords(zone *time.Location) string {
	return fmt.Sprintf("%s changed it from %s to %s on %s", c.edit.Who, orNone(c.edit.Before), orNone(c.difference.Was.String()), c.edit.At.In(zone).Format("2006-01-02 15:04"))
}

// conflicting returns the differences in cells that were edited after they were seen, with
// the first such edit; not those that were changed back.
func conflicting(all []Difference, edits []ledger.Record, since map[cell]int64) (found []clash) {
	first := firstEdits(edits, func(e *ledger.Record) bool {
		seen, asked := since[cell{e.Pool, e.Week}]
		return asked && e.Row > seen
	})
	for _, x := range all {
		if e, edited := first[cell{x.Pool, x.Week}]; edited && e.Was != x.Was {
			found = append(found, clash{x, e})
		}
	}
	return found
}

// addLeft adds what would be left.
func (x *Draft) addLeft(ctx context.Context, d *Desk) {
	in := gridInput{this: d.thisWeek(), weeks: x.Weeks, sets: d.HostSetNames()}
	_ = d.addLimits(ctx, &in) // else what is left is not known
	for _, c := range x.after() {
		in.planned = append(in.planned, ledger.Allocation{Pool: c.Pool, Week: c.Week, Terms: c.Terms})
	}
	x.HostSets = makeGrid(in, GridQuery{}).HostSets
}

// Changed is the number of cells that change.
func (x *Draft) Changed() int { return len(x.differences) }

// after returns the plan as it would be.
func (x *Draft) after() []ledger.Change {
	would := map[cell]Terms{}
	for _, a := range x.planned {
		would[cell{a.Pool, a.Week}] = a.Terms
	}
	for _, c := range x.differences {
		would[cell{c.Pool, c.Week}] = c.Terms
	}
	var all []ledger.Change
	for at, t := range would {
		if t.Slots > 0 {
			all = append(all, ledger.Change{Pool: at.Pool, Week: at.Week, Terms: t})
		}
	}
	slices.SortFunc(all, func(a, b ledger.Change) int { return cmp.Or(a.Week.Compare(b.Week), a.Pool.Compare(b.Pool)) })
	return all
}

// ErrFaulty is returned for a draft that has faults, which say why.
var ErrFaulty = errors.New("nothing is changed")

// Apply makes the draft's changes, all or none, and returns their number in the log; 0 if
// all is so already.
func (x *Draft) Apply(ctx context.Context) (int64, error) {
	if err := x.fault(); err != nil {
		return 0, err
	}
	if len(x.differences) == 0 {
		return 0, nil
	}
	return x.planner.apply(ctx, x.note, x.changes(), func() error {
		again := Draft{edits: x.edits, places: x.places}
		planned, err := x.planner.ledger.Allocations(ctx, x.from, forever)
		if err != nil {
			return err
		}
		changes, _, _ := x.planner.readEdits(x.edits, planned)
		if again.differences = changed(changes, planned); !slices.Equal(again.differences, x.differences) {
			return againf("another edit changed the plan meanwhile: nothing is changed; check it again")
		}
		if err := x.planner.addConflicts(ctx, &again); err != nil {
			return err
		}
		return again.fault()
	})
}

// fault returns an error where the draft has faults, of the kind of a denied one if there is
// one.
func (x *Draft) fault() error {
	switch {
	case len(x.Faults) == 0:
		return nil
	case slices.ContainsFunc(x.Faults, func(f CellFault) bool { return f.denied }):
		return marked{ErrFaulty, ErrDenied}
	}
	return ErrFaulty
}

// cellEdits returns differences as edits of cells.
func cellEdits(all []Difference, since int64) []CellEdit {
	edits := make([]CellEdit, len(all))
	for i, x := range all {
		edits[i] = CellEdit{Pool: x.Pool, Week: x.Week.String(), Since: since}
		if x.Slots > 0 {
			edits[i].Slots, edits[i].SLA, edits[i].Jobs = strconv.Itoa(x.Slots), string(x.SLA), jobsText(x.Jobs)
		}
	}
	return edits
}

// Draft returns the proposal as edits of cells, to be changed further. Since is the revision
// of the plan that it was made from, or an older one.
func (p *Proposal) Draft(since int64) []CellEdit { return cellEdits(p.Differences, since) }

// Draft returns what a file changes as edits of cells.
func (i *Import) Draft(since int64) []CellEdit { return cellEdits(i.Differences, since) }

// CopyOwn is Copy for the projects that the caller may plan, or for one.
func (d *Desk) CopyOwn(ctx context.Context, week, weeks, project string) (*Proposal, error) {
	projects := []string{project}
	if project == "" {
		all, err := d.ledger.Projects(ctx)
		if err != nil {
			return nil, err
		}
		projects = nil
		for _, p := range all {
			if d.mayPlan(p) == nil {
				projects = append(projects, p.Name)
			}
		}
		if len(projects) == 0 {
			return nil, deniedf("copy %s: you are %s, and manage no project", week, d.Caller)
		}
	}
	return d.Copy(ctx, week, weeks, projects, "")
}

// effectTime bounds the simulation of a draft.
const effectTime = time.Minute

// Effect plays the jobs that the ledger recorded last under the plan and under that with the
// draft.
func (d *Desk) Effect(ctx context.Context, x *Draft) (*ChangeEffect, error) {
	if len(x.differences) == 0 {
		return nil, invalidf("simulate: the draft changes nothing")
	}
	projects, err := d.ledger.Projects(ctx)
	if err != nil {
		return nil, err
	}
	c := changedPlan{after: since(x.after(), d.thisWeek()), raised: map[string]bool{}}
	var weeks []calendar.Week
	for _, one := range x.differences {
		project, err := named(projects, one.Project)
		if err == nil {
			err = d.mayPlan(project) // a simulation keeps a processor busy
		}
		if err == nil {
			err = d.checkHostSet(one.Hosts)
		}
		if err == nil {
			err = d.mayBePlanned(one.Week, one.Week, "week "+one.Week.String())
		}
		if err != nil {
			return nil, fmt.Errorf("simulate: %w", err)
		}
		weeks = append(weeks, one.Week)
		c.raised[one.Project] = c.raised[one.Project] || one.Slots > one.Was.Slots
	}
	for _, a := range x.planned {
		c.before = append(c.before, ledger.Change{Pool: a.Pool, Week: a.Week, Terms: a.Terms})
	}
	c.before = since(c.before, d.thisWeek())
	c.first, c.last = slices.MinFunc(weeks, calendar.Week.Compare), slices.MaxFunc(weeks, calendar.Week.Compare)
	if d.simulating != nil {
		select {
		case d.simulating <- struct{}{}:
			defer func() { <-d.simulating }()
		default:
			return nil, againf("simulate: another manager's simulation runs, of a minute at most: try again when it has ended")
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, effectTime, fmt.Errorf("it takes longer than %v: use `pba simulate --change` in a terminal", effectTime))
	defer cancel()
	e, err := d.simulateChanged(ctx, &Simulation{Trace: "ledger", MinRuntime: -1, Headroom: -1, Arrivals: 1, Repeat: 1, Seed: 1}, c)
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(err, simulate.ErrNothing):
		return nil, invalidf("simulate: the ledger has recorded no jobs in the last %s that could be simulated", printable.Count(calendar.WeeksBetween(c.first, c.last)+1, "week"))
	case cause != nil:
		return nil, fmt.Errorf("simulate: %w", cause)
	}
	if err != nil {
		return nil, err
	}
	for _, l := range x.Lines {
		e.Changes = append(e.Changes, fmt.Sprintf("%s %s: %s", l.Pool, l.Weeks, slotsInWords(l.Terms)))
	}
	return e, nil
}

// since returns what is planned in a week and after it.
func since(all []ledger.Change, week calendar.Week) []ledger.Change {
	return slices.DeleteFunc(all, func(c ledger.Change) bool { return c.Week.Compare(week) < 0 })
}
