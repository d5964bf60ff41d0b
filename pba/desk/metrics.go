package desk

import (
	"context"
	"errors"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Metrics is how things stand and went, in figures.
type Metrics struct {
	Mode      configfile.Mode
	Paused    bool
	Now       *Status             // nil: the queue is away
	Beyond    []plan.Beyond       // running slots that no pool is charged for
	Open      int64               // reclaims that have not ended yet
	Ended     []Ended             // the others, by their end
	LastCycle *ledger.CycleRecord // nil: there was none
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
	if ok {
		m.LastCycle = &last
	}
	return m, err
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
