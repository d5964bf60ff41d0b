package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// A host's last pleas count, for a minute; none counts that is ahead of the clock.
func TestPleas(t *testing.T) { // R47
	l := create(t)
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	set := func(host string, after time.Duration, jobs ...int64) {
		t.Helper()
		var all []plan.Plea
		for _, n := range jobs {
			all = append(all, plan.Plea{Job: backends.ID{Job: n, Index: 2}, Verb: plan.Kill, Used: 1 << 40, Frozen: 4 * time.Second})
		}
		if err := l.SetPleas(t.Context(), host, at.Add(after), all); err != nil {
			t.Fatal(err)
		}
	}
	is := func(after time.Duration, want ...plan.Plea) {
		t.Helper()
		got, err := l.Pleas(t.Context(), at.Add(after))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("after %v: %v %s", after, err, diff)
		}
	}
	plea := func(host string, job int64, age time.Duration) plan.Plea {
		return plan.Plea{Host: host, Job: backends.ID{Job: job, Index: 2}, Verb: plan.Kill, Used: 1 << 40, Frozen: 4 * time.Second, Age: age}
	}
	is(0)
	set("h2", 0, 7, 8)
	set("h1", time.Second, 9)
	is(2*time.Second, plea("h1", 9, time.Second), plea("h2", 7, 2*time.Second), plea("h2", 8, 2*time.Second))
	set("h2", 3*time.Second, 8)
	is(3*time.Second, plea("h1", 9, 2*time.Second), plea("h2", 8, 0))
	set("h2", 4*time.Second)
	is(4*time.Second, plea("h1", 9, 3*time.Second))
	is(time.Second+pleaLasts, plea("h1", 9, pleaLasts))
	is(2*time.Second + pleaLasts)
	is(0) // the clock was put back
}
