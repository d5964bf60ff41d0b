package desk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

// TestDay: every project with an allocation has its promise, also one that needed no
// reclaim, and each reclaim counts for its own project.
func TestDay(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 11, 23, 12, 0, s, 0, time.UTC) }
	served := func(project string, started int) ledger.PastReclaim {
		return ledger.PastReclaim{
			Reclaim: plan.Reclaim{
				Project: project, User: "u", Phase: plan.HandedOver, Planned: at(0), Acted: at(0), Freed: at(1), Need: 2,
				Victims: []plan.Victim{{ID: backends.ID{Job: 1}, Project: "C", User: "v", Slots: 2, RanFor: time.Hour, Fate: plan.Taken}},
			},
			Clock: time.Minute, Started: at(started),
		}
	}
	rates := report.Rates{Threshold: time.Minute, Own: map[string]time.Duration{"B": 10 * time.Second}, Cycle: 20 * time.Second}
	day := dayOf([]ledger.PastReclaim{served("A", 10), served("A", 50), served("D", 10)}, []string{"B", "A", "A"}, rates)
	type got struct {
		Within time.Duration
		Kept   report.Promise
		Max    float64
	}
	all := map[string]got{}
	for _, p := range day.Promises {
		g := got{Within: p.Within, Kept: p.Kept}
		if p.Wait != nil {
			g.Max = p.Wait.Max
		}
		all[p.Project] = g
	}
	want := map[string]got{
		"A": {100 * time.Second, report.Promise{Reclaims: 2, Kept: 1}, 110},
		"B": {50 * time.Second, report.Promise{}, 0},
		"D": {100 * time.Second, report.Promise{Reclaims: 1, Kept: 1}, 70},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	if len(day.Losses) != 2 || day.Losses[0].To != "A" || day.Losses[0].Lost != 4 || day.Losses[0].Requeued != 2 {
		t.Errorf("%+v", day.Losses)
	}
}
