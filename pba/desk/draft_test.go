package desk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestConflicting: an edit counts if it was made after the user saw the cell, and changed
// what the user saw.
func TestConflicting(t *testing.T) {
	terms := func(slots int) Terms {
		if slots == 0 {
			return Terms{}
		}
		return Terms{Slots: slots, SLA: plan.Velocity}
	}
	a := Pool{Project: "A"}
	edit := func(row int64, week, was, is int) ledger.Record {
		return ledger.Record{Row: row, Pool: a, Week: w(week), Was: terms(was), Is: terms(is)}
	}
	differ := func(week, was, is int) Difference {
		return Difference{ledger.Change{Pool: a, Week: w(week), Terms: terms(is)}, terms(was)}
	}
	all := []Difference{differ(48, 5, 9), differ(49, 5, 9), differ(50, 3, 9), differ(51, 5, 9), differ(52, 5, 9)}
	edits := []ledger.Record{
		edit(11, 48, 3, 4), edit(12, 48, 4, 5), // twice: it is the first that the user did not see
		edit(10, 49, 3, 5),                     // seen
		edit(11, 50, 3, 4), edit(12, 50, 4, 3), // changed back
		edit(11, 51, 3, 5), // it was not asked for
		edit(11, 53, 3, 5), // not in the draft
		{Row: 13, Pool: Pool{Project: "A", Step: "drc"}, Week: w(52), Was: terms(1), Is: terms(2)}, // another pool
	}
	since := map[cell]int64{}
	for _, week := range []int{48, 49, 50, 52, 53} {
		since[cell{a, w(week)}] = 10
	}
	found := conflicting(all, edits, since)
	if len(found) != 1 || found[0].difference != all[0] || found[0].edit.Row != 11 {
		t.Errorf("%+v", found)
	}
}

// An edit of a cell keeps the terms that the user did not type.
func TestCellEditKeepsTerms(t *testing.T) {
	a := Pool{Project: "A"}
	has := map[cell]Terms{{a, w(49)}: {Slots: 4, SLA: plan.Throughput, Jobs: 600}}
	weeks := calendar.Reader{This: w(48), Last: w(52)}
	for _, x := range []struct {
		edit CellEdit
		want Terms
	}{
		{CellEdit{Week: "2026-W49", Slots: "7"}, Terms{Slots: 7, SLA: plan.Throughput, Jobs: 600}},
		{CellEdit{Week: "2026-W49", Slots: "7", SLA: "throughput"}, Terms{Slots: 7, SLA: plan.Throughput, Jobs: 600}},
		{CellEdit{Week: "2026-W49", Slots: "7", Jobs: "1 000"}, Terms{Slots: 7, SLA: plan.Throughput, Jobs: 1000}},
		{CellEdit{Week: "2026-W49", Slots: "7", SLA: "velocity"}, Terms{Slots: 7, SLA: plan.Velocity}},
		{CellEdit{Week: "2026-W50", Slots: " 7.0 "}, Terms{Slots: 7, SLA: plan.Velocity}},
		{CellEdit{Week: "2026-W49", Slots: "-"}, Terms{}},
		{CellEdit{Week: "2026-W49", Slots: "0", SLA: "throughput"}, Terms{}},
	} {
		x.edit.Pool = a
		if _, got, err := x.edit.read(weeks, has); err != nil || got != x.want {
			t.Errorf("%+v: %+v %v", x.edit, got, err)
		}
	}
	for _, bad := range []CellEdit{
		{Week: "next", Slots: "1"},
		{Week: "2026-W54", Slots: "1"},
		{Week: "2026-W49", Slots: "1.5"},
		{Week: "2026-W49", Slots: "1,440"},
		{Week: "2026-W49", Slots: "-3"},
		{Week: "2026-W50", Slots: "3", SLA: "throughput"},
		{Week: "2026-W50", Slots: "3", Jobs: "5"},
		{Week: "2026-W50", Slots: "3", SLA: "best"},
	} {
		bad.Pool = a
		if _, got, err := bad.read(weeks, has); err == nil {
			t.Errorf("%+v was read as %+v", bad, got)
		}
	}
}

// TestCalendarOfSplitProjects: a project's sum is that of its pools; steps of its flow have
// rows for those who may plan them.
func TestCalendarOfSplitProjects(t *testing.T) {
	in := calendarInput{
		grid: someGridInput(), zone: time.UTC,
		projects: []ledger.Project{{Name: "chipA"}, {Name: "chipB"}, {Name: "empty"}},
		mayPlan:  func(p ledger.Project) bool { return p.Name == "chipA" },
		mayAsk:   func(p ledger.Project) bool { return p.Name == "empty" },
	}
	in.grid.steps["chipB"] = []string{"hers"} // not the caller's to plan
	in.firstOpen, in.final = in.grid.weeks[1], in.grid.weeks[1]
	c := makeCalendar(in, CalendarQuery{All: true})
	var names []string
	for _, p := range c.Projects {
		sums := make([]int, len(c.Weeks))
		for _, pool := range p.Pools {
			names = append(names, pool.String())
			for i, terms := range pool.Terms {
				sums[i] += terms.Slots
			}
		}
		if !cmp.Equal(sums, p.Slots) {
			t.Errorf("%s: %v, its pools have %v", p.Project, p.Slots, sums)
		}
	}
	want := []string{"chipA", "chipA:place", "chipA:mask", "chipA:logic", "chipA:logic on gpu", "chipA:logic user bob", "chipB", "chipB on gone", "empty"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	a, b, empty := c.Projects[0], c.Projects[1], c.Projects[2]
	if !a.MayPlan || b.MayPlan || !empty.MayAsk || a.Total != 21 || a.Plain() || b.Plain() || !empty.Plain() || !c.MayPlan {
		t.Errorf("%+v", c.Projects)
	}
	if c.Weeks[0].Open || !c.Weeks[1].Open || c.Weeks[2].Open {
		t.Errorf("%+v", c.Weeks)
	}
	if got := c.Weeks[1].Begin.Format(time.DateOnly); got != "2026-12-28" {
		t.Error(got)
	}
	own := makeCalendar(in, CalendarQuery{Own: true})
	if len(own.Projects) != 1 || len(own.Projects[0].Pools) != 4 || cmp.Diff(c.HostSets, own.HostSets, cmpopts.EquateEmpty()) != "" {
		t.Errorf("%+v", own)
	}
}
