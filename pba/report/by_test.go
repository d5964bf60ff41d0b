package report

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/pba/ledger"
)

func number(x float64) *float64 { return &x }

// What is used counts against the promise of its group; users share their pool's.
func TestUsesBy(t *testing.T) {
	sim := ledger.Pool{Project: "A", Step: "sim"}
	sunday := noon.AddDate(0, 0, -1)
	h := History{
		Zone: time.UTC,
		Use: []ledger.UseHour{
			{Hour: sunday, PoolID: 1, Pool: chipA, Guaranteed: slotHours(10), Used: slotHours(5), Waiting: slotHours(1)},
			{Hour: noon, PoolID: 1, Pool: chipA, Guaranteed: slotHours(10), Used: slotHours(8)},
			{Hour: noon, PoolID: 2, Pool: sim, Guaranteed: slotHours(4), Used: slotHours(1)},
			{Hour: noon, Pool: chipA, Used: slotHours(6)},
			{Hour: noon, Pool: ledger.Pool{Project: "B", Step: "x"}, Used: slotHours(3)},
			{Hour: noon, Pool: ledger.Pool{User: "eve"}, Used: slotHours(2)},
		},
		Users: []ledger.UserHour{
			{Hour: noon, PoolID: 1, In: chipA, Project: "A", User: "ann", Step: "sim", Used: slotHours(7)},
			{Hour: noon, PoolID: 1, In: chipA, Project: "A", User: "bob", Used: slotHours(1)},
			{Hour: noon, Project: "A", User: "bob", Used: slotHours(6)},
			{Hour: noon, PoolID: 2, In: sim, Project: "A", User: "ann", Step: "sim", Used: slotHours(1)},
			{Hour: noon, User: "eve", Used: slotHours(5)},
		},
	}
	rows, total := UsesBy(h, []By{ByProject}, "")
	check(t, rows, []Use{
		{Borrowed: 2, Guaranteed: number(0), Waiting: number(0), Share: number(8)},
		{Key: Key{Project: "A"}, Guaranteed: number(24), Used: 14, Borrowed: 6, Waiting: number(1), Percent: number(58.3333), Demand: number(87.5), Share: number(80)},
		{Key: Key{Project: "B"}, Guaranteed: number(0), Borrowed: 3, Waiting: number(0), Share: number(12), NoPromise: true},
	})
	check(t, total, Use{Guaranteed: number(24), Used: 14, Borrowed: 11, Waiting: number(1), Percent: number(58.3333), Demand: number(108.3333), Share: number(100)})

	rows, _ = UsesBy(h, []By{ByWeek, ByPool}, "A")
	check(t, rows, []Use{
		{Key: Key{Week: "2026-W47", Pool: "A"}, Guaranteed: number(10), Used: 5, Waiting: number(1), Percent: number(50), Demand: number(60), Share: number(25)},
		{Key: Key{Week: "2026-W48"}, Guaranteed: number(0), Borrowed: 6, Waiting: number(0), Share: number(30)},
		{Key: Key{Week: "2026-W48", Pool: "A"}, Guaranteed: number(10), Used: 8, Waiting: number(0), Percent: number(80), Demand: number(80), Share: number(40)},
		{Key: Key{Week: "2026-W48", Pool: "A:sim"}, Guaranteed: number(4), Used: 1, Waiting: number(0), Percent: number(25), Demand: number(25), Share: number(5)},
	})

	rows, total = UsesBy(h, []By{ByPool, ByUser}, "A")
	check(t, rows, []Use{
		{Key: Key{User: "bob"}, Borrowed: 6, Share: number(40)},
		{Key: Key{Pool: "A", User: "ann"}, Used: 7, Share: number(46.6667)},
		{Key: Key{Pool: "A", User: "bob"}, Used: 1, Share: number(6.6667)},
		{Key: Key{Pool: "A:sim", User: "ann"}, Used: 1, Share: number(6.6667)},
	})
	check(t, total, Use{Used: 9, Borrowed: 6, Share: number(100)})
	rows, _ = UsesBy(h, []By{ByStep}, "A")
	check(t, rows, []Use{{Used: 1, Borrowed: 6, Share: number(46.6667)}, {Key: Key{Step: "sim"}, Used: 8, Share: number(53.3333)}})
	if rows, total = UsesBy(History{Zone: time.UTC}, []By{ByWeek}, ""); len(rows) != 0 || total.Percent != nil {
		t.Errorf("of nothing: %+v, %+v", rows, total)
	}
}

func TestParseBy(t *testing.T) {
	by, err := GroupsOf([]string{"week", "user", "week"}, ByWeek, ByUser)
	check(t, by, []By{ByWeek, ByUser})
	if err != nil {
		t.Error(err)
	}
	if _, err := GroupsOf([]string{"host"}, ByWeek, ByProject, ByUser); err == nil || !strings.Contains(err.Error(), `"host": want some of week, project and user`) {
		t.Error(err)
	}
}

// Waits and losses follow the same groups.
func TestWaitsAndVictimsBy(t *testing.T) {
	sunday := noon.AddDate(0, 0, -1)
	jobs := []ledger.PastJob{
		{Project: "A", User: "ann", Step: "sim", Started: noon, Ended: sunday, Waited: time.Second, PBA: true},
		{Project: "A", User: "bob", Started: noon, Ended: noon, Waited: 3 * time.Second, PBA: true},
		{Project: "B", User: "bob", Started: noon, Ended: noon, Waited: 5 * time.Second},
	}
	waits := func(by ...By) (all []string) {
		rows, _ := Waits(jobs, nil, Rates{}, "", by, time.UTC)
		for _, w := range rows {
			all = append(all, strings.Join([]string{w.Week, w.Project, w.User, w.Step, w.Of, time.Duration(w.Max * 1e9).String()}, " "))
		}
		return all
	}
	check(t, waits(ByUser), []string{"    within 3s", "    beyond 5s", "  ann  within 1s", "  bob  within 3s", "  bob  beyond 5s"})
	check(t, waits(ByWeek, ByStep), []string{"    within 3s", "    beyond 5s", "2026-W47   sim within 1s", "2026-W48    within 3s", "2026-W48    beyond 5s"})
}
