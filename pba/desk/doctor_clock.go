package desk

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

const (
	clockReported = 24 * time.Hour  // a clock that was set is reported for so long
	clocksApart   = 5 * time.Minute // more than a slow queue takes to answer
	clockRemedy   = "keep the clocks by one source (NTP: `chronyc tracking`, `timedatectl`)"
	stamp         = "2006-01-02 15:04:05"
)

// checkClock finds a clock that was set, and what was dated by it before.
func (d *Desk) checkClock(r *pba.Result, all *findings) {
	at := r.State.Farm.At
	switch set := r.State.Memory.ClockSet; {
	case r.ClockSet != "":
		all.add("clock", clockRemedy+"; the next cycle goes on by the clock as it is now", "the queue's clock %s", clock.Describe(set.At, set.By))
	case !set.At.IsZero() && at.Sub(set.At) < clockReported:
		all.add("clock", clockRemedy+"; pba continued, and nothing needs repair", "the queue's clock %s", clock.Describe(set.At, set.By))
	}
	if apart := at.Sub(d.Now()); apart.Abs() > clocksApart {
		all.add("clock", clockRemedy, "the queue's clock shows %s, this host's %s", at.Local().Format(stamp), d.Now().Local().Format(stamp))
	}
	if n, first := startedAhead(r.State.Farm); n > 0 {
		all.add("clock", "nothing needs to be done: pba treats them as long-running jobs",
			"%s started while the clock was ahead: job %v at %s, and it is %s", printable.Count(n, "running job"), first.ID, first.Started.Local().Format(stamp), at.Local().Format(stamp))
	}
}

// startedAhead returns the number of running jobs whose start lies ahead, and the first.
func startedAhead(farm *backends.Snapshot) (n int, first *backends.Job) {
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.State == backends.Running && j.Started.Sub(farm.At) > plan.MaxStale {
			if n++; first == nil {
				first = j
			}
		}
	}
	return n, first
}
