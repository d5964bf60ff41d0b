package desk

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/report"
)

// WeekOptions say what a week's report has.
type WeekOptions struct {
	Week    string // one of calendar.PastForms; "": this week, up to now
	Project string // "": all
	User    string // of the part for users; "": the caller
	For     []string
}

// Week is what one week was like.
type Week struct {
	*report.Week
	Zone *time.Location `json:"-"`
	Away error          `json:"-"` // why what goes on now is not known; nil: it is
}

// ProjectWeek is a project's part of a week's report.
type ProjectWeek = report.ProjectWeek

// UserWeek is a user's part of a week's report.
type UserWeek = report.UserWeek

// End is how many reclaims ended in one way, in a week's report.
type End = report.End

// Readers that a week's report has parts for.
const (
	ForUser = report.ForUser
	ForLead = report.ForLead
)

// Readers lists the kinds of readers.
func Readers() []string {
	var names []string
	for _, r := range report.Readers() {
		names = append(names, string(r))
	}
	return names
}

func readersOf(names []string) ([]report.Reader, error) {
	if len(names) == 0 {
		return []report.Reader{report.ForManager}, nil
	}
	var all []report.Reader
	for _, name := range names {
		if !slices.Contains(report.Readers(), report.Reader(name)) {
			return nil, invalidf("--for %q: want some of %s, with commas between them", name, strings.Join(Readers(), ", "))
		}
		all = append(all, report.Reader(name))
	}
	return all, nil
}

// Week reports one week. Of this week and the last it has advice.
func (d *Desk) Week(ctx context.Context, o WeekOptions) (*Week, error) {
	readers, err := readersOf(o.For)
	if err != nil {
		return nil, err
	}
	if o.Week == "" {
		o.Week = d.thisWeek().String()
	}
	week, err := d.pastWeek(o.Week)
	if err != nil {
		return nil, err
	}
	if o.User == "" {
		o.User = d.Caller.User
	}
	to := week.End
	if now := d.Now(); to.After(now) {
		to = now
	}
	past, err := d.past(ctx, week.Begin, to)
	if err != nil {
		return nil, err
	}
	w := &Week{Week: report.WeekOf(week, to, past, o.Project, o.User, readers), Zone: d.zone()}
	if err := d.requireProject(ctx, o.Project, len(w.Projects) > 0); err != nil {
		return nil, err
	}
	if w.Has(report.ForManager) || w.Has(report.ForAdmin) {
		if calendar.WeeksBetween(week.Week, d.thisWeek()) <= 1 {
			err = d.advise(ctx, w, o.Project)
		}
	}
	return w, err
}

// past reads what a week's report is made of.
func (d *Desk) past(ctx context.Context, from, to time.Time) (report.Past, error) {
	p := report.Past{Rates: d.rates()}
	var err error
	if p.History, err = d.history(ctx, from, to); err != nil {
		return p, err
	}
	if p.Jobs, err = d.ledger.PastJobs(ctx, from, to); err != nil {
		return p, err
	}
	p.Reclaims, err = d.ledger.PastReclaims(ctx, from, to)
	return p, err
}

// advise adds advice to a week's report.
func (d *Desk) advise(ctx context.Context, w *Week, project string) error {
	e, err := d.evidence(ctx)
	if err != nil {
		return err
	}
	if e.Jobs, err = d.ledger.PastJobs(ctx, d.adviceFrom(), d.Now()); err != nil {
		return err
	}
	r, err := d.preview(ctx)
	if w.Away = err; err == nil {
		e.Pools = r.Plan.Pools
	}
	w.Advice = report.Advise(e, project)
	return nil
}

// adviceFrom returns the begin of the weeks that advice is from.
func (d *Desk) adviceFrom() time.Time {
	return calendar.PeriodOf(calendar.AddWeeks(d.thisWeek(), -report.AdviceWeeks), d.zone()).Begin
}

// evidence reads what advice is from, but for jobs and what goes on now.
func (d *Desk) evidence(ctx context.Context) (report.Evidence, error) {
	e := report.Evidence{This: d.thisWeek(), History: report.History{Zone: d.zone()}, Threshold: time.Duration(d.PBA.PendingThreshold)}
	var err error
	if e.Farm, e.Use, err = d.hours(ctx, d.adviceFrom(), d.Now()); err != nil {
		return e, err
	}
	e.Allocations, err = d.ledger.Allocations(ctx, e.This, d.horizon())
	return e, err
}
