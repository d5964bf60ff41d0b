package pba_test

import (
	"context"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// planned is a life whose rules are read from its ledger, as pba's own are, from
// an hour before a week's end on.
func planned(t *testing.T, week, zone string, allocations map[string][2]int) (*life, calendar.Period) {
	t.Helper()
	z, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	w, err := calendar.ParseWeek(week)
	if err != nil {
		t.Fatal(err)
	}
	period := calendar.PeriodOf(w, z)
	l := newLife(t)
	l.world = simulate.New(simulate.Config{
		Start:   period.End.Add(-time.Hour),
		Manager: manager.Config{AgeingInterval: 20 * time.Second, AgeingCap: 69},
		Hosts:   []backends.Host{{Name: "n1", Slots: 4, Memory: 16 << 30}},
	})
	l.engine.Backend = l.world
	policy := l.rules.Policy
	l.engine.Rules = func(ctx context.Context, now time.Time) (pba.Rules, error) {
		p := policy
		var err error
		p.Projects, p.Allocations, err = l.ledger.InForce(ctx, calendar.PeriodOf(calendar.WeekOf(now, z), z), now.Add(-p.LoweredGrace))
		return pba.Rules{Policy: p}, err
	}
	for _, p := range []ledger.Project{{Name: "A", Group: "a"}, {Name: "B", Group: "b"}} {
		if err := l.ledger.AddProject(context.Background(), ledger.Editor{}, p); err != nil {
			t.Fatal(err)
		}
		for i, slots := range allocations[p.Name] {
			if slots > 0 {
				l.allot(p.Name, calendar.AddWeeks(w, i), slots)
			}
		}
	}
	return l, period
}

func (l *life) allot(project string, w calendar.Week, slots int) {
	l.Helper()
	now := l.world.Now()
	c := ledger.Change{Pool: ledger.Pool{Project: project}, Week: w}
	if slots > 0 {
		c.Terms = ledger.Terms{Slots: slots, SLA: plan.Velocity}
	}
	e := ledger.Edit{Editor: ledger.Editor{At: now}, ThisWeek: w, Grace: l.rules.Policy.LoweredGrace}
	if _, err := l.ledger.ChangeAllocations(context.Background(), e, []ledger.Change{c}); err != nil {
		l.Fatal(err)
	}
}

func (l *life) requeued(ids []backends.ID) (n int) {
	for _, id := range ids {
		n += l.job(id).Requeues
	}
	return n
}

// TestMondayWithAFullFarm: at a week's end the surplus is normal at once, runs on
// while no PBA job needs its slots, and is then preempted, one slot for one.
func TestMondayWithAFullFarm(t *testing.T) { // R24, R25
	for _, c := range []struct{ week, zone string }{
		{"2026-W48", "UTC"},
		{"2026-W13", "Europe/Berlin"}, // its Sunday has 23 hours
		{"2026-W43", "Europe/Berlin"}, // its Sunday has 25 hours
		{"2026-W48", "Asia/Tokyo"},
		{"2026-W53", "Pacific/Kiritimati"}, // UTC+14; the next year's first week follows
		{"2025-W52", "America/New_York"},   // of a year without a 53rd
	} {
		t.Run(c.week+" "+c.zone, func(t *testing.T) {
			l, week := planned(t, c.week, c.zone, map[string][2]int{"A": {4, 1}, "B": {0, 2}})
			var aliceJobs []backends.ID
			for range 4 {
				aliceJobs = append(aliceJobs, l.submit("alice", "A", backends.Spec{}, simulate.Work{}))
			}
			l.world.Advance(week.End.Add(-20 * time.Second))
			if r := l.cycle(); r.Plan.Farm.PBA != 4 || r.Plan.Farm.Normal != 0 {
				t.Errorf("on Sunday night: %+v", r.Plan.Farm)
			}
			l.world.Advance(week.End.Add(-1))
			if r := l.cycle(); r.Plan.Farm.PBA != 4 {
				t.Errorf("in the week's last nanosecond: %+v", r.Plan.Farm)
			}
			l.world.Advance(week.End)
			if r := l.cycle(); r.Plan.Farm.PBA != 1 || r.Plan.Farm.Normal != 3 || len(r.Plan.Actions) != 0 {
				t.Errorf("in the next week's first: %+v, %v", r.Plan.Farm, r.Plan.Actions)
			}
			l.run(30 * time.Minute)
			if n := l.requeued(aliceJobs); n != 0 {
				t.Fatalf("%d were preempted though no job needed them", n)
			}
			bobJob := l.submit("bob", "B", backends.Spec{}, simulate.Work{})
			l.run(3 * time.Minute)
			if n := l.requeued(aliceJobs); n != 1 || l.job(bobJob).State != backends.Running {
				t.Errorf("%d of alice's were preempted, bob's is %v", n, l.job(bobJob).State)
			}
			l.submit("bob", "B", backends.Spec{}, simulate.Work{})
			l.submit("bob", "B", backends.Spec{}, simulate.Work{}) // beyond B's pool
			l.run(10 * time.Minute)
			if n := l.requeued(aliceJobs); n != 2 {
				t.Errorf("%d of alice's were preempted for a pool of 2", n)
			}
		})
	}
}

// TestLoweredInMidWeek: what an edit takes off, even all of it, is spared for an
// hour, even if a PBA job needs it.
func TestLoweredInMidWeek(t *testing.T) { // R25
	for _, left := range []int{1, 0} {
		l, week := planned(t, "2026-W48", "Europe/Berlin", map[string][2]int{"A": {0, 4}, "B": {0, 2}})
		var aliceJobs []backends.ID
		for range 4 {
			aliceJobs = append(aliceJobs, l.submit("alice", "A", backends.Spec{}, simulate.Work{}))
		}
		l.world.Advance(week.End.Add(24 * time.Hour))
		l.cycle()
		lowered := l.world.Now()
		l.allot("A", calendar.AddWeeks(week.Week, 1), left)
		bobJob := l.submit("bob", "B", backends.Spec{}, simulate.Work{})
		l.world.Advance(lowered.Add(time.Minute))
		l.run(58 * time.Minute)
		if n := l.requeued(aliceJobs); n != 0 {
			t.Errorf("lowered to %d: %d were preempted within the hour", left, n)
		}
		l.run(5 * time.Minute)
		if n := l.requeued(aliceJobs); n != 1 || l.job(bobJob).State != backends.Running {
			t.Errorf("lowered to %d: %d were preempted after the hour, bob's is %v", left, n, l.job(bobJob).State)
		}
	}
}
