package desk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

const somePlan = planHead + `from: 2026-W48
to: 2026-W53
projects: [chipA, "on", "010"]
allocations:
  - {week: 2026-W48, project: chipA, slots: 100}
  - {week: 2026-W48, project: chipA, user: bob, step: synthesis, slots: 5, sla: throughput, jobs: 5000}
  - {week: 2026-W53, project: "on", slots: 1}
`

func TestPlanFile(t *testing.T) {
	w48, w53 := calendar.Week{Year: 2026, Week: 48}, calendar.Week{Year: 2026, Week: 53}
	f, err := ReadPlan("plan.yaml", []byte(somePlan))
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.Change{
		{Pool: ledger.Pool{Project: "chipA"}, Week: w48, Terms: ledger.Terms{Slots: 100, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "chipA", User: "bob", Step: "synthesis"}, Week: w48, Terms: ledger.Terms{Slots: 5, SLA: plan.Throughput, Jobs: 5000}},
		{Pool: ledger.Pool{Project: "on"}, Week: w53, Terms: ledger.Terms{Slots: 1, SLA: plan.Velocity}},
	}
	if d := gocmp.Diff(want, f.Allocations); d != "" || f.From != w48 || f.To != w53 || f.Lines[want[1]] != 8 || f.ProjectLines[2] != 5 {
		t.Errorf("%+v\n%s", f, d)
	}
	planned := []ledger.Allocation{
		{Pool: ledger.Pool{Project: "chipA"}, Week: w48, Terms: ledger.Terms{Slots: 90, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "010"}, Week: w48, Terms: ledger.Terms{Slots: 3, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "on"}, Week: w53, Terms: ledger.Terms{Slots: 1, SLA: plan.Velocity}},
		{Pool: ledger.Pool{Project: "chipB"}, Week: w48, Terms: ledger.Terms{Slots: 8, SLA: plan.Velocity}},                                 // not the plan's
		{Pool: ledger.Pool{Project: "chipA"}, Week: calendar.Week{Year: 2026, Week: 47}, Terms: ledger.Terms{Slots: 8, SLA: plan.Velocity}}, // nor that week
	}
	differences := []Difference{
		{ledger.Change{Pool: ledger.Pool{Project: "010"}, Week: w48}, ledger.Terms{Slots: 3, SLA: plan.Velocity}},
		{want[0], ledger.Terms{Slots: 90, SLA: plan.Velocity}},
		{want[1], ledger.Terms{}},
	}
	if d := gocmp.Diff(differences, f.Compare(planned)); d != "" {
		t.Error(d)
	}
}

// TestPlanFileIsStrict: each mistake is reported with its line.
func TestPlanFileIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown key":        {"slots: 100", "slot: 100", `p:7: unknown key "allocations[0].slot"`},
		"unknown top key":    {"to: 2026-W53", "to: 2026-W53\nversion: 2", `p:5: unknown key "version"`},
		"no week":            {"2026-W53, project", "2025-W53, project", `p:9: week: "2025-W53" is no week: 2025 has only 52`},
		"week missing":       {"week: 2026-W53, ", "", "p:9: week: it is missing: write it like 2026-W48"},
		"project missing":    {`project: "on", `, "", "p:9: project: it is missing"},
		"project not listed": {`"on", "010"`, `"010"`, `p:9: project "on" is not among the plan's projects`},
		"outside the weeks":  {"to: 2026-W53", "to: 2026-W52", "p:9: week 2026-W53 is not in the plan's weeks, 2026-W48 to 2026-W52"},
		"a range outside":    {"week: 2026-W53, p", "weeks: 2026-W52..2027-W01, p", "p:9: week 2027-W01 is not in the plan's weeks"},
		"a week of today":    {"week: 2026-W53, p", "weeks: now..next, p", `p:9: week: "now" is another week later; write it like 2026-W48`},
		"week and weeks":     {"week: 2026-W53, p", "week: 2026-W53, weeks: 49-50, p", "p:9: week and weeks exclude each other"},
		"twice, by a range":  {"week: 2026-W53, project: \"on\"", "weeks: 48-49, project: chipA", "p:9: chipA in 2026-W48 is given a second time (first in line 7)"},
		"too many weeks":     {"to: 2026-W53", "to: 2126-W52", "p:4: to: 2126-W52 is more than 1000 weeks after 2026-W48"},
		"backwards":          {"to: 2026-W53", "to: 2026-W01", "p:4: to: 2026-W01 is before 2026-W48"},
		"no slots":           {"slots: 100", "slots: 0", "p:7: 0 slots"},
		"negative":           {"slots: 100", "slots: -4", "p:7: -4 slots"},
		"too many":           {"slots: 100", "slots: 4294967296", "p:7: 4294967296 slots"},
		"half a slot":        {"slots: 100", "slots: 1.5", `p:7: allocations[0].slots: "1.5" is not a whole number`},
		"unknown SLA":        {"sla: throughput, jobs: 5000", "sla: fast", `p:8: "fast" is no SLA`},
		"no jobs":            {", jobs: 5000", "", "p:8: throughput needs a number of jobs"},
		"jobs of velocity":   {"sla: throughput, ", "", "p:8: a number of jobs goes with throughput only"},
		"twice":              {"week: 2026-W53, project: \"on\"", "week: 2026-W48, project: chipA", "p:9: chipA in 2026-W48 is given a second time (first in line 7)"},
		"key missing":        {"from: 2026-W48\n", "", `p: there is no key "from" in it`},
		"no list":            {"projects: [chipA, \"on\", \"010\"]", "projects: chipA", "p:5: projects: want a list"},
		"no YAML":            {"from: 2026-W48", "from: [", "p: "},
	} {
		text := strings.Replace(somePlan, c.old, c.new, 1)
		if text == somePlan {
			t.Errorf("%s: nothing was changed", name)
		}
		_, err := ReadPlan("p", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		}
	}
	for _, empty := range []string{"", "null", "# nothing\n"} {
		if _, err := ReadPlan("p", []byte(empty)); err == nil {
			t.Errorf("%q was read as a plan that takes nothing back", empty)
		}
	}
}

// TestPlanFileHasRanges: equal weeks in a row are a line, and are read as they were. 20
// projects with 6 steps for 12 weeks are 120 lines.
func TestPlanFileHasRanges(t *testing.T) {
	w48 := calendar.Week{Year: 2026, Week: 48}
	f := PlanFile{From: w48, To: calendar.AddWeeks(w48, 11)}
	for p := range 20 {
		f.Projects = append(f.Projects, fmt.Sprintf("chip%02d", p))
		for s := range 6 {
			for w := range 12 {
				f.Allocations = append(f.Allocations, ledger.Change{
					Pool: ledger.Pool{Project: f.Projects[p], Step: fmt.Sprintf("step%d", s)}, Week: calendar.AddWeeks(w48, w), Terms: ledger.Terms{Slots: s + 1, SLA: plan.Velocity},
				})
			}
		}
	}
	f.Allocations[5].Slots = 9 // 2026-W53
	var out strings.Builder
	if err := f.Write(&out); err != nil {
		t.Fatal(err)
	}
	head := `  - {weeks: 2026-W48..2026-W52, project: chip00, step: step0, slots: 1}
  - {week: 2026-W53, project: chip00, step: step0, slots: 9}
  - {weeks: 2027-W01..2027-W06, project: chip00, step: step0, slots: 1}
  - {weeks: 2026-W48..2027-W06, project: chip00, step: step1, slots: 2}
`
	if text := out.String(); !strings.Contains(text, head) || strings.Count(text, "project: ") != 122 {
		t.Errorf("%d lines:\n%.1000s", strings.Count(text, "\n"), text)
	}
	again, err := ReadPlan("p", []byte(out.String()))
	if err != nil || len(again.Allocations) != len(f.Allocations) {
		t.Fatalf("%v: %+v", err, again)
	}
	slices.SortFunc(again.Allocations, func(a, b ledger.Change) int { return cmp.Or(a.Pool.Compare(b.Pool), a.Week.Compare(b.Week)) })
	if d := gocmp.Diff(f.Allocations, again.Allocations); d != "" {
		t.Error(d)
	}
}

// TestLines: what changes alike in weeks in a row is one line.
func TestLines(t *testing.T) {
	w48 := calendar.Week{Year: 2026, Week: 48}
	three, four := ledger.Terms{Slots: 3, SLA: plan.Velocity}, ledger.Terms{Slots: 4, SLA: plan.Velocity}
	change := func(project string, week int, is, was ledger.Terms) Difference {
		return Difference{ledger.Change{Pool: Pool{Project: project}, Week: calendar.AddWeeks(w48, week), Terms: is}, was}
	}
	got := planLines([]Difference{
		change("A", 0, four, three), change("B", 0, ledger.Terms{}, three), change("A", 1, four, three), change("B", 1, four, three), change("A", 2, four, ledger.Terms{}), change("A", 4, four, ledger.Terms{}),
	}, nil)
	line := func(project string, first, last int, is, was ledger.Terms) Line {
		return Line{Pool{Project: project}, calendar.Range{First: calendar.AddWeeks(w48, first), Last: calendar.AddWeeks(w48, last)}, is, was}
	}
	want := []Line{
		line("A", 0, 1, four, three), line("B", 0, 0, ledger.Terms{}, three), line("B", 1, 1, four, three), line("A", 2, 2, four, ledger.Terms{}), line("A", 4, 4, four, ledger.Terms{}),
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestPlanFileIsStable: what was written is read as it was, whatever the names,
// and the same plan is the same text in whatever order it comes.
func TestPlanFileIsStable(t *testing.T) {
	name := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,6}`), rapid.SampledFrom([]string{"on", "no", "null", "~x", "1e3", "0x1", "2026-W48", "1_000", "y", ".inf", "2026-01-01", "true", "<<", "ü\"\x01"}))
	rapid.Check(t, func(t *rapid.T) {
		f := PlanFile{From: calendar.Week{Year: 2026, Week: 51}, To: calendar.Week{Year: 2027, Week: 2}}
		f.Projects = rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, "projects")
		if len(f.Projects) > 0 {
			f.Allocations = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) ledger.Change {
				c := ledger.Change{
					Pool:  ledger.Pool{Project: rapid.SampledFrom(f.Projects).Draw(t, "project")},
					Week:  calendar.AddWeeks(f.From, rapid.IntRange(0, 4).Draw(t, "week")),
					Terms: ledger.Terms{Slots: rapid.IntRange(1, 1000).Draw(t, "slots"), SLA: plan.Velocity},
				}
				if rapid.Bool().Draw(t, "for a user") {
					c.User = name.Draw(t, "user")
				}
				if rapid.Bool().Draw(t, "for a step") {
					c.Step = name.Draw(t, "step")
				}
				if rapid.Bool().Draw(t, "throughput") {
					c.SLA, c.Jobs = plan.Throughput, rapid.IntRange(1, 9999).Draw(t, "jobs")
				}
				return c
			}), 0, 8, func(c ledger.Change) ledger.Change { return ledger.Change{Pool: c.Pool, Week: c.Week} }).Draw(t, "allocations")
		}
		var first, second strings.Builder
		if err := f.Write(&first); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPlan("p", []byte(first.String()))
		if err != nil {
			t.Fatalf("%v:\n%s", err, first.String())
		}
		if err := again.Write(&second); err != nil || first.String() != second.String() {
			t.Fatalf("%v; first\n%s\nthen\n%s", err, first.String(), second.String())
		}
		planned := make([]ledger.Allocation, len(f.Allocations))
		for i, c := range f.Allocations {
			planned[i] = ledger.Allocation{Pool: c.Pool, Week: c.Week, Terms: c.Terms}
		}
		if d := again.Compare(planned); len(d) != 0 {
			t.Fatalf("applying an export changes %v", d)
		}
	})
}
