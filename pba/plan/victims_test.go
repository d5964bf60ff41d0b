package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// crowd adds users who are members of chipB or chipC, and returns a scene of seven slots that is
// full: four members of chipB run a job each, and members of chipC three, of which one is
// within its guarantee.
func crowd(t *testing.T) *scene {
	s := newScene(t, 1, 7).pool("chipA", 1).pool("chipC", 1)
	s.policy.Projects = append(s.policy.Projects, Project{Name: "chipC", Group: "chipc"})
	for i := range 4 {
		b, c := fmt.Sprintf("b%d", i), fmt.Sprintf("c%d", i)
		s.state.Groups[b], s.state.Groups[c] = []string{"chipb"}, []string{"chipc"}
		s.job(b, "chipB", "n1", time.Hour)
		if i < 3 {
			s.job(c, "chipC", "n1", time.Hour)
		}
	}
	return s
}

// A project without an allocation is over-subscribed with all that it runs, whoever of it does.
func TestProjectWithoutAllocationIsOverSubscribed(t *testing.T) { // R17
	s := crowd(t)
	s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if got := preempted(p); got == "" || p.Memory.Reclaims[0].Victims[0].Project != "chipB" {
		t.Errorf("preempted %q: %+v", got, p.Memory.Reclaims)
	}
	if want := []Beyond{{Project: "chipB", Slots: 4}, {Project: "chipC", Slots: 2}}; !slices.Equal(p.Beyond, want) {
		t.Errorf("beyond their pools: %+v", p.Beyond)
	}
}

// A user's jobs in projects without an allocation count together.
func TestSpreadingOverProjectsHidesNobody(t *testing.T) { // R17
	s := newScene(t, 1, 7).pool("chipA", 1)
	for i := range 4 {
		name := fmt.Sprintf("side%d", i)
		s.policy.Projects = append(s.policy.Projects, Project{Name: name, Group: "side"})
		s.job("dan", name, "n1", 2*time.Hour)
	}
	s.state.Groups["dan"] = []string{"side"}
	for range 3 {
		s.job("bob", "chipB", "n1", time.Hour)
	}
	s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) == "" || p.Memory.Reclaims[0].Victims[0].User != "dan" {
		t.Errorf("preempted %q", preempted(p))
	}
}

// Steps of a project without an allocation are told apart in reports, up to a bound.
func TestStepsOfProjectWithoutAllocation(t *testing.T) {
	s := newScene(t, 1, 64)
	for i := range 2 * maxStepsShown {
		s.job("bob", fmt.Sprintf("chipB:s%02d", i), "n1", time.Hour)
	}
	p := s.cycle()
	if len(p.Beyond) != maxStepsShown+1 || p.Beyond[0] != (Beyond{Project: "chipB", Slots: maxStepsShown}) || p.Beyond[1] != (Beyond{Project: "chipB", Step: "s00", Slots: 1}) {
		t.Errorf("%+v", p.Beyond)
	}
}

// What failed a test of the filter and sits in the lowest queue goes before normal jobs.
func TestLoweredJobsGoFirst(t *testing.T) { // R17
	low := func(j *backends.Job) { j.Queue = "low" }
	for name, change := range map[string]func(*backends.Job){
		"no project, in the lowest queue": low,
		"marked by the filter":            func(j *backends.Job) { j.Tag = backends.Tag{Low: true}.String() },
	} {
		s := crowd(t)
		s.policy.LowQueue = "low"
		s.state.Farm.Hosts[0].Slots++
		id := s.job("eve", "", "n1", 5*time.Hour, change)
		s.job("ann", "chipA", "", 0)
		if got := preempted(s.ripen()); got != "requeue "+id.String() {
			t.Errorf("%s: preempted %q", name, got)
		}
	}
	s := crowd(t) // who chose the lowest queue failed no test
	s.policy.LowQueue = "low"
	s.state.Farm.Hosts[0].Slots++
	id := s.job("c0", "chipC", "n1", 5*time.Hour, low)
	s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got == "requeue "+id.String() {
		t.Errorf("preempted %q", got)
	}
}

// A job that is too wide to be immune does not keep narrower ones from being so.
func TestNarrowJobIsImmuneBehindWideOne(t *testing.T) { // R16
	s := newScene(t, 1, 8).pool("chipA", 2)
	wide, narrow := s.job("bob", "", "n1*6", 2*time.Hour), s.job("bob", "", "n1*2", time.Hour)
	s.state.Memory.Jobs = map[backends.ID]JobMemory{wide: {Requeues: 3}, narrow: {Requeues: 3}}
	s.policy.UnpreemptableShare = 0.5
	s.job("ann", "chipA", "", 0, slots(2))
	if got := preempted(s.ripen()); got != "requeue "+wide.String() {
		t.Errorf("preempted %q: the narrow one is immune", got)
	}
}

// Of jobs of equal accounts the one that loses least goes, however long ago it started.
func TestLeastLostGoesFirst(t *testing.T) { // R34
	every := func(text string) func(*backends.Job) { return saving(text) }
	for name, c := range map[string]struct {
		change func(*backends.Job)
		spent  int // checkpoints on demand that failed
		first  bool
	}{
		"nothing is saved":             {change: func(*backends.Job) {}},
		"suspended":                    {change: suspendable, first: true},
		"saves itself every 7 minutes": {change: every("every:7m"), first: true}, // 7 minutes before now plus the cycles of the test
		"saves itself every 2 hours":   {change: every("every:2h")},
		"asked to save itself":         {change: every("SIGUSR1:30s"), first: true},
		"it failed to, twice":          {change: every("SIGUSR1:30s"), spent: 2},
	} {
		s := newScene(t, 1, 2).pool("chipA", 1)
		s.policy.CheckpointMax = 2 * time.Minute
		s.state.Abilities.SavesBySignal = true
		old := s.job("bob", "", "n1", 70*time.Minute, c.change)
		young := s.job("bob", "", "n1", 10*time.Minute)
		s.at(old).FailedSaves = c.spent
		s.job("ann", "chipA", "", 0)
		want := young
		if c.first {
			want = old
		}
		if got := preempted(s.ripen()); got != "requeue "+want.String() && got != "suspend "+want.String() {
			t.Errorf("%s: preempted %q, want %v", name, got, want)
		}
	}
}

// A job that lost more than its share of work goes only where no other will do, as long as such
// jobs hold no more than their share of the farm.
func TestJobsThatLostTooMuchAreProtected(t *testing.T) { // R35
	for name, c := range map[string]struct {
		lost  float64
		share float64
		other bool // there is another job
		want  string
	}{
		"it lost too much":            {lost: 3*3600 + 1, share: 0.5, other: true, want: "requeue 2"},
		"it lost no more than it may": {lost: 3 * 3600, share: 0.5, other: true, want: "requeue 1"},
		"beyond the share":            {lost: 3*3600 + 1, share: 0.2, other: true, want: "requeue 1"},
		"no other will do":            {lost: 3*3600 + 1, share: 0.5, want: "requeue 1"},
	} {
		s := newScene(t, 1, 4).pool("chipA", 1)
		s.policy.UnpreemptableShare = c.share
		id := s.job("bob", "", "n1", 10*time.Minute, func(j *backends.Job) { j.RunLimit = 3 * time.Hour })
		if c.other {
			s.job("bob", "", "n1*3", 20*time.Hour) // it frees more than is needed
		} else {
			s.state.Farm.Hosts[0].Slots = 1
			s.state.Farm.Hosts = append(s.state.Farm.Hosts, backends.Host{Name: "n2", Slots: 1})
			s.job("eve", "", "n2", time.Hour, func(j *backends.Job) { j.NoRequeue = true })
		}
		s.state.Memory.Jobs = map[backends.ID]JobMemory{id: {Requeues: 1, Lost: c.lost}}
		s.job("ann", "chipA", "", 0)
		if got := preempted(s.ripen()); got != c.want {
			t.Errorf("%s: preempted %q, want %q", name, got, c.want)
		}
	}
}
