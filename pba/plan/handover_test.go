package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// started lists what a plan puts straight into slots, as "2 in [n1] [1]".
func started(p Plan) string {
	var all string
	for _, a := range p.Actions {
		if a.Verb == Start {
			all += fmt.Sprintf("%s in %v %v;", a.Job, a.Hosts, a.Slots)
		}
	}
	return all
}

func TestStraightIntoFreedSlots(t *testing.T) { // R19
	for name, x := range map[string]struct {
		meanwhile func(*scene)
		unable    bool
		want      string
	}{
		"freed":                   {want: "2 in [n1] [1];"},
		"by a requeue":            {meanwhile: func(s *scene) { s.at(backends.ID{Job: 1}).State = backends.Pending }, want: "2 in [n1] [1];"},
		"the queue can't":         {unable: true},
		"still at work":           {meanwhile: func(s *scene) { s.at(backends.ID{Job: 1}).State = backends.Running }},
		"occupied by another job": {meanwhile: func(s *scene) { s.job("cat", "", "n1", time.Second) }},
		"its host went down":      {meanwhile: func(s *scene) { s.state.Farm.Hosts[0].State = backends.HostDown }},
		"it was held":             {meanwhile: func(s *scene) { s.at(backends.ID{Job: 2}).State = backends.Held }},
		"it has started":          {meanwhile: func(s *scene) { s.at(backends.ID{Job: 2}).State = backends.Running }},
		"it waits for a time":     {meanwhile: func(s *scene) { s.at(backends.ID{Job: 2}).Wait = backends.WaitTime }},
		"the reason is unknown":   {meanwhile: func(s *scene) { s.at(backends.ID{Job: 2}).Wait = backends.WaitOther }},
	} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		if !x.unable {
			s.state.Abilities.Start = func(context.Context, backends.ID, []backends.Placement) error { panic("plan acts") }
		}
		victim := s.job("bob", "", "n1", time.Hour, suspendable)
		s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if preempted(p) != "suspend 1" || started(p) != "" {
			t.Fatalf("%s: preempted %q, started %q", name, preempted(p), started(p))
		}
		v := s.at(victim)
		v.State, v.Mark = backends.Suspended, "r1"
		if x.meanwhile != nil {
			x.meanwhile(s)
		}
		if got := started(s.cycle()); got != x.want {
			t.Errorf("%s: started %q, want %q", name, got, x.want)
		}
	}
}

// What a queue says of a job whose host is briefly unavailable cancels no reclaim, or
// another job would be preempted next.
func TestUnknownWaitCancelsNoReclaim(t *testing.T) { // R18
	s := newScene(t, 1, 2).pool("chipA", 1)
	victim := s.job("bob", "", "n1", time.Hour, suspendable)
	s.job("cat", "", "n1", time.Hour, suspendable)
	b := s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "suspend 1" && preempted(p) != "suspend 2" {
		t.Fatalf("preempted %q", preempted(p))
	} else if preempted(p) == "suspend 2" {
		victim.Job = 2
	}
	v := s.at(victim)
	v.State, v.Mark = backends.Suspended, "r1"
	for _, wait := range []backends.Wait{backends.WaitOther, backends.WaitOther, backends.WaitResources} {
		s.at(b).Wait = wait
		p := s.cycle()
		if r := p.Memory.Reclaims; preempted(p) != "" || len(r) != 1 || !r[0].Phase.Open() {
			t.Fatalf("while it waits for %v: preempted %q, %+v", wait, preempted(p), r)
		}
	}
	s.at(b).Wait = backends.WaitTime
	if p := s.cycle(); p.Memory.Reclaims[0].Phase != Cancelled {
		t.Errorf("its owner delayed it: %+v", p.Memory.Reclaims)
	}
}

// Two reclaims of one host: a slot that one beneficiary starts in is not assigned to the other.
func TestSlotIsAssignedOnce(t *testing.T) { // R19
	s := newScene(t, 1, 2).pool("chipA", 2)
	s.state.Abilities.Start = func(context.Context, backends.ID, []backends.Placement) error { panic("plan acts") }
	for range 2 {
		s.job("bob", "", "n1", time.Hour, suspendable)
	}
	s.job("ann", "chipA", "", 0)
	s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "suspend 2, suspend 1" && preempted(p) != "suspend 1, suspend 2" {
		t.Fatalf("preempted %q", preempted(p))
	}
	for _, r := range s.state.Memory.Reclaims {
		for _, victim := range r.Victims {
			v := s.at(victim.ID)
			v.State, v.Mark = backends.Suspended, r.Mark()
		}
	}
	s.job("cat", "", "n1", time.Second)
	if got := started(s.cycle()); got != "3 in [n1] [1];" {
		t.Errorf("started %q, want one of them", got)
	}
}

// Two reclaims of one host, of which the first is over: where the queue starts no beneficiary by
// itself, what the second frees is not left to the first one's victim.
func TestVictimYieldsToOtherReclaims(t *testing.T) { // R20
	verbs := func(p Plan, id backends.ID) string {
		var all []string
		for _, a := range p.Actions {
			if a.Job == id {
				all = append(all, string(a.Verb))
			}
		}
		return strings.Join(all, " ")
	}
	for name, x := range map[string]struct {
		change   func(*scene)
		resuming bool
		want     string
		later    string // once the second beneficiary runs
	}{
		"it is held on":              {want: "hold", later: "resume"},
		"it waits to be resumed":     {resuming: true, want: "hold", later: "resume"},
		"the queue starts by itself": {change: func(s *scene) { s.state.Abilities.Start = nil }, want: "resume", later: "resume"},
		"so it does, and it resumes": {change: func(s *scene) { s.state.Abilities.Start = nil }, resuming: true},
		"slots are left for it":      {change: func(s *scene) { s.end(backends.ID{Job: 3}) }, want: "resume", later: "resume"},
		"they are, and it resumes":   {change: func(s *scene) { s.end(backends.ID{Job: 3}) }, resuming: true},
		"the other reclaim is over":  {change: func(s *scene) { s.at(backends.ID{Job: 5}).State = backends.Held }, want: "resume", later: "resume"},
	} {
		s := newScene(t, 1, 3).pool("chipA", 2)
		s.state.Abilities.Start = func(context.Context, backends.ID, []backends.Placement) error { panic("plan acts") }
		first := s.job("bob", "", "n1", time.Hour, suspendable)
		second := s.job("bob", "", "n1", time.Hour)
		s.job("bob", "", "n1", time.Hour, func(j *backends.Job) { j.NoRequeue = true })
		s.job("ann", "chipA", "", 0)
		s.job("ann", "chipA", "", 0)
		if p := s.ripen(); preempted(p) != "suspend 1, requeue 2" {
			t.Fatalf("%s: preempted %q", name, preempted(p))
		}
		stopped, requeued, beneficiary := s.at(first), s.at(second), s.at(backends.ID{Job: 4})
		stopped.State, stopped.Mark, stopped.Resuming = backends.Suspended, "r1", x.resuming
		requeued.Mark, requeued.Ending = "r2", true
		beneficiary.State, beneficiary.Started, beneficiary.Hosts = backends.Running, s.now, stopped.Hosts
		if x.change != nil {
			x.change(s)
		}
		if !x.resuming {
			stopped.HeldUntil = s.now.Add(time.Minute)
		}
		for i, want := range []string{x.want, x.want} {
			if got := verbs(s.cycle(), first); got != want {
				t.Errorf("%s: in cycle %d the stopped victim's actions are %q, want %q", name, i+1, got, want)
			}
			requeued.State, requeued.Hosts, requeued.Ending, requeued.HeldUntil = backends.Pending, nil, false, s.now.Add(time.Hour)
		}
		if x.want == "hold" {
			stopped.Resuming, stopped.HeldUntil = false, s.now.Add(time.Minute)
		}
		other := s.at(backends.ID{Job: 5})
		other.State, other.Started, other.Hosts = backends.Running, s.now, stopped.Hosts
		if got := verbs(s.cycle(), first); got != x.later {
			t.Errorf("%s: once the other beneficiary runs they are %q, want %q", name, got, x.later)
		}
	}
}

// end removes a job that has ended.
func (s *scene) end(id backends.ID) {
	s.state.Farm.Jobs = slices.DeleteFunc(s.state.Farm.Jobs, func(j backends.Job) bool { return j.ID == id })
}

// A reclaim on a host that goes down ends in the next cycle, and slots are preempted elsewhere in
// the same one: what the queue says of a job that is pinned to such a host is not the job's own (R18).
func TestHostDownCancelsReclaim(t *testing.T) {
	for name, state := range map[string]backends.HostState{"down": backends.HostDown, "closed": backends.HostClosed} {
		s := newScene(t, 2, 1).pool("chipA", 1)
		for _, host := range []string{"n1", "n2"} {
			s.job("bob", "", host, time.Hour)
		}
		b := s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if preempted(p) != "requeue 2" || len(p.Memory.Reclaims) != 1 {
			t.Fatalf("%s: preempted %q", name, preempted(p))
		}
		victim := s.at(backends.ID{Job: 2})
		victim.Mark, victim.Ending = p.Memory.Reclaims[0].Mark(), true // its host can't report its end
		s.at(b).Pinned, s.at(b).Wait = []string{"n2"}, backends.WaitOther
		s.state.Farm.Hosts[1].State = state
		p = s.cycle()
		pinned, served := "n2", ""
		for _, a := range p.Actions {
			if a.Job == b && (a.Verb == PinTo || a.Verb == Unpin) {
				pinned = strings.Join(a.Hosts, " ")
			}
		}
		if state == backends.HostDown {
			served = "requeue 1"
		}
		if r := p.Memory.Reclaims[0]; (r.Phase == Cancelled) != (served != "") || (pinned == "n1") != (served != "") || preempted(p) != served {
			t.Errorf("%s: pinned to %q, preempted %q, %+v", name, pinned, preempted(p), r)
		}
	}
}

// A job that is pinned to a host that went down is unpinned also where nothing can serve it, and
// keeps its place in its pool and its clock.
func TestStrandedJobKeepsItsClock(t *testing.T) {
	s := newScene(t, 2, 1).pool("chipA", 1)
	s.policy.MinRuntime = time.Hour // the job on n1 is spared
	s.job("bob", "", "n1", time.Minute)
	s.job("bob", "", "n2", time.Hour)
	b := s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "requeue 2" {
		t.Fatalf("preempted %q", preempted(p))
	}
	s.at(b).Pinned, s.at(b).Wait = []string{"n2"}, backends.WaitOther
	s.state.Farm.Hosts[1].State = backends.HostDown
	p := s.cycle()
	unpinned := slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb == Unpin && a.Job == b })
	if m := p.Memory.Jobs[b]; !unpinned || m.Pool == 0 || m.Clock < s.policy.PendingThreshold || preempted(p) != "" {
		t.Errorf("%+v, preempted %q, %+v", m, preempted(p), p.Actions)
	}
}

// A victim that its requeue ended for good is reported once, and counted as preempted.
func TestLostVictimIsReportedOnce(t *testing.T) { // R18
	s := newScene(t, 1, 1).pool("chipA", 1)
	victim := s.job("bob", "", "n1", time.Hour)
	s.job("ann", "chipA", "", 0)
	s.ripen()
	ended := *s.at(victim)
	s.state.Farm.Jobs = s.state.Farm.Jobs[1:]
	ended.State, ended.Ended, ended.Mark, ended.Lost = backends.Exited, s.now, "r1", true
	s.state.Farm.Ended = []backends.Job{ended}
	p := s.cycle()
	if r := p.Memory.Reclaims[0]; r.Victims[0].Fate != Lost || len(p.Warnings) != 1 {
		t.Errorf("%+v, warnings %q", r, p.Warnings)
	}
	if p = s.cycle(); p.Memory.Reclaims[0].Victims[0].Fate != Lost || len(p.Warnings) != 0 {
		t.Errorf("reported again: %+v, warnings %q", p.Memory.Reclaims[0], p.Warnings)
	}
}

// A beneficiary's pin ends by itself, and is renewed before that; where it can't end
// there is none if the queue puts the beneficiary straight into its slots.
func TestPinEndsAndIsRenewed(t *testing.T) { // R21
	pins := func(p Plan) (pins []Action) {
		for _, a := range p.Actions {
			if a.Verb == PinTo {
				pins = append(pins, a)
			}
		}
		return pins
	}
	for name, x := range map[string]struct{ ends, straight, want bool }{
		"it can end":             {ends: true, want: true},
		"it can, and straight":   {ends: true, straight: true, want: true},
		"it can't":               {want: true}, // Slurm's: docs/slurm.md
		"it can't, and straight": {straight: true},
	} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		s.state.Abilities.PinEnds = x.ends
		if x.straight {
			s.state.Abilities.Start = func(context.Context, backends.ID, []backends.Placement) error { panic("plan acts") }
		}
		s.job("bob", "", "n1", time.Hour)
		b := s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if got := pins(p); (len(got) == 1) != x.want || x.want && got[0].Until.IsZero() == x.ends {
			t.Fatalf("%s: %+v", name, got)
		}
		if !x.ends {
			continue
		}
		j := s.at(b)
		j.Pinned, j.PinEnds = []string{"n1"}, pins(p)[0].Until
		if got := pins(s.cycle()); len(got) != 0 {
			t.Errorf("%s: pinned again at once: %+v", name, got)
		}
		j.PinEnds = s.now.Add(s.policy.HoldLimit/2 - time.Second)
		if got := pins(s.cycle()); len(got) != 1 || !got[0].Until.After(j.PinEnds) {
			t.Errorf("%s: not renewed: %+v", name, got)
		}
	}
}

// A queue may list the hosts of a pin in its own order: the pin is not written again. Where
// the pin says how many slots each host gives, the order counts.
func TestPinInAnotherOrderStands(t *testing.T) { // R19
	for name, shares := range map[string][]int{"hosts alone": nil, "with shares": {2, 1}} {
		s := newScene(t, 2, 2).pool("chipA", 3)
		s.state.Abilities.PinEnds, s.state.Abilities.PinShares = false, shares != nil
		s.job("bob", "", "n1*2", time.Hour)
		s.job("bob", "", "n2", time.Hour)
		s.job("cat", "", "n2", time.Minute)
		b := s.job("ann", "chipA", "", 0, slots(3), lying(2, 2, 0, 0))
		p := s.ripen()
		if placed(p) != "n1*2 n2*1" {
			t.Fatalf("%s: slots are taken back at %q", name, placed(p))
		}
		s.at(b).Pinned, s.at(b).Shares = []string{"n2", "n1"}, shares
		again := strings.Contains(verbs(s.cycle(), b), "pin")
		if again != (shares != nil) {
			t.Errorf("%s: a pin to n2 and n1 is written again: %v", name, again)
		}
	}
}

// Beneficiaries that wait for several hosts go before those that wait for one; among them
// go first those that may run on all hosts. What an owner claims gains no such place.
func TestBeneficiariesOfSeveralHostsGoFirst(t *testing.T) { // R19
	s := newScene(t, 6, 1).pool("chipA", 5)
	for i := range 6 {
		s.job("bob", "", fmt.Sprintf("n%d", i+1), time.Hour)
	}
	one := s.job("ann", "chipA", "", 0)
	some := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0), func(j *backends.Job) { j.Suits = &backends.HostSet{Hosts: []string{"n3", "n4", "n5"}} })
	all := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0))
	p := s.ripen()
	want := map[backends.ID]int{one: 220, some: 420, all: 620}
	for id, value := range want {
		if got := s.at(id).Priority; got != backends.At(backends.LevelHandOver, value) {
			t.Errorf("job %s: %v %d, want a hand-over's %d (preempted: %s)", id, got.Level(), got.Value(), value, preempted(p))
		}
	}
	for _, a := range p.Actions {
		if a.Verb == Requeue {
			j := s.at(a.Job)
			j.Mark, j.State, j.Hosts, j.HeldUntil = a.Mark, backends.Pending, nil, a.Until
		}
	}
	s.at(one).Priority = backends.At(backends.LevelHandOver, 620)
	s.at(all).Priority = backends.At(backends.LevelHandOver, 220)
	s.rank(s.cycle())
	for id, value := range want {
		if got := s.at(id).Priority.Value(); got != value {
			t.Errorf("job %s was changed by its owner, and has %d, want %d", id, got, value)
		}
	}
	s.at(all).State = backends.Held
	s.cycle() // cancels its reclaim
	s.at(all).State = backends.Pending
	s.rank(s.cycle())
	if got := s.at(all).Priority; got != backends.At(backends.LevelPBA, 120) {
		t.Errorf("after its reclaim it has %v %d, want 120 of its pool", got.Level(), got.Value())
	}
}

// Once its dummies are in place a heavy beneficiary starts at any moment: its pin to their
// host does not end, and no reclaim changes that.
func TestPinOfReadyHeavyJobDoesNotEnd(t *testing.T) { // R21, R29
	s := newScene(t, 2, 4).pool("chipA", 3)
	for i := range s.state.Farm.Hosts {
		s.state.Farm.Hosts[i].Memory = 16 << 30
	}
	s.policy.Dummies = dummy.Policy{Mode: dummy.Reserve, MaxGathering: 1, GatherTimeout: time.Hour, Limit: time.Hour}
	able := &s.state.Abilities
	able.ManagesMemory, able.PinEnds = false, true
	able.Place = func(context.Context, []backends.Dummy) []backends.Submitted { panic("plan acts") }
	s.job("bob", "", "n1", time.Minute)
	s.job("bob", "", "n1", time.Hour)
	s.job("bob", "", "n2*4", time.Hour)
	b := s.job("ann", "chipA", "", time.Minute, memory(10), func(j *backends.Job) { j.HeldUntil = s.now.Add(time.Hour) })
	pins := func() (ends []time.Time) {
		p := s.cycle()
		s.rank(p)
		for _, a := range p.Actions {
			if a.Verb == PinTo && a.Job == b {
				ends = append(ends, a.Until)
			}
		}
		return ends
	}
	var ends []time.Time
	for range 5 {
		if ends = pins(); len(ends) > 0 {
			break
		}
	}
	if len(ends) != 1 || ends[0].IsZero() {
		t.Fatalf("while it gathers the reclaim pins it until %v, want one time", ends)
	}
	j := s.at(b)
	j.Pinned, j.PinEnds = []string{"n1"}, ends[0]
	farm := s.state.Farm
	farm.Jobs = slices.DeleteFunc(farm.Jobs, func(j backends.Job) bool { return len(j.Hosts) == 1 && j.Hosts[0].Host == "n1" })
	for range 3 {
		s.job("root", "", "n1", time.Minute, func(j *backends.Job) { j.DummyFor = b })
	}
	if ends := pins(); len(ends) != 1 || !ends[0].IsZero() {
		t.Fatalf("with its dummies in place it is pinned until %v, want one pin that does not end", ends)
	}
	j = s.at(b)
	j.PinEnds, j.HeldUntil = time.Time{}, time.Time{}
	if ends := pins(); len(ends) != 0 {
		t.Errorf("while it waits for its own slot it is pinned again, until %v", ends)
	}
	if r := s.state.Memory.Reclaims; len(r) != 1 || !r[0].Phase.Open() {
		t.Errorf("reclaims %+v, want an open one", r)
	}
}
