package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// ClockSet is a setting of the queue's clock that a cycle noticed.
type ClockSet struct {
	At time.Time     // of the first snapshot after it, by the clock as set; zero: there was none
	By time.Duration // ahead if it is positive
}

// MaxStale is more than the age of any snapshot that a queue gives. A time that is
// further ahead of a snapshot was read while the clock was ahead.
const MaxStale = time.Minute

// FollowClock makes a memory follow the queue's clock. at is the snapshot's time by that
// clock; before and after are readings of this machine's clocks when the snapshot was
// asked for and when it came. Elapsed time is that of the clock since boot: where the
// queue's clock shows another one, it was set, and the times in the memory are moved
// with it, so that nothing expires, and nothing is put off, for that alone. Where no
// such reading is remembered, only a clock that went back is noticed.
func FollowClock(m Memory, at time.Time, before, after clock.Reading) Memory {
	if by := jump(m, at, before, after); by != 0 {
		m = m.moved(by)
		m.ClockSet = ClockSet{At: at, By: by}
	}
	m.Clock = clock.Reading{Wall: at, Boot: before.Boot, Up: before.Up}
	return m
}

func jump(m Memory, at time.Time, before, after clock.Reading) time.Duration {
	var by time.Duration
	if boot := m.Clock.Boot; boot != 0 && boot == before.Boot && boot == after.Boot {
		early := m.Clock.Jump(clock.Reading{Wall: at, Boot: boot, Up: before.Up})
		late := m.Clock.Jump(clock.Reading{Wall: at, Boot: boot, Up: after.Up})
		if by = early; late.Abs() < early.Abs() {
			by = late
		}
		if early > 0 && late < 0 {
			by = 0 // the snapshot took longer than that
		}
	}
	newest := m.LastCycle
	if m.LastAction.After(newest) {
		newest = m.LastAction
	}
	if ahead := newest.Add(by).Sub(at); !newest.IsZero() && ahead > MaxStale {
		by -= ahead
	}
	return by
}

// moved returns the memory as if the clock had been set before all of it.
func (m Memory) moved(by time.Duration) Memory {
	move := func(all ...*time.Time) {
		for _, t := range all {
			if !t.IsZero() {
				*t = t.Add(by)
			}
		}
	}
	move(&m.LastCycle, &m.LastAction, &m.PoolsSent)
	if by < 0 { // else jobs that ended since would not be asked for
		move(&m.EndedSince)
	}
	m.Jobs = maps.Clone(m.Jobs)
	for id, j := range m.Jobs {
		move(&j.Entered, &j.ClockSeen, &j.Backoff, &j.WrittenAt, &j.ReservedUntil)
		m.Jobs[id] = j
	}
	m.Reclaims = slices.Clone(m.Reclaims)
	for i := range m.Reclaims {
		r := &m.Reclaims[i]
		move(&r.Planned, &r.Acted, &r.Freed, &r.Ended)
	}
	m.Throughput = maps.Clone(m.Throughput)
	for id, t := range m.Throughput {
		move(&t.Fell)
		m.Throughput[id] = t
	}
	m.Trials = maps.Clone(m.Trials)
	for id, t := range m.Trials {
		move(&t.Pinned)
		t.Refused = slices.Clone(t.Refused)
		for i := range t.Refused {
			move(&t.Refused[i].At, &t.Refused[i].Until)
		}
		m.Trials[id] = t
	}
	m.Dummies.Gathers = maps.Clone(m.Dummies.Gathers)
	for id, g := range m.Dummies.Gathers {
		move(&g.Since, &g.Backoff)
		m.Dummies.Gathers[id] = g
	}
	m.Dummies.Lights = maps.Clone(m.Dummies.Lights)
	for id, l := range m.Dummies.Lights {
		move(&l.At)
		m.Dummies.Lights[id] = l
	}
	return m
}

// WithoutAhead returns the ended jobs of a snapshot without those whose end lies ahead
// of it: they ended while the clock was ahead, and cycles saw them then.
func WithoutAhead(ended []backends.Job, at time.Time) []backends.Job {
	return slices.DeleteFunc(ended, func(j backends.Job) bool { return j.Ended.Sub(at) > MaxStale })
}

// startedAhead reports whether a run began while the clock was ahead: the time of its
// start is not known.
func startedAhead(j *backends.Job, now time.Time) bool { return j.Started.Sub(now) > MaxStale }
