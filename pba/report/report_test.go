package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

var (
	noon  = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	chipA = ledger.Pool{Project: "A"}
)

func slotHours(n float64) ledger.SlotTime { return ledger.SlotTime(n * float64(time.Hour)) }

func check(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Days are those of the zone; borrowed slots stand with the project's own pool.
func TestUsages(t *testing.T) {
	late := time.Date(2026, 11, 23, 23, 0, 0, 0, time.UTC) // the 24th in Berlin
	synthesis := ledger.Pool{Project: "A", Step: "synthesis"}
	farm := []ledger.FarmHour{{Hour: noon, Seen: time.Hour}, {Hour: noon.Add(time.Hour), Seen: time.Hour / 2}, {Hour: late, Seen: time.Hour}}
	use := []ledger.UseHour{
		{Hour: noon, PoolID: 1, Pool: chipA, Guaranteed: slotHours(6), Used: slotHours(4), Waiting: slotHours(1)},
		{Hour: noon, Pool: chipA, Used: slotHours(3)},
		{Hour: noon.Add(time.Hour), PoolID: 1, Pool: chipA, Guaranteed: slotHours(3), Used: slotHours(3)},
		{Hour: noon, PoolID: 2, Pool: synthesis, Guaranteed: slotHours(2)},
		{Hour: noon, Pool: ledger.Pool{User: "eve"}, Used: slotHours(0.5)},
		{Hour: late, Pool: ledger.Pool{Project: "B"}, Used: slotHours(9)},
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	check(t, Usages(farm, use, berlin, ""), []Usage{
		{Day: "2026-11-23", User: "eve", Borrowed: 0.5, Seen: 1.5},
		{Day: "2026-11-23", Project: "A", Guaranteed: 9, Used: 7, Borrowed: 3, Waiting: 1, Seen: 1.5},
		{Day: "2026-11-23", Project: "A", Step: "synthesis", Guaranteed: 2, Seen: 1.5},
		{Day: "2026-11-24", Project: "B", Borrowed: 9, Seen: 1},
	})
	if got := Usages(farm, use, berlin, "B"); len(got) != 1 || got[0].Project != "B" {
		t.Errorf("of B alone: %+v", got)
	}
}

func TestQuantiles(t *testing.T) {
	for n, want := range map[int][3]float64{1: {1, 1, 1}, 2: {1, 2, 2}, 3: {2, 3, 3}, 20: {10, 19, 20}, 100: {50, 95, 100}} {
		var times []time.Duration
		for i := range n {
			times = append(times, time.Duration(i+1)*time.Second)
		}
		if got := [3]float64{percentile(times, 50), percentile(times, 95), percentile(times, 100)}; got != want {
			t.Errorf("1 to %d s: %v, want %v", n, got, want)
		}
	}
}

func seconds(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// The parts of R14's promise: threshold + 2 cycles + the time to free the slots.
func TestWaitsShowThePartsOfThePromise(t *testing.T) { // R14
	rates := Rates{Threshold: time.Minute, Cycle: 20 * time.Second}
	reclaims := []ledger.PastReclaim{
		// Planned with a clock of 75 s, acted at 1 s, free at 11 s; it ran at 21 s.
		{Clock: 75 * time.Second, Started: seconds(21), Reclaim: plan.Reclaim{Project: "A", User: "ann", Phase: plan.HandedOver, Planned: seconds(0), Acted: seconds(1), Freed: seconds(11)}},
		// For a standby job, which no user waits for.
		{Clock: 75 * time.Second, Started: seconds(21), Reclaim: plan.Reclaim{Project: "A", Phase: plan.HandedOver, Planned: seconds(0), Acted: seconds(1), Freed: seconds(11)}},
		// Free only in the cycle after its start; the cycles took too long before.
		{Clock: 110 * time.Second, Started: seconds(5), Reclaim: plan.Reclaim{Project: "A", User: "ann", Phase: plan.HandedOver, Planned: seconds(0), Acted: seconds(0), Freed: seconds(20)}},
		// 30 s until free, of which a victim had 25 s to save itself; another that had more was gone.
		{Clock: 60 * time.Second, Started: seconds(30), Reclaim: plan.Reclaim{Project: "A", User: "ann", Phase: plan.HandedOver, Planned: seconds(0), Acted: seconds(0), Freed: seconds(30), Victims: []plan.Victim{{Save: 25 * time.Second, Fate: plan.Taken}, {Save: time.Minute, Fate: plan.Gone}}}},
		{Clock: 500 * time.Second, Reclaim: plan.Reclaim{Project: "A", Phase: plan.Expired, Planned: seconds(0)}},
	}
	waits, promise := Waits([]ledger.PastJob{
		{Project: "A", PBA: true, Started: noon, Waited: 10 * time.Second},
		{Project: "A", Started: noon, Waited: 30 * time.Second},
		{Project: "A", Waited: time.Hour}, // never ran
		{Project: "B", Started: noon, Waited: 50 * time.Second},
	}, reclaims, rates, "A", nil, time.UTC)
	check(t, promise, Promise{Reclaims: 3, Kept: 2})
	check(t, waits, []Wait{
		{Project: "A", Kind: "jobs", Of: Within, Count: 1, Median: 10, P95: 10, Max: 10},
		{Project: "A", Kind: "jobs", Of: Beyond, Count: 1, Median: 30, P95: 30, Max: 30},
		{Project: "A", Kind: "reclaims", Of: Threshold, Count: 3, Median: 60, P95: 60, Max: 60},
		{Project: "A", Kind: "reclaims", Of: Cycles, Count: 3, Median: 26, P95: 50, Max: 50},
		{Project: "A", Kind: "reclaims", Of: Saving, Count: 1, Median: 25, P95: 25, Max: 25},
		{Project: "A", Kind: "reclaims", Of: Freeing, Count: 3, Median: 5, P95: 10, Max: 10},
		{Project: "A", Kind: "reclaims", Of: Total, Count: 3, Median: 96, P95: 115, Max: 115},
	})
	all, _ := Waits([]ledger.PastJob{{Project: "A", Started: noon}, {Project: "B", Started: noon}}, nil, rates, "", nil, time.UTC)
	if len(all) != 3 || all[0].Project != "" || all[0].Count != 2 {
		t.Errorf("of all: %+v", all)
	}
}

func TestVictims(t *testing.T) {
	reclaims := []ledger.PastReclaim{
		{Reclaim: plan.Reclaim{Project: "A", Need: 3, Phase: plan.HandedOver, Victims: []plan.Victim{
			{Project: "B", User: "bob", Slots: 2, Fate: plan.Taken, RanFor: 30 * time.Minute},
			{Project: "B", User: "bob", Slots: 1, Fate: plan.Taken, Mode: backends.PreemptSuspend, RanFor: time.Hour},
			{User: "eve", Slots: 1, Fate: plan.Taken, RanFor: 2 * time.Hour},
			{User: "eve", Slots: 1, Fate: plan.Taken, RanFor: 2 * time.Hour, Save: time.Minute, Saved: plan.Saved},
			{User: "eve", Slots: 1, Fate: plan.Finished, RanFor: 2 * time.Hour, Save: time.Minute},
			{Project: "B", User: "bob", Slots: 9, Fate: plan.Gone, RanFor: time.Hour},
		}}},
		{Reclaim: plan.Reclaim{Project: "A", Need: 2, Phase: plan.Acted}},
		{Reclaim: plan.Reclaim{Project: "C", Need: 2, Phase: plan.Expired, Victims: []plan.Victim{
			{Project: "D", User: "dan", Slots: 1, Fate: plan.Taken}, {Project: "D", User: "dan", Slots: 1, Fate: plan.Gone},
		}}},
	}
	losses, ends := Victims(reclaims, "", nil, time.UTC)
	check(t, losses, []Loss{
		{User: "eve", To: "A", Requeued: 2, Saved: 1, Slots: 2, Lost: 2},
		{Project: "B", User: "bob", To: "A", Requeued: 1, Suspended: 1, Slots: 3, Lost: 1},
		{Project: "D", User: "dan", To: "C", Requeued: 1, Slots: 1},
	})
	check(t, ends, []End{
		{End: plan.HandedOver, Reclaims: 1, Requested: 3, Evicted: 5, Ratio: 1.6667},
		{End: plan.Expired, Reclaims: 1, Requested: 2, Evicted: 1, Ratio: 0.5, Useless: 1},
		{End: open, Reclaims: 1, Requested: 2},
	})
	losses, ends = Victims(reclaims, "B", nil, time.UTC)
	if len(losses) != 1 || len(ends) != 1 || ends[0].End != plan.HandedOver {
		t.Errorf("of B alone: %+v %+v", losses, ends)
	}
}

// Use of 2, 4 and 6 slots in the last three weeks goes on with 8, 10 …
func TestForecast(t *testing.T) {
	this := calendar.WeekOf(noon, time.UTC)
	var farm []ledger.FarmHour
	var use []ledger.UseHour
	for ago := 1; ago <= 3; ago++ {
		hour := noon.AddDate(0, 0, -7*ago)
		farm = append(farm, ledger.FarmHour{Hour: hour, Seen: time.Hour}, ledger.FarmHour{Hour: hour.Add(time.Hour), Seen: time.Hour})
		use = append(use,
			ledger.UseHour{Hour: hour, PoolID: 1, Pool: chipA, Used: slotHours(float64(8 - 2*ago))},
			ledger.UseHour{Hour: hour.Add(time.Hour), Pool: chipA, Used: slotHours(float64(8 - 2*ago))})
	}
	plans := Plans{This: this, Horizon: 1, Limit: 10, Allocations: []ledger.Allocation{{Pool: chipA, Week: this}, {Pool: ledger.Pool{Project: "B"}, Week: this}}}
	plans.Allocations[0].Slots, plans.Allocations[1].Slots = 7, 4
	number := func(x float64) *float64 { return &x }
	limit, over, free := 10, -1, 10
	got, trends := Forecast(plans, farm, use, time.UTC, "")
	check(t, trends, []Trend{{Project: "A", Weeks: 3, Last: 6, Slope: 2, Next: 8}})
	check(t, got, []Outlook{
		{Week: this, Allocated: 11, Expected: number(8), MaxAllocated: &limit, Free: &over},
		{Week: this, Project: "A", Allocated: 7, Expected: number(8)},
		{Week: this, Project: "B", Allocated: 4},
		{Week: calendar.AddWeeks(this, 1), Expected: number(10), MaxAllocated: &limit, Free: &free},
		{Week: calendar.AddWeeks(this, 1), Project: "A", Expected: number(10)},
	})
	// A new site has this week only; one without a cycle has nothing.
	_, trends = Forecast(plans, []ledger.FarmHour{{Hour: noon, Seen: time.Minute}}, []ledger.UseHour{{Hour: noon, Pool: chipA, Used: slotHours(0.05)}}, time.UTC, "")
	check(t, trends, []Trend{{Project: "A", Last: 3, Next: 3, Weeks: 1}})
	if _, trends = Forecast(plans, nil, nil, time.UTC, ""); len(trends) != 0 {
		t.Errorf("without history: %+v", trends)
	}
}

// Dummy jobs end by being dropped, with their job, or by their limit; a job gathers
// until it starts.
func TestDummies(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	id := func(n int64) backends.ID { return backends.ID{Job: n} }
	placeAct := func(minutes int, job int64, n int) ledger.DummyAct {
		return ledger.DummyAct{At: at(minutes), Verb: plan.Place, Job: id(job), Dummies: n}
	}
	ended := func(a ledger.DummyAct, started, ended int) ledger.DummyAct {
		a.User, a.Project, a.Started, a.Ended = "bob", "A", at(started), at(ended)
		return a
	}
	acts := []ledger.DummyAct{
		// Two, then a third; it starts after 10 min, and again an hour later its dummies
		// are placed anew, which is no gathering. 2 × 60 + 50 + 3 × 30 min, one dropped: − 15.
		ended(placeAct(0, 1, 2), 10, 95),
		ended(placeAct(10, 1, 1), 10, 95),
		ended(placeAct(65, 1, 3), 10, 95),
		ended(ledger.DummyAct{At: at(80), Verb: plan.Drop, Job: id(1), Dummies: 1}, 10, 95),
		// It waits still, and gave them back once: 2 × 20 + 2 × 60 of 70 min.
		placeAct(10, 2, 2),
		{At: at(30), Verb: plan.Drop, Job: id(2), Dummies: 2},
		placeAct(50, 2, 2),
		// The queue has forgotten it.
		placeAct(100, 3, 1),
		// It ran for 6 min before it had any.
		placeAct(110, 4, 1),
		// Its placing was before.
		{At: at(1), Verb: plan.Drop, Job: id(5), Dummies: 4},
	}
	jobs := []backends.Job{{ID: id(2), User: "eve", Project: "B"}, {ID: id(4), User: "bob", Project: "A", Started: at(104)}}
	want := []Heavy{
		{Project: "A", User: "bob", Jobs: 2, Dummies: 7, Median: 600, Max: 600, Held: round((120 + 60 + 90 - 15 + 10) / 60.)},
		{Project: "B", User: "eve", Jobs: 1, Dummies: 4, Held: round((40 + 120) / 60.)},
		{Jobs: 1, Dummies: 1, Held: round(20 / 60.)},
	}
	check(t, Dummies(acts, jobs, time.Hour, at(120), ""), want)
	check(t, Dummies(acts, jobs, time.Hour, at(120), "B"), want[1:2])
}
