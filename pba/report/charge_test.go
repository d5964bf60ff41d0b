package report

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

var goldAndStandard = Prices{
	Plans: map[string]unit.Price{"standard": 10_000, "gold": 25_000}, Default: "standard",
	Projects: map[string]string{"A": "gold"}, Departments: map[string]string{"A": "silicon", "B": "silicon"},
}

func TestCharges(t *testing.T) {
	sunday := noon.AddDate(0, 0, -1)
	h := History{
		Zone: time.UTC,
		Use: []ledger.UseHour{
			{Hour: sunday, PoolID: 1, Pool: chipA, Guaranteed: slotHours(10), Used: slotHours(5)},
			{Hour: noon, PoolID: 1, Pool: chipA, Guaranteed: slotHours(10), Used: slotHours(1)},
			{Hour: noon, PoolID: 2, Pool: ledger.Pool{Project: "C"}, Guaranteed: slotHours(9)},
			{Hour: noon, Pool: chipA, Used: slotHours(0.5)},
			{Hour: noon, Pool: ledger.Pool{Project: "B"}, Used: slotHours(3)},
			{Hour: noon, Pool: ledger.Pool{User: "eve"}, Used: slotHours(2)},
		},
		Users: []ledger.UserHour{
			{Hour: sunday, PoolID: 1, In: chipA, Project: "A", User: "ann", Step: "sim", Used: slotHours(5)},
			{Hour: noon, PoolID: 1, In: chipA, Project: "A", User: "ann", Used: slotHours(1)},
			{Hour: noon, Project: "A", User: "bob", Used: slotHours(0.5)},
			{Hour: noon, Project: "B", User: "ann", Used: slotHours(3)},
			{Hour: noon, User: "eve", Used: slotHours(2)},
		},
	}
	row := func(k Key, hours float64, price unit.Price, amount Amount) Charge {
		return Charge{k, hours, int64(hours * 3_600_000), price, amount}
	}
	all := Charged{11.5, 11.5 * 3_600_000, 2125}
	for _, c := range []struct {
		by   []By
		want []Charge
	}{
		{[]By{ByProject}, []Charge{
			row(Key{Plan: "standard"}, 2, 10_000, 200), // what runs without a project
			row(Key{Project: "A", Plan: "gold"}, 6.5, 25_000, 1625),
			row(Key{Project: "B", Plan: "standard"}, 3, 10_000, 300),
		}},
		{[]By{ByDepartment}, []Charge{
			row(Key{Plan: "standard"}, 2, 10_000, 200),
			row(Key{Department: "silicon", Plan: "gold"}, 6.5, 25_000, 1625),
			row(Key{Department: "silicon", Plan: "standard"}, 3, 10_000, 300),
		}},
		{[]By{ByPlan}, []Charge{row(Key{Plan: "gold"}, 6.5, 25_000, 1625), row(Key{Plan: "standard"}, 5, 10_000, 500)}},
		{[]By{ByUser}, []Charge{
			row(Key{User: "ann", Plan: "gold"}, 6, 25_000, 1500), row(Key{User: "ann", Plan: "standard"}, 3, 10_000, 300),
			row(Key{User: "bob", Plan: "gold"}, 0.5, 25_000, 125), row(Key{User: "eve", Plan: "standard"}, 2, 10_000, 200),
		}},
		{[]By{ByWeek, ByPlan}, []Charge{
			row(Key{Week: "2026-W47", Plan: "gold"}, 5, 25_000, 1250),
			row(Key{Week: "2026-W48", Plan: "gold"}, 1.5, 25_000, 375), row(Key{Week: "2026-W48", Plan: "standard"}, 5, 10_000, 500),
		}},
	} {
		rows, sum := Charges(h, c.by, "", goldAndStandard)
		check(t, rows, c.want)
		check(t, sum, all)
	}
	rows, sum := Charges(h, []By{ByStep}, "A", goldAndStandard)
	check(t, rows, []Charge{row(Key{Plan: "gold"}, 1.5, 25_000, 375), row(Key{Step: "sim", Plan: "gold"}, 5, 25_000, 1250)})
	check(t, sum, Charged{6.5, 6.5 * 3_600_000, 1625})
	if rows, sum := Charges(History{Zone: time.UTC}, []By{ByProject}, "", goldAndStandard); len(rows) != 0 || sum != (Charged{}) {
		t.Errorf("of nothing: %+v, %+v", rows, sum)
	}
}

// Three thirds of a cent are one, and the row with the largest remainder has it.
func TestChargesAreApportioned(t *testing.T) {
	third := ledger.SlotTime(12 * time.Second) // at 1.00
	h := History{Zone: time.UTC, Use: []ledger.UseHour{
		{Hour: noon, Pool: ledger.Pool{Project: "B"}, Used: third},
		{Hour: noon, Pool: ledger.Pool{Project: "C"}, Used: third + ledger.SlotTime(time.Millisecond)},
		{Hour: noon, Pool: ledger.Pool{Project: "D"}, Used: third},
	}}
	rows, sum := Charges(h, []By{ByProject}, "", goldAndStandard)
	if sum.Amount != 1 || rows[0].Amount != 0 || rows[1].Amount != 1 || rows[2].Amount != 0 || sum.Amount.String() != "0.01" {
		t.Errorf("%+v, %+v", rows, sum)
	}
}

// randomHistory draws hours in which users of some projects used what pools and accounts had, as
// cycles record it: the same slot-time by pool and by user.
func randomHistory(t *rapid.T) History {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	h := History{Zone: rapid.SampledFrom([]*time.Location{time.UTC, berlin}).Draw(t, "zone")}
	projects := []string{"", "A", "B", "C", "D"}
	for n := range rapid.IntRange(0, 40).Draw(t, "hours") {
		at := noon.Add(time.Duration(n*7) * time.Hour)
		for i, project := range projects {
			var inPool, beyond ledger.SlotTime
			pool := ledger.Pool{Project: project}
			for _, user := range []string{"ann", "bob"} {
				for _, step := range []string{"", "sim"} {
					used := ledger.SlotTime(rapid.Int64Range(0, 3_600_000_000).Draw(t, "slot-ms")) * ledger.SlotTime(time.Millisecond)
					u := ledger.UserHour{Hour: at, Project: project, User: user, Step: step, Used: used}
					if project != "" && rapid.Bool().Draw(t, "in the pool") {
						u.PoolID, u.In = int64(i), pool
						inPool += used
					} else {
						beyond += used
					}
					h.Users = append(h.Users, u)
				}
			}
			h.Use = append(h.Use, ledger.UseHour{Hour: at, Pool: pool, Used: beyond})
			if project != "" {
				h.Use = append(h.Use, ledger.UseHour{Hour: at, PoolID: int64(i), Pool: pool, Guaranteed: slotHours(5), Used: inPool, Waiting: slotHours(1)})
			}
		}
	}
	return h
}

// TestLawChargesAddUp: by whatever groups, the sum is exactly that of the rows, and the same; no
// row is a hundredth away from its exact amount; and the slot-time is, to the millisecond, what
// was used by the ledger's hours and by the report of use.
func TestLawChargesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := randomHistory(t)
		prices := Prices{Plans: map[string]unit.Price{}, Default: "p0", Projects: map[string]string{}, Departments: map[string]string{"A": "x", "B": "x", "D": "y"}}
		for i := range 4 {
			prices.Plans[fmt.Sprint("p", i)] = unit.Price(rapid.Int64Range(0, 1e10).Draw(t, "price"))
		}
		for _, project := range []string{"A", "B", "C"} {
			prices.Projects[project] = rapid.SampledFrom([]string{"p0", "p1", "p2", "p3"}).Draw(t, "plan")
		}
		project := rapid.SampledFrom([]string{"", "A", "D"}).Draw(t, "project")
		by := rapid.SliceOfNDistinct(rapid.SampledFrom([]By{ByWeek, ByDay, ByDepartment, ByProject, ByPlan, ByUser, ByStep}), 1, 7, rapid.ID[By]).Draw(t, "by")

		var used int64 // by the ledger's hours alone
		exact := new(big.Rat)
		for _, u := range h.Use {
			if project == "" || u.Project == project {
				n := time.Duration(u.Used).Milliseconds()
				used += n
				plan := prices.Default
				if own := prices.Projects[u.Project]; own != "" {
					plan = own
				}
				exact.Add(exact, new(big.Rat).Mul(big.NewRat(n, 3_600_000), big.NewRat(int64(prices.Plans[plan]), 10_000)))
			}
		}
		hundredths := func(r *big.Rat, a Amount) float64 { // away from an exact amount
			away, _ := new(big.Rat).Sub(new(big.Rat).Mul(r, big.NewRat(100, 1)), big.NewRat(int64(a), 1)).Float64()
			return away
		}
		rows, sum := Charges(h, by, project, prices)
		var amount Amount
		var millis int64
		for _, r := range rows {
			amount, millis = amount+r.Amount, millis+r.Millis
			of := new(big.Rat).Mul(big.NewRat(r.Millis, 3_600_000), big.NewRat(int64(r.Price), 10_000))
			if away := hundredths(of, r.Amount); away <= -1 || away >= 1 {
				t.Errorf("%+v is %v hundredths away from its exact amount", r, away)
			}
			if r.Price != prices.Plans[r.Plan] || r.Amount < 0 {
				t.Errorf("%+v: the price of %s is %v", r, r.Plan, prices.Plans[r.Plan])
			}
		}
		if amount != sum.Amount || millis != sum.Millis {
			t.Errorf("by %v: the rows add up to %v and %d ms, not to %v and %d ms", by, amount, millis, sum.Amount, sum.Millis)
		}
		if away := hundredths(exact, sum.Amount); away < -0.5 || away >= 0.5 {
			t.Errorf("by %v: the sum is %v hundredths away from its exact amount", by, away)
		}
		if sum.Millis != used {
			t.Errorf("by %v: %d ms of %d ms that were used", by, sum.Millis, used)
		}

		// The report of use has the same in each group that both know.
		var known []By
		for _, k := range by {
			if k != ByPlan && k != ByDepartment {
				known = append(known, k)
			}
		}
		of := map[Key]int64{}
		for _, r := range rows {
			of[r.only(known)] += r.Millis
		}
		uses, total := UsesBy(h, known, project)
		for _, u := range uses {
			if d := hoursOf(of[u.Key]) - u.Used - u.Borrowed; d > 2e-4 || d < -2e-4 {
				t.Errorf("by %v: %+v used %v slot-hours, and %v are charged", known, u.Key, u.Used+u.Borrowed, hoursOf(of[u.Key]))
			}
		}
		groups, _ := h.sumUp(known, project, func(k Key) Key { return k.only(known) })
		for k, s := range groups {
			if n := time.Duration(s.used + s.borrowed).Milliseconds(); n != of[k] {
				t.Errorf("by %v: %+v used %d ms, and %d are charged", known, k, n, of[k])
			}
		}
		if d := sum.SlotHours - total.Used - total.Borrowed; d > 2e-4 || d < -2e-4 {
			t.Errorf("%v slot-hours of %v that were used", sum.SlotHours, total.Used+total.Borrowed)
		}
	})
}
