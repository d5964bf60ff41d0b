package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// A clock that was 10 years ahead is put right. The last action is dated anew, later
// acts raise it from there, and reclaims that closed meanwhile are forgotten like others.
func TestClockPutBackMovesReclaims(t *testing.T) { // R8, R22
	const years = 87600 * time.Hour
	l, ctx := create(t), context.Background()
	ahead := func(seconds int) time.Time { return at(seconds).Add(years) }
	closed := plan.Reclaim{ID: 1, Phase: plan.HandedOver, Planned: ahead(-7200), Acted: ahead(-7190), Ended: ahead(-7100)}
	was := plan.Memory{LastCycle: ahead(0), LastAction: ahead(1), NextID: 3, Reclaims: []plan.Reclaim{closed, {ID: 2, Phase: plan.Planned, Planned: ahead(0)}}}
	if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: was}); err != nil {
		t.Fatal(err)
	}
	m, err := l.Load(ctx)
	if err != nil || len(m.Reclaims) != 2 {
		t.Fatalf("%v: %+v", err, m.Reclaims)
	}
	m = plan.FollowClock(m, at(20), clock.Reading{}, clock.Reading{})
	m.LastCycle, m.Reclaims = at(20), m.Reclaims[1:] // Make forgets what closed over an hour ago
	id, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: m, Actions: []plan.Action{{Verb: plan.Rank}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Outcome(ctx, id, []Outcome{{Result: Done, At: at(21)}}); err != nil {
		t.Fatal(err)
	}
	if m, err = l.Load(ctx); err != nil {
		t.Fatal(err)
	}
	if !m.LastAction.Equal(at(21)) || m.ClockSet.By > -years+time.Minute {
		t.Errorf("the last action is dated %v, the clock was put back by %v", m.LastAction, m.ClockSet.By)
	}
	for _, r := range m.Reclaims {
		if r.Planned.After(at(60)) || r.Ended.After(at(60)) {
			t.Errorf("reclaim %d, planned %v, ended %v, is loaded again and again", r.ID, r.Planned, r.Ended)
		}
	}
	m.LastCycle = at(20).Add(3 * time.Hour)
	if _, err := l.Intend(ctx, Cycle{}, plan.Plan{Memory: m}); err != nil {
		t.Fatal(err)
	}
	if m, err = l.Load(ctx); err != nil || len(m.Reclaims) != 1 || m.Reclaims[0].ID != 2 {
		t.Errorf("three hours later: %v: %+v", err, m.Reclaims)
	}
}

// What the clock's being wrong would have forgotten does not come back.
func TestNothingIsForgottenWhileTheClockIsInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		by, ago time.Duration
		want    bool
	}{
		"never set":        {0, 0, false},
		"put back":         {-time.Hour, time.Minute, false},
		"put ahead":        {time.Hour, time.Minute, true},
		"ahead, long ago":  {time.Hour, 8 * 24 * time.Hour, false},
		"ahead, yesterday": {time.Hour, 24 * time.Hour, true},
	} {
		if got := inDoubt(plan.ClockSet{At: at(0).Add(-c.ago), By: c.by}, at(0)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
