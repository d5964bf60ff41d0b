package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newReliefScene is a farm of two hosts. A job of bob has 700 MiB on the first one, and asked for 500; the host has
// frozen it for 5 s, and asks to have it requeued.
func newReliefScene(t *testing.T, change ...func(*backends.Job)) (s *scene, hog backends.ID) {
	t.Helper()
	s = newScene(t, 2, 2).pool("chipA", 1)
	s.policy.GracePeriod = 7 * time.Second
	for i := range s.state.Farm.Hosts {
		s.state.Farm.Hosts[i].Memory = 1000 << 20
	}
	hog = s.job("bob", "", "n1", time.Hour, append([]func(*backends.Job){func(j *backends.Job) { j.Memory = 500 << 20 }}, change...)...)
	s.state.Pleas = []Plea{{Host: "n1", Job: hog, Verb: Requeue, Used: 700 << 20, Frozen: 5 * time.Second, Age: time.Second}}
	return s, hog
}

// placeOf returns the place of a plan's first action of a verb; -1: there is none.
func placeOf(p Plan, verb Verb) int {
	return slices.IndexFunc(p.Actions, func(a Action) bool { return a.Verb == verb })
}

func actOn(p Plan, verb Verb) *Action {
	if i := placeOf(p, verb); i >= 0 {
		return &p.Actions[i]
	}
	return nil
}

// R47: a job that has more memory than it asked for is requeued where its host asks for that, and asks for more
// before it starts again.
func TestHostsAreRelieved(t *testing.T) {
	s, hog := newReliefScene(t)
	p := s.cycle()
	a := actOn(p, Requeue)
	if a == nil {
		t.Fatalf("nothing is requeued: %v", p.Skipped)
	}
	if a.Job != hog || a.For != (backends.ID{}) || a.Reclaim != 0 || a.Grace != 0 || a.Mark != ReliefMark || !a.Until.Equal(noon.Add(s.policy.HoldLimit)) ||
		!a.Started.Equal(s.state.Farm.Jobs[0].Started) || a.Reason != "n1 lacks memory, and it has 700 MiB there and asked for 500" || !strings.Contains(a.Notice, "it had 700 MiB there and asked for 500") {
		t.Errorf("%+v", a)
	}
	j := &s.state.Farm.Jobs[0]
	s.state.Pleas = nil
	j.State, j.Hosts, j.Mark, j.HeldUntil, j.Wait = backends.Pending, nil, ReliefMark, a.Until, backends.WaitTime
	p = s.cycle()
	enlarge, release := actOn(p, Enlarge), actOn(p, Release)
	if enlarge == nil || enlarge.Job != hog || enlarge.Memory != 875<<20 || release == nil || release.Job != hog {
		t.Fatalf("%+v", p.Actions)
	}
	if placeOf(p, Enlarge) > placeOf(p, Release) {
		t.Error("it is released before it asks for more")
	}
	j.Memory, j.HeldUntil, j.Wait = 875<<20, time.Time{}, backends.WaitResources
	if p = s.cycle(); actOn(p, Enlarge) != nil || actOn(p, Release) != nil || p.Memory.Jobs[hog].Grew != 0 {
		t.Errorf("it goes on: %+v, %+v", p.Actions, p.Memory.Jobs[hog])
	}
}

// R47: whose run is not ended for its host's sake, and why.
func TestWhoStays(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*backends.Job)
		of     func(*scene, *Plea)
		why    string // "": it is not even mentioned
		acts   bool
	}{
		"one that grows":              {acts: true},
		"one that is to be killed":    {of: func(_ *scene, p *Plea) { p.Verb = Kill }, change: func(j *backends.Job) { j.NoRequeue = true }, acts: true},
		"within its request":          {of: func(_ *scene, p *Plea) { p.Used = 500 << 20 }, why: "it has 500 MiB there and asked for 500"},
		"asked for nothing":           {change: func(j *backends.Job) { j.Memory = 0 }, why: "asked for 0"},
		"on another host":             {of: func(_ *scene, p *Plea) { p.Host = "n2" }},
		"another job":                 {of: func(_ *scene, p *Plea) { p.Job.Job += 7 }},
		"a later run":                 {change: func(j *backends.Job) { j.Started = noon.Add(-5 * time.Second) }},
		"it is ending":                {change: func(j *backends.Job) { j.Ending = true }},
		"its owner forbids it":        {change: func(j *backends.Job) { j.NoRequeue = true }, why: "its owner forbids to requeue it"},
		"interactive":                 {change: func(j *backends.Job) { j.Interactive = true }, why: "it is interactive"},
		"a part":                      {change: func(j *backends.Job) { j.Component = true }, why: "a part of a job"},
		"charged to a pool":           {change: func(j *backends.Job) { j.User, j.Project = "ann", "chipA" }, why: "it is charged to chipA"},
		"never_victims":               {of: func(s *scene, _ *Plea) { s.policy.NeverVictims.Users = []string{"bob"} }, why: "never_victims names it"},
		"its queue is not managed":    {of: func(s *scene, _ *Plea) { s.policy.Queues = []string{"other"} }, why: "its queue is not managed"},
		"its host is not managed":     {of: func(s *scene, _ *Plea) { s.policy.Hosts = []string{"n2"} }, why: "it runs on a host that is not managed"},
		"an element, by its number":   {change: func(j *backends.Job) { j.HostNumber = 77 }, of: func(_ *scene, p *Plea) { p.Job = backends.ID{Job: 77} }, acts: true},
		"an element, by another's ID": {change: func(j *backends.Job) { j.HostNumber = 77 }},
	} {
		var changes []func(*backends.Job)
		if c.change != nil {
			changes = append(changes, c.change)
		}
		s, hog := newReliefScene(t, changes...)
		if c.of != nil {
			c.of(s, &s.state.Pleas[0])
		}
		p := s.cycle()
		acts := slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Job == hog && (a.Verb == Requeue || a.Verb == Kill) })
		said := ""
		for _, k := range p.Skipped {
			if k.Job == hog {
				said += k.Reason
			}
		}
		if acts != c.acts || !strings.Contains(said, c.why) || c.why == "" && strings.Contains(said, "lacks memory") {
			t.Errorf("%s: acts %v, want %v; %q, want %q", name, acts, c.acts, said, c.why)
		}
	}
}

// R33, R47: a job that can save itself is asked to, since its owner chose that; it asks for no more than a host has.
func TestReliefSavesAndFits(t *testing.T) {
	s, _ := newReliefScene(t, saving("SIGUSR1:30s"))
	s.policy.CheckpointMax, s.state.Abilities.SavesBySignal = 2*time.Minute, true
	s.state.Pleas[0].Used = 950 << 20
	p := s.cycle()
	if a := actOn(p, Requeue); a == nil || a.Save.Signal != "SIGUSR1" {
		t.Fatalf("%+v", a)
	}
	if got := p.Memory.Jobs[s.state.Farm.Jobs[0].ID].Grew; got != 1000<<20 {
		t.Errorf("it is to ask for %d MiB", got>>20)
	}
}
