package plan

import (
	"context"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// A heavy job that holds room in a pool on a host set gathers on the set's hosts, though
// another host is empty.
func TestHeavyJobsGatherOnThePoolsHosts(t *testing.T) { // R9, R29
	s := newScene(t, 2, 4).hostSet("big", "n2").poolOn("big", "chipA", 3)
	for i := range s.state.Farm.Hosts {
		s.state.Farm.Hosts[i].Memory = 16 << 30
	}
	s.policy.Dummies = dummy.Policy{Mode: dummy.Reserve, MaxGathering: 1, GatherTimeout: time.Hour, Limit: time.Hour}
	s.state.Abilities.ManagesMemory = false
	s.state.Abilities.Place = func(context.Context, []backends.Dummy) []backends.Submitted { panic("plan acts") }
	s.job("bob", "", "n2", time.Hour)
	s.job("bob", "", "n2", time.Hour)
	b := s.job("ann", "chipA", "", time.Minute, memory(10), func(j *backends.Job) { j.HeldUntil = s.now.Add(time.Hour) })
	at := ""
	for range 3 {
		p := s.cycle()
		s.rank(p)
		if poolOf(p, b) != 1 {
			t.Fatalf("it holds room in %d, want 1", poolOf(p, b))
		}
		for _, a := range p.Actions {
			if a.Verb == Place {
				at = a.Hosts[0]
			}
		}
	}
	if at != "n2" {
		t.Errorf("its last dummies are placed on %q, want n2", at)
	}
}

func TestUseFreeHeedsFormsAndResources(t *testing.T) { // R29, R32
	for name, c := range map[string]struct {
		change func(*backends.Job)
		want   bool
	}{
		"one slot":                  {slots(1), true},
		"one host":                  {slots(3), false},
		"slots on two":              {spanning(4), true},
		"two on each":               {func(j *backends.Job) { j.Slots, j.OneHost, j.PerHost = 4, false, 2 }, true},
		"three hosts of two":        {func(j *backends.Job) { j.Slots, j.OneHost, j.MinHosts = 3, false, 3 }, false},
		"a resource that is free":   {needs("gpu"), true},
		"a resource that is in use": {needs("fpga"), false},
		"hosts for itself":          {func(j *backends.Job) { j.Exclusive = true }, false},
	} {
		s := newScene(t, 2, 4).pool("chipA", 4).has("gpu", 1, "n1").has("fpga", 1, "n2")
		s.job("bob", "", "n1*2", time.Hour)
		s.job("bob", "", "n2*2", time.Hour, needs("fpga"))
		b := s.job("ann", "chipA", "", 0, c.change)
		f := decide(s.state, s.policy, s.now).farm
		for _, j := range f.resting {
			if j.ID != b {
				continue
			}
			if got := f.useFree(f.freeNow(), j); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	}
}
