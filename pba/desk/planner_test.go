package desk

import (
	"testing"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/configfile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// TestChangesApplyTogether: what a change frees another may have, whichever comes first.
// What makes a week's sum no larger is always possible.
func TestChangesApplyTogether(t *testing.T) { // R24
	week, later := calendar.Week{Year: 2026, Week: 48}, calendar.Week{Year: 2026, Week: 49}
	const gpu = "gpu"
	on := func(c ledger.Change) ledger.Change { c.Hosts = gpu; return c }
	change := func(project string, slots int, w calendar.Week) ledger.Change {
		return ledger.Change{Pool: Pool{Project: project}, Week: w, Terms: Terms{Slots: slots, SLA: plan.Velocity}}
	}
	for name, x := range map[string]struct {
		planned []ledger.Change
		changes []ledger.Change
		refused int // the change that is; -1: none
	}{
		"the first":                   {nil, []ledger.Change{change("A", 8, week), change("B", 2, week)}, -1},
		"too much":                    {nil, []ledger.Change{change("A", 8, week), change("B", 3, week)}, 0},
		"too much in one week":        {nil, []ledger.Change{change("A", 8, week), change("A", 11, later)}, 1},
		"what another gives back":     {[]ledger.Change{change("A", 8, week), change("B", 2, week)}, []ledger.Change{change("B", 7, week), change("A", 3, week)}, -1},
		"more than that":              {[]ledger.Change{change("A", 3, week), change("B", 7, week)}, []ledger.Change{change("A", 2, week), change("B", 9, week)}, 0},
		"less, of a farm that shrank": {[]ledger.Change{change("A", 30, week), change("B", 7, week)}, []ledger.Change{change("A", 29, week), change("B", 8, week)}, -1},
		"withdrawn":                   {[]ledger.Change{change("A", 30, week)}, []ledger.Change{{Pool: Pool{Project: "A"}, Week: week}}, -1},
		"each set by itself":          {[]ledger.Change{change("A", 10, week)}, []ledger.Change{on(change("A", 4, week))}, -1},
		"more than the set has":       {[]ledger.Change{change("A", 2, week)}, []ledger.Change{change("A", 10, week), on(change("A", 5, week))}, 1},
		"moved to a set":              {[]ledger.Change{change("A", 4, week), on(change("B", 1, week))}, []ledger.Change{{Pool: Pool{Project: "A"}, Week: week}, on(change("A", 4, week))}, 1},
	} {
		var planned []ledger.Allocation
		for _, c := range x.planned {
			planned = append(planned, ledger.Allocation{Pool: c.Pool, Week: c.Week, Terms: c.Terms})
		}
		p := &planner{Desk: &Desk{Config: configfile.Config{PBA: settings.Config{MaxAllocated: 0.5}}}, farm: map[string]size{"": {slots: 20}, gpu: {slots: 8}}}
		all := p.fits(planned, x.changes)
		if refused := len(all) > 0; refused != (x.refused >= 0) || refused && all[0].change != x.changes[x.refused] {
			t.Errorf("%s: %v", name, all)
		}
	}
}
