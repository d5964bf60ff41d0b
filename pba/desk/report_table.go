package desk

import (
	"slices"
	"strconv"

	"github.com/allotment-hpc/allotment/pba/report"
)

// Table is a report in rows, as CSV has it and pages show it. Its columns have snake_case names.
// The cells' texts may be hostile.
type Table struct {
	Columns []string
	Rows    [][]string
}

func (t *Table) row(cells ...string) { t.Rows = append(t.Rows, cells) }

func (t *Table) rowOf(by []string, cells ...string) { t.row(slices.Concat(by, cells)...) }

// dashed returns a text, or - for none.
func dashed(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func inHundredths(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func orDashes[T any](x *T, show func(T) string) string {
	if x == nil {
		return "-"
	}
	return show(*x)
}

func inTenths(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// columnsOf returns the columns of groups.
func columnsOf(by []By, more ...string) []string {
	var names []string
	for _, key := range by {
		names = append(names, string(key))
	}
	return append(names, more...)
}

// cellsOf returns a group's cells.
func cellsOf(k Key, by []By) []string {
	var cells []string
	for _, key := range by {
		cells = append(cells, dashed(k.Cell(key)))
	}
	return cells
}

// Table returns the report's rows.
func (u *Usage) Table() Table {
	t := Table{Columns: []string{"day", "project", "step", "user", "guaranteed_slot_hours", "used_slot_hours", "borrowed_slot_hours", "waiting_slot_hours", "seen_hours", "hosts"}}
	for _, r := range u.Usage {
		t.row(r.Day, dashed(r.Project), dashed(r.Step), dashed(r.User), inHundredths(r.Guaranteed), inHundredths(r.Used), inHundredths(r.Borrowed), inHundredths(r.Waiting), inHundredths(r.Seen), dashed(r.Hosts))
	}
	return t
}

// UsageTotal is the row of all groups, without the cells of their keys.
func (u *UsageBy) UsageTotal() []string { return u.cells(&u.Total) }

// Table returns the report's rows.
func (u *UsageBy) Table(by []By) Table {
	t := Table{Columns: columnsOf(by, "used_slot_hours", "borrowed_slot_hours", "share_percent")}
	if u.Total.Guaranteed != nil {
		t.Columns = columnsOf(by, "guaranteed_slot_hours", "used_slot_hours", "borrowed_slot_hours", "waiting_slot_hours", "used_percent", "demand_percent")
	}
	for i := range u.Groups {
		t.rowOf(cellsOf(u.Groups[i].Key, by), u.cells(&u.Groups[i])...)
	}
	return t
}

func (u *UsageBy) cells(use *Use) []string {
	if u.Total.Guaranteed == nil {
		return []string{inHundredths(use.Used), inHundredths(use.Borrowed), orDashes(use.Share, inTenths)}
	}
	return []string{inHundredths(*use.Guaranteed), inHundredths(use.Used), inHundredths(use.Borrowed), inHundredths(*use.Waiting), orDashes(use.Percent, inTenths), orDashes(use.Demand, inTenths)}
}

// Table returns the report's rows. A row of all has no keys.
func (w *Waits) Table(by []By) Table {
	if len(by) == 0 {
		by = []By{report.ByProject}
	}
	t := Table{Columns: columnsOf(by, "kind", "of", "count", "median_seconds", "p95_seconds", "max_seconds")}
	for _, r := range w.Waits {
		var key []string
		for _, k := range by {
			key = append(key, (Key{Week: r.Week, Project: r.Project, User: r.User, Step: r.Step}).Cell(k))
		}
		t.rowOf(key, string(r.Kind), string(r.Of), strconv.Itoa(r.Count), inHundredths(r.Median), inHundredths(r.P95), inHundredths(r.Max))
	}
	return t
}

// Table returns the losses.
func (v *Victims) Table(by []By) Table {
	keys := []By{report.ByProject, report.ByUser}
	if len(by) > 0 {
		keys = slices.DeleteFunc(slices.Clone(VictimKeys), func(key By) bool { return key != report.ByProject && !slices.Contains(by, key) })
	}
	t := Table{Columns: columnsOf(keys, "to", "requeued", "suspended", "slots", "lost_slot_hours", "ended", "saved")}
	for _, l := range v.Victims {
		t.rowOf(cellsOf(Key{Week: l.Week, Project: l.Project, User: l.User}, keys), l.To, strconv.Itoa(l.Requeued), strconv.Itoa(l.Suspended), strconv.Itoa(l.Slots), inHundredths(l.Lost), strconv.Itoa(l.Ended), strconv.Itoa(l.Saved))
	}
	return t
}

// EndsTable returns how the reclaims ended.
func (v *Victims) EndsTable() Table { return EndsTable(v.Ends) }

// EndsTable returns how reclaims ended.
func EndsTable(ends []End) Table {
	t := Table{Columns: []string{"reclaims", "end", "requested_slots", "evicted_slots", "evicted_per_requested", "useless_evictions"}}
	for _, e := range ends {
		t.row(strconv.Itoa(e.Reclaims), string(e.End), strconv.Itoa(e.Requested), strconv.Itoa(e.Evicted), inHundredths(e.Ratio), strconv.Itoa(e.Useless))
	}
	return t
}

// Table returns the report's rows.
func (d *Dummies) Table() Table {
	t := Table{Columns: []string{"project", "user", "heavy_jobs", "dummies", "median_gather_seconds", "max_gather_seconds", "held_slot_hours"}}
	for _, r := range d.Dummies {
		t.row(dashed(r.Project), dashed(r.User), strconv.Itoa(r.Jobs), strconv.Itoa(r.Dummies), inHundredths(r.Median), inHundredths(r.Max), inHundredths(r.Held))
	}
	return t
}

// Table returns the weeks. A row of all projects names none.
func (f *Forecast) Table() Table {
	t := Table{Columns: []string{"week", "project", "allocated", "expected_use", "max_allocated", "free"}}
	for _, r := range f.Weeks {
		t.row(r.Week.String(), r.Project, strconv.Itoa(r.Allocated), orDashes(r.Expected, inHundredths), orDashes(r.MaxAllocated, strconv.Itoa), orDashes(r.Free, strconv.Itoa))
	}
	return t
}

// Table returns the projects' slot-hours.
func (w *Week) Table() Table {
	t := Table{Columns: []string{"project", "promised", "used", "used_percent", "demand_percent", "borrowed", "lent", "waiting"}}
	for i := range w.Projects {
		t.Rows = append(t.Rows, w.UseRow(&w.Projects[i]))
	}
	return t
}

// UseRow is a project's row of Table.
func (w *Week) UseRow(p *ProjectWeek) []string {
	return []string{dashed(p.Project), inHundredths(*p.Guaranteed), inHundredths(p.Used), orDashes(p.Percent, inTenths), orDashes(p.Demand, inTenths), inHundredths(p.Borrowed), inHundredths(p.Lent), inHundredths(*p.Waiting)}
}
