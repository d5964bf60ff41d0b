package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/clock"
)

const years = 87600 * time.Hour

func TestFollowClock(t *testing.T) {
	const up = 50 * time.Hour
	read := func(boot uint64, after time.Duration) clock.Reading { return clock.Reading{Boot: boot, Up: up + after} }
	known := clock.Reading{Wall: noon, Boot: 1, Up: up}
	const cycle = 20 * time.Second
	for name, c := range map[string]struct {
		was           clock.Reading
		cycle, action time.Duration // the last ones, after noon
		at            time.Duration // of the snapshot, after noon
		before, after clock.Reading
		want          time.Duration
	}{
		"a cycle later":                   {known, 0, time.Second, cycle, read(1, cycle), read(1, cycle+time.Second), 0},
		"no cycles for a day":             {known, 0, 0, 24 * time.Hour, read(1, 24*time.Hour), read(1, 24*time.Hour), 0},
		"ahead by 2 h":                    {known, 0, 0, 2*time.Hour + cycle, read(1, cycle), read(1, cycle), 2 * time.Hour},
		"back by 2 h":                     {known, 0, 0, cycle - 2*time.Hour, read(1, cycle), read(1, cycle), -2 * time.Hour},
		"back by 10 years":                {known, 0, 0, cycle - years, read(1, cycle), read(1, cycle), -years},
		"back within the time since":      {known, 0, 0, time.Hour, read(1, 3*time.Hour), read(1, 3*time.Hour), -2 * time.Hour},
		"a slow queue":                    {known, 0, 0, cycle + 70*time.Second, read(1, cycle), read(1, cycle+100*time.Second), 0},
		"another machine, 2 h later":      {known, 0, 0, 2 * time.Hour, read(2, 0), read(2, 0), 0},
		"another machine, back":           {known, 0, 0, -2 * time.Hour, read(2, 0), read(2, 0), -2 * time.Hour},
		"nothing known, back":             {clock.Reading{}, 0, 0, -years, read(1, 0), read(1, 0), -years},
		"nothing known, the last act":     {clock.Reading{}, 0, 2 * time.Hour, cycle, read(1, 0), read(1, 0), cycle - 2*time.Hour},
		"nothing known, a bit old":        {clock.Reading{}, 0, 20 * time.Second, cycle - time.Second, read(1, 0), read(1, 0), 0}, // R8's
		"known, and the last act is":      {known, 0, 2 * time.Hour, cycle, read(1, cycle), read(1, cycle), cycle - 2*time.Hour},
		"nothing can be read, back":       {known, 0, 0, -2 * time.Hour, clock.Reading{}, clock.Reading{}, -2 * time.Hour},
		"nothing can be read, some later": {known, 0, 0, 2 * time.Hour, clock.Reading{}, clock.Reading{}, 0},
	} {
		m := Memory{Clock: c.was, LastCycle: noon.Add(c.cycle), LastAction: noon.Add(c.action)}
		got := FollowClock(m, noon.Add(c.at), c.before, c.after)
		if got.ClockSet.By != c.want {
			t.Errorf("%s: set by %v, want %v", name, got.ClockSet.By, c.want)
		}
		if want := m.LastCycle.Add(c.want); !got.LastCycle.Equal(want) {
			t.Errorf("%s: the last cycle is dated %v, want %v", name, got.LastCycle, want)
		}
		if want := (clock.Reading{Wall: noon.Add(c.at), Boot: c.before.Boot, Up: c.before.Up}); got.Clock != want {
			t.Errorf("%s: remembers %+v, want %+v", name, got.Clock, want)
		}
	}
	if m := FollowClock(Memory{}, noon, read(1, 0), read(1, 0)); m.ClockSet != (ClockSet{}) || !m.LastCycle.IsZero() {
		t.Errorf("the first cycle: %+v", m)
	}
}

// Everything is moved, what is zero stays so, and nothing of the old memory changes.
func TestFollowClockMovesAllTimes(t *testing.T) {
	id := backends.ID{Job: 1}
	at := func(by time.Duration) func(time.Duration) time.Time {
		return func(d time.Duration) time.Time { return noon.Add(d + by) }
	}
	memory := func(at func(time.Duration) time.Time, ended time.Time) Memory {
		return Memory{
			LastCycle: at(0), LastAction: at(1), PoolsSent: at(17), EndedSince: ended,
			Jobs:       map[backends.ID]JobMemory{id: {Entered: at(2), ClockSeen: at(3), Backoff: at(4), WrittenAt: at(5), ReservedUntil: at(6), Clock: 7}, {Job: 2}: {Pool: 1}},
			Reclaims:   []Reclaim{{ID: 1, Planned: at(8), Acted: at(9), Freed: at(10), Ended: at(11), Victims: []Victim{{ID: id, Started: noon}}}, {ID: 2, Planned: at(12)}},
			Throughput: map[int64]ThroughputMemory{1: {Week: noon, Fell: at(13)}},
			Dummies: dummy.Memory{
				Gathers: map[backends.ID]dummy.Gather{id: {Since: at(14), Backoff: at(15)}},
				Lights:  map[backends.ID]dummy.Light{id: {At: at(16)}},
			},
		}
	}
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour, years, -years} {
		was := memory(at(0), noon)
		was.Clock = clock.Reading{Wall: noon, Boot: 1, Up: time.Hour}
		now := clock.Reading{Boot: 1, Up: time.Hour + 20*time.Second}
		got := FollowClock(was, noon.Add(by+20*time.Second), now, now)
		want := memory(at(by), noon.Add(min(by, 0))) // jobs that ended before the clock was put ahead are asked for
		want.Clock = clock.Reading{Wall: noon.Add(by + 20*time.Second), Boot: 1, Up: now.Up}
		want.ClockSet = ClockSet{At: want.Clock.Wall, By: by}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v: (-want +got):\n%s", by, d)
		}
		again := memory(at(0), noon)
		again.Clock = was.Clock
		if d := cmp.Diff(again, was); d != "" {
			t.Errorf("%v: the memory that was given is changed:\n%s", by, d)
		}
	}
}

// A job whose start lies far ahead, by a clock that was ahead, is a victim like others; one
// that started just now, or by a clock a few seconds ahead, is spared for its first minute.
func TestFutureStartsAreNotSpared(t *testing.T) { // R16
	for ago, want := range map[time.Duration]bool{
		time.Hour: true, time.Second: false, -5 * time.Second: false, -2 * time.Hour: true, -years: true,
	} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		s.job("bob", "x", "n1", ago)
		s.state.Memory.Jobs = map[backends.ID]JobMemory{}
		b := s.job("ann", "chipA", "", time.Hour)
		s.state.Memory.Jobs[b] = JobMemory{Pool: 1, Entered: noon.Add(-time.Hour), Clock: time.Hour, ClockSeen: noon.Add(-20 * time.Second)}
		p := Make(s.state, s.policy, s.now)
		preempted := false
		for _, a := range p.Actions {
			preempted = preempted || a.Verb == Requeue
		}
		if preempted != want {
			t.Errorf("started %v ago: preempted %v, want %v; left out %v", ago, preempted, want, p.Skipped)
		}
	}
}

// A hold that was set while the clock was ahead would last for years: it is renewed.
func TestHoldsThatLastTooLongAreRenewed(t *testing.T) { // R21
	for held, want := range map[time.Duration]bool{time.Minute: true, 10 * time.Minute: false, 15 * time.Minute: false, 2 * time.Hour: true, years: true} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		b := s.job("ann", "chipA", "", time.Hour)
		r := Reclaim{ID: 1, Beneficiary: b, Project: "chipA", Need: 1, Hosts: []backends.Placement{{Host: "n1", Slots: 1}}, Phase: Freed, Planned: noon.Add(-time.Minute), Acted: noon.Add(-time.Minute), Freed: noon}
		victim := s.job("bob", "x", "", time.Hour, func(j *backends.Job) {
			j.Mark, j.HeldUntil, j.Wait = r.Mark(), noon.Add(held), backends.WaitTime
		})
		r.Victims = []Victim{{ID: victim, User: "bob", Slots: 1, Fate: Taken}}
		s.state.Memory = Memory{NextID: 2, LastCycle: noon.Add(-20 * time.Second), Reclaims: []Reclaim{r}, Jobs: map[backends.ID]JobMemory{b: {Pool: 1, Entered: noon.Add(-time.Hour), Clock: time.Hour}}}
		renewed := false
		for _, a := range Make(s.state, s.policy, s.now).Actions {
			renewed = renewed || a.Verb == Hold && a.Job == victim && a.Until.Equal(noon.Add(s.policy.HoldLimit))
		}
		if renewed != want {
			t.Errorf("held for %v more: renewed %v, want %v", held, renewed, want)
		}
	}
}
