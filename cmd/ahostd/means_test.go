package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/root"
	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/pba/settings"
)

// R47: an agent says which kinds of limits take effect on all of its jobs, by what the last ones were; what could not
// be brought about is not among them.
func TestMeansOfJobs(t *testing.T) {
	if (*limiter)(nil).summary() != nil {
		t.Error("limits are off, and it says which work")
	}
	for mode, want := range map[settings.LimitsMode]string{settings.LimitsObserve: "observe", settings.LimitsOn: "on, without its root helper"} {
		if got := limiterOf(t, mode, io.Discard).summary().String(); got != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
	l := limiterOf(t, settings.LimitsOn, io.Discard)
	const all = ": CPU weight, rate, duty; disk rate, duty; network duty; memory freeze"
	why, second := "", 0
	l.set = func(all []root.Limit) ([]string, error) { return slices.Repeat([]string{why}, len(all)), nil }
	says := func(what, want string, loads ...diskLoad) {
		t.Helper()
		for range 2 {
			second++
			l.sample(sampleAt(second, loads...))
		}
		if got := l.summary().String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	seven, eight := diskLoad{7, measure.FromGroupV2, 20 << 20, 0.9}, diskLoad{8, measure.FromGroupV2, 70 << 20, 0.5}
	says("promises are not known", "helper", seven, eight)
	hears(t, l, supervise.Promises{Jobs: []supervise.Promise{promised, other}})
	says("of two jobs", all, seven, eight)
	says("the last ones", all)
	why = "it has no io.max"
	says("what can't be brought about", ": CPU weight, rate, duty; disk duty; network duty; memory freeze", seven, eight)
	says("not of a job that has ended", all, seven)
}
