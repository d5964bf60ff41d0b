package desk

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/pba/report"
)

// Trend is what the last days were like by hour, on the farm or for a project.
type Trend struct {
	Project string    `json:"project,omitempty"` // "": the farm
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	report.Hours
	Zone *time.Location `json:"-"`
}

// trendTime is how far back a Trend goes.
const trendTime = 7 * 24 * time.Hour

// Trend returns the last week by hour, of a project or, for "", of the farm. A server
// makes it once a minute for all visitors.
func (d *Desk) Trend(ctx context.Context, project string) (*Trend, error) {
	read := func() (*Trend, error) { return d.trend(ctx, project) }
	if d.shared == nil {
		return read()
	}
	if err := d.requireProject(ctx, project, false); err != nil {
		return nil, err
	}
	return d.shared.trends.get(project, d.Now(), read)
}

func (d *Desk) trend(ctx context.Context, project string) (*Trend, error) {
	t := &Trend{Project: project, Zone: d.zone(), To: d.Now()}
	t.From = t.To.Truncate(time.Hour).Add(time.Hour - trendTime)
	var past report.Past
	var err error
	past.Zone = d.zone()
	if past.Farm, past.Use, err = d.hours(ctx, t.From, t.To); err != nil {
		return nil, err
	}
	if past.Reclaims, err = d.ledger.PastReclaims(ctx, t.From, t.To); err != nil {
		return nil, err
	}
	t.Hours = report.HoursOf(past, t.From, t.To, project)
	return t, nil
}
