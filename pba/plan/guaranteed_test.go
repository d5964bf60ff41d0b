package plan

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// TestQueueIsSentGuarantees (R37): while jobs of a pool come, for a day after, and of each
// host set by itself.
func TestQueueIsSentGuarantees(t *testing.T) {
	s := newScene(t, 4, 2).hostSet("gpu", "n3", "n4").poolOn("gpu", "chipA", 3).pool("chipB", 2)
	s.state.Abilities.Guarantee = func(context.Context, []backends.Guaranteed) error { return nil }
	sends := func(what string, want ...backends.Guaranteed) {
		t.Helper()
		p := s.cycle()
		if p.SendGuaranteed != (want != nil) || !slices.EqualFunc(p.Guaranteed, want, sameGuaranteed) {
			t.Errorf("%s: sent %v, %v, want %v", what, p.SendGuaranteed, p.Guaranteed, want)
		}
		if p.SendGuaranteed {
			s.state.Farm.Guaranteed = p.Guaranteed
		}
	}
	sends("no job of a pool")
	first := s.job("ann", "chipA", "n3", time.Minute)
	gpu := backends.Guaranteed{Slots: 3, Hosts: []string{"n3", "n4"}, Until: s.now.Add(24 * time.Hour)}
	sends("a job of one", gpu)
	sends("again")
	s.job("bob", "chipB", "", 0)
	rest := backends.Guaranteed{Slots: 2, Hosts: []string{"n1", "n2"}, Until: s.now.Add(24 * time.Hour)}
	sends("one of another waits", rest, gpu)
	s.policy.Allocations[0].Guarantee = 1
	gpu.Slots = 1
	sends("a guarantee is lowered", rest, gpu)
	s.state.Farm.Jobs = s.state.Farm.Jobs[:1]
	s.now = s.now.Add(12 * time.Hour)
	s.state.Farm.At = s.now
	gpu.Until = s.now.Add(24 * time.Hour)
	sends("after half a day", rest, gpu)
	s.at(first).State = backends.Exited
	s.now = rest.Until
	s.state.Farm.At, s.state.Farm.Guaranteed = s.now, []backends.Guaranteed{gpu} // the queue has dropped the other one
	sends("a day after the last job of a pool")
}
