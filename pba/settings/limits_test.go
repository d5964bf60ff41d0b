package settings

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/internal/unit"
)

func pointerTo[T any](v T) *T { return &v }

// R48: what a project's jobs are promised, and what a minimum counts up to, is what is named of it, and the
// rest is limits.slot's.
func TestLimitsOfProjects(t *testing.T) {
	l := DefaultLimits()
	l.Slot.Disk = 50
	if most := l.MostOfSlot(); most != l.Slot {
		t.Errorf("without most a minimum counts up to %+v, want %+v", most, l.Slot)
	}
	l.Most = PromisedPart{Disk: pointerTo[unit.Size](70), Network: pointerTo[unit.Size](80)}
	l.Projects = map[string]PromisedPart{"chipA": {CPU: pointerTo(2.5)}, "chipB": {Disk: pointerTo[unit.Size](0), Network: pointerTo[unit.Size](9)}}
	if most, want := l.MostOfSlot(), (Promised{1, 70, 80}); most != want {
		t.Errorf("a minimum counts up to %+v, want %+v", most, want)
	}
	for project, want := range map[string]Promised{"": {1, 50, 0}, "chipA": {2.5, 50, 0}, "chipB": {1, 0, 9}, "chipC": {1, 50, 0}} {
		if got := l.SlotOf(project); got != want {
			t.Errorf("a slot of %q is promised %+v, want %+v", project, got, want)
		}
	}
}

func TestLimitsValidate(t *testing.T) {
	some := PromisedPart{Network: pointerTo[unit.Size](1)}
	many := map[string]PromisedPart{}
	for i := range 1001 {
		many[fmt.Sprint(i)] = some
	}
	for want, l := range map[string]Limits{
		"":                                     {Mode: LimitsOn, Slot: Promised{CPU: 1}},
		"promised nothing":                     {Mode: LimitsOn, Projects: map[string]PromisedPart{"a": {}}},
		"slot.cpu: 1001: want":                 {Slot: Promised{CPU: 1001}},
		"slot.disk: 2T: want 0 to 1T a second": {Slot: Promised{Disk: 2 << 40}},
		"most.cpu: NaN: want 0":                {Most: PromisedPart{CPU: pointerTo(math.NaN())}},
		"projects.a.cpu: -1: want 0 to 1000 cores": {Projects: map[string]PromisedPart{"a": {CPU: pointerTo(-1.0)}}},
		"projects: 1001: at most 1000":             {Projects: many},
		"a negative amount":                        {Network: -1},
	} {
		if err := l.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for what, l := range map[string]Limits{"a minimum": {Mode: LimitsOn, Most: some}, "a project": {Mode: LimitsOn, Projects: map[string]PromisedPart{"a": some}}} {
		if err := l.Validate(); err != nil {
			t.Errorf("only %s has a promise: %v", what, err)
		}
	}
}
