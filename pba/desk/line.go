package desk

import (
	"cmp"
	"slices"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Line is what a pool has, or how that changes, in weeks in a row.
type Line struct {
	Pool
	Weeks calendar.Range `json:"weeks"`
	Terms                // zero: withdrawn
	Was   ledger.Terms   `json:"was"` // zero: it is new
}

// InWords describes what changes: + before what is new, - before what is withdrawn, and ~.
func (l *Line) InWords() string {
	at := l.Weeks.String() + " " + l.Pool.String() + ": "
	switch {
	case l.Was.Slots == 0:
		return "+ " + at + InWords(l.Terms)
	case l.Slots == 0:
		return "- " + at + InWords(l.Was)
	}
	return "~ " + at + InWords(l.Terms) + ", was " + InWords(l.Was)
}

// planLines joins differences that are the same in weeks in a row, by first week, project,
// step, user and host set.
func planLines(all []Difference, order stepOrder) []Line {
	lines := make([]Line, len(all))
	for i, d := range all {
		lines[i] = Line{Pool: d.Pool, Weeks: calendar.Range{First: d.Week, Last: d.Week}, Terms: d.Terms, Was: d.Was}
	}
	lines = inRows(lines, order)
	slices.SortStableFunc(lines, func(a, b Line) int { return a.Weeks.First.Compare(b.Weeks.First) })
	return lines
}

// inRows sorts lines of single weeks by project, step, user, host set and week, and joins
// those that differ in their week alone and follow each other.
func inRows(lines []Line, order stepOrder) []Line {
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(order.compare(a.Pool, b.Pool), a.Weeks.First.Compare(b.Weeks.First))
	})
	joined := lines[:0]
	for _, l := range lines {
		if n := len(joined); n > 0 {
			before := &joined[n-1]
			next := l
			next.Weeks = before.Weeks
			if next == *before && calendar.AddWeeks(before.Weeks.Last, 1) == l.Weeks.First {
				before.Weeks.Last = l.Weeks.Last
				continue
			}
		}
		joined = append(joined, l)
	}
	return joined
}
