package desk

import (
	"context"

	"github.com/allotment-hpc/allotment/pba/report"
)

// Hardware is what kept jobs waiting, and what hardware would have helped (R46).
type Hardware struct {
	Period
	Lacks []report.Lack `json:"lacks"`
	Words []string      `json:"words"` // as far as there is evidence
}

// HardwareKeys are what the rows can be grouped by.
var HardwareKeys = []By{report.ByWeek, report.ByDay}

// Hardware reports what kept jobs waiting, by groups; without, by weeks. It is of all projects:
// jobs of one wait for what those of others have.
func (d *Desk) Hardware(ctx context.Context, p Period, by []By) (*Hardware, error) {
	hours, err := d.ledger.WaitHours(ctx, p.From, p.To)
	if err != nil {
		return nil, err
	}
	rows, words := report.Lacks(hours, hardwareColumns(by), d.zone())
	return &Hardware{p, rows, append([]string{}, words...)}, nil
}

func hardwareColumns(by []By) []By {
	if len(by) == 0 {
		return []By{report.ByWeek}
	}
	return by
}

// Table returns the report's rows.
func (h *Hardware) Table(by []By) Table {
	by = hardwareColumns(by)
	t := Table{Columns: columnsOf(by, "waited_for", "resource", "waited_slot_hours", "hours", "waiting_slots", "free_slots", "hosts", "gib_a_host")}
	orDash := func(x float64) string {
		if x == 0 {
			return "-"
		}
		return inTenths(x)
	}
	for _, l := range h.Lacks {
		t.rowOf(cellsOf(l.Key, by), string(l.Cause), dashed(l.About()), inHundredths(l.Waited), inHundredths(l.Hours), inTenths(l.Waiting), orDash(l.Free), orDash(l.Hosts), orDash(l.Lacking))
	}
	return t
}
