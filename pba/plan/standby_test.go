package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newStandbyScene is a farm of hosts with slots each, and a pool of chipA whose project has
// standby slots.
func newStandbyScene(t *testing.T, hosts, slots, guarantee, standby int) *scene {
	t.Helper()
	s := newScene(t, hosts, slots).pool("chipA", guarantee)
	s.policy.Thresholds = map[string]time.Duration{"chipA": 0}
	s.policy.Standby = map[string]int{"chipA": standby}
	s.state.Abilities.Standbys = true
	s.state.Abilities.Place = func(context.Context, []backends.Dummy) []backends.Submitted { panic("plan acts") }
	return s
}

// fill has bob run a one-slot job in each slot of these hosts.
func (s *scene) fill(hosts ...string) *scene {
	for _, name := range hosts {
		for _, h := range s.state.Farm.Hosts {
			for range h.Slots {
				if h.Name == name {
					s.job("bob", "", name, time.Hour)
				}
			}
		}
	}
	return s
}

// standby adds a standby job of a project, that runs on a host, or waits for a slot there.
func (s *scene) standby(project, host string, state backends.State) backends.ID {
	id := s.job("root", project, "", time.Minute, func(j *backends.Job) {
		j.DummyFor, j.Priority, j.NoRequeue, j.RunLimit, j.Asked = j.ID, standbyRank, true, time.Hour, []string{host}
		if j.State = state; state == backends.Running {
			j.Hosts, j.Started = []backends.Placement{{Host: host, Slots: 1}}, s.now.Add(-time.Minute)
		}
	})
	return id
}

// kept lists what a plan does about standby jobs, as "place 2 n1, drop 3".
func kept(p Plan) string {
	var all []string
	for _, a := range p.Actions {
		switch {
		case a.Job != (backends.ID{}):
		case a.Verb == Place:
			all = append(all, fmt.Sprintf("place %d %s", a.Slots[0], a.Hosts[0]))
		case a.Verb == Drop:
			all = append(all, fmt.Sprintf("drop %v", a.Dummies[0]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestStandbyTakesFreeSlotsFirst(t *testing.T) {
	s := newStandbyScene(t, 3, 4, 8, 4).fill("n1")
	s.job("bob", "", "n2*2", time.Hour)
	p := s.cycle()
	if kept(p) != "place 4 n3" || preempted(p) != "" {
		t.Errorf("%q, preempted %q; want 4 on the host with most free slots", kept(p), preempted(p))
	}
	if len(p.Actions) == 0 {
		t.FailNow()
	}
	if a := p.Actions[len(p.Actions)-1]; a.Project != "chipA" || a.Priority.Level() != backends.LevelPlaceholder || a.Limit != time.Hour {
		t.Errorf("placed %+v", a)
	}
	if p.Pools[0].Standby != 4 || p.Pools[0].Kept != 0 || !p.Pools[0].Below {
		t.Errorf("status %+v", p.Pools[0])
	}
}

func TestStandbyIsWhatIsLeftOfTheGuarantee(t *testing.T) {
	for _, c := range []struct {
		guarantee, standby, runs int
		want                     string
	}{
		{8, 4, 0, "place 4 n2"},
		{8, 4, 5, "place 3 n2"},
		{8, 4, 8, ""},
		{2, 4, 0, "place 2 n2"},
		{0, 4, 0, ""},
		{8, 0, 0, ""},
	} {
		s := newStandbyScene(t, 2, 8, c.guarantee, c.standby)
		for range c.runs {
			s.job("ann", "chipA", "n1", time.Hour)
		}
		s.job("bob", "", "n1*"+fmt.Sprint(8-c.runs), time.Hour)
		if c.runs == 8 {
			s.state.Farm.Jobs = s.state.Farm.Jobs[:8]
		}
		if p := s.cycle(); kept(p) != c.want {
			t.Errorf("%+v: %q", c, kept(p))
		}
	}
}

func TestStandbyOfSeveralPools(t *testing.T) {
	s := newStandbyScene(t, 4, 2, 1, 4).hostSet("gpu", "n4").poolOn("gpu", "chipA", 2)
	if p := s.cycle(); kept(p) != "place 1 n1, place 2 n4" {
		t.Errorf("%q, want each pool's on its own hosts", kept(p))
	}
}

func TestOneJobIsPreemptedForEachStandbyJobThatLacks(t *testing.T) {
	s := newStandbyScene(t, 2, 2, 3, 2).fill("n1", "n2")
	p := s.cycle()
	if kept(p) != "place 1 n2, place 1 n2" && kept(p) != "place 2 n2" || preempted(p) != "" {
		t.Fatalf("on a full farm %q, preempted %q; want two standby jobs where two jobs can be preempted, and none preempted yet", kept(p), preempted(p))
	}
	a, b := s.standby("chipA", "n2", backends.Pending), s.standby("chipA", "n2", backends.Pending)
	p = s.cycle()
	if preempted(p) != "requeue 4, requeue 3" || kept(p) != "" {
		t.Fatalf("preempted %q, %q; want one job for each standby job", preempted(p), kept(p))
	}
	for i, r := range p.Memory.Reclaims {
		if r.Beneficiary != []backends.ID{a, b}[i] || r.Pool != 1 || r.Project != "chipA" {
			t.Errorf("reclaim %+v", r)
		}
	}
}

func TestStandbyPreemptsNoMoreThanItLacks(t *testing.T) {
	s := newStandbyScene(t, 1, 4, 3, 2)
	s.job("bob", "", "n1*4", time.Hour)
	if p := s.cycle(); kept(p) != "" {
		t.Errorf("%q, want none: only a job of 4 slots could be preempted for 2", kept(p))
	}
	s.standby("chipA", "n1", backends.Pending)
	if p := s.cycle(); preempted(p) != "" || kept(p) != "drop 2" {
		t.Errorf("preempted %q, %q", preempted(p), kept(p))
	}
}

func TestStandbyWaitsForMinRuntimeAndTheHourlyBound(t *testing.T) {
	s := newStandbyScene(t, 1, 2, 1, 1)
	s.job("bob", "", "n1", 10*time.Second)
	s.job("bob", "", "n1", 10*time.Second)
	s.standby("chipA", "n1", backends.Pending)
	if p := s.cycle(); preempted(p) != "" {
		t.Errorf("preempted %q, which have run for 10 s", preempted(p))
	}
	s = newStandbyScene(t, 1, 2, 1, 1).fill("n1")
	s.standby("chipA", "n1", backends.Pending)
	s.state.Memory.Reclaims = []Reclaim{{ID: 1, Pool: 1, Phase: HandedOver, Planned: s.now.Add(-time.Minute), Victims: []Victim{{ID: backends.ID{Job: 90}, Slots: 2, Fate: Taken, Released: true}}}}
	s.state.Memory.NextID = 2
	for range 8 {
		if p := s.cycle(); preempted(p) != "" {
			t.Fatalf("preempted %q for a pool that had twice its slots preempted within the hour", preempted(p))
		}
	}
	s.state.Farm.Jobs = s.state.Farm.Jobs[:2]
	if p := s.cycle(); kept(p) != "" {
		t.Errorf("%q, though nothing may be preempted for it", kept(p))
	}
}

func TestJobStartsInAStandbyJobsSlot(t *testing.T) {
	s := newStandbyScene(t, 3, 2, 6, 4).fill("n1")
	a, b := s.standby("chipA", "n2", backends.Running), s.standby("chipA", "n2", backends.Running)
	s.standby("chipA", "n3", backends.Running)
	s.standby("chipA", "n3", backends.Running)
	id := s.job("ann", "chipA", "", 0)
	p := s.cycle()
	if kept(p) != fmt.Sprintf("drop %v", b) && kept(p) != fmt.Sprintf("drop %v", a) || preempted(p) != "" {
		t.Fatalf("%q, preempted %q; want one standby job to end, and nothing else", kept(p), preempted(p))
	}
	ranked, dropped := -1, -1
	for i, x := range p.Actions {
		if x.Verb == Rank && x.Job == id {
			ranked = i
		}
		if x.Verb == Drop {
			dropped = i
		}
	}
	if ranked < 0 || ranked > dropped {
		t.Errorf("the job is ranked by action %d, the standby job ends by %d: another job could start in its slot", ranked, dropped)
	}
	// The queue has not started it yet: nothing more ends, nothing is preempted, nothing placed.
	s.at(a).State = backends.Running
	s.state.Farm.Jobs = slices.DeleteFunc(s.state.Farm.Jobs, func(j backends.Job) bool { return kept(p) == fmt.Sprintf("drop %v", j.ID) })
	s.rank(p)
	if p = s.cycle(); kept(p) != "" || preempted(p) != "" {
		t.Errorf("in the next cycle %q, preempted %q", kept(p), preempted(p))
	}
}

func TestStandbyJobsYieldToJobsThatNeedSeveralSlots(t *testing.T) {
	for _, c := range []struct{ slots, drops, requeues int }{{2, 2, 0}, {3, 2, 1}, {4, 2, 2}} {
		s := newStandbyScene(t, 2, 4, 8, 3)
		for _, h := range []string{"n1", "n2"} {
			s.job("bob", "", h, time.Hour)
			s.job("bob", "", h, time.Hour)
		}
		s.job("bob", "", "n1", time.Hour)
		s.standby("chipA", "n1", backends.Running)
		a, b := s.standby("chipA", "n2", backends.Running), s.standby("chipA", "n2", backends.Running)
		s.job("ann", "chipA", "", 0, slots(c.slots))
		p := s.cycle()
		if kept(p) != fmt.Sprintf("drop %v, drop %v", a, b) || strings.Count(preempted(p), "requeue") != c.requeues {
			t.Errorf("%+v: %q, preempted %q", c, kept(p), preempted(p))
		}
	}
}

func TestJobThatFindsFreeSlotsLeavesTheStandbyJobs(t *testing.T) {
	s := newStandbyScene(t, 2, 2, 4, 2).fill("n1")
	s.standby("chipA", "n2", backends.Running)
	s.job("ann", "chipA", "", 0)
	if p := s.cycle(); kept(p) != "" {
		t.Errorf("%q", kept(p))
	}
}

func TestNoSlotIsPreemptedForAStandbyJobWhileAJobOfItsPoolWaits(t *testing.T) {
	s := newStandbyScene(t, 2, 2, 4, 2).fill("n1", "n2")
	s.standby("chipA", "n1", backends.Pending)
	s.job("ann", "chipA", "", 0, func(j *backends.Job) { j.Asked = []string{"n2"} })
	p := s.cycle()
	if len(p.Memory.Reclaims) != 1 || p.Memory.Reclaims[0].Beneficiary == (backends.ID{Job: 5}) {
		t.Errorf("reclaims %+v, want the job's alone", p.Memory.Reclaims)
	}
}

func TestStandbyJobsGiveWayToOtherPools(t *testing.T) {
	s := newStandbyScene(t, 2, 2, 2, 2).pool("chipB", 2)
	s.job("cat", "", "n1", 10*time.Second) // within min_runtime
	s.job("cat", "", "n1", 10*time.Second)
	a, b := s.standby("chipA", "n2", backends.Running), s.standby("chipA", "n2", backends.Running)
	s.job("bob", "chipB", "", 0, slots(2))
	var p Plan
	for range 4 {
		for i := range 2 {
			s.state.Farm.Jobs[i].Started = s.now.Add(-10 * time.Second)
		}
		p = s.cycle()
		s.rank(p)
	}
	if kept(p) != fmt.Sprintf("drop %v, drop %v", a, b) {
		t.Errorf("%q: the other pool's job is due, and finds slots nowhere else", kept(p))
	}
}

func TestStandbyJobIsNeverAVictimAndHoldsNoRoom(t *testing.T) {
	s := newStandbyScene(t, 1, 2, 1, 1).pool("chipB", 1)
	s.standby("chipA", "n1", backends.Running)
	s.job("cat", "", "n1", time.Hour)
	s.job("bob", "chipB", "", 0)
	if p := s.ripen(); preempted(p) != "requeue 2" || p.Pools[0].Charged != 0 || p.Farm.Kept != 1 || p.Farm.PBA != 0 {
		t.Errorf("preempted %q, pool %+v, farm %+v", preempted(p), p.Pools[0], p.Farm)
	}
}

func TestStandbyJobsEnd(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"not configured any more": func(s *scene) { s.policy.Standby = nil },
		"the pool ended":          func(s *scene) { s.policy.Allocations = nil },
		"its host is down":        func(s *scene) { s.state.Farm.Hosts[0].State = backends.HostDown },
		"the pool has no room":    func(s *scene) { s.job("ann", "chipA", "n2*4", time.Hour) },
		"its reclaim ended for it": func(s *scene) {
			s.state.Farm.Jobs[0].State, s.state.Farm.Jobs[0].Priority = backends.Pending, backends.At(backends.LevelHandOver, 220)
		},
	} {
		s := newStandbyScene(t, 2, 4, 4, 1)
		id := s.standby("chipA", "n1", backends.Running)
		change(s)
		if p := s.cycle(); !strings.Contains(kept(p), fmt.Sprintf("drop %v", id)) {
			t.Errorf("%s: %q", name, kept(p))
		}
	}
}

func TestStandbyJobIsReplacedBeforeItsLimit(t *testing.T) {
	s := newStandbyScene(t, 1, 2, 2, 1)
	id := s.standby("chipA", "n1", backends.Running)
	s.at(id).Started = s.now.Add(-55 * time.Minute)
	p := s.cycle()
	if kept(p) != fmt.Sprintf("drop %v, place 1 n1", id) || p.Actions[0].Verb != Place {
		t.Errorf("%q, %v first; want another one in its place, before it ends", kept(p), p.Actions[0].Verb)
	}
}

func TestStandbyOnAQueueThatKeepsNoSlots(t *testing.T) {
	s := newStandbyScene(t, 1, 2, 2, 1)
	s.state.Abilities.Standbys = false
	if p := s.cycle(); kept(p) != "" {
		t.Errorf("%q", kept(p))
	}
}
