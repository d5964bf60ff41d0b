package desk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func w(n int) calendar.Week { return calendar.Week{Year: 2026, Week: n} }

func planned(project, hosts string, week, slots int) ledger.Allocation {
	return ledger.Allocation{Pool: Pool{Project: project, Hosts: hosts}, Week: w(week), Terms: Terms{Slots: slots, SLA: plan.Velocity}}
}

// TestGrantChanges: a grant never lowers what a pool has, keeps its SLA, and leaves weeks
// that are over.
func TestGrantChanges(t *testing.T) {
	r := ledger.Request{Pool: Pool{Project: "A"}, Slots: 10, From: w(47), To: w(51)}
	of := ledger.Allocation{Pool: Pool{Project: "A"}, Week: w(49), Terms: Terms{Slots: 4, SLA: plan.Throughput, Jobs: 500}}
	have := []ledger.Allocation{planned("A", "", 50, 12), of, planned("A", "gpu", 51, 30), planned("B", "", 48, 30)}
	want := []ledger.Change{
		{Pool: r.Pool, Week: w(48), Terms: Terms{Slots: 10, SLA: plan.Velocity}},
		{Pool: r.Pool, Week: w(49), Terms: Terms{Slots: 10, SLA: plan.Throughput, Jobs: 500}},
		{Pool: r.Pool, Week: w(51), Terms: Terms{Slots: 10, SLA: plan.Velocity}},
	}
	if diff := cmp.Diff(want, grantChanges(r, have, w(48))); diff != "" {
		t.Error(diff)
	}
	if got := grantChanges(r, have, w(52)); got != nil {
		t.Errorf("all weeks are over: %v", got)
	}
}

func TestAssessWeeks(t *testing.T) { // R24
	number := func(n int) *int { return &n }
	r := ledger.Request{Pool: Pool{Project: "A"}, Slots: 10, From: w(48), To: w(51)}
	have := []ledger.Allocation{
		planned("A", "", 48, 4), planned("B", "", 48, 6), planned("A", "gpu", 48, 50), // 10 of 20 are free
		planned("B", "", 49, 11),                           // 9 are
		planned("A", "", 50, 11), planned("B", "", 50, 12), // too much already, and nothing is added
	}
	want := []RequestWeek{
		{Week: w(48), Has: 4, Would: 10, Free: number(10)},
		{Week: w(49), Has: 0, Would: 10, Free: number(9), Exceeds: 1},
		{Week: w(50), Has: 11, Would: 11, Free: number(0)},
		{Week: w(51), Has: 0, Would: 10, Free: number(20)},
	}
	if diff := cmp.Diff(want, assessWeeks(r, have, w(48), number(20))); diff != "" {
		t.Error(diff)
	}
	for _, one := range assessWeeks(r, have, w(48), nil) {
		if one.Free != nil || one.Exceeds != 0 {
			t.Errorf("without a farm: %+v", one)
		}
	}
}

func TestCheckWhy(t *testing.T) {
	if got, err := checkWhy("  größer 中文 "); err != nil || got != "größer 中文" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := checkWhy(strings.Repeat("ö", maxWhy)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", " \t", "a\nb", "a\x1b[31m", "a\u202eb", "a\xffb", strings.Repeat("ö", maxWhy+1)} {
		if _, err := checkWhy(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
