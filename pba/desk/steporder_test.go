package desk

import (
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// TestStepOrder: steps are listed in the order of their project's flow.
func TestStepOrder(t *testing.T) {
	steps := map[string][]string{"A": {"logic", "synthesis", "mask"}}
	pools := []Pool{
		{Project: "A", Step: "mask"},
		{Project: "B", Step: "mask"},
		{Project: "A", Step: "old"},
		{Project: "A", Step: "synthesis"},
		{Project: "B", Step: "logic"},
		{Project: "A", Step: "logic", Hosts: "gpu"},
		{Project: "A"},
		{Project: "A", Step: "logic", User: "bob"},
		{Project: "A", Step: "logic"},
		{Project: "A", Step: "early"},
	}
	slices.SortFunc(pools, newStepOrder(steps).compare)
	var got []string
	for _, p := range pools {
		got = append(got, p.String())
	}
	if want := "A, A:logic, A:logic on gpu, A:logic user bob, A:synthesis, A:mask, A:early, A:old, B:logic, B:mask"; strings.Join(got, ", ") != want {
		t.Errorf("%s; want %s", strings.Join(got, ", "), want)
	}
	w48 := calendar.Week{Year: 2026, Week: 48}
	f := PlanFile{From: w48, To: w48, Projects: []string{"A"}, Steps: steps}
	for _, step := range []string{"synthesis", "mask", "logic"} {
		f.Allocations = append(f.Allocations, ledger.Change{Pool: Pool{Project: "A", Step: step}, Week: w48, Terms: ledger.Terms{Slots: 1, SLA: plan.Velocity}})
	}
	var out strings.Builder
	if err := f.Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if logic, synthesis, mask := strings.Index(text, "logic"), strings.Index(text, "synthesis"), strings.Index(text, "mask"); logic < 0 || logic > synthesis || synthesis > mask {
		t.Error(text)
	}
}

// TestFlowPresets: each can be a flow.
func TestFlowPresets(t *testing.T) {
	for _, p := range FlowPresets() {
		for i, step := range append([]string{p.Name}, p.Steps...) {
			if err := checkName("step", step); err != nil || slices.Contains(p.Steps[:max(0, i-1)], step) {
				t.Errorf("%s: %q, %v", p.Name, step, err)
			}
		}
		if got, err := Preset(p.Name); err != nil || got.Name != p.Name {
			t.Error(got, err)
		}
	}
	if _, err := Preset("none"); err == nil {
		t.Error("there is an unknown preset")
	}
}
