package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// newTrialScene is a full farm of two hosts on a queue that says when it considered a job,
// and a job of a pool that waits.
func newTrialScene(t *testing.T, change ...func(*backends.Job)) (*scene, backends.ID) {
	t.Helper()
	s := newScene(t, 2, 1).pool("chipA", 1)
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	s.job("bob", "", "n1", time.Hour)
	s.job("bob", "", "n2", 2*time.Hour)
	return s, s.job("ann", "chipA", "", 0, change...)
}

// apply does the pins and ranks of a plan as the queue would, half a second after it.
func (s *scene) apply(p Plan) {
	s.rank(p)
	for _, a := range p.Actions {
		switch a.Verb {
		case PinTo:
			s.at(a.Job).Pinned = a.Hosts
		case Unpin:
			s.at(a.Job).Pinned = nil
		default:
			continue
		}
		s.state.Memory.LastAction = p.At.Add(time.Second / 2)
	}
}

func verbs(p Plan, id backends.ID) string {
	var all []string
	for _, a := range p.Actions {
		if a.Job == id && a.Verb != Rank {
			all = append(all, strings.TrimSpace(string(a.Verb)+" "+strings.Join(a.Hosts, ",")))
		}
	}
	return strings.Join(all, "; ")
}

func TestJobIsPinnedBeforeItIsDueAndPreemptedForWhenConsidered(t *testing.T) {
	s, id := newTrialScene(t)
	for range 2 { // clocks of 0 and 20 s
		p := s.cycle()
		s.apply(p)
		if verbs(p, id) != "" {
			t.Fatalf("early: %q", verbs(p, id))
		}
	}
	p := s.cycle() // 40 s
	s.apply(p)
	if verbs(p, id) != "pin n1" || preempted(p) != "" {
		t.Fatalf("a cycle before it is due: %q, preempted %q", verbs(p, id), preempted(p))
	}
	s.at(id).Considered = s.now.Add(-time.Second)
	p = s.cycle() // 60 s
	if preempted(p) != "requeue 1" || len(p.Memory.Trials) != 0 {
		t.Errorf("preempted %q, %+v, %q", preempted(p), p.Memory.Trials, skipped(p, id))
	}
}

func TestNoJobIsPreemptedBeforeTheQueueConsideredIt(t *testing.T) {
	s, id := newTrialScene(t, suits("n2"))
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(id).Considered = s.now.Add(-20 * time.Second) // before the pin
	for range 6 {
		p := s.cycle()
		s.apply(p)
		if preempted(p) != "" || !strings.Contains(skipped(p, id), "pinned to n2") {
			t.Fatalf("preempted %q, %q", preempted(p), skipped(p, id))
		}
	}
	for range 3 {
		s.apply(s.cycle())
	}
	p := s.cycle()
	if tr := p.Memory.Trials[id]; len(tr.Refused) != 1 || tr.Refused[0].Times != 1 || len(s.at(id).Pinned) != 0 || !strings.Contains(skipped(p, id), "without that pin first") {
		t.Errorf("%+v, pinned to %v, %q", tr, s.at(id).Pinned, skipped(p, id))
	}
}

func TestPlainJobIsServedThoughTheQueueDoesNotConsiderIt(t *testing.T) {
	s, _ := newTrialScene(t)
	for range 5 {
		p := s.cycle()
		s.apply(p)
		if preempted(p) != "" {
			t.Fatalf("preempted %q", preempted(p))
		}
	}
	if p := s.cycle(); preempted(p) != "requeue 1" {
		t.Errorf("preempted %q", preempted(p))
	}
}

func TestRefusedTrialIsUnpinnedAndBacksOff(t *testing.T) {
	s, id := newRefused(t, suits("n1"))
	var p Plan
	for range 5 { // two minutes after the refusal
		p = s.cycle()
		s.apply(p)
		if verbs(p, id) != "" || preempted(p) != "" {
			t.Fatalf("%s: %q, preempted %q", s.now, verbs(p, id), preempted(p))
		}
	}
	if !strings.Contains(skipped(p, id), "BadConstraints") {
		t.Errorf("%q does not name the queue's reason", skipped(p, id))
	}
	p = s.cycle()
	s.apply(p)
	if verbs(p, id) != "pin n1" {
		t.Errorf("after the back-off: %q, %q", verbs(p, id), skipped(p, id))
	}
	s.at(id).Wait, s.at(id).Reason = backends.WaitOther, "BadConstraints"
	p = s.cycle()
	if refused := p.Memory.Trials[id].Refused; len(refused) != 1 || refused[0].Until.Sub(p.At) != 4*time.Minute {
		t.Errorf("after the second refusal: %+v at %s", refused, p.At)
	}
}

// newRefused is a trial scene where the queue refused the job on n1, and then considered it
// without the pin.
func newRefused(t *testing.T, change ...func(*backends.Job)) (*scene, backends.ID) {
	t.Helper()
	s, id := newTrialScene(t, change...)
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(id).Wait, s.at(id).Reason, s.at(id).Considered = backends.WaitOther, "BadConstraints", s.now
	p := s.cycle()
	s.apply(p)
	if verbs(p, id) != "unpin" || preempted(p) != "" {
		t.Fatalf("%q, preempted %q", verbs(p, id), preempted(p))
	}
	s.at(id).Wait, s.at(id).Reason, s.at(id).Considered = backends.WaitResources, "Resources", s.now
	return s, id
}

func TestRefusalBarsItsHostsAlone(t *testing.T) {
	s, id := newRefused(t)
	p := s.cycle()
	s.apply(p)
	if verbs(p, id) != "pin n2" {
		t.Errorf("%q, %q; want it pinned to the other host", verbs(p, id), skipped(p, id))
	}
}

func TestRefusedJobIsConsideredWithoutPinBeforeTheNextTrial(t *testing.T) {
	s, id := newRefused(t)
	s.at(id).Considered = time.Time{} // an update makes Slurm's reason None again
	s.apply(s.cycle())
	p := s.cycle() // it is due by now
	s.apply(p)
	if verbs(p, id) != "" || !strings.Contains(skipped(p, id), "consider it without that pin first") {
		t.Errorf("%q, %q", verbs(p, id), skipped(p, id))
	}
}

func TestRefusalOfAllHostsReservesNone(t *testing.T) {
	s, id := newRefused(t, suits("n1"))
	s.apply(s.cycle())
	p := s.cycle() // it is due by now
	if verbs(p, id) != "" || !strings.Contains(skipped(p, id), "on n1 (BadConstraints)") {
		t.Errorf("%q, %q", verbs(p, id), skipped(p, id))
	}
}

func TestRefusalEndsWhenJobOrHostChanges(t *testing.T) {
	changes := map[string]func(*scene, backends.ID){
		"memory":    func(s *scene, id backends.ID) { s.at(id).Memory = 1 << 20 },
		"run limit": func(s *scene, id backends.ID) { s.at(id).RunLimit = time.Hour },
		"features":  func(s *scene, _ backends.ID) { s.state.Farm.Hosts[0].Features = []string{"big"} },
		"slots":     func(s *scene, _ backends.ID) { s.state.Farm.Hosts[0].Slots++; s.job("bob", "", "n1", time.Hour) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s, id := newRefused(t, suits("n1"))
			change(s, id)
			p := s.cycle()
			if verbs(p, id) != "pin n1" {
				t.Errorf("%q, %q", verbs(p, id), skipped(p, id))
			}
		})
	}
}

func TestRefusalEndsWithTheLimit(t *testing.T) {
	s, id := newRefused(t, suits("n1"))
	s.at(id).Wait, s.at(id).Reason = backends.WaitOther, "AssocGrpCpuLimit" // without a pin, too
	s.apply(s.cycle())
	s.at(id).Wait, s.at(id).Reason, s.at(id).Considered = backends.WaitResources, "Priority", s.now
	for range 4 {
		p := s.cycle()
		s.apply(p)
		if verbs(p, id) == "pin n1" {
			return
		}
		s.at(id).Considered = s.now
	}
	t.Errorf("no trial after the limit was lifted: %q", skipped(s.cycle(), id))
}

func TestTrialStaysOnItsHosts(t *testing.T) {
	s, id := newTrialScene(t)
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(backends.ID{Job: 2}).Started = s.now.Add(-10 * time.Minute) // it is valued less than 1 by now
	s.at(id).Considered = s.now.Add(-time.Second)
	if p := s.cycle(); preempted(p) != "requeue 1" {
		t.Errorf("preempted %q, want 1, on the host of its trial: %q, %q", preempted(p), verbs(p, id), skipped(p, id))
	}
}

func TestPinThatItsOwnerRemovesIsWrittenAgain(t *testing.T) {
	s, id := newTrialScene(t)
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(id).Pinned, s.at(id).Considered = nil, s.now
	if p := s.cycle(); verbs(p, id) != "pin n1" || preempted(p) != "" {
		t.Errorf("%q, preempted %q", verbs(p, id), preempted(p))
	}
}

func TestTrialEndsWhenSlotsComeFree(t *testing.T) {
	s, id := newTrialScene(t)
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(backends.ID{Job: 2}).State = backends.Done
	if p := s.cycle(); verbs(p, id) != "unpin" || len(p.Memory.Trials) != 0 || preempted(p) != "" {
		t.Errorf("%q, preempted %q, %+v", verbs(p, id), preempted(p), p.Memory.Trials)
	}
}

func TestTrialsTakeDifferentVictims(t *testing.T) {
	s, first := newTrialScene(t)
	s.policy.Allocations[0].Guarantee = 2
	second := s.job("ann", "chipA", "", 0)
	var p Plan
	for range 3 {
		p = s.cycle()
		s.apply(p)
	}
	if got := verbs(p, first) + ", " + verbs(p, second); got != "pin n1, pin n2" {
		t.Error(got)
	}
}

// What the victims of a trial have beyond its need is theirs: the queue has not confirmed
// that they will go.
func TestTrialLeavesNothingToOthers(t *testing.T) {
	s := newScene(t, 1, 3).pool("chipA", 3)
	s.state.Farm.Hosts[0].Memory = 8 << 30
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	s.job("bob", "", "n1*2", time.Hour, memory(8))
	s.job("bob", "", "n1", 2*time.Hour, suspendable) // which leaves no memory
	first := s.job("ann", "chipA", "", 0, memory(4))
	second := s.job("ann", "chipA", "", 0, slots(2))
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(second).Considered = s.now.Add(-time.Second)
	p := s.cycle()
	if tr := p.Memory.Trials[first]; len(tr.Hosts) == 0 {
		t.Fatalf("no trial of %v goes on: %q", first, skipped(p, first))
	}
	for _, r := range p.Memory.Reclaims {
		freed := 0
		for _, v := range r.Victims {
			freed += v.Slots
		}
		if freed < 2 {
			t.Errorf("reclaim %+v frees %d slots for a job of 2", r, freed)
		}
	}
}

// What a trial's victims would leave beyond the need is not free: none of them may ever go.
func TestWhatATrialWouldLeaveIsNotFree(t *testing.T) { // R32
	s := newScene(t, 1, 2).pool("chipA", 2)
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	s.job("bob", "", "n1*2", time.Hour)
	first, second := s.job("ann", "chipA", "", 0), s.job("ann", "chipA", "", 0)
	var p Plan
	for range 4 { // the queue does not consider the first one
		p = s.cycle()
		s.apply(p)
	}
	if len(s.at(first).Pinned) == 0 || preempted(p) != "" {
		t.Fatalf("pinned to %v, preempted %q", s.at(first).Pinned, preempted(p))
	}
	if why := skipped(p, second); !strings.Contains(why, "can't be met in full") {
		t.Errorf("the second job: %q", why)
	}
}

// Memory and resources that a tried job needs beside its victims' slots are not free for
// another job: its victims would be preempted for nothing.
func TestTrialKeepsWhatItsVictimsDoNotLeave(t *testing.T) { // R32
	gpu := func(j *backends.Job) { j.Needs = []backends.Amount{{Name: "gpu", Count: 1}} }
	for name, needs := range map[string]func(*backends.Job){"gpu": gpu, "memory": memory(4)} {
		s := newScene(t, 1, 2).pool("chipA", 2)
		s.state.Farm.Hosts[0].Memory = 7 << 30
		s.state.Farm.Hosts[0].Has = []backends.Amount{{Name: "gpu", Count: 1}}
		s.state.Abilities.Considers = true
		s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
		s.job("bob", "", "n1", time.Hour)
		s.job("bob", "", "n1", time.Hour)
		first, second := s.job("ann", "chipA", "", 0, needs), s.job("ann", "chipA", "", 0, needs)
		for range 3 {
			s.apply(s.cycle())
		}
		s.at(second).Considered = s.now.Add(-time.Second)
		if p := s.cycle(); len(s.at(first).Pinned) == 0 || preempted(p) != "" || verbs(p, second) != "" {
			t.Errorf("%s: %v is pinned to %v; for the other one %q, preempted %q", name, first, s.at(first).Pinned, verbs(p, second), preempted(p))
		}
	}
}

// Nor is what they have on other hosts.
func TestWhatATrialWouldLeaveOnOtherHostsIsNotFree(t *testing.T) { // R32
	s := newScene(t, 2, 3).pool("chipA", 6)
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	s.job("bob", "", "n1*2", time.Hour)
	s.job("bob", "", "n1 n2", time.Hour)
	s.job("bob", "", "n2*2", time.Hour)
	s.job("ann", "chipA", "", 0, exclusive, func(j *backends.Job) { j.Asked = []string{"n1"} })
	second := s.job("ann", "chipA", "", 0, slots(3), func(j *backends.Job) { j.Asked = []string{"n2"} })
	for range 3 {
		s.apply(s.cycle())
	}
	s.at(second).Considered = s.now.Add(-time.Second)
	if p := s.cycle(); preempted(p) != "" || !strings.Contains(skipped(p, second), "can't be met in full") {
		t.Errorf("preempted %q; %s", preempted(p), skipped(p, second))
	}
}

// What is free where the queue plans to start a job ahead is not what a job waits for.
func TestSlotsOnPlannedHostsAreNotWaitedFor(t *testing.T) { // R32
	for _, planned := range []bool{true, false} {
		s := newScene(t, 2, 2).pool("chipA", 3).pool("chipB", 1)
		s.state.Abilities.Considers = true
		s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
		s.job("cat", "chipB", "n1", time.Hour)
		s.job("bob", "", "n2*2", time.Hour)
		first := s.job("ann", "chipA", "", 0, slots(2), func(j *backends.Job) { j.Asked = []string{"n1"} })
		second := s.job("ann", "chipA", "", 0)
		if planned {
			s.at(first).Planned = []string{"n1"}
		}
		served := -1
		for n := range 8 {
			for _, id := range []backends.ID{first, second} {
				s.at(id).Considered = s.now.Add(-time.Second)
			}
			p := s.cycle()
			s.apply(p)
			if preempted(p) != "" && served < 0 {
				served = n
			}
			if n == 3 && skipped(p, second) != "slots that are free, or about to be, suit it; the queue will start it" {
				t.Errorf("before it has waited in vain: %q", skipped(p, second))
			}
		}
		if planned && served != 6 || !planned && served >= 0 {
			t.Errorf("planned %v: preempted in cycle %d", planned, served)
		}
	}
}

// Another job has one of the slots that were freed for a beneficiary: the other one is kept for it, and
// the one that it lacks is freed at once, without another trial.
func TestSlotsThatAreLeftAreKeptWhereOthersHaveSome(t *testing.T) { // R19
	s := newScene(t, 1, 3).pool("chipA", 2)
	s.state.Abilities.Considers = true
	s.state.Abilities.Start, s.state.Abilities.Reserve, s.state.Abilities.PinEnds = nil, nil, false
	for n := range time.Duration(3) {
		s.job("bob", "", "n1", (n+1)*time.Hour)
	}
	id := s.job("ann", "chipA", "", 0, slots(2))
	var p Plan
	for range 6 {
		p = s.cycle()
		s.apply(p)
		s.at(id).Considered = s.now
		if preempted(p) != "" {
			break
		}
	}
	if preempted(p) != "requeue 1, requeue 2" {
		t.Fatalf("preempted %q", preempted(p))
	}
	for _, a := range p.Actions {
		if v := s.at(a.Job); a.Verb == Requeue {
			v.Mark, v.State, v.Wait, v.HeldUntil, v.Hosts = a.Mark, backends.Pending, backends.WaitTime, a.Until, nil
		}
	}
	taker := s.job("bob", "", "n1", 2*time.Minute)
	for range 4 {
		p = s.cycle()
		s.apply(p)
		s.at(id).Considered = s.now
		if preempted(p) != "" {
			break
		}
	}
	if want := "requeue " + taker.String(); preempted(p) != want || len(s.at(id).Pinned) != 1 || p.Memory.Jobs[id].Expired != 1 {
		t.Errorf("preempted %q, want %q; pinned to %v; %+v, %q", preempted(p), want, s.at(id).Pinned, p.Memory.Jobs[id], skipped(p, id))
	}
}
