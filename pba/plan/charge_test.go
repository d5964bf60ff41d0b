package plan

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func poolOf(p Plan, id backends.ID) int64 { return p.Memory.Jobs[id].Pool }

func TestChargingGoesByStartThenSpecificity(t *testing.T) { // R9
	s := newScene(t, 4, 4).pool("chipA", 2).pool("chipA@ann", 1).pool("chipA:syn@ann", 1)
	young := s.job("ann", "chipA:syn", "n1", time.Minute)
	old := s.job("ann", "chipA:syn", "n1", time.Hour)
	third := s.job("ann", "chipA:syn", "n2", 30*time.Second)
	p := s.cycle()
	if poolOf(p, old) != 3 || poolOf(p, young) != 2 || poolOf(p, third) != 1 {
		t.Errorf("charged to pools %d, %d, %d; want the oldest to user+step (3), then user (2), then project (1)", poolOf(p, old), poolOf(p, young), poolOf(p, third))
	}
}

func TestChargeMovesToMakeRoom(t *testing.T) { // R9: one path, one job moved per pool
	s := newScene(t, 4, 4).pool("chipA:a", 1).pool("chipA:b", 1).pool("chipA@ann", 1).pool("chipA", 1)
	annA := s.job("ann", "chipA:a", "n1", time.Hour)    // user pool first
	catA := s.job("cat", "chipA:a", "n1", time.Hour/2)  // step a
	catB := s.job("cat", "chipA:b", "n1", time.Hour/3)  // step b
	catB2 := s.job("cat", "chipA:b", "n1", time.Hour/4) // project pool
	before := s.cycle()
	for _, id := range []backends.ID{annA, catA, catB, catB2} {
		if poolOf(before, id) == 0 {
			t.Fatalf("%s is not charged", id)
		}
	}
	// Without the user's pool a second job of step a fits only if one moves on.
	s = newScene(t, 4, 4).pool("chipA:a", 1).pool("chipA@ann", 1)
	first := s.job("ann", "chipA:a", "n1", time.Hour)
	second := s.job("ann", "chipA:b", "n1", time.Hour/2)
	third := s.job("cat", "chipA:a", "n1", time.Hour/3)
	p := s.cycle()
	if poolOf(p, first) == 0 || poolOf(p, third) != 0 && poolOf(p, second) != 0 {
		t.Errorf("two slots are charged thrice: %d %d %d", poolOf(p, first), poolOf(p, second), poolOf(p, third))
	}
	if poolOf(p, first) != 1 || poolOf(p, second) != 2 {
		t.Errorf("first to %d, second to %d: the first must move to step a so that the second has ann's pool", poolOf(p, first), poolOf(p, second))
	}
}

func TestShrunkPoolKeepsItsOldest(t *testing.T) { // R9, R25
	s := newScene(t, 2, 4).pool("chipA", 3)
	a, b, c := s.job("ann", "chipA", "n1", 3*time.Hour), s.job("ann", "chipA", "n1", 2*time.Hour), s.job("ann", "chipA", "n1", time.Hour)
	s.cycle()
	s.policy.Allocations[0].Guarantee = 2
	p := s.cycle()
	if poolOf(p, a) == 0 || poolOf(p, b) == 0 || poolOf(p, c) != 0 {
		t.Errorf("charged: %d %d %d, want the two that started first", poolOf(p, a), poolOf(p, b), poolOf(p, c))
	}
}

func TestRoomGoesToRunningBeforePending(t *testing.T) { // R9
	s := newScene(t, 2, 4).pool("chipA", 1)
	running := s.job("ann", "chipA", "n1", time.Hour)
	pending := s.job("ann", "chipA", "", time.Hour)
	p := s.cycle()
	if poolOf(p, running) != 1 || poolOf(p, pending) != 0 {
		t.Errorf("running %d, pending %d", poolOf(p, running), poolOf(p, pending))
	}
}

func TestEnteredJobKeepsItsRoom(t *testing.T) { // R12
	s := newScene(t, 2, 4).pool("chipA", 1)
	pending := s.job("ann", "chipA", "", 0)
	s.cycle()
	later := s.job("ann", "chipA", "n1", time.Second) // a job of the pool started past it
	p := s.cycle()
	if poolOf(p, pending) != 1 || poolOf(p, later) != 0 {
		t.Errorf("pending %d, later %d: what starts later is charged after", poolOf(p, pending), poolOf(p, later))
	}
}

// Each cycle charges anew: jobs that fit into two pools must not displace one that holds room.
func TestEnteredJobKeepsItsRoomBesideJobsOfTwoPools(t *testing.T) { // R9, R12
	s := newScene(t, 2, 8).pool("chipA", 4).pool("chipA", 2)
	a, b := s.job("ann", "chipA", "n1", time.Hour), s.job("ann", "chipA", "n1", time.Hour)
	entered := s.job("ann", "chipA", "", 0, slots(4))
	s.state.Memory.Jobs = map[backends.ID]JobMemory{a: {Pool: 2}, b: {Pool: 2}, entered: {Pool: 1, Entered: s.now.Add(-time.Minute)}}
	if p := s.cycle(); poolOf(p, a) != 2 || poolOf(p, b) != 2 || poolOf(p, entered) != 1 {
		t.Errorf("they are in %d, %d and %d; want 2, 2 and 1 as before", poolOf(p, a), poolOf(p, b), poolOf(p, entered))
	}
}

// A pool that is too full for one job may still take a smaller one at the end of a chain.
func TestChainEndsInAPoolThatALargerJobDidNotFit(t *testing.T) { // R9
	s := newScene(t, 1, 60).pool("chipA", 9).pool("chipA", 8).pool("chipA", 11)
	s.job("ann", "chipA", "n1*5", 4*time.Hour)
	small := s.job("ann", "chipA", "n1", 4*time.Hour)
	fits := s.job("ann", "chipA", "n1*4", 3*time.Hour)
	s.job("ann", "chipA", "n1*8", 2*time.Hour)
	last := s.job("ann", "chipA", "n1*8", time.Hour)
	if p := s.cycle(); poolOf(p, last) == 0 || poolOf(p, fits) == 0 || poolOf(p, small) == 0 {
		t.Errorf("they are in %d, %d and %d", poolOf(p, small), poolOf(p, fits), poolOf(p, last))
	}
}

// What is in the way of a job that entered may have to change places with what is in its own.
func TestEnteredJobKeepsItsRoomThroughASwap(t *testing.T) { // R9, R12
	s := newScene(t, 2, 16).pool("chipA", 3).pool("chipA", 11)
	a, b := s.job("ann", "chipA", "n1", 3*time.Hour), s.job("ann", "chipA", "n1", 2*time.Hour)
	c := s.job("ann", "chipA", "n1*2", time.Hour)
	narrow, wide := s.job("ann", "chipA", "", 0, slots(2)), s.job("ann", "chipA", "", 0, slots(8))
	entered := s.now.Add(-time.Minute)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{
		a: {Pool: 1}, b: {Pool: 2}, c: {Pool: 1}, narrow: {Pool: 2, Entered: entered}, wide: {Pool: 2, Entered: entered},
	}
	if p := s.cycle(); poolOf(p, c) != 1 || poolOf(p, b) != 2 || poolOf(p, wide) != 2 || p.Memory.Jobs[wide].Kept != 0 {
		t.Errorf("they are in %d, %d and %d (%+v); want 1, 2 and 2 as before", poolOf(p, c), poolOf(p, b), poolOf(p, wide), p.Memory.Jobs[wide])
	}
}

func TestHeadReservesAvailableRoom(t *testing.T) { // R12
	s := newScene(t, 4, 4).pool("chipA", 4)
	s.job("ann", "chipA", "n1*2", time.Hour)
	wide := s.job("ann", "chipA", "", time.Minute, slots(3))
	narrow := s.job("ann", "chipA", "", 0)
	p := s.cycle()
	if p.Memory.Jobs[wide].Kept != 2 || poolOf(p, narrow) != 0 {
		t.Fatalf("head keeps %d of 2, narrow in pool %d", p.Memory.Jobs[wide].Kept, poolOf(p, narrow))
	}
	later := s.job("ann", "chipA", "n2", 10*time.Second)
	p = s.cycle()
	if poolOf(p, later) != 0 || p.Memory.Jobs[wide].Kept != 2 {
		t.Errorf("a job that started later has the head's room: pool %d, kept %d", poolOf(p, later), p.Memory.Jobs[wide].Kept)
	}
	s.state.Farm.Jobs = s.state.Farm.Jobs[1:] // the charged one ended
	p = s.cycle()
	if m := p.Memory.Jobs[wide]; m.Pool != 1 || m.Kept != 0 {
		t.Errorf("head with room for all of it: %+v", m)
	}
}

func TestNextInLineGoesByHeadroom(t *testing.T) { // R12: ceil(1.5 × pool × cycle / mean), less what runs beyond
	s := newScene(t, 4, 4).pool("chipA", 2)
	s.job("ann", "chipA", "n1*2", time.Hour)
	a, b := s.job("ann", "chipA", "", time.Minute), s.job("ann", "chipA", "", 0)
	if p := s.cycle(); len(p.Actions) != 0 {
		t.Errorf("before the first job ended no job is next in line: %v", p.Actions)
	}
	s.state.Memory.RunTimes = map[string][]RunEnd{s.policy.Allocations[0].Key(): {{ID: backends.ID{Job: 99}, Ran: time.Minute}}}
	p := s.cycle()
	s.rank(p)
	if s.at(a).Priority.Level() != backends.LevelNext || s.at(b).Priority.Level() != backends.LevelNormal {
		t.Errorf("levels %s and %s, want one slot next in line (1.5 × 2 × 20 s / 60 s)", s.at(a).Priority.Level(), s.at(b).Priority.Level())
	}
	s.job("ann", "chipA", "n2", time.Second)
	s.rank(s.cycle())
	if s.at(a).Priority.Level() != backends.LevelNormal {
		t.Error("the project runs one slot beyond its pool, and a job is still next in line")
	}
}

func TestNotEntitled(t *testing.T) {
	s := newScene(t, 2, 4).pool("chipA", 2)
	for name, id := range map[string]backends.ID{
		"not in the group": s.job("bob", "chipA", "", 0),
		"no such project":  s.job("ann", "chipZ", "", 0),
		"no pool":          s.job("bob", "chipB", "", 0),
		"too wide":         s.job("ann", "chipA", "", 0, slots(3)),
		"unknown user":     s.job("eve", "chipA", "", 0),
	} {
		e, ok := Explain(s.state, s.policy, s.now, id)
		if !ok || e.Class != "normal" || e.Tests[len(e.Tests)-1].Passed {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if p := s.cycle(); len(p.Memory.Jobs) != 0 || len(p.Actions) != 0 {
		t.Errorf("%+v", p.Actions)
	}
}

// A head that the queue started had no charge: it does not take the room of a job that entered.
func TestStartedHeadTakesNoRoomOfOthers(t *testing.T) { // R9, R12
	s := newScene(t, 1, 8).pool("chipA", 5)
	entered, head := s.job("ann", "chipA", "", 0, slots(4)), s.job("ann", "chipA", "n1*3", time.Minute)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{
		entered: {Pool: 1, Entered: s.now.Add(-time.Hour)},
		head:    {Pool: 1, Entered: s.now.Add(-time.Hour), Kept: 1},
	}
	if p := s.cycle(); poolOf(p, entered) != 1 || poolOf(p, head) != 0 {
		t.Errorf("they are in %d and %d", poolOf(p, entered), poolOf(p, head))
	}
}
