package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newFixedScene is a farm of 40 slots, 4 of which jobs that can't be preempted may hold.
func newFixedScene(t *testing.T) *scene {
	s := newScene(t, 4, 10).pool("chipA", 2)
	s.policy.HoldFixed = true
	return s
}

func noRequeue(j *backends.Job) { j.NoRequeue = true }

// filtered is a job as the submit filter leaves one that can't be preempted.
func filtered(s *scene) func(*backends.Job) {
	return func(j *backends.Job) {
		j.NoRequeue, j.Wait, j.HeldUntil = true, backends.WaitTime, s.now.Add(s.policy.HoldLimit)
		j.Tag = backends.Tag{Held: j.HeldUntil.Unix(), Fixed: true}.String()
	}
}

// holds lists what a plan does about holds, as "release 3, hold 4".
func holds(p Plan) string {
	var acts []string
	for _, a := range p.Actions {
		if a.Verb == Hold || a.Verb == Release {
			acts = append(acts, string(a.Verb)+" "+a.Job.String())
		}
	}
	return strings.Join(acts, ", ")
}

// hold does a plan's holds and releases as the queue would.
func (s *scene) hold(p Plan) {
	for _, a := range p.Actions {
		switch j := s.at(a.Job); a.Verb {
		case Hold:
			j.HeldUntil, j.Wait = a.Until, backends.WaitTime
		case Release:
			j.HeldUntil, j.Wait = time.Time{}, backends.WaitResources
		}
	}
}

func TestFixedJobsAreReleasedAsTheShareAllows(t *testing.T) { // R22
	for name, c := range map[string]struct {
		jobs func(*scene)
		want string
	}{
		"half of it to one user": {func(s *scene) {
			for range 3 {
				s.job("bob", "", "", time.Hour, filtered(s))
			}
		}, "release 1, release 2"},
		"all of it to two, oldest first": {func(s *scene) {
			for i := range 6 {
				s.job([]string{"bob", "cat"}[i%2], "", "", time.Duration(i)*time.Minute, filtered(s))
			}
		}, "release 6, release 5, release 4, release 3"},
		"what runs counts": {func(s *scene) {
			s.job("bob", "", "n1*2", time.Hour, noRequeue)
			s.job("cat", "", "n1", time.Hour, func(j *backends.Job) { j.Interactive = true })
			s.job("dan", "", "", time.Hour, filtered(s))
			s.job("eve", "", "", time.Minute, filtered(s))
		}, "release 3"},
		"what runs and can be preempted does not": {func(s *scene) {
			s.job("bob", "", "n1*9", time.Hour)
			s.job("dan", "", "", time.Hour, filtered(s))
		}, "release 2"},
		"what runs on a host that it closes counts": {func(s *scene) {
			s.state.Farm.Hosts[0].State = backends.HostClosed
			s.job("bob", "", "n1", time.Hour, func(j *backends.Job) { j.Exclusive = true })
			s.job("bob", "", "", time.Hour, filtered(s))
		}, ""},
		"what was released and waits counts": {func(s *scene) {
			s.job("bob", "", "n1", time.Hour, noRequeue)
			s.job("bob", "", "", time.Hour, noRequeue)
			s.job("bob", "", "", time.Hour, filtered(s))
		}, ""},
		"what came past the filter is held": {func(s *scene) {
			for range 4 {
				s.job("bob", "", "", time.Minute, noRequeue)
			}
		}, "hold 3, hold 4"},
		"a pool with room": {func(s *scene) {
			s.job("bob", "", "n1*4", time.Hour, noRequeue)
			for range 3 {
				s.job("ann", "chipA", "", time.Minute, filtered(s))
			}
		}, "release 2, release 3"},
		"a wide one waits for its turn, and younger ones for it": {func(s *scene) {
			s.job("bob", "", "n1", time.Hour, noRequeue)
			s.job("cat", "", "", time.Hour, filtered(s), slots(4))
			s.job("dan", "", "", time.Minute, filtered(s))
		}, ""},
		"a wide one alone":                  {func(s *scene) { s.job("cat", "", "", time.Hour, filtered(s), slots(4)) }, "release 1"},
		"wider than a farm that has shrunk": {func(s *scene) { s.job("cat", "", "", time.Hour, filtered(s), slots(9)) }, "release 1"},
		"its own begin time": {func(s *scene) {
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.BeginTime = s.now.Add(time.Hour); j.HeldUntil = j.BeginTime })
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.BeginTime = s.now.Add(30 * time.Second) })
		}, "release 2"},
		"a dependency": {func(s *scene) {
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.Wait = backends.WaitDependency })
		}, ""},
		"held by its owner": {func(s *scene) {
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.State = backends.Held })
		}, ""},
		"as many elements as may run": {func(s *scene) {
			for i := range 2 {
				s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.ID = backends.ID{Job: 9, Index: i + 1}; j.ArrayLimit = 1 })
			}
		}, "release 9[1]"},
		"no longer of that kind": {func(s *scene) {
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.NoRequeue = false })
		}, "release 1"},
		"a hold of another kind": {func(s *scene) {
			s.job("bob", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.NoRequeue, j.Tag = false, "" })
		}, ""},
		"half of the hold is over": {func(s *scene) {
			s.job("bob", "", "n1*4", time.Hour, noRequeue)
			s.job("cat", "", "", time.Hour, filtered(s), func(j *backends.Job) { j.HeldUntil = s.now.Add(s.policy.HoldLimit/2 - time.Second) })
		}, "hold 2"},
		"one that lost its pool while it was pinned counts": {func(s *scene) {
			s.job("bob", "", "", time.Minute, noRequeue, slots(4), func(j *backends.Job) { j.Pinned = []string{"n1"} })
			s.job("cat", "", "", time.Hour, filtered(s))
		}, ""},
		"on_excess: pass": {func(s *scene) {
			s.policy.HoldFixed = false
			s.job("bob", "", "n1*4", time.Hour, noRequeue)
			s.job("cat", "", "", time.Hour, filtered(s))
			s.job("cat", "", "", time.Hour, noRequeue)
		}, "release 2"},
		"a queue that counts them": {func(s *scene) {
			s.state.Abilities.CountsFixed = true
			s.job("bob", "", "n1*4", time.Hour, noRequeue)
			s.job("cat", "", "", time.Hour, noRequeue)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixedScene(t)
			c.jobs(s)
			p := s.cycle()
			if got := holds(p); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			s.hold(p)
			if again := holds(s.cycle()); again != "" {
				t.Errorf("the next cycle: %q", again)
			}
		})
	}
}

// All of a burst runs in the end, and never more of it than the share allows, though its
// jobs wait for many times their hold (R21, R22).
func TestFixedBurstRunsInTheEnd(t *testing.T) {
	s := newFixedScene(t)
	const jobs = 24
	for i := range jobs {
		s.job([]string{"bob", "cat", "dan"}[i%3], "", "", 0, filtered(s))
	}
	ran := 0
	for cycle := 0; ran < jobs; cycle++ {
		if cycle > 1000 {
			t.Fatalf("%d of %d ran", ran, jobs)
		}
		s.hold(s.cycle())
		running := 0
		for i := range s.state.Farm.Jobs {
			j := &s.state.Farm.Jobs[i]
			switch {
			case j.State == backends.Running && s.now.Sub(j.Started) > 15*time.Minute:
				j.State = backends.Done
				ran++
			case j.State == backends.Pending && !j.HeldUntil.After(s.now):
				j.State, j.Started, j.HeldUntil, j.Hosts = backends.Running, s.now, time.Time{}, []backends.Placement{{Host: "n1", Slots: 1}}
			}
			if j.State == backends.Running {
				running++
			}
		}
		if running > 4 {
			t.Fatalf("%d run, 4 may", running)
		}
	}
}

// A job that its pool has room for is released once, though the queue starts it only some
// cycles later, and says meanwhile that it waits for a time, or for a reason of its own.
func TestFixedJobOfAPoolIsReleasedOnce(t *testing.T) {
	for _, wait := range []backends.Wait{backends.WaitTime, backends.WaitOther} {
		s := newFixedScene(t)
		s.job("bob", "", "n1*4", time.Hour, noRequeue)
		id := s.job("ann", "chipA", "", time.Minute, filtered(s))
		p := s.cycle()
		s.hold(p)
		got := []string{holds(p)}
		cycles := 6
		if wait == backends.WaitOther { // for a moment
			cycles = 1
		}
		s.at(id).Wait = wait
		for range cycles {
			p = s.cycle()
			got = append(got, holds(p))
			if c := p.Memory.Jobs[id].Clock; c != 0 {
				t.Errorf("its clock is %s while it is on its way", c)
			}
		}
		s.at(id).Wait = backends.WaitResources
		p = s.cycle()
		if all := strings.Join(append(got, holds(p)), ""); all != "release 2" || poolOf(p, id) != 1 {
			t.Errorf("it waits for %d: %q, in pool %d at last", wait, all, poolOf(p, id))
		}
	}
}

func TestExplainSaysWhyFixedJobsWait(t *testing.T) { // R27
	s := newFixedScene(t)
	s.job("bob", "", "n1*2", time.Hour, noRequeue)
	id := s.job("bob", "", "", time.Hour, filtered(s))
	e, _ := Explain(s.state, s.policy, s.now, id)
	want := fmt.Sprintf("it can't be preempted, and waits: of the 4 slots that such jobs may hold, one user may hold 2, and bob holds 2; it is held until %s, and longer while it waits", s.now.Add(s.policy.HoldLimit).Format(time.RFC3339))
	if e.Place != want {
		t.Errorf("%q\nwant %q", e.Place, want)
	}
}
