package plan

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	dummies "github.com/allotment-hpc/allotment/dummy"
)

func TestUnneededDummiesAreDropped(t *testing.T) { // R31
	id := func(n int64) backends.ID { return backends.ID{Job: n} }
	farm := &backends.Snapshot{}
	for n, heavy := range []int64{0, 0, 1, 2, 1, 9, 2, 9} {
		farm.Jobs = append(farm.Jobs, backends.Job{ID: id(int64(n + 1)), DummyFor: id(heavy)})
	}
	gone := Action{Verb: Drop, Job: id(9), Dummies: []backends.ID{id(6), id(8)}, Reason: "job 9 is gone"}
	light := Action{Verb: Drop, Job: id(2), Dummies: []backends.ID{id(4), id(7)}, Reason: "job 2 needs no dummy jobs"}
	if d := cmp.Diff([]Action{light, gone}, drops(farm, []HeavyStatus{{Job: id(1), Host: "n1"}, {Job: id(2)}})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Action{gone}, drops(farm, []HeavyStatus{{Job: id(2), Host: "n1"}, {Job: id(1), Host: "n1"}})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	// With the mode off none is needed, and the memory does not change.
	s := newScene(t, 1, 4)
	s.job("ann", "chipA", "n1", 0)
	dummy := s.job("root", "", "n1", 0, func(j *backends.Job) { j.DummyFor = s.state.Farm.Jobs[0].ID })
	p := Prune(s.state, s.policy, s.now)
	if len(p.Actions) != 1 || !cmp.Equal(p.Actions[0].Dummies, []backends.ID{dummy}) || !cmp.Equal(p.Memory, s.state.Memory) {
		t.Errorf("%+v", p)
	}
	if e, _ := Explain(s.state, s.policy, s.now, dummy); e.Class != "dummy" {
		t.Errorf("explained as %+v", e)
	}
}

// A job of one slot that needs the memory of three, on hosts of four slots of 4 GiB.
func TestHeavyJobStatus(t *testing.T) { // R27, R29
	s := newScene(t, 1, 4)
	s.state.Farm.Hosts[0].Memory = 16 << 30
	s.policy.Dummies = dummies.Policy{Mode: dummies.Reserve, MaxGathering: 1, GatherTimeout: time.Hour, Limit: time.Hour}
	s.state.Abilities.ManagesMemory = false
	s.state.Abilities.Place = func(context.Context, []backends.Dummy) []backends.Submitted { return nil }
	id := s.job("ann", "chipA", "", time.Minute, memory(10), func(j *backends.Job) { j.HeldUntil = s.now.Add(time.Minute) })
	check := func(want string, status HeavyStatus) {
		t.Helper()
		e, _ := Explain(s.state, s.policy, s.now, id)
		if p := s.cycle(); e.Dummies != want || !cmp.Equal(p.Heavy, []HeavyStatus{status}) {
			t.Errorf("%q, %+v, want %q", e.Dummies, p.Heavy, want)
		}
	}
	check("gathers 3 slots on n1: 0 held", HeavyStatus{Job: id, Host: "n1", Need: 3, Gathers: true})
	for range 2 {
		s.job("root", "", "n1", time.Minute, func(j *backends.Job) { j.DummyFor = id })
	}
	check("has gathered its 3 slots on n1, and starts there", HeavyStatus{Job: id, Host: "n1", Need: 3, Dummies: 2, Gathers: true})
	j := s.at(id)
	j.State, j.HeldUntil, j.Started, j.Hosts = backends.Running, time.Time{}, s.now, []backends.Placement{{Host: "n1", Slots: 1}}
	check("needs that of 3 slots on n1: 2 held beside its own 1", HeavyStatus{Job: id, Host: "n1", Need: 3, Dummies: 2})
	if p := Prune(s.state, s.policy, s.now); len(p.Actions) != 0 {
		t.Errorf("prune drops what is needed: %+v", p.Actions)
	}
}
