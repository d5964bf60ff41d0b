package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

var (
	monday = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	week   = 7 * 24 * time.Hour
)

// throughputPool makes the scene's only pool one of n jobs in the week.
func (s *scene) throughputPool(slots, jobs int) *scene {
	s.pool("chipA", slots)
	a := &s.policy.Allocations[0]
	a.SLA, a.Jobs, a.Begin, a.End = Throughput, jobs, monday, monday.Add(week)
	return s
}

func (s *scene) finished(n int, each time.Duration) {
	s.state.Memory.Throughput = map[int64]ThroughputMemory{1: {Week: monday, Finished: n, SlotSeconds: float64(n) * each.Seconds(), Guarantee: s.policy.Allocations[0].Guarantee}}
}

func TestThroughputGuarantee(t *testing.T) { // R26
	half := monday.Add(week / 2)
	for _, c := range []struct {
		name     string
		now      time.Time
		finished int
		each     time.Duration
		want     int
	}{
		{"until 30 have finished: all slots", half, 29, time.Hour, 50},
		// 570 left × 1 h / (95 % of 84 h) = 7.14
		{"then what the rest needs", half, 30, time.Hour, 8},
		{"at most the slots", monday.Add(week - time.Hour), 30, time.Hour, 50},
		{"nothing once all are done", half, 600, time.Hour, 0},
		{"after the week's end: all", monday.Add(week), 100, time.Hour, 50},
	} {
		s := newScene(t, 1, 4).throughputPool(50, 600)
		s.now = c.now
		s.finished(c.finished, c.each)
		if p := s.cycle(); p.Pools[0].Guarantee != c.want {
			t.Errorf("%s: %d slots, want %d", c.name, p.Pools[0].Guarantee, c.want)
		}
	}
}

// A throughput is out of reach where the week's rest has too few slot-seconds.
func TestThroughputOutOfReach(t *testing.T) { // R26
	for _, c := range []struct {
		name     string
		left     time.Duration // of the week
		finished int
		want     int
	}{
		{"no mean is known", 2 * time.Hour, 29, 0},
		{"just enough: 100 slots for 5 h", 5 * time.Hour, 100, 0},
		{"an hour too few for 500: 100 are left", 4 * time.Hour, 100, 100},
		{"the week is over", 0, 100, 500},
		{"all are done", 0, 600, 0},
	} {
		s := newScene(t, 1, 4).throughputPool(100, 600)
		s.now = monday.Add(week - c.left)
		s.finished(c.finished, time.Hour)
		if p := s.cycle(); p.Pools[0].Undone != c.want {
			t.Errorf("%s: %d jobs, want %d", c.name, p.Pools[0].Undone, c.want)
		}
	}
	// What runs has done a part of it: four hours of one job.
	s := newScene(t, 1, 4).throughputPool(1, 40)
	s.now = monday.Add(week - 4*time.Hour)
	s.finished(30, 2*time.Hour)
	s.job("ann", "chipA", "n1", 4*time.Hour)
	s.cycle() // charges it
	if p := s.cycle(); p.Pools[0].Undone != 6 {
		t.Errorf("%d jobs can't be done, want 6: 8 of the 20 slot-hours are there", p.Pools[0].Undone)
	}
}

func TestThroughputFallsHourlyAndNeverBelowWhatRuns(t *testing.T) { // R26
	s := newScene(t, 20, 4).throughputPool(50, 600)
	s.now = monday.Add(week / 2)
	s.finished(400, time.Hour) // 200 left: 3 slots
	var ids []backends.ID
	for i := range 10 {
		ids = append(ids, s.job("ann", "chipA", fmt.Sprintf("n%d", i+1), time.Minute))
	}
	s.state.Memory.Jobs = map[backends.ID]JobMemory{}
	for _, id := range ids {
		s.state.Memory.Jobs[id] = JobMemory{Pool: 1, Entered: s.now}
	}
	if p := s.cycle(); p.Pools[0].Guarantee != 10 {
		t.Fatalf("%d slots, want the 10 that run", p.Pools[0].Guarantee)
	}
	s.state.Farm.Jobs = nil
	if p := s.cycle(); p.Pools[0].Guarantee != 10 {
		t.Errorf("fell to %d within the hour", p.Pools[0].Guarantee)
	}
	s.now = s.now.Add(time.Hour)
	if p := s.cycle(); p.Pools[0].Guarantee != 3 {
		t.Errorf("%d slots an hour later, want 3", p.Pools[0].Guarantee)
	}
	s.now = monday.Add(week - time.Hour)
	if p := s.cycle(); p.Pools[0].Guarantee != 50 {
		t.Errorf("rose to %d at once, want 50", p.Pools[0].Guarantee)
	}
}

func TestThroughputCountsEachJobOnce(t *testing.T) { // R26
	s := newScene(t, 1, 4).throughputPool(4, 600)
	id := s.job("ann", "chipA", "n1", time.Hour)
	s.cycle()
	ended := *s.at(id)
	ended.State, ended.Ended = backends.Done, s.now
	s.state.Farm.Jobs, s.state.Farm.Ended = nil, []backends.Job{ended}
	s.cycle()
	p := s.cycle() // a queue may show an end twice
	if m := p.Memory.Throughput[1]; m.Finished != 1 || m.SlotSeconds < 3600 {
		t.Errorf("%+v", m)
	}
}

func TestMidWeekLoweringSparesTheSurplus(t *testing.T) { // R25
	s := newScene(t, 1, 4).pool("chipA", 3).pool("chipB", 4)
	s.policy.LoweredGrace = time.Hour
	for i := range 3 {
		s.job("ann", "chipA", "n1", time.Duration(i+2)*time.Hour)
	}
	s.job("cat", "", "n1", 30*time.Second) // too young
	s.cycle()
	s.policy.Allocations[0].Guarantee, s.policy.Allocations[0].Lowered, s.policy.Allocations[0].LoweredAt = 1, 2, s.now
	s.job("bob", "chipB", "", 0)
	if got := preempted(s.ripen()); got != "requeue 4" {
		t.Errorf("preempted %q: the surplus is spared for an hour", got)
	}
	s = newScene(t, 1, 3).pool("chipA", 3).pool("chipB", 4)
	s.policy.LoweredGrace = time.Hour
	for i := range 3 {
		s.job("ann", "chipA", "n1", time.Duration(i+2)*time.Hour)
	}
	s.cycle()
	s.policy.Allocations[0].Guarantee, s.policy.Allocations[0].Lowered, s.policy.Allocations[0].LoweredAt = 1, 2, s.now.Add(-time.Hour)
	s.job("bob", "chipB", "", 0)
	if got := preempted(s.ripen()); got != "requeue 1" {
		t.Errorf("preempted %q after the grace", got)
	}
}

func TestWeekEndMakesTheSurplusNormalAtOnce(t *testing.T) { // R25, Monday 00:00 with a full farm
	s := newScene(t, 1, 3).pool("chipA", 3).pool("chipB", 1)
	for i := range 3 {
		s.job("ann", "chipA", "n1", time.Duration(i+2)*time.Hour)
	}
	s.cycle()
	s.policy.Allocations[0].Guarantee = 2 // the new week's plan
	if p := s.cycle(); len(p.Actions) != 0 || p.Farm.Normal != 1 {
		t.Errorf("actions %v, %d normal: no job needs the surplus yet", p.Actions, p.Farm.Normal)
	}
	s.job("bob", "chipB", "", 0)
	if got := preempted(s.ripen()); got != "requeue 1" {
		t.Errorf("preempted %q, want the surplus", got)
	}
}
