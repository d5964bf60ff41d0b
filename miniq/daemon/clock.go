package daemon

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// clockPause bounds how late a clock that was set is noticed while something is due.
const clockPause = time.Minute

// clockJump returns by how much the wall clock was set since the queue's last reading of
// the clocks and its last step.
func clockJump(was clock.Reading, queue time.Time, is clock.Reading) time.Duration {
	if was.Boot == is.Boot {
		if by := was.Jump(is); by != 0 {
			return by
		}
	}
	return clock.Reading{Wall: queue}.Jump(is)
}

// readClocks reads the clocks, and reports what the queue must know of it: the first
// reading, and those after the wall clock was set.
func (d *daemon) readClocks() (input, bool) {
	is, err := d.ReadClock()
	if err != nil {
		is = clock.Reading{Wall: time.Now()}
	}
	was, first := d.clock, d.clock.Wall.IsZero()
	d.clock = is
	by := was.Jump(is)
	if first {
		by = clockJump(d.m.Clock(), d.m.Now(), is)
	}
	if by != 0 {
		d.log.Warn("the clock " + clock.Describe(is.Wall, by) + ": the queue goes on, and what it counts by elapsed time is not changed")
	}
	return input{event: manager.ClockRead{Now: is, Jump: by}}, first || by != 0
}

// forgetCutoff returns the time before which ended jobs are forgotten. Those that
// ended before the clock was put ahead are kept as long as without: it may be wrong, and
// what was forgotten does not come back.
func forgetCutoff(now time.Time, keep time.Duration, ahead manager.Ahead) time.Time {
	before := now.Add(-keep)
	if since := now.Sub(ahead.At); since >= 0 && since < keep {
		before = before.Add(-ahead.By)
	}
	return before
}

// moveHookMarks has the end hook's marks follow a clock that is put back: ended jobs are
// dated anew with it.
func (d *daemon) moveHookMarks(e manager.ClockRead) {
	if d.hooks == nil || e.Jump >= 0 {
		return
	}
	ended := d.m.EndedFrom(e.Now.Wall, e.Now.Wall, int(^uint(0)>>1), func(backends.ID) bool { return false })
	d.hooks.marks.moveBack(e.Now.Wall, ended)
	d.hooks.more = true
}

// moveBack dates what is ahead of a time at that time. Of the ended jobs that are ahead
// of it, those that have had their hook keep it.
func (h *hookMarks) moveBack(now time.Time, ahead []backends.Job) {
	for i := range ahead {
		if j := &ahead[i]; j.Ended.Before(h.From) {
			h.Taken[j.ID] = now
		}
	}
	for _, marks := range []map[backends.ID]time.Time{h.Taken, h.Open} {
		for id, at := range marks {
			if at.After(now) {
				marks[id] = now
			}
		}
	}
	if h.From.After(now) {
		h.From = now
	}
}
