package pba_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// dated is a queue that knows the wall clock alone, as LSF and Slurm do: times that it
// recorded while that was ahead stay as they are, and holds end by it.
type dated struct {
	backends.Backend
	world  *simulate.World
	ahead  time.Duration
	starts map[backends.ID]map[time.Time]time.Duration // by how much the clock was ahead at the start of a run
	ends   map[backends.ID]time.Duration
	holds  map[backends.ID]time.Time // until when, by the wall clock
}

func newDated(w *simulate.World) *dated {
	return &dated{Backend: w, world: w, starts: map[backends.ID]map[time.Time]time.Duration{}, ends: map[backends.ID]time.Duration{}, holds: map[backends.ID]time.Time{}}
}

func (d *dated) now() time.Time { return d.world.Now().Add(d.ahead) }

// releaseExpired releases the jobs whose holds have ended.
func (d *dated) releaseExpired(ctx context.Context) {
	for id, until := range d.holds {
		if !until.After(d.now()) {
			d.world.Abilities().HoldUntil(ctx, []backends.HoldUntil{{ID: id}})
			delete(d.holds, id)
		}
	}
}

// date sets the jobs' times to those that the queue recorded.
func (d *dated) date(jobs []backends.Job) {
	for i := range jobs {
		j := &jobs[i]
		if !j.Started.IsZero() {
			if d.starts[j.ID] == nil {
				d.starts[j.ID] = map[time.Time]time.Duration{}
			}
			if _, seen := d.starts[j.ID][j.Started]; !seen {
				d.starts[j.ID][j.Started] = d.ahead
			}
			j.Started = j.Started.Add(d.starts[j.ID][j.Started])
		}
		if j.State.Ended() {
			if _, seen := d.ends[j.ID]; !seen {
				d.ends[j.ID] = d.ahead
			}
			j.Ended = j.Ended.Add(d.ends[j.ID])
		}
		if j.HeldUntil = d.holds[j.ID]; !j.HeldUntil.After(d.now()) {
			j.HeldUntil = time.Time{}
		}
	}
}

func (d *dated) Snapshot(ctx context.Context, since time.Time) (*backends.Snapshot, error) {
	d.releaseExpired(ctx)
	farm, err := d.world.Snapshot(ctx, start)
	if err != nil {
		return nil, err
	}
	farm.At = d.now()
	d.date(farm.Jobs)
	d.date(farm.Ended)
	farm.Ended = slices.DeleteFunc(farm.Ended, func(j backends.Job) bool { return j.Ended.Before(since) })
	return farm, nil
}

func (d *dated) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	jobs, err := d.world.Jobs(ctx, ids)
	d.date(jobs)
	return jobs, err
}

// acts translates acts to the world's clock; their holds it keeps itself, by the wall clock.
func (d *dated) acts(acts []backends.Act) []backends.Act {
	inner := slices.Clone(acts)
	for i := range inner {
		a := &inner[i]
		for real, ahead := range d.starts[a.ID] {
			if real.Add(ahead).Equal(a.Started) {
				a.Started = real
				break
			}
		}
		if !a.Until.IsZero() {
			d.holds[a.ID], a.Until = a.Until, d.world.Now().Add(1000*time.Hour)
		}
	}
	return inner
}

func (d *dated) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	return d.world.Requeue(ctx, d.acts(acts))
}

func (d *dated) Abilities() backends.Abilities {
	able := d.world.Abilities()
	hold := able.HoldUntil
	able.HoldUntil = func(ctx context.Context, all []backends.HoldUntil) backends.Errors {
		inner := slices.Clone(all)
		for i := range inner {
			h := &inner[i]
			delete(d.holds, h.ID)
			if h.Until.After(d.now()) {
				d.holds[h.ID], h.Until = h.Until, d.world.Now().Add(1000*time.Hour)
			}
		}
		return hold(ctx, inner)
	}
	able.Reserve, able.Start = nil, nil
	return able
}

// The clock is put ahead, or back, before a reclaim and in each of its phases; what was
// written under the old one stays in the queue. The beneficiary has its slot as soon as
// otherwise, nothing expires, the victim runs again, and the cycle says both dates.
func TestClockIsSet(t *testing.T) { // R8, R14, R19, R21
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour, 87600 * time.Hour, -87600 * time.Hour} {
		for _, known := range []bool{true, false} {
			if !known && by > 0 {
				continue // it looks like time without cycles
			}
			for _, phase := range []plan.Phase{"", plan.Planned, plan.Acted, plan.HandedOver} {
				t.Run(fmt.Sprintf("%v, %s, boot known %v", by, phase, known), func(t *testing.T) {
					clockSet(t, by, phase, known)
				})
			}
		}
	}
}

func clockSet(t *testing.T, by time.Duration, phase plan.Phase, known bool) {
	l := newLife(t)
	d := newDated(l.world)
	l.engine.Backend, l.now = d, d.now
	if known {
		l.engine.ReadClock = func() (clock.Reading, error) {
			return clock.Reading{Wall: d.now(), Boot: 1, Up: l.world.Now().Sub(start)}, nil
		}
	}
	l.rules.Policy.GracePeriod = 30 * time.Second
	d.ahead = max(0, -by) // a clock that is put back was ahead
	victims := l.full(backends.Spec{}, simulate.Work{Takes: 20 * time.Minute, KillDelay: 30 * time.Second})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.run(40 * time.Second)
	for phase != "" && !slices.ContainsFunc(reclaims(l), func(r plan.Reclaim) bool { return r.Phase == phase }) {
		if l.world.Now().Sub(start) > 10*time.Minute {
			t.Fatalf("no reclaim became %s:\n%s", phase, l.text.String())
		}
		l.run(20 * time.Second)
	}

	d.ahead += by
	l.world.Advance(l.world.Now().Truncate(20 * time.Second).Add(20 * time.Second))
	r := l.cycle()
	if r.ClockSet == "" || !slices.Contains(r.Plan.Warnings, r.ClockSet) || strings.Count(r.ClockSet, "20") < 2 {
		t.Errorf("the cycle says of the clock: %q; note %q; warnings %v", r.ClockSet, r.Note, r.Plan.Warnings)
	}
	if r.Note != "" {
		t.Errorf("the cycle did nothing: %s", r.Note)
	}
	for range 9 { // threshold, cycles, and the victim's last seconds
		if l.job(b).State == backends.Running {
			break
		}
		l.run(20 * time.Second)
	}
	if j := l.job(b); j.State != backends.Running {
		t.Fatalf("3 minutes later the beneficiary is %v, %s:\n%s", j.State, j.Reason, l.text.String())
	}
	for _, r := range reclaims(l) {
		if r.Phase == plan.Expired {
			t.Errorf("reclaim %d expired: %s", r.ID, r.Why)
		}
	}
	l.run(40 * time.Minute)
	n := 0
	for _, id := range victims {
		j := l.job(id)
		if n += j.Requeues; j.State != backends.Done {
			t.Errorf("job %v is %v in the end, held until %v:\n%s", id, j.State, d.holds[id], l.text.String())
		}
	}
	if n != 1 {
		t.Errorf("%d requeues, want 1", n)
	}
	m, err := l.ledger.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ahead := m.LastAction.Sub(d.now()); ahead > 0 || len(m.Reclaims) > 1 {
		t.Errorf("the last action is %v ahead; reclaims %+v", ahead, m.Reclaims)
	}
}

func reclaims(l *life) []plan.Reclaim {
	l.Helper()
	m, err := l.ledger.Load(context.Background())
	if err != nil {
		l.Fatal(err)
	}
	return m.Reclaims
}
