package report

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Projects lend what others' jobs could not have run on otherwise.
func TestLent(t *testing.T) {
	farm := []ledger.FarmHour{{Hour: noon, Seen: time.Hour, Slots: slotHours(20)}}
	use := func(beyond float64) []ledger.UseHour {
		return []ledger.UseHour{
			{Hour: noon, PoolID: 1, Pool: chipA, Guaranteed: slotHours(8), Used: slotHours(2)},
			{Hour: noon, PoolID: 2, Pool: ledger.Pool{Project: "B"}, Guaranteed: slotHours(4), Used: slotHours(1)},
			{Hour: noon, PoolID: 3, Pool: ledger.Pool{Project: "C"}, Guaranteed: slotHours(2), Used: slotHours(2)},
			{Hour: noon, Pool: ledger.Pool{User: "eve"}, Used: slotHours(beyond)},
		}
	}
	for beyond, want := range map[float64]map[string]ledger.SlotTime{
		6:  {}, // as many slots are guaranteed to none
		9:  {"A": slotHours(2), "B": slotHours(1)},
		15: {"A": slotHours(6), "B": slotHours(3)},
		99: {"A": slotHours(6), "B": slotHours(3)},
	} {
		check(t, lentBy(farm, use(beyond)), want)
	}
	check(t, lentBy(nil, use(99)), map[string]ledger.SlotTime{})
}

func TestWeekOf(t *testing.T) {
	week := calendar.PeriodOf(calendar.Week{Year: 2026, Week: 48}, time.UTC)
	taken := plan.Victim{Project: "B", User: "bob", Slots: 2, Fate: plan.Taken, Mode: backends.PreemptRequeue, RanFor: time.Hour}
	p := Past{
		History: History{
			Zone: time.UTC,
			Farm: []ledger.FarmHour{{Hour: noon, Seen: time.Hour / 2, Slots: slotHours(8), PBA: slotHours(2), Normal: slotHours(5)}},
			Use: []ledger.UseHour{
				{Hour: noon, PoolID: 1, Pool: chipA, Guaranteed: slotHours(4), Used: slotHours(2), Waiting: slotHours(1)},
				{Hour: noon, Pool: ledger.Pool{Project: "B"}, Used: slotHours(5)},
			},
			Users: []ledger.UserHour{
				{Hour: noon, PoolID: 1, In: chipA, Project: "A", User: "ann", Used: slotHours(2)},
				{Hour: noon, Project: "B", User: "bob", Used: slotHours(5)},
			},
		},
		Jobs:     []ledger.PastJob{{Project: "A", User: "ann", PBA: true, Started: noon, Ended: noon, Waited: time.Minute}, {Project: "B", User: "bob", Started: noon, Ended: noon, Waited: time.Hour}},
		Reclaims: []ledger.PastReclaim{{Started: noon, Reclaim: plan.Reclaim{Project: "A", User: "ann", Need: 2, Phase: plan.HandedOver, Planned: noon, Acted: noon, Freed: noon, Victims: []plan.Victim{taken}}}},
		Rates:    Rates{Threshold: time.Minute, Cycle: 20 * time.Second},
	}
	to := noon.Add(time.Hour)
	w := WeekOf(week, to, p, "", "bob", Readers())
	minute, hour := Waited{1, 60, 60, 60}, Waited{1, 3600, 3600, 3600}
	a := ProjectWeek{
		Use:  Use{Key: Key{Project: "A"}, Guaranteed: number(4), Used: 2, Waiting: number(1), Percent: number(50), Demand: number(75), Share: number(28.5714)},
		Lent: 1, Within: minute, Reclaims: Promise{1, 1},
	}
	b := ProjectWeek{
		Use:    Use{Key: Key{Project: "B"}, Guaranteed: number(0), Borrowed: 5, Waiting: number(0), Share: number(71.4286), NoPromise: true},
		Beyond: hour, Victims: Lost{1, 2},
	}
	check(t, w.Projects, []ProjectWeek{a, b})
	check(t, w.Total, ProjectWeek{
		Use:  Use{Guaranteed: number(4), Used: 2, Borrowed: 5, Waiting: number(1), Percent: number(50), Demand: number(200), Share: number(100)},
		Lent: 1, Within: minute, Beyond: hour, Victims: Lost{1, 2}, Reclaims: Promise{1, 1},
	})
	bob := UserWeek{Project: "B", User: "bob", Borrowed: 5, Waits: hour, Victims: Lost{1, 2}}
	check(t, w.Users, []UserWeek{{Project: "A", User: "ann", Used: 2, Waits: minute}, bob})
	check(t, w.Mine, []UserWeek{bob})
	check(t, w.Farm, &FarmWeek{Slots: 8, Pools: 2, Normal: 5})
	if len(w.Ends) != 1 || w.Seen != 0.5 {
		t.Errorf("%+v, %v hours", w.Ends, w.Seen)
	}
	if n := len(w.Hours.Slots); n != 13 || w.Hours.Slots[12] != 16 || w.Hours.Pools[12] != 4 || len(w.Hours.Projects) != 1 || w.Hours.Projects[0].Guaranteed[12] != 8 || w.Hours.Projects[0].Waiting[12] != 2 {
		t.Errorf("%d hours: %+v", n, w.Hours)
	}

	// Of one project: it, and what it lost.
	w = WeekOf(week, to, p, "B", "ann", []Reader{ForManager})
	check(t, w.Projects, []ProjectWeek{func() ProjectWeek { b := b; b.Share = number(100); return b }()})
	check(t, w.Total.Victims, b.Victims)
	check(t, w.Total.Beyond, hour)
	if len(w.Users)+len(w.Mine)+len(w.Ends) > 0 || w.Farm != nil {
		t.Errorf("for a manager: %+v", w)
	}
	// Of nothing.
	if w = WeekOf(week, week.Begin, Past{History: History{Zone: time.UTC}}, "", "", Readers()); len(w.Projects) != 0 || len(w.Hours.Slots) != 1 {
		t.Errorf("of nothing: %+v", w)
	}
}
