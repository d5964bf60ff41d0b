package desk

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func TestReadChange(t *testing.T) {
	r := calendar.Reader{This: w(48), Last: w(52)}
	for text, want := range map[string]planChange{
		"A +40 W50-W51":                {pool: Pool{Project: "A"}, sign: '+', slots: 40, weeks: []calendar.Week{w(50), w(51)}},
		"A -8":                         {pool: Pool{Project: "A"}, sign: '-', slots: 8, weeks: []calendar.Week{w(48)}},
		"A:drc =0 next":                {pool: Pool{Project: "A", Step: "drc"}, sign: '=', slots: 0, weeks: []calendar.Week{w(49)}},
		"A user bob on gpu =20 W50":    {pool: Pool{Project: "A", User: "bob", Hosts: "gpu"}, sign: '=', slots: 20, weeks: []calendar.Week{w(50)}},
		"user +1 2026-W50 2026-W52":    {pool: Pool{Project: "user"}, sign: '+', slots: 1, weeks: []calendar.Week{w(50), w(52)}},
		"  A   +1  2026-W51..2026-W52": {pool: Pool{Project: "A"}, sign: '+', slots: 1, weeks: []calendar.Week{w(51), w(52)}},
	} {
		want.text = text
		got, err := readChange(text, r)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(planChange{})); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, bad := range []string{"", " ", "A", "A 40", "A +", "A +x", "A +0", "A -0", "A user", "A user bob", "A +4 W99", "A +4 2026-W47", "A +4 2027-W10", "A ++4", "A +9999999999"} {
		if _, err := readChange(bad, r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestChangePlan(t *testing.T) {
	set := func(project string, week, slots int) ledger.Change {
		return ledger.Change{Pool: Pool{Project: project}, Week: w(week), Terms: Terms{Slots: slots, SLA: plan.Velocity}}
	}
	base := []ledger.Change{set("A", 50, 10), set("B", 50, 5), {Pool: Pool{Project: "A"}, Week: w(51), Terms: Terms{Slots: 4, SLA: plan.Throughput, Jobs: 9}}}
	of := func(project string, sign byte, slots int, weeks ...int) planChange {
		c := planChange{pool: Pool{Project: project}, sign: sign, slots: slots}
		for _, n := range weeks {
			c.weeks = append(c.weeks, w(n))
		}
		return c
	}
	got, err := changePlan(base, []planChange{of("A", '+', 2, 50, 51), of("B", '-', 5, 50), of("C", '=', 7, 51), of("A", '-', 1, 50)})
	want := []ledger.Change{set("A", 50, 11), {Pool: Pool{Project: "A"}, Week: w(51), Terms: Terms{Slots: 6, SLA: plan.Throughput, Jobs: 9}}, set("C", 51, 7)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := changePlan(base, []planChange{of("B", '-', 6, 50)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("more is taken off than there is: %v", err)
	}
}

// TestOverAllocated: only what a change makes worse counts, on each host set by itself.
func TestOverAllocated(t *testing.T) { // R24
	set := func(hosts string, week, slots int) ledger.Change {
		return ledger.Change{Pool: Pool{Project: "A", Hosts: hosts}, Week: w(week), Terms: Terms{Slots: slots}}
	}
	limit := func(hosts string) int { return map[string]int{"": 10, "gpu": 4}[hosts] }
	before := []ledger.Change{set("", 48, 8), set("", 49, 12), set("gpu", 48, 4)}
	after := []ledger.Change{set("", 48, 13), set("", 49, 12), set("gpu", 48, 5), set("", 50, 10)}
	want := []OverAllocation{{Week: w(48), Planned: 13, Limit: 10, Exceeds: 3}, {Week: w(48), Hosts: "gpu", Planned: 5, Limit: 4, Exceeds: 1}}
	if diff := cmp.Diff(want, overAllocated(before, after, limit)); diff != "" {
		t.Error(diff)
	}
}
