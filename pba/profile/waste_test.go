package profile

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R46: what jobs asked for and did not use, by what each of them held for how long; "asked for 64 G, used 3".
func TestWaste(t *testing.T) {
	var all []backends.Past
	of := func(user string) func(*backends.Past) { return func(p *backends.Past) { p.Job.User = user } }
	for i := range 6 {
		all = append(all,
			past(fmt.Sprint("syn", i), 1, time.Hour, time.Hour, 3<<30, of("ann")),
			past("wide", 8, 2*time.Hour, 4*time.Hour, 3<<30, of("bob")),
			past("tight", 1, time.Hour, 2*time.Hour, 64<<30, of("ann")),
			past("fails", 1, time.Hour, time.Hour, 1, of("ann"), func(p *backends.Past) { p.Job.State = backends.Exited }),
			past("unknown", 1, time.Hour, 0, 0, of("cat")))
	}
	rows, rest := Wasted(all, 2)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if len(rows) != 2 || rows[0].Command != "wide" || rows[1].Command != "syn#" {
		t.Fatalf("%+v", rows)
	}
	// Six times two hours on eight slots, a quarter of them busy; the memory of jobs of several slots is not known.
	if w := rows[0]; w.User != "bob" || w.Jobs != 6 || !near(w.SlotHours, 96) || !near(w.IdleHours, 72) || w.EmptyHours != 0 || w.Used != 0 || w.Slots != 2 || w.Memory != 0 {
		t.Errorf("%+v", w)
	}
	if w := rows[1]; w.User != "ann" || w.Jobs != 6 || !near(w.IdleHours, 0) || !near(w.EmptyHours, 6*61) || w.Asked != 64<<30 || w.Used != 3<<30 || w.Memory < 3<<30 || w.Memory > 4<<30 || w.Slots != 0 {
		t.Errorf("%+v", w)
	}
	if rest.Jobs != 12 || !near(rest.SlotHours, 12) || rest.IdleHours != 0 || rest.EmptyHours != 0 {
		t.Errorf("the rest: %+v", rest)
	}
	if rows, rest := Wasted(nil, 2); len(rows) != 0 || rest.Jobs != 0 {
		t.Errorf("of nothing: %+v, %+v", rows, rest)
	}
}
