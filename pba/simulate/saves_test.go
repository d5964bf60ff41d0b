package simulate_test

import (
	"context"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// runEnds runs a job that takes 100 s; after 45 s it is requeued. It returns how its runs ended.
func runEnds(t *testing.T, work simulate.Work, act backends.Act) []simulate.RunEnd {
	t.Helper()
	var ends []simulate.RunEnd
	w := simulate.New(simulate.Config{
		Hosts: hosts(4), Start: start(),
		WatchEnd: func(_ time.Time, end simulate.RunEnd) { ends = append(ends, end) },
	})
	work.Takes = 100 * time.Second
	id, err := w.SubmitWork(manager.By{User: "ann"}, backends.Spec{Slots: 1}, work)
	if err != nil {
		t.Fatal(err)
	}
	act.ID = id
	w.Advance(start().Add(45 * time.Second))
	if err := w.Requeue(context.Background(), []backends.Act{act})[0]; err != nil {
		t.Fatal(err)
	}
	w.Advance(start().Add(time.Hour))
	return ends
}

func TestRunsThatSaveTheirWork(t *testing.T) {
	const s = time.Second
	save := backends.Act{Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: 30 * s}}
	for name, test := range map[string]struct {
		work      simulate.Work
		act       backends.Act
		ran, kept []time.Duration
	}{
		"it can't, and starts over":             {simulate.Work{KillDelay: 5 * s}, backends.Act{Grace: 10 * s}, []time.Duration{50 * s, 100 * s}, []time.Duration{0, 100 * s}},
		"it can't, and dies of the signal":      {simulate.Work{KillDelay: 5 * s}, save, []time.Duration{50 * s, 100 * s}, []time.Duration{0, 100 * s}},
		"on demand":                             {simulate.Work{Save: 20 * s, Restore: 10 * s}, save, []time.Duration{65 * s, 65 * s}, []time.Duration{45 * s, 55 * s}},
		"it needs too long":                     {simulate.Work{Save: 40 * s, Restore: 10 * s}, save, []time.Duration{75 * s, 100 * s}, []time.Duration{0, 100 * s}},
		"it is done before it would have saved": {simulate.Work{Save: 60 * s}, backends.Act{Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: 60 * s}}, []time.Duration{100 * s}, []time.Duration{100 * s}},
		"by itself":                             {simulate.Work{Every: 20 * s, Restore: 10 * s}, backends.Act{}, []time.Duration{45 * s, 70 * s}, []time.Duration{40 * s, 60 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			ends := runEnds(t, test.work, test.act)
			if len(ends) != len(test.ran) {
				t.Fatalf("%d runs: %+v", len(ends), ends)
			}
			for i, end := range ends {
				if end.Ran != test.ran[i] || end.Kept != test.kept[i] {
					t.Errorf("run %d ran %v and kept %v, want %v and %v", i+1, end.Ran, end.Kept, test.ran[i], test.kept[i])
				}
			}
		})
	}
}

// A simulation counts what it takes to save and to go on as lost, and no more.
func TestPeriodicCheckpoints(t *testing.T) {
	s := setup(newStore(t, job{0, 1000, 2, "ann"}, job{0, 1000, 2, "ann"}, job{500, 50, 2, "bob"}, job{3000, 1, 1, "ann"}), 4, planEntry("bob", 2))
	s.Policies = []string{simulate.PBA}
	s.Periodic = simulate.Saves{Share: 1, Time: 100 * time.Second, Restore: 30 * time.Second}
	o := mustRun(t, s).Policies[0]
	// Preempted at 560 s with 500 s saved: it loses 60 s, and 30 s to go on.
	if o.LostSeconds != 2*90 || o.Preemptions != 1 || o.Saved != 1 {
		t.Errorf("lost %v slot-seconds in %d preemptions, %d saved; want 180, 1, 1", o.LostSeconds, o.Preemptions, o.Saved)
	}
	if want := (1000*2 + 1000*2 + 50*2) / (4 * 3000.0); o.Useful < want-1e-9 || o.Useful > want+1e-9 {
		t.Errorf("useful %v, want %v", o.Useful, want)
	}
}
