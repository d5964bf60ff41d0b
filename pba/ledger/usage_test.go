package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// cycleAt records a cycle that sees a farm of 16 slots, of which pool 1 uses 4.
func cycleAt(t *testing.T, l *Ledger, c Cycle, at time.Time) int64 {
	t.Helper()
	ctx := context.Background()
	memory, err := l.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	memory.LastCycle = at
	c.Mode, c.Started, c.Snapshot = Live, at, at
	id, err := l.Intend(ctx, c, plan.Plan{
		Memory: memory,
		Farm:   plan.FarmStatus{Slots: 16, PBA: 4, Normal: 3},
		Pools:  []plan.PoolStatus{{Allocation: plan.Allocation{ID: 1, Project: "A", Guarantee: 6}, Charged: 4, Held: 2}},
		Beyond: []plan.Beyond{{Project: "", User: "eve", Slots: 2}, {Project: "A", Slots: 1}},
		Uses:   []plan.Use{{User: "eve", Slots: 2}, {Project: "A", User: "ann", Step: "sim", Slots: 1}, {PoolID: 1, Project: "A", User: "ann", Step: "sim", Slots: 3}, {PoolID: 1, Project: "A", User: "bob", Slots: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestUseIsAddedUpPerHour(t *testing.T) {
	l, ctx := create(t), context.Background()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	c := Cycle{Longest: time.Minute}
	cycleAt(t, l, c, noon.Add(-40*time.Second)) // nothing is known of the time before it
	cycleAt(t, l, c, noon.Add(20*time.Second))  // 40 s before noon, 20 s after
	cycleAt(t, l, c, noon.Add(30*time.Second))
	cycleAt(t, l, c, noon.Add(2*time.Minute)) // 90 s without a cycle: the use is unknown
	farm, err := l.FarmHours(ctx, noon.Add(-time.Hour), noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if len(farm) != 2 || farm[0].Seen != 40*time.Second || farm[1].Seen != 30*time.Second || farm[1].Slots != SlotTime(16*30*time.Second) {
		t.Errorf("%+v", farm)
	}
	use, err := l.UseHours(ctx, noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	slots := func(n int) SlotTime { return SlotTime(n) * SlotTime(30*time.Second) }
	want := []UseHour{
		{Hour: noon, Pool: Pool{User: "eve"}, Used: slots(2)},
		{Hour: noon, PoolID: 1, Pool: Pool{Project: "A"}, Guaranteed: slots(6), Used: slots(4), Waiting: slots(2)},
		{Hour: noon, Pool: Pool{Project: "A"}, Used: slots(1)},
	}
	if d := cmp.Diff(want, use); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	users, err := l.UserHours(ctx, noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	in := Pool{Project: "A"}
	byUser := []UserHour{
		{Hour: noon, User: "eve", Used: slots(2)},
		{Hour: noon, PoolID: 1, In: in, Project: "A", User: "ann", Step: "sim", Used: slots(3)},
		{Hour: noon, Project: "A", User: "ann", Step: "sim", Used: slots(1)},
		{Hour: noon, PoolID: 1, In: in, Project: "A", User: "bob", Used: slots(1)},
	}
	if d := cmp.Diff(byUser, users); d != "" {
		t.Errorf("by user (-want +got):\n%s", d)
	}
}

// An hour has a bounded number of rows, and no use is lost.
func TestUsersOfAnHourAreBounded(t *testing.T) {
	l, ctx := create(t), context.Background()
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for n := range 2 {
		memory, err := l.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		memory.LastCycle = noon.Add(time.Duration(n) * 10 * time.Second)
		p := plan.Plan{Memory: memory}
		for i := range maxUserRows + 3 {
			p.Uses = append(p.Uses, plan.Use{PoolID: 1, Project: "A", User: fmt.Sprintf("u%d", i), Step: "s", Slots: 1})
		}
		if _, err := l.Intend(ctx, Cycle{Mode: Live, Longest: time.Minute, Started: memory.LastCycle, Snapshot: memory.LastCycle}, p); err != nil {
			t.Fatal(err)
		}
	}
	all, err := l.UserHours(ctx, noon, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var sum SlotTime
	for _, u := range all {
		sum += u.Used
	}
	if len(all) != maxUserRows+1 || all[0].User != "" || all[0].Used != SlotTime(3*10*time.Second) || sum != SlotTime((maxUserRows+3)*10*time.Second) {
		t.Errorf("%d rows of %v slot-hours, the first %+v", len(all), sum.Hours(), all[0])
	}
}

func TestHoursFollowTheZone(t *testing.T) {
	for zone, want := range map[string]string{"Asia/Kathmandu": "11:15", "Asia/Kolkata": "11:30", "Europe/Berlin": "12:00", "America/St_Johns": "11:30"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		got := hourOf(time.Date(2026, 11, 23, 12, 14, 0, 0, time.UTC), location)
		if got.UTC().Format("15:04") != want || got.In(location).Minute() != 0 {
			t.Errorf("%s: %v, want %s", zone, got, want)
		}
	}
}

func TestOldHistoryIsForgottenAndCountersStay(t *testing.T) {
	l, ctx := create(t), context.Background()
	start := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	reclaim := func(id int64, phase plan.Phase, at time.Time) plan.Reclaim {
		return plan.Reclaim{
			ID: id, Beneficiary: job(int(id)), Project: "A", Need: 3, Phase: phase, Planned: at, Ended: at,
			Victims: []plan.Victim{
				{ID: job(100 + int(id)), Slots: 3, Fate: plan.Taken},
				{ID: job(200 + int(id)), Slots: 5, Fate: plan.Spared},
			},
		}
	}
	_, err := l.Intend(ctx, Cycle{Mode: Live, Started: start, Snapshot: start, Ended: []Ended{{Job: backends.Job{ID: job(9), State: backends.Done, Submitted: start, Ended: start}}}}, plan.Plan{
		Actions: []plan.Action{{Verb: plan.Requeue, Job: job(101), Reclaim: 1}},
		Memory: plan.Memory{
			LastCycle: start, NextID: 3,
			Jobs:     map[backends.ID]plan.JobMemory{job(1): {Pool: 1, Entered: start.Add(-time.Minute), Clock: 55 * time.Second}},
			Reclaims: []plan.Reclaim{reclaim(1, plan.HandedOver, start), reclaim(2, plan.HandedOver, start.Add(3*time.Hour))},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(`INSERT INTO user_hour VALUES (?, 1, 'A', 'ann', '', 1)`, start.UnixNano()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(`INSERT INTO wait_hour VALUES (?, 'slots', '', 1, 1, 0, 0, 0)`, start.UnixNano()); err != nil {
		t.Fatal(err)
	}
	counts := func() []ReclaimCount {
		t.Helper()
		all, err := l.ReclaimCounts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := []ReclaimCount{{Phase: plan.HandedOver, Reclaims: 2, Need: 6, Taken: 6}}
	if d := cmp.Diff(want, counts()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c := Cycle{Longest: time.Minute, KeepHistory: time.Hour}
	for at := start.Add(2 * time.Hour); ; at = at.Add(20 * time.Second) {
		if cycleAt(t, l, c, at) == forgetEvery {
			break
		}
	}
	if d := cmp.Diff(want, counts()); d != "" {
		t.Errorf("after old ones were forgotten (-want +got):\n%s", d)
	}
	for query, want := range map[string]int{
		`SELECT COUNT(*) FROM reclaim`: 1, `SELECT COUNT(*) FROM victim`: 2, `SELECT COUNT(*) FROM ended_job`: 0,
		`SELECT COUNT(*) FROM action`: 0, `SELECT COUNT(*) FROM cycle WHERE id = 1`: 0, `SELECT COUNT(*) FROM farm_hour`: 1,
		`SELECT COUNT(DISTINCT hour) FROM user_hour`: 1, `SELECT COUNT(*) FROM wait_hour`: 0,
	} {
		var n int
		if err := l.db.QueryRow(query).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", query, n, err, want)
		}
	}
}

func TestDummyActsKnowTheirJobs(t *testing.T) {
	l := create(t)
	ctx := context.Background()
	do := func(seconds int, actions ...plan.Action) {
		t.Helper()
		id, err := l.Intend(ctx, Cycle{Mode: Live, Started: at(seconds), Snapshot: at(seconds)}, plan.Plan{Actions: actions})
		var outcomes []Outcome
		for i, a := range actions {
			result := Done
			if a.Reason == "fails" {
				result = Failed
			}
			outcomes = append(outcomes, Outcome{Action: i, Result: result, At: at(seconds)})
		}
		if err := errors.Join(err, l.Outcome(ctx, id, outcomes)); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(n, submitted, ended int, user string) Ended {
		return Ended{Job: backends.Job{ID: job(n), User: user, Project: "p", Submitted: at(submitted), Started: at(submitted + 1), Ended: at(ended)}}
	}
	// Job 5 ended before another one got its number.
	if _, err := l.Intend(ctx, Cycle{Ended: []Ended{ends(5, 1, 3, "old"), ends(5, 5, 20, "new"), ends(6, 1, 3, "old")}}, plan.Plan{}); err != nil {
		t.Fatal(err)
	}
	do(
		10,
		plan.Action{Verb: plan.Place, Job: job(5), Hosts: []string{"h", "i"}, Slots: []int{2, 1}},
		plan.Action{Verb: plan.Place, Job: job(6), Hosts: []string{"h"}, Slots: []int{1}},
		plan.Action{Verb: plan.Place, Job: job(7), Hosts: []string{"h"}, Slots: []int{1}, Reason: "fails"},
		plan.Action{Verb: plan.Rank, Job: job(5)},
	)
	do(21, plan.Action{Verb: plan.Drop, Job: job(5), Dummies: []backends.ID{job(8), job(9)}})
	do(50, plan.Action{Verb: plan.Drop, Job: job(6), Dummies: []backends.ID{job(10)}})
	got, err := l.DummyActs(ctx, at(2), at(50))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]DummyAct{
		{At: at(10), Verb: plan.Place, Job: job(5), Dummies: 3, User: "new", Project: "p", Started: at(6), Ended: at(20)},
		{At: at(10), Verb: plan.Place, Job: job(6), Dummies: 1},
		{At: at(21), Verb: plan.Drop, Job: job(5), Dummies: 2, User: "new", Project: "p", Started: at(6), Ended: at(20)},
	}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
