package desk

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Period is what a report covers.
type Period struct {
	Project string    `json:"-"` // "": all
	Span    Span      `json:"-"` // what was asked for
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

// Usage is slot-hours by day and pool.
type Usage struct {
	Period
	Usage []report.Usage `json:"usage"`
}

// UsageBy is slot-hours by the groups that were asked for.
type UsageBy struct {
	Period
	Groups []report.Use `json:"groups"`
	Total  report.Use   `json:"total"`
}

// Waits is how long jobs and reclaims waited.
type Waits struct {
	Period
	Waits   []report.Wait  `json:"waits"`
	Promise report.Promise `json:"promise"`

	Threshold     unit.Duration `json:"pending_threshold"` // after which slots are preempted
	OwnThresholds bool          `json:"own_thresholds"`    // some projects have one of their own
	Every         unit.Duration `json:"every"`             // between two cycles
}

// Victims is which users lost slots to which projects, and how reclaims ended.
type Victims struct {
	Period
	Victims []report.Loss `json:"victims"`
	Ends    []report.End  `json:"ends"`
	TooWide []TooWide     `json:"too_wide"` // at most 20
	Away    error         `json:"-"`        // why those are not known; nil: they are
}

// TooWide is a job that lost too much already, and waits as it is wider than what no pool is
// guaranteed (R35).
type TooWide struct {
	Job     string    `json:"job"`
	Project string    `json:"project,omitempty"`
	User    string    `json:"user"`
	Slots   int       `json:"slots"`
	Lost    float64   `json:"lost_slot_hours"`
	Until   time.Time `json:"held_until"`
	Why     string    `json:"why"`
}

// Dummies is what was held for jobs that need much memory.
type Dummies struct {
	Period
	Dummies []report.Heavy `json:"dummies"`
	Away    error          `json:"-"` // why the queue's unfinished jobs are not known; nil: they are
}

// Forecast is what comes in the weeks that may be planned.
type Forecast struct {
	Weeks  []report.Outlook `json:"weeks"`
	Trends []report.Trend   `json:"trends"`
}

// Usage reports slot-hours.
func (d *Desk) Usage(ctx context.Context, p Period) (*Usage, error) {
	farm, use, err := d.hours(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	rows := report.Usages(farm, use, d.zone(), p.Project)
	order, err := d.stepOrder(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b report.Usage) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Project, b.Project), order.compareSteps(a.Project, a.Step, b.Step))
	})
	return &Usage{p, rows}, d.requireProject(ctx, p.Project, len(rows) > 0)
}

// WithoutPromise lists the projects that used slots and have no allocation in any of the groups.
func (u *UsageBy) WithoutPromise() []string { return withoutPromise(u.Groups) }

// WithoutPromise lists the projects of the report that have no allocation.
func (w *Week) WithoutPromise() []string {
	var uses []Use
	for i := range w.Projects {
		uses = append(uses, w.Projects[i].Use)
	}
	return withoutPromise(uses)
}

func withoutPromise(uses []Use) []string {
	promised := map[string]bool{}
	for i := range uses {
		if g := &uses[i]; g.Project != "" && g.Guaranteed != nil {
			promised[g.Project] = promised[g.Project] || *g.Guaranteed > 0
		}
	}
	return slices.Sorted(func(yield func(string) bool) {
		for name, has := range promised {
			if !has && !yield(name) {
				return
			}
		}
	})
}

// By is what a report's rows are grouped by.
type By = report.By

// Key is what a report's row is of.
type Key = report.Key

// Loss is what one account lost to one project.
type Loss = report.Loss

// Use is a row of a report of use.
type Use = report.Use

// What the rows of reports can be grouped by.
var (
	UsageKeys  = []By{report.ByWeek, report.ByDay, report.ByProject, report.ByPool, report.ByUser, report.ByStep}
	WaitKeys   = []By{report.ByWeek, report.ByProject, report.ByUser, report.ByStep}
	VictimKeys = []By{report.ByWeek, report.ByProject, report.ByUser}
)

// GroupsOf returns the groups that an option --by names.
func GroupsOf(words []string, known []By) ([]By, error) {
	by, err := report.GroupsOf(words, known...)
	if err != nil {
		return nil, invalidf("--by %w", err)
	}
	return by, nil
}

// UsageBy reports slot-hours by groups.
func (d *Desk) UsageBy(ctx context.Context, p Period, by []By) (*UsageBy, error) {
	h, err := d.history(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	rows, total := report.UsesBy(h, by, p.Project)
	return &UsageBy{p, rows, total}, d.requireProject(ctx, p.Project, len(rows) > 0)
}

// history reads what cycles recorded of a time.
func (d *Desk) history(ctx context.Context, from, to time.Time) (report.History, error) {
	h := report.History{Zone: d.zone()}
	var err error
	if h.Farm, h.Use, err = d.hours(ctx, from, to); err == nil {
		h.Users, err = d.ledger.UserHours(ctx, from, to)
	}
	return h, err
}

// Span says how far back a report looks: one week, from a date to another one, or since a date or
// for a time up to now.
type Span struct {
	Week  string // one of calendar.PastForms; "": none
	Date  string // such as 2026-11-23; "": none
	To    string // the last day from Date on; "": up to now
	Since time.Duration
}

// ParseSince reads how far back a report looks: 12h, 7d, 4w, 2026-11-23.
func ParseSince(text string) (Span, error) {
	if _, err := time.Parse(time.DateOnly, text); err == nil {
		return Span{Date: text}, nil
	}
	wrong := invalidf("%q is not a duration or a day; write it like 12h, 7d, 4w or 2026-11-23", text)
	each := time.Duration(0)
	if text != "" {
		each = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[text[len(text)-1]]
	}
	if each == 0 {
		var d unit.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d == 0 {
			return Span{}, wrong
		}
		return Span{Since: time.Duration(d)}, nil
	}
	n, err := strconv.Atoi(text[:len(text)-1])
	if err != nil || n < 1 || n > int(math.MaxInt64/each) {
		return Span{}, wrong
	}
	return Span{Since: time.Duration(n) * each}, nil
}

// Period returns what a report of a project (of all for "") covers. A week that has not ended
// is covered up to now.
func (d *Desk) Period(project string, s Span) (Period, error) {
	now := d.Now()
	p := Period{Project: project, Span: s, From: now.Add(-s.Since), To: now}
	switch {
	case s.Week != "":
		w, err := d.pastWeek(s.Week)
		if err != nil {
			return p, err
		}
		p.From, p.To = w.Begin, w.End
		if w.End.After(now) {
			p.To = now
		}
	case s.Date != "":
		day, err := time.ParseInLocation(time.DateOnly, s.Date, d.zone())
		if err != nil || day.After(now) {
			return p, invalidf("%s: want a day that has begun, such as %s", s.Date, now.In(d.zone()).Format(time.DateOnly))
		}
		p.From = day.UTC()
		if s.To == "" {
			break
		}
		last, err := time.ParseInLocation(time.DateOnly, s.To, d.zone())
		if err != nil || last.Before(day) {
			return p, invalidf("--to %s: want a day, such as %s, and none before --from", s.To, s.Date)
		}
		if end := last.AddDate(0, 0, 1).UTC(); end.Before(now) {
			p.To = end
		}
	}
	return p, nil
}

// pastWeek returns the week of that name, which must have begun.
func (d *Desk) pastWeek(name string) (calendar.Period, error) {
	w, err := d.pastReader().Week(name)
	if err != nil {
		return calendar.Period{}, invalidf("--week: %w", err)
	}
	if w.Compare(d.thisWeek()) > 0 {
		return calendar.Period{}, invalidf("--week %s: it has not begun: reports are of weeks up to %s", w, d.thisWeek())
	}
	return calendar.PeriodOf(w, d.zone()), nil
}

// hours reads the use of a report's time.
func (d *Desk) hours(ctx context.Context, from, to time.Time) ([]ledger.FarmHour, []ledger.UseHour, error) {
	farm, err := d.ledger.FarmHours(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	use, err := d.ledger.UseHours(ctx, from, to)
	return farm, use, err
}

// Waits reports how long jobs waited.
func (d *Desk) Waits(ctx context.Context, p Period, by []By) (*Waits, error) {
	jobs, err := d.ledger.PastJobs(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	reclaims, err := d.ledger.PastReclaims(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	rows, promise := report.Waits(jobs, reclaims, d.rates(), p.Project, by, d.zone())
	return &Waits{
		Period: p, Waits: rows, Promise: promise,
		Threshold: d.PBA.PendingThreshold, OwnThresholds: len(d.PBA.Policy().Thresholds) > 0, Every: d.PBA.Every,
	}, d.requireProject(ctx, p.Project, len(rows) > 0)
}

// rates returns what waits are measured against.
func (d *Desk) rates() report.Rates {
	return report.Rates{Threshold: time.Duration(d.PBA.PendingThreshold), Own: d.PBA.Policy().Thresholds, Cycle: time.Duration(d.PBA.Every)}
}

// Victims reports which users lost slots to which projects, how reclaims ended, and which jobs
// wait as they lost too much; from the ledger alone if the queue is away.
func (d *Desk) Victims(ctx context.Context, p Period, by []By) (*Victims, error) {
	reclaims, err := d.ledger.PastReclaims(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	all := &Victims{Period: p, TooWide: []TooWide{}}
	all.Victims, all.Ends = report.Victims(reclaims, p.Project, by, d.zone())
	r, err := d.preview(ctx)
	if all.Away = err; err == nil {
		all.TooWide = showTooWide(r.Plan.TooWide, p.Project)
	}
	return all, d.requireProject(ctx, p.Project, len(all.Ends)+len(all.TooWide) > 0)
}

// showTooWide lists the jobs that are too wide, of a project unless it is "".
func showTooWide(all []plan.TooWide, project string) []TooWide {
	shown := []TooWide{}
	for i := range all {
		if w := &all[i]; project == "" || w.Project == project {
			shown = append(shown, TooWide{w.Job.String(), w.Project, w.User, w.Slots, math.Round(w.Lost/36) / 100, w.Until, w.Why()})
		}
	}
	return shown
}

// DummyUse reports what dummy jobs held; from the ledger alone if the queue is away.
func (d *Desk) DummyUse(ctx context.Context, p Period) (*Dummies, error) {
	acts, err := d.ledger.DummyActs(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	rules, err := d.rules(ctx, p.To)
	if err != nil {
		return nil, err
	}
	all := &Dummies{Period: p}
	var unfinished []backends.Job
	if len(acts) > 0 {
		farm, err := d.queue.Snapshot(ctx, d.Now())
		if all.Away = err; err == nil {
			unfinished = farm.Jobs
			pba.Resolve(d.queue.Abilities().ForEngine, rules.Policy.Projects, unfinished)
		}
	}
	all.Dummies = report.Dummies(acts, unfinished, rules.Policy.Dummies.Limit, p.To, p.Project)
	return all, d.requireProject(ctx, p.Project, len(all.Dummies) > 0)
}

// Forecast reports what comes, for a project or for all.
func (d *Desk) Forecast(ctx context.Context, project string) (*Forecast, error) {
	p := report.Plans{This: d.thisWeek(), Horizon: d.PBA.Horizon}
	var err error
	if p.Allocations, err = d.ledger.Allocations(ctx, p.This, calendar.AddWeeks(p.This, p.Horizon)); err != nil {
		return nil, err
	}
	farm, use, err := d.hours(ctx, d.Now().AddDate(0, 0, -7*(report.LookBack+1)), d.Now())
	if err != nil {
		return nil, err
	}
	p.Limit = d.allocationLimit(ctx, farm)
	rows, trends := report.Forecast(p, farm, use, d.zone(), project)
	return &Forecast{rows, trends}, d.requireProject(ctx, project, len(trends) > 0)
}

// allocationLimit returns max_allocated in slots of the farm as it is now, or, where the
// queue is away, as cycles saw it last; -1 if no cycle saw it.
func (d *Desk) allocationLimit(ctx context.Context, farm []ledger.FarmHour) int {
	sizes, err := d.farm(ctx)
	if err != nil {
		if len(farm) == 0 || farm[len(farm)-1].Seen == 0 {
			return -1
		}
		last := farm[len(farm)-1]
		return d.allocatable(int(math.Round(last.Slots.Hours() / last.Seen.Hours())))
	}
	limit := 0
	for _, s := range sizes {
		limit += d.allocatable(s.slots)
	}
	return limit
}
