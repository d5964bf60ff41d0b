package desk

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func somePlanned(pool ledger.Pool, week, slots int) ledger.Allocation {
	return ledger.Allocation{Pool: pool, Week: calendar.AddWeeks(calendar.Week{Year: 2026, Week: 52}, week), Terms: ledger.Terms{Slots: slots, SLA: plan.Velocity}}
}

func someGridInput() gridInput {
	throughput := somePlanned(ledger.Pool{Project: "chipA", Step: "logic"}, 2, 7)
	throughput.SLA, throughput.Jobs = plan.Throughput, 500
	this := calendar.Week{Year: 2026, Week: 52}
	return gridInput{
		this:  this,
		weeks: []calendar.Week{this, calendar.AddWeeks(this, 1), calendar.AddWeeks(this, 2)},
		planned: []ledger.Allocation{
			somePlanned(ledger.Pool{Project: "chipA", Step: "mask"}, 0, 5),
			somePlanned(ledger.Pool{Project: "chipA", Step: "logic"}, 0, 4),
			somePlanned(ledger.Pool{Project: "chipA", Step: "logic", User: "bob"}, 0, 3),
			somePlanned(ledger.Pool{Project: "chipA", Step: "logic", Hosts: "gpu"}, 1, 2),
			throughput,
			somePlanned(ledger.Pool{Project: "chipB"}, 1, 90),
			somePlanned(ledger.Pool{Project: "chipB", Hosts: "gone"}, 1, 1),
			somePlanned(ledger.Pool{Project: "chipB"}, 3, 1000),  // not in its weeks
			somePlanned(ledger.Pool{Project: "chipB"}, -1, 1000), // nor this
		},
		limits: map[string]int{"": 80, "gpu": 10},
		sets:   []string{"gpu", "big"},
		steps:  map[string][]string{"chipA": {"place", "mask", "logic"}}, // not in the order of the alphabet
	}
}

// TestGridSumsUp: each allocation counts in one row and one host set, whatever the rows
// are by.
func TestGridSumsUp(t *testing.T) {
	in := someGridInput()
	g := makeGrid(in, GridQuery{})
	rows := []GridRow{
		{Pool: ledger.Pool{Project: "chipA"}, Slots: []int{12, 2, 7}, Total: 21},
		{Pool: ledger.Pool{Project: "chipB"}, Slots: []int{0, 91, 0}, Total: 91},
	}
	if d := cmp.Diff(rows, g.Rows); d != "" || g.Total != 112 || !cmp.Equal(g.Slots, []int{12, 93, 7}) {
		t.Errorf("total %d, %v\n%s", g.Total, g.Slots, d)
	}
	number := func(n int) *int { return &n }
	sets := []GridHosts{
		{Hosts: "", Capacity: number(80), Allocated: []int{12, 90, 7}, Free: []int{68, -10, 73}},
		{Hosts: "big", Capacity: number(0), Allocated: []int{0, 0, 0}, Free: []int{0, 0, 0}},
		{Hosts: "gone", Capacity: number(0), Allocated: []int{0, 1, 0}, Free: []int{0, -1, 0}},
		{Hosts: "gpu", Capacity: number(10), Allocated: []int{0, 2, 0}, Free: []int{10, 8, 10}},
	}
	if d := cmp.Diff(sets, g.HostSets); d != "" {
		t.Error(d)
	}

	in.limits = nil
	in.blank = []ledger.Pool{{Project: "chipA", Step: "place"}, {Project: "chipA", Step: "mask"}}
	g = makeGrid(in, GridQuery{Projects: []string{"chipA"}, ByStep: true, ByUser: true, ByHosts: true, ByTerms: true})
	rows = []GridRow{
		{Pool: ledger.Pool{Project: "chipA", Step: "place"}, SLA: plan.Velocity, Slots: []int{0, 0, 0}},
		{Pool: ledger.Pool{Project: "chipA", Step: "mask"}, SLA: plan.Velocity, Slots: []int{5, 0, 0}, Total: 5},
		{Pool: ledger.Pool{Project: "chipA", Step: "logic"}, SLA: plan.Velocity, Slots: []int{4, 0, 0}, Total: 4},
		{Pool: ledger.Pool{Project: "chipA", Step: "logic"}, SLA: plan.Throughput, Jobs: 500, Slots: []int{0, 0, 7}, Total: 7},
		{Pool: ledger.Pool{Project: "chipA", Step: "logic", Hosts: "gpu"}, SLA: plan.Velocity, Slots: []int{0, 2, 0}, Total: 2},
		{Pool: ledger.Pool{Project: "chipA", Step: "logic", User: "bob"}, SLA: plan.Velocity, Slots: []int{3, 0, 0}, Total: 3},
	}
	if d := cmp.Diff(rows, g.Rows); d != "" {
		t.Error(d)
	}
	if len(g.HostSets) != 4 || g.HostSets[0].Allocated[1] != 90 || g.HostSets[0].Capacity != nil || g.HostSets[0].Free != nil {
		t.Errorf("what other projects hold counts, and what is not known is null: %+v", g.HostSets[0])
	}

	gpu := "gpu"
	g = makeGrid(someGridInput(), GridQuery{Hosts: &gpu})
	if len(g.Rows) != 1 || g.Rows[0].Total != 2 || len(g.HostSets) != 1 || g.HostSets[0].Free[1] != 8 {
		t.Errorf("on gpu: %+v", g)
	}
}
