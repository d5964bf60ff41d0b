package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newEarlyScene is a full farm of one-slot hosts and a pool of one slot whose project is
// served at once.
func newEarlyScene(t *testing.T, hosts int) *scene {
	t.Helper()
	s := newScene(t, hosts, 1).pool("chipA", 1)
	s.policy.Thresholds = map[string]time.Duration{"chipA": 0}
	for i := range hosts {
		s.job("bob", "", s.state.Farm.Hosts[i].Name, time.Hour)
	}
	return s
}

// finish ends the job that slots were preempted for, and puts another into its slot: the
// farm is full again.
func (s *scene) finish(id backends.ID, host string) {
	j := s.at(id)
	j.State, j.Ended = backends.Done, s.now
	for i := range s.state.Memory.Reclaims {
		r := &s.state.Memory.Reclaims[i]
		r.Phase, r.Ended = HandedOver, s.now
		for k := range r.Victims {
			s.at(r.Victims[k].ID).State = backends.Done
			r.Victims[k].Fate, r.Victims[k].Released = Taken, true
		}
	}
	s.job("bob", "", host, time.Hour)
}

func TestThresholdOfAProject(t *testing.T) {
	s := newEarlyScene(t, 2).pool("chipB", 1)
	first := s.job("ann", "chipA", "", 0)
	s.job("bob", "chipB", "", 0)
	p := s.cycle()
	if preempted(p) != "requeue 2" || p.Memory.Reclaims[0].Beneficiary != first || p.Memory.Reclaims[0].Pool != 1 {
		t.Fatalf("in the first cycle preempted %q, %+v; want one job, for %v alone", preempted(p), p.Memory.Reclaims, first)
	}
	s.policy.Thresholds["chipB"] = 20 * time.Second
	if p = s.cycle(); preempted(p) != "requeue 2, requeue 1" { // the first one repeated: the queue did not do it
		t.Errorf("after 20 s preempted %q, want 1 for the other pool", preempted(p))
	}
}

func TestLongerThresholdOfAProject(t *testing.T) {
	s := newEarlyScene(t, 1)
	s.policy.Thresholds["chipA"] = 2 * time.Minute
	s.job("ann", "chipA", "", 0)
	for range 6 { // clocks up to 100 s
		if p := s.cycle(); preempted(p) != "" {
			t.Fatalf("%s: preempted %q", p.At.Sub(noon), preempted(p))
		}
	}
	if p := s.cycle(); preempted(p) != "requeue 1" {
		t.Errorf("after two minutes preempted %q", preempted(p))
	}
}

func TestJobIsNotServedEarlyBeforeTheQueueLooked(t *testing.T) {
	s := newEarlyScene(t, 1)
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	id := s.job("ann", "chipA", "", 0)
	soon := func() Plan {
		p := Make(s.state, s.policy, s.now)
		s.state.Memory = p.Memory
		s.apply(p)
		s.now = s.now.Add(2 * time.Second)
		s.state.Farm.At = s.now
		return p
	}
	p := soon()
	if verbs(p, id) != "" || preempted(p) != "" || !p.Looks {
		t.Fatalf("the queue has not come to the job yet: %q, preempted %q, looks %t", verbs(p, id), preempted(p), p.Looks)
	}
	s.at(id).Considered = s.now
	p = soon()
	if verbs(p, id) != "pin n1" || preempted(p) != "" || !p.Looks {
		t.Fatalf("the queue has looked: %q, preempted %q, looks %t, %q", verbs(p, id), preempted(p), p.Looks, skipped(p, id))
	}
	s.at(id).Considered = time.Time{} // by the pin
	p = soon()
	if preempted(p) != "" || len(s.at(id).Pinned) == 0 || !p.Looks {
		t.Fatalf("the queue has not looked at the pinned job: preempted %q, pinned to %v, looks %t", preempted(p), s.at(id).Pinned, p.Looks)
	}
	s.at(id).Considered = s.now
	if p = soon(); preempted(p) != "requeue 1" || p.Looks {
		t.Errorf("the queue has looked at the pinned job: preempted %q, looks %t", preempted(p), p.Looks)
	}
}

func TestPoolIsServedEarlyForTwiceItsSlotsAnHour(t *testing.T) {
	s := newEarlyScene(t, 1)
	var id backends.ID
	for n := range 2 {
		id = s.job("ann", "chipA", "", 0)
		if p := s.cycle(); preempted(p) == "" {
			t.Fatalf("reclaim %d: nothing preempted: %q", n, skipped(p, id))
		}
		s.finish(id, "n1")
	}
	id = s.job("ann", "chipA", "", 0)
	for range 3 {
		p := s.cycle()
		if preempted(p) != "" || p.Pools[0].Early != 0 {
			t.Fatalf("a third slot within the hour, after %s: preempted %q, %d left", p.At.Sub(noon), preempted(p), p.Pools[0].Early)
		}
	}
	e, _ := Explain(s.state, s.policy, s.now.Add(-10*time.Second), id)
	if e.Threshold != time.Minute || !strings.Contains(strings.Join(e.Skipped, "; "), "2 slots were taken back for chipA within an hour") {
		t.Errorf("explained by a threshold of %s, %q", e.Threshold, e.Skipped)
	}
	if p := s.cycle(); preempted(p) == "" {
		t.Errorf("after the site's threshold nothing is preempted: %q", skipped(p, id))
	}
	s.finish(id, "n1")
	s.now = s.now.Add(time.Hour)
	s.state.Farm.At = s.now
	s.job("ann", "chipA", "", 0)
	if p := s.cycle(); preempted(p) == "" {
		t.Error("an hour later it is not served at once")
	}
}

func TestWideVictimsCountWhole(t *testing.T) {
	s := newScene(t, 1, 4).pool("chipA", 1)
	s.policy.Thresholds = map[string]time.Duration{"chipA": 0}
	s.job("bob", "", "n1*4", time.Hour)
	id := s.job("ann", "chipA", "", 0)
	if p := s.cycle(); preempted(p) != "" || !strings.Contains(skipped(p, id), "more than 2 slots") {
		t.Errorf("preempted %q, a job of 4 slots for a pool of 1; %q", preempted(p), skipped(p, id))
	}
	for range 2 {
		s.cycle()
	}
	if p := s.cycle(); preempted(p) != "requeue 1" {
		t.Errorf("after the site's threshold preempted %q", preempted(p))
	}
}
