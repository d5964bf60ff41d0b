package pba_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// TestRenamedAtAnyTime: whenever a project is renamed, before or amid a reclaim for one of its
// jobs, its running and pending jobs, those that come with its former name and those with its
// new one fare as if it had always had one name.
func TestRenamedAtAnyTime(t *testing.T) {
	const cycles = 6
	story := func(t *testing.T, renamedAfter int) string {
		l, _ := planned(t, "2026-W48", "UTC", map[string][2]int{"A": {3, 3}})
		name := "A"
		l.submit("alice", name, backends.Spec{}, simulate.Work{Takes: 8 * time.Minute})
		for range 3 {
			l.submit("bob", "B", backends.Spec{}, simulate.Work{Takes: 12 * time.Minute})
		}
		l.run(2 * time.Minute)
		waiting := l.submit("alice", name, backends.Spec{}, simulate.Work{Takes: 8 * time.Minute})
		for n := range cycles {
			if n == renamedAfter {
				if err := l.ledger.RenameProject(t.Context(), ledger.Editor{Who: "root", At: l.now()}, "A", "tigris"); err != nil {
					t.Fatal(err)
				}
				name = "tigris"
			}
			l.run(20 * time.Second)
		}
		l.submit("alice", name, backends.Spec{}, simulate.Work{Takes: 8 * time.Minute})
		l.run(2 * time.Minute)
		l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: time.Minute}) // a script still has the former name
		l.run(20 * time.Minute)
		l.finish()
		if j := l.job(waiting); j.Started.Sub(j.Submitted) > 100*time.Second {
			t.Errorf("R14: the job %+v did not start in time", j)
		}
		past, err := l.ledger.PastJobs(t.Context(), start.AddDate(-1, 0, 0), l.now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range past {
			l.logf("past: job %v of %s, %v, of a pool: %v", j.ID, j.Project, j.Waited, j.PBA)
		}
		return strings.ReplaceAll(l.text.String(), "tigris", "A")
	}
	want := story(t, -1)
	if !strings.Contains(want, "preempt") && !strings.Contains(want, "requeue") {
		t.Fatalf("no job is preempted:\n%s", want)
	}
	for n := range cycles {
		t.Run(fmt.Sprintf("after %d cycles", n), func(t *testing.T) {
			if d := cmp.Diff(want, story(t, n)); d != "" {
				t.Errorf("(-never renamed +renamed):\n%s", d)
			}
		})
	}
}
