package desk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Metrics are figures of the farm's state and of what cycles did.
type Metrics struct {
	Mode      configfile.Mode
	Paused    bool
	Now       *Status             // nil: the queue is away
	Beyond    []plan.Beyond       // running slots that no pool is charged for
	Open      int64               // reclaims that have not ended yet
	Ended     []Ended             // the others, by their end
	LastCycle *ledger.CycleRecord // nil: there was none
	Every     time.Duration       // in which a cycle is due
	Requests  map[string]int      // open requests for slots by project
	Day       Day
}

// Day is what the ledger knows of the last 24 hours.
type Day struct {
	Promises []Promised    // by project
	Losses   []report.Loss // what users lost to projects
}

// Promised is what a project was promised, and got.
type Promised struct {
	Project string
	Within  time.Duration  // threshold and two cycles
	Kept    report.Promise // of reclaims that were handed over
	Wait    *report.Wait   // of those; nil: there were none
}

// Ended is all reclaims that ended in one way.
type Ended struct {
	End                       plan.Phase
	Reclaims, Requested, Lost int64 // number; slots that they asked for, and that victims lost
}

// Metrics are taken from the queue as it is now and from the ledger. Where the
// queue is away, what it alone knows is left out.
func (d *Desk) Metrics(ctx context.Context) (*Metrics, error) {
	m := &Metrics{Mode: d.Mode}
	r, err := d.preview(ctx)
	switch {
	case err == nil:
		m.Beyond = r.Plan.Beyond
		m.Now, err = d.status(ctx, &r)
	case errors.Is(err, backends.ErrUnreachable):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if m.Paused, err = d.ledger.Paused(ctx); err != nil {
		return nil, err
	}
	if err := d.countReclaims(ctx, m); err != nil {
		return nil, err
	}
	last, ok, err := d.ledger.LastCycle(ctx)
	if err != nil {
		return nil, err
	}
	if ok {
		m.LastCycle = &last
	}
	if m.Day, err = d.lastDay(ctx); err != nil {
		return nil, err
	}
	open, err := d.ledger.Requests(ctx, d.thisWeek(), false)
	m.Every, m.Requests = time.Duration(d.PBA.Every), map[string]int{}
	for _, r := range open {
		m.Requests[r.Project]++
	}
	return m, err
}

// lastDay sums up the reclaims of the last 24 hours.
func (d *Desk) lastDay(ctx context.Context) (Day, error) {
	now := d.Now()
	reclaims, err := d.ledger.PastReclaims(ctx, now.Add(-24*time.Hour), now)
	if err != nil {
		return Day{}, err
	}
	planned, err := d.ledger.Allocations(ctx, d.thisWeek(), d.thisWeek())
	if err != nil {
		return Day{}, err
	}
	var projects []string
	for _, a := range planned {
		projects = append(projects, a.Project)
	}
	return dayOf(reclaims, projects, d.rates()), nil
}

// dayOf sums up reclaims; projects are those with allocations.
func dayOf(reclaims []ledger.PastReclaim, projects []string, rates report.Rates) Day {
	var day Day
	day.Losses, _ = report.Victims(reclaims, "", nil, time.UTC)
	of := map[string][]ledger.PastReclaim{}
	for i := range reclaims {
		of[reclaims[i].Project] = append(of[reclaims[i].Project], reclaims[i])
	}
	names := append(slices.Collect(maps.Keys(of)), projects...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		p := Promised{Project: name, Within: rates.Threshold + 2*rates.Cycle}
		if own, ok := rates.Own[name]; ok {
			p.Within = own + 2*rates.Cycle
		}
		var waits []report.Wait
		waits, p.Kept = report.Waits(nil, of[name], rates, name, nil, time.UTC)
		for i := range waits {
			if waits[i].Of == report.Total {
				p.Wait = &waits[i]
			}
		}
		day.Promises = append(day.Promises, p)
	}
	return day
}

func (d *Desk) countReclaims(ctx context.Context, m *Metrics) error {
	counts, err := d.ledger.ReclaimCounts(ctx)
	if err != nil {
		return err
	}
	m.Ended = []Ended{{End: plan.HandedOver}, {End: plan.Expired}, {End: plan.Cancelled}}
	for _, c := range counts {
		if c.Phase.Open() {
			m.Open += c.Reclaims
		}
		for i := range m.Ended {
			if e := &m.Ended[i]; e.End == c.Phase {
				e.Reclaims, e.Requested, e.Lost = c.Reclaims, c.Need, c.Taken
			}
		}
	}
	return nil
}
