package simulate_test

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// wideScene is a normal job of 124 slots for 4 h on a farm of 128, and a pool of 32 that sends a job of
// 8 slots for 10 minutes every half hour, for 8 days.
func wideScene(t *testing.T) simulate.Setup {
	const hour, days = 3600, 8
	jobs := []job{{0, 4 * hour, 124, "ann"}}
	for at := 600; at <= days*24*hour; at += hour / 2 {
		jobs = append(jobs, job{at, 600, 8, "bob"})
	}
	s := setup(newStore(t, jobs...), 128, planEntry("bob", 32))
	s.Policies = []string{simulate.PBA}
	return s
}

// A job that is wider than what no pool is guaranteed loses what it may lose, and then waits until the
// pool has sent no jobs for a day.
func TestWideJobWaitsForThePool(t *testing.T) { // R35
	s := wideScene(t)
	var started []time.Time
	s.Starts = func(_ string, id backends.ID, at time.Time) {
		if id.Job == 1 {
			started = append(started, at)
		}
	}
	r := mustRun(t, s)
	o := r.Policies[0]
	if o.LostShare > 0.025 || o.Useless != 0 || o.Within.Clock.Max > 60 {
		t.Errorf("%.2f %% of the farm's time lost in %d preemptions, %d useless; PBA jobs' longest wait %v s", 100*o.LostShare, o.Preemptions, o.Useless, o.Within.Clock.Max)
	}
	lastSent := start().Add(690000 * time.Second)
	if n := len(started); n == 0 || started[n-1].Sub(lastSent) < 24*time.Hour || started[n-1].Sub(lastSent) > 25*time.Hour {
		t.Errorf("the pool's last job came at %v, the wide job started %d times, at last at %v", lastSent, n, started[max(0, n-1):])
	}
}

// With on_too_wide: run it is preempted again and again; if it saves itself it ends soon.
func TestWideJobThatDoesNotWait(t *testing.T) { // R35
	s := wideScene(t)
	s.Policy.HoldTooWide = false
	if o := mustRun(t, s).Policies[0]; o.LostShare < 0.1 || o.Within.Clock.Max > 60 {
		t.Errorf("on_too_wide: run: %.2f %% of the farm's time lost in %d preemptions; PBA jobs' longest wait %v s", 100*o.LostShare, o.Preemptions, o.Within.Clock.Max)
	}
	s = wideScene(t)
	s.OnDemand = simulate.Saves{Share: 1, Time: 30 * time.Second, Restore: 60 * time.Second}
	if o := mustRun(t, s).Policies[0]; o.LostShare > 0.01 || o.Preemptions > 20 || o.Within.Clock.Max > 90 {
		t.Errorf("it saves itself: %.2f %% of the farm's time lost in %d preemptions; PBA jobs' longest wait %v s", 100*o.LostShare, o.Preemptions, o.Within.Clock.Max)
	}
}
