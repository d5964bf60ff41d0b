package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

func someGrid(names []string, weeks, slots int) *desk.Grid {
	g := &desk.Grid{This: calendar.Week{Year: 2026, Week: 48}}
	for i := range weeks {
		g.Weeks = append(g.Weeks, calendar.AddWeeks(g.This, i))
	}
	fill := func(n int) []int {
		all := make([]int, weeks)
		for i := range all {
			all[i] = n
		}
		all[weeks-1] = 0
		return all
	}
	for _, name := range names {
		g.Rows = append(g.Rows, desk.GridRow{Pool: desk.Pool{Project: name, Step: "synthesis", User: "ü\x1b"}, Slots: fill(slots), Total: slots * (weeks - 1)})
	}
	g.Slots, g.Total = fill(slots*len(names)), slots*len(names)*(weeks-1)
	capacity := 5000
	g.HostSets = []desk.GridHosts{{Capacity: &capacity, Free: fill(-7)}, {Hosts: "gpu-hosts-of-the-lab", Capacity: &capacity, Free: fill(13)}, {Hosts: "away"}}
	return g
}

func TestGridText(t *testing.T) {
	var out strings.Builder
	gridText(&out, someGrid([]string{"chipA", "chipB"}, 3, 12), desk.GridQuery{}, 80)
	want := `PROJECT                      W48* W49 W50 TOTAL
chipA                          12  12   -    24
chipB                          12  12   -    24
TOTAL                          24  24   -    48
FREE                           -7  -7   -
FREE on gpu-hosts-of-the-lab   13  13   -

Slots in the weeks 2026-W48 to 2026-W50; * is this week, - none. TOTAL is in slot-weeks.
FREE is what all projects leave of the 5000 slots that may be allocated there.
FREE on gpu-hosts-of-the-lab is what all projects leave of the 5000 slots that may be allocated there.
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	out.Reset()
	gridText(&out, someGrid([]string{"chipA"}, 3, 1), desk.GridQuery{ByStep: true, ByUser: true}, 80)
	if want := "PROJECT STEP      USER       W48* W49 W50 TOTAL\nchipA   synthesis ü\\x1b         1   1   -     2\nTOTAL "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s\nwant %s", out.String(), want)
	}
}

// TestGridFits: the plan of 20 projects and 13 weeks fits 80 columns; a wider one goes on
// below, and each week is in one of the tables.
func TestGridFits(t *testing.T) {
	for name, c := range map[string]struct {
		names         []string
		weeks, slots  int
		width, blocks int
	}{
		"a quarter":     {[]string{"a-project-of-20-chars"}, 13, 100, 80, 1},
		"a year":        {[]string{"chipA"}, 53, 100, 80, 4},
		"wide numbers":  {[]string{"chipA"}, 13, 1234567, 80, 2},
		"a long name":   {[]string{strings.Repeat("x", 63)}, 8, 100, 80, 2},
		"wide terminal": {[]string{"chipA"}, 53, 100, 300, 1},
		"one week":      {[]string{"chipA"}, 1, 100, 80, 1},
	} {
		g := someGrid(c.names, c.weeks, c.slots)
		g.HostSets = g.HostSets[:1]
		var out strings.Builder
		gridText(&out, g, desk.GridQuery{}, c.width)
		heads := 0
		for _, w := range g.Weeks {
			if !strings.Contains(out.String(), w.String()[5:]) {
				t.Errorf("%s: no column for %s", name, w)
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "PROJECT") {
				heads++
			}
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > c.width && name != "a long name" && !strings.HasPrefix(line, "Slots") {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
		if heads != c.blocks || strings.Count(out.String(), " TOTAL\n") != 1 {
			t.Errorf("%s: %d tables, want %d:\n%s", name, heads, c.blocks, out.String())
		}
	}
}
