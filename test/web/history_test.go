package web

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// pastDays is how long the farm has been at work, as its ledger has it.
const pastDays = 10

// pastStep is the time between two cycles of the past: each counts for the time since the
// one before it.
const pastStep = 2 * time.Hour

// livePast records, before the first cycle, what cycles of the last days would have: projects
// that use their guarantees by day, lend them at night, and wait now and then.
func (s *site) livePast(t *testing.T, pools map[string]int) {
	t.Helper()
	ctx := t.Context()
	l, err := ledger.Open(filepath.Join(s.Home, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	memory, err := l.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Hour)
	for at, job := now.AddDate(0, 0, -pastDays), int64(100_000); !at.After(now); at = at.Add(pastStep) {
		memory.LastCycle, memory.LastAction = at, at
		p, ended := pastCycle(pools, at, &job)
		p.Memory = memory
		cycle := ledger.Cycle{Who: "root", Mode: ledger.Live, Started: at, Snapshot: at, Ended: ended, Longest: pastStep}
		if err := record(ctx, l, cycle, p); err != nil {
			t.Fatal(err)
		}
	}
}

func record(ctx context.Context, l *ledger.Ledger, c ledger.Cycle, p plan.Plan) error {
	id, err := l.Intend(ctx, c, p)
	if err != nil {
		return err
	}
	return l.Finish(ctx, id, c.Started, "")
}

// pastCycle is what a cycle of the past saw. The same hour of a day has always the same.
func pastCycle(pools map[string]int, at time.Time, job *int64) (plan.Plan, []ledger.Ended) {
	const slots = hosts * slotsOfHost
	p := plan.Plan{At: at, Farm: plan.FarmStatus{Slots: slots}}
	hour, weekend := at.Hour(), at.Weekday() == time.Saturday || at.Weekday() == time.Sunday
	var ended []ledger.Ended
	for i, project := range sortedKeys(pools) {
		guarantee, busy := pools[project], 40+10*((hour+i*5)%6)
		if hour >= 8 && hour < 20 && !weekend {
			busy = 80 + 5*((hour+i)%5)
		}
		used := guarantee * busy / 100
		status := plan.PoolStatus{Allocation: plan.Allocation{ID: int64(i + 1), Project: project, Guarantee: guarantee}, Charged: used}
		if busy >= 95 {
			status.Held = guarantee / 10
		}
		p.Pools = append(p.Pools, status)
		p.Uses = append(p.Uses, plan.Use{PoolID: status.ID, Project: project, User: "root", Slots: used})
		p.Farm.PBA += used
		waited := time.Duration(busy-35) * time.Second
		*job++
		ended = append(ended, ledger.Ended{PBA: true, Waited: waited, Job: backends.Job{
			ID: backends.ID{Job: *job}, Name: "sim", User: "root", Project: project, State: backends.Done, Slots: 8,
			Submitted: at.Add(-waited - pastStep), Started: at.Add(-pastStep), Ended: at,
		}})
	}
	p.Farm.Normal = (slots - p.Farm.PBA) * 9 / 10
	p.Farm.Running = p.Farm.PBA + p.Farm.Normal
	p.Beyond = []plan.Beyond{{Project: filler, User: "root", Slots: p.Farm.Normal}}
	p.Uses = append(p.Uses, plan.Use{Project: filler, User: "root", Slots: p.Farm.Normal})
	return p, ended
}
