package desk

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestUndone: an undo that is undone undoes nothing.
func TestUndone(t *testing.T) {
	for name, c := range map[string]struct {
		all  []ledger.Undoing // the latest first
		want map[int64]int64
	}{
		"none":               {nil, map[int64]int64{}},
		"one":                {[]ledger.Undoing{{Change: 7, Undoes: 5}}, map[int64]int64{5: 7}},
		"made again":         {[]ledger.Undoing{{Change: 8, Undoes: 7}, {Change: 7, Undoes: 5}}, map[int64]int64{7: 8}},
		"undone again":       {[]ledger.Undoing{{Change: 9, Undoes: 8}, {Change: 8, Undoes: 7}, {Change: 7, Undoes: 5}}, map[int64]int64{8: 9, 5: 7}},
		"undone a new way":   {[]ledger.Undoing{{Change: 9, Undoes: 5}, {Change: 8, Undoes: 7}, {Change: 7, Undoes: 5}}, map[int64]int64{7: 8, 5: 9}},
		"two, by themselves": {[]ledger.Undoing{{Change: 8, Undoes: 3}, {Change: 7, Undoes: 5}}, map[int64]int64{3: 8, 5: 7}},
	} {
		if d := cmp.Diff(c.want, undone(c.all)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestUndoing: cells become what they were; weeks that are over don't change, and a cell
// that is not as the change left it is a conflict.
func TestUndoing(t *testing.T) {
	w48 := calendar.Week{Year: 2026, Week: 48}
	terms := func(slots int) ledger.Terms {
		if slots == 0 {
			return ledger.Terms{}
		}
		return ledger.Terms{Slots: slots, SLA: plan.Velocity}
	}
	record := func(project string, week, was, is int) ledger.Record {
		return ledger.Record{PoolID: 1, Pool: Pool{Project: project}, Week: calendar.AddWeeks(w48, week), Was: terms(was), Is: terms(is)}
	}
	planned := []ledger.Allocation{
		{Pool: Pool{Project: "A"}, Week: w48, Terms: terms(4)},
		{Pool: Pool{Project: "A"}, Week: calendar.AddWeeks(w48, 1), Terms: terms(5)},
	}
	cells := []ledger.Record{record("A", -1, 3, 4), record("A", 0, 3, 4), record("A", 1, 3, 4), record("B", 0, 2, 0), record("C", 0, 0, 1)}
	all, over, conflicts := undoing(cells, planned, w48)
	want := []Difference{
		{ledger.Change{Pool: Pool{Project: "A"}, Week: w48, Terms: terms(3)}, terms(4)},
		{ledger.Change{Pool: Pool{Project: "B"}, Week: w48, Terms: terms(2)}, terms(0)},
	}
	if d := cmp.Diff(want, all); d != "" || len(over) != 1 || over[0] != calendar.AddWeeks(w48, -1) {
		t.Errorf("over: %v; %s", over, d)
	}
	if len(conflicts) != 2 || conflicts[0].Record != cells[2] || conflicts[0].now != terms(5) || conflicts[1].Record != cells[4] || conflicts[1].now != terms(0) {
		t.Errorf("conflicts: %+v", conflicts)
	}
}

// TestCopied: projects that have slots in the week have the same in the others, and
// nothing else there; other projects don't change.
func TestCopied(t *testing.T) {
	w48 := calendar.Week{Year: 2026, Week: 48}
	w49, w50, w51 := calendar.AddWeeks(w48, 1), calendar.AddWeeks(w48, 2), calendar.AddWeeks(w48, 3)
	has := func(project, step string, w calendar.Week, slots int) ledger.Allocation {
		return ledger.Allocation{Pool: Pool{Project: project, Step: step}, Week: w, Terms: ledger.Terms{Slots: slots, SLA: plan.Velocity}}
	}
	source := []ledger.Allocation{has("A", "mask", w48, 3), has("B", "", w48, 2)}
	there := []ledger.Allocation{has("A", "logic", w49, 5), has("A", "mask", w49, 1), has("B", "", w49, 2), has("C", "", w49, 4), has("A", "logic", w50, 9)}
	show := func(all []Difference) (texts []string) {
		for _, x := range all {
			texts = append(texts, fmt.Sprintf("%s %s %s was %s", x.Week, x.Pool, x.Terms, x.Was))
		}
		return texts
	}
	all, ok := copied(source, there, []calendar.Week{w49, w51}, nil) // not w50
	want := []string{"2026-W49 A:logic  was 5", "2026-W49 A:mask 3 was 1", "2026-W51 A:mask 3 was ", "2026-W51 B 2 was "}
	if d := cmp.Diff(want, show(all)); d != "" || !ok {
		t.Error(d)
	}
	all, ok = copied(source, there, []calendar.Week{w49, w51}, []string{"B"})
	if d := cmp.Diff([]string{"2026-W51 B 2 was "}, show(all)); d != "" || !ok {
		t.Error(d)
	}
	if all, ok = copied(source, there, []calendar.Week{w49}, []string{"C"}); ok || len(all) != 0 {
		t.Errorf("what the week does not have: %v", all)
	}
}

// TestFaults: all are named, each once, and not too many.
func TestFaults(t *testing.T) {
	var all wrongChanges
	for i := range 14 {
		all = append(all, &changeError{err: fmt.Errorf("fault %d", i/2*2)})
	}
	for i := range 5 {
		all = append(all, &changeError{err: fmt.Errorf("other %d", i)})
	}
	lines := strings.Split(all.Error(), "\n")
	if len(lines) != maxNamed+1 || lines[1] != "fault 2" || lines[maxNamed] != "and 2 more" {
		t.Errorf("%q", lines)
	}
}

func TestComments(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		" tape-out of chipA – größe ":     "tape-out of chipA – größe",
		strings.Repeat("ä", maxComment):   strings.Repeat("ä", maxComment),
		strings.Repeat("ä", maxComment+1): "-",
		"red \x1b[31m":                    "-",
		"two\nlines":                      "-",
		"turned \u202e":                   "-",
		"bad \xff":                        "-",
	} {
		n, err := newNote("alloc set", text)
		if (err != nil) != (want == "-") || err == nil && n.comment != want || err != nil && (!errors.Is(err, ErrInvalid) || strings.ContainsAny(err.Error(), "\x1b\n")) {
			t.Errorf("%q: %q, %v", text, n.comment, err)
		}
	}
}
