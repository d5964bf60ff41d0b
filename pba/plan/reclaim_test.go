package plan

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestPriorityOfPBAJob(t *testing.T) { // R10: 20, 120, 121, 122
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("bob", "", "n1", time.Second)
	id := s.job("ann", "chipA", "", 0)
	var got []int
	got = append(got, s.at(id).Priority.Value())
	for range 3 {
		s.at(id).Priority++ // the queue's ageing
		s.rank(s.cycle())
		got = append(got, s.at(id).Priority.Value())
	}
	if want := []int{20, 120, 121, 122}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPriorityOfVictim(t *testing.T) { // R10: 22; preempted 32; 33; preempted 43
	s := newScene(t, 1, 1).pool("chipA", 1)
	victim := s.job("bob", "", "n1", time.Hour, func(j *backends.Job) { j.Priority = 22 })
	s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if preempted(p) != "requeue 1" || s.at(victim).Priority != backends.At(backends.LevelVictim, 32) {
		t.Fatalf("preempted %q, victim at %d", preempted(p), s.at(victim).Priority)
	}
	v := s.at(victim)
	v.State, v.Mark, v.Started, v.Priority = backends.Running, "r1", s.now.Add(-time.Hour), v.Priority+1 // pending one cycle, then started anew
	s.state.Farm.Jobs = s.state.Farm.Jobs[:1]
	s.cycle()
	s.job("ann", "chipA", "", 0)
	p = s.ripen()
	if preempted(p) != "requeue 1" || s.at(victim).Priority != backends.At(backends.LevelVictim, 43) {
		t.Errorf("preempted %q, victim at %d", preempted(p), s.at(victim).Priority.Value())
	}
}

func TestClockCountsOnlyCyclesThatSawIt(t *testing.T) { // R14
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("bob", "", "n1", time.Hour)
	id := s.job("ann", "chipA", "", time.Hour)
	s.rank(s.cycle())
	s.now = s.now.Add(time.Hour) // no cycles
	p := s.cycle()
	if c := p.Memory.Jobs[id].Clock; c != s.policy.Cycle {
		t.Errorf("clock %s after an hour without cycles, want one cycle", c)
	}
	s.at(id).Wait = backends.WaitDependency
	s.cycle()
	s.at(id).Wait = backends.WaitResources
	if c := s.cycle().Memory.Jobs[id].Clock; c != s.policy.Cycle {
		t.Errorf("clock %s counts the time that it waited for another job", c)
	}
	if c := s.cycle().Memory.Jobs[id].Clock; c != 2*s.policy.Cycle {
		t.Errorf("clock %s, want one cycle more", c)
	}
}

// R14: an engine whose cycles each take longer than two should serves jobs nevertheless, by
// no later cycle than one in time.
func TestSlowCyclesServeJobs(t *testing.T) {
	after := func(pause time.Duration) (cycles int) {
		s := newScene(t, 1, 1).pool("chipA", 1)
		s.job("bob", "", "n1", time.Hour)
		s.job("ann", "chipA", "", 0)
		for s.rank(s.cycle()); cycles < 100; cycles++ {
			s.now = s.now.Add(pause - s.policy.Cycle)
			if preempted(s.cycle()) != "" {
				break
			}
		}
		return cycles
	}
	s := newScene(t, 1, 1)
	if slow, timely := after(5*s.policy.Cycle), after(s.policy.Cycle); slow != timely {
		t.Errorf("slots were preempted in cycle %d, and in cycle %d where cycles are late", timely, slow)
	}
}

func TestNeverAVictim(t *testing.T) { // R16
	for name, change := range map[string]func(*backends.Job){
		"interactive":  func(j *backends.Job) { j.Interactive = true },
		"exclusive":    func(j *backends.Job) { j.Exclusive = true },
		"no requeue":   func(j *backends.Job) { j.NoRequeue = true },
		"young":        func(j *backends.Job) { j.Started = noon.Add(time.Minute) },
		"nearly done":  func(j *backends.Job) { j.RunLimit = time.Hour + 70*time.Second },
		"unmanaged":    func(j *backends.Job) { j.Queue = "other" },
		"named":        func(j *backends.Job) { j.User = "cat" },
		"off the farm": func(j *backends.Job) { j.Hosts = []backends.Placement{{Host: "n1", Slots: 1}, {Host: "x", Slots: 1}} },
	} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		s.policy.Queues = []string{"normal"}
		s.policy.NeverVictims.Users = []string{"cat"}
		s.job("bob", "", "n1", time.Hour, change)
		id := s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if preempted(p) != "" || !strings.Contains(skipped(p, id), "can't be met in full") {
			t.Errorf("%s: preempted %q, skipped %q", name, preempted(p), skipped(p, id))
		}
	}
}

func TestVictimsAreTheLeastValued(t *testing.T) { // R17
	s := newScene(t, 2, 2).pool("chipA", 1)
	s.job("bob", "", "n1", 61*time.Minute)
	s.job("bob", "", "n1", 3*time.Hour)
	s.job("cat", "", "n2", 62*time.Minute) // the same bucket as the first, but bob runs more
	s.job("bob", "", "n2", 2*time.Hour)
	s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got != "requeue 1" {
		t.Errorf("preempted %q", got)
	}
}

func TestExactNeedBeforeValue(t *testing.T) { // R17: slots beyond the need come first
	s := newScene(t, 1, 8).pool("chipA", 3)
	s.job("bob", "", "n1*4", 10*time.Minute)
	s.job("bob", "", "n1*2", 5*time.Hour)
	s.job("bob", "", "n1", 6*time.Hour)
	s.job("bob", "", "n1", 7*time.Hour)
	s.job("ann", "chipA", "", 0, slots(3))
	if got := preempted(s.ripen()); got != "requeue 2, requeue 3" && got != "requeue 3, requeue 2" {
		t.Errorf("preempted %q, want three slots exactly", got)
	}
}

// What reports call requested is what was lacked, not what wider victims leave.
func TestNeedIsWhatTheBeneficiaryLacks(t *testing.T) { // R18
	s := newScene(t, 1, 8).pool("chipA", 3)
	s.job("bob", "", "n1*6", time.Hour)
	s.job("ann", "chipA", "", 0, slots(3))
	if r := s.ripen().Memory.Reclaims[0]; r.Need != 1 || r.Victims[0].Slots != 6 {
		t.Errorf("two slots are free: %+v", r)
	}
}

func TestSpanningBeneficiaryChoosesOverWholeFarm(t *testing.T) { // R17
	s := newScene(t, 3, 2).pool("chipA", 4)
	s.job("bob", "", "n1 n2", time.Hour)
	s.job("bob", "", "n1 n2", 2*time.Hour)
	s.job("bob", "", "n3*2", 3*time.Hour)
	s.job("ann", "chipA", "", 0, spanning(4))
	p := s.ripen()
	if got := preempted(p); got != "requeue 1, requeue 2" {
		t.Errorf("preempted %q", got)
	}
	if hosts := p.Memory.Reclaims[0].Hosts; len(hosts) != 2 {
		t.Errorf("hosts %v", hosts)
	}
}

func TestAllOrNothing(t *testing.T) { // R15
	s := newScene(t, 1, 4).pool("chipA", 4)
	s.job("bob", "", "n1*3", time.Hour)
	s.job("bob", "", "n1", time.Hour, func(j *backends.Job) { j.Interactive = true })
	id := s.job("ann", "chipA", "", 0, slots(4))
	p := s.ripen()
	if preempted(p) != "" {
		t.Errorf("preempted %q although the need can't be met", preempted(p))
	}
	if len(p.Memory.Jobs[id].Reserved) == 0 { // R15
		t.Error("it reserves no host")
	}
}

func TestSuspendedVictimFreesNoMemory(t *testing.T) { // R16
	s := newScene(t, 1, 2).pool("chipA", 1)
	s.state.Farm.Hosts[0].Memory = 16 << 30
	s.job("bob", "", "n1", time.Hour, suspendable, memory(10))
	s.job("bob", "", "n1", 2*time.Hour, memory(4))
	s.job("ann", "chipA", "", 0, memory(6))
	if got := preempted(s.ripen()); got != "requeue 2" {
		t.Errorf("preempted %q: the younger one's memory would stay", got)
	}
}

func TestCapIsCountedAfterTheFirst(t *testing.T) { // R22
	s := newScene(t, 5, 4).pool("chipA", 16)
	s.policy.MaxVictims = 1 // 5 % of 20 is 1 as well
	s.job("bob", "", "n1*2", time.Hour)
	s.job("bob", "", "n1*2", time.Hour)
	for _, n := range []string{"n2", "n3", "n4"} {
		s.job("bob", "", n+"*4", time.Hour)
	}
	s.job("bob", "", "n5*4", time.Hour, func(j *backends.Job) { j.Interactive = true })
	s.job("ann", "chipA", "", 0, slots(4), func(j *backends.Job) { j.Asked = []string{"n1"} })
	for range 3 {
		s.job("ann", "chipA", "", 0, slots(4))
	}
	p := s.ripen()
	if got := preempted(p); got != "requeue 2, requeue 1, requeue 5" && got != "requeue 1, requeue 2, requeue 5" {
		t.Errorf("preempted %q, want both jobs for the first and one after it", got)
	}
	if len(p.Skipped) != 2 || !strings.Contains(p.Skipped[0].Reason, "put off") {
		t.Errorf("skipped %v", p.Skipped)
	}
	for _, put := range p.Skipped { // R15
		if len(p.Memory.Jobs[put.Job].Reserved) == 0 {
			t.Errorf("%v, which is put off, reserves no host", put)
		}
	}
	s.now = s.now.Add(-s.policy.Cycle * 3 / 4) // another cycle, 5 s later
	for job, mark := range map[int64]string{1: "r1", 2: "r1", 5: "r2"} {
		s.at(backends.ID{Job: job}).Mark = mark
	}
	if got := preempted(s.cycle()); got != "" {
		t.Errorf("preempted within the same period: %q", got)
	}
	if got := preempted(s.cycle()); got != "requeue 4, requeue 3" {
		t.Errorf("preempted in the next one: %q", got)
	}
}

func TestProjectCapWithinAnHour(t *testing.T) { // R22
	s := newScene(t, 2, 4).pool("chipA", 3)
	s.policy.MaxVictimsPerProject = 2
	for i := range 4 {
		s.job("bob", "", "n1", time.Duration(i+1)*time.Hour)
		s.job("cat", "", "n2", time.Duration(i+6)*time.Hour)
	}
	for range 5 {
		s.job("ann", "chipA", "", 0)
	}
	p := s.ripen()
	if strings.Count(preempted(p), "requeue") != 3 {
		t.Fatalf("preempted %q", preempted(p)) // the others' guarantees (3) are more than 2
	}
	if got := preempted(p); !strings.HasPrefix(got, "requeue 1, requeue 3, requeue 5") {
		t.Errorf("preempted %q, want three of bob's", got)
	}
}

// A wide victim is one victim, however many slots it leaves.
func TestProjectCapCountsJobs(t *testing.T) { // R22
	s := newScene(t, 4, 8).pool("chipA", 3)
	s.policy.MaxVictimsPerProject = 1 // the others' guarantees (3) are more
	for i := range 4 {
		s.job("bob", "", "n"+strconv.Itoa(i+1)+"*8", time.Duration(i+1)*time.Hour)
	}
	for i := range 3 {
		s.job("ann", "chipA", "", 0, func(j *backends.Job) { j.Asked = []string{"n" + strconv.Itoa(i+1)} })
	}
	if got := preempted(s.ripen()); got != "requeue 1, requeue 2, requeue 3" {
		t.Errorf("preempted %q", got)
	}
	for i := range int64(3) {
		s.at(backends.ID{Job: i + 1}).Mark = "r" + strconv.FormatInt(i+1, 10)
	}
	for most, slots := range map[int]int{3: 0, 4: 8} {
		s.policy.MaxVictimsPerProject = most
		if got := s.cycle().Farm.TakeBack; got != slots {
			t.Errorf("bob lost three jobs within the hour, of at most %d: %d of bob's slots can still be preempted, want %d", most, got, slots)
		}
	}
}

// What is free is reserved for the beneficiary before any other step is taken for it:
// between two steps the queue starts other jobs in slots that are not reserved (R19).
func TestBeneficiaryReservesHostsFirst(t *testing.T) {
	s := newScene(t, 1, 8).pool("chipA", 4)
	s.job("bob", "", "n1*2", time.Hour)
	s.job("bob", "", "n1*4", 2*time.Hour)
	b := s.job("ann", "chipA", "", 0, slots(4))
	var verbs []string
	for _, a := range s.ripen().Actions {
		if a.Job == b {
			verbs = append(verbs, string(a.Verb))
		}
	}
	if got := strings.Join(verbs, " "); got != "reserve pin rank" {
		t.Errorf("%s", got)
	}
}

func TestImmuneAfterMaxRequeues(t *testing.T) { // R16
	s := newScene(t, 1, 10).pool("chipA", 2)
	a, b := s.job("bob", "", "n1*5", 2*time.Hour), s.job("bob", "", "n1*5", time.Hour)
	_ = a
	s.state.Memory.Jobs = map[backends.ID]JobMemory{a: {Requeues: 3}, b: {Requeues: 3}}
	s.policy.UnpreemptableShare = 0.5
	s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got != "requeue 2" {
		t.Errorf("preempted %q: the longest-running one alone is immune", got)
	}
}

func TestFreeSlotsServeFirst(t *testing.T) { // R15
	s := newScene(t, 2, 1).pool("chipA", 2)
	s.job("bob", "", "n1", time.Hour)
	a, b := s.job("ann", "chipA", "", 0), s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if preempted(p) != "requeue 1" || skipped(p, a) == "" || skipped(p, b) != "" {
		t.Errorf("preempted %q, skipped %v", preempted(p), p.Skipped)
	}
}

// Slots that the queue itself reserves for a job that waits too long go to no job that
// ranks below it.
func TestQueueReservationServesItsJob(t *testing.T) { // R15
	s := newScene(t, 1, 8).pool("chipA", 6)
	s.job("bob", "", "n1*2", time.Hour)
	s.job("bob", "", "n1*3", 2*time.Hour)
	s.job("ann", "chipA", "", 0, slots(5), func(j *backends.Job) { j.Keeps = []string{"n1"} })
	for range 3 {
		s.rank(s.cycle())
	}
	s.job("ann", "chipA", "", 0) // three slots are free, and none is for it
	if got := preempted(s.cycle()); got != "requeue 1" {
		t.Errorf("preempted %q, want the two slots that it lacks", got)
	}
}

// A reservation keeps slots from lower jobs only, from the plan on that makes it: the
// next plan, which sees it, finds nothing more to preempt.
func TestReservationsGoByRank(t *testing.T) { // R15
	for name, c := range map[string]struct {
		slots  [2]int           // that the higher and the lower job need, of three that can be had
		waited [2]time.Duration // the one that waited longer has its turn first
		keeper bool             // the queue itself keeps the host for the lower one
		want   string
	}{
		"the lower one reserves first":               {slots: [2]int{3, 4}, waited: [2]time.Duration{time.Minute, 2 * time.Minute}, want: "requeue 1"},
		"free slots are nominated for the lower one": {slots: [2]int{3, 2}, waited: [2]time.Duration{time.Minute, 0}, want: "requeue 1"},
		"the queue reserves slots for the lower one": {slots: [2]int{4, 3}, waited: [2]time.Duration{time.Minute, time.Minute}, keeper: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1, 6).pool("chipA", 7)
			s.job("bob", "", "n1", time.Hour)
			s.job("bob", "", "n1*3", time.Hour, func(j *backends.Job) { j.Interactive = true })
			higher, lower := s.job("ann", "chipA", "", 0, slots(c.slots[0])), s.job("ann", "chipA", "", 0, slots(c.slots[1]))
			if c.keeper {
				s.at(lower).Keeps = []string{"n1"}
			}
			s.rank(s.cycle())
			for k, id := range []backends.ID{higher, lower} {
				m := s.state.Memory.Jobs[id]
				m.Clock = c.waited[k] - s.policy.Cycle
				s.state.Memory.Jobs[id] = m
			}
			if p := s.cycle(); preempted(p) != c.want {
				t.Errorf("preempted %q, want %q; %v", preempted(p), c.want, p.Skipped)
			}
		})
	}
}

// A queue that is asked to move a job's reservation may start lower jobs at once where it was.
func TestReservationMovesAfterItsHostsNextOne(t *testing.T) { // R15
	s := newScene(t, 2, 4).pool("chipA", 8)
	s.job("bob", "", "n1*3", time.Hour)
	s.job("bob", "", "n2*3", time.Hour)
	first := s.job("ann", "chipA", "", 0, slots(4), func(j *backends.Job) { j.Asked = []string{"n1"} })
	second := s.job("ann", "chipA", "", 0, slots(4), func(j *backends.Job) { j.Asked = []string{"n2"} })
	s.rank(s.cycle())
	for _, id := range []backends.ID{first, second} {
		m := s.state.Memory.Jobs[id]
		m.Clock = time.Minute
		if id == first {
			m.Reserved, m.ReservedUntil = []string{"n2"}, s.now.Add(time.Hour)
		}
		s.state.Memory.Jobs[id] = m
	}
	var got []string
	for _, a := range s.cycle().Actions {
		if a.Verb == Reserve {
			got = append(got, a.Job.String()+" "+strings.Join(a.Hosts, ","))
		}
	}
	want := []string{first.String() + " n1,n2", second.String() + " n2", first.String() + " n1"}
	if !slices.Equal(got, want) {
		t.Errorf("reservations %q, want %q", got, want)
	}
}

// A suspended job keeps its memory, whichever job has the slots next to it.
func TestOutbidSuspendedJobKeepsItsMemory(t *testing.T) { // R20
	s := newScene(t, 1, 6).pool("chipA", 7)
	s.state.Farm.Hosts[0].Memory = 16 << 30
	s.job("bob", "", "n1", time.Hour)
	s.job("bob", "", "n1*3", time.Hour, memory(4), func(j *backends.Job) { j.Interactive = true })
	b := s.job("ann", "chipA", "", 0, slots(3), memory(6)) // 4 GiB are free
	s.job("ann", "chipA", "n1*2", 0, memory(8), func(j *backends.Job) { j.State, j.Resuming = backends.Suspended, true })
	p := s.ripen()
	if preempted(p) != "" || len(p.Memory.Jobs[b].Reserved) == 0 {
		t.Errorf("preempted %q, reserved %v: the memory is not there", preempted(p), p.Memory.Jobs[b].Reserved)
	}
}

func TestVictimIsPreemptedOnce(t *testing.T) { // R18
	s := newScene(t, 1, 2).pool("chipA", 1)
	s.job("bob", "", "n1", time.Hour)
	s.job("bob", "", "n1", 2*time.Hour)
	s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got != "requeue 1" {
		t.Fatalf("preempted %q", got)
	}
	s.at(backends.ID{Job: 1}).Mark = "r1" // its requeue was accepted, and it still runs
	for range 2 {
		if got := preempted(s.cycle()); got != "" {
			t.Errorf("preempted again: %q", got)
		}
	}
}

func TestCrashBeforeAnyActPlansAnew(t *testing.T) { // R18
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("bob", "", "n1", time.Hour)
	s.job("ann", "chipA", "", 0)
	s.ripen() // its acts are never done
	p := s.cycle()
	if preempted(p) != "requeue 1" || p.Memory.Reclaims[0].Phase != Cancelled || p.Memory.Reclaims[1].Phase != Planned {
		t.Errorf("preempted %q, reclaims %+v", preempted(p), p.Memory.Reclaims)
	}
}

// A victim that ended by itself leaves its slot to the beneficiary, or to another job that was
// faster: then nothing was preempted, and the beneficiary is served anew at once.
func TestVictimThatEndedLeavesItsSlotToAnother(t *testing.T) { // R18
	for name, c := range map[string]struct {
		taken bool
		want  string
		phase Phase
	}{"to its beneficiary": {false, "", Freed}, "to another job": {true, "requeue 3", Cancelled}} {
		s := newScene(t, 1, 1).pool("chipA", 1)
		s.job("bob", "", "n1", time.Hour)
		s.job("ann", "chipA", "", 0)
		s.ripen()
		s.state.Farm.Jobs = s.state.Farm.Jobs[1:]
		if c.taken {
			s.job("bob", "", "n1", time.Hour)
		}
		p := s.cycle()
		if preempted(p) != c.want || p.Memory.Reclaims[0].Phase != c.phase {
			t.Errorf("%s: preempted %q, reclaims %+v", name, preempted(p), p.Memory.Reclaims)
		}
	}
}

func TestCrashBetweenTwoVictimsGoesOn(t *testing.T) { // R18
	s := newScene(t, 1, 2).pool("chipA", 2)
	s.job("bob", "", "n1", time.Hour)
	s.job("bob", "", "n1", 2*time.Hour)
	s.job("ann", "chipA", "", 0, slots(2))
	s.ripen()
	first := s.at(backends.ID{Job: 1})
	first.State, first.Mark, first.Wait, first.HeldUntil, first.Hosts = backends.Pending, "r1", backends.WaitTime, s.now.Add(time.Minute), nil
	p := s.cycle()
	if preempted(p) != "requeue 2" || len(p.Memory.Reclaims) != 1 {
		t.Errorf("preempted %q, %d reclaims", preempted(p), len(p.Memory.Reclaims))
	}
}

func TestBackOffDoublesThenGivesUp(t *testing.T) { // R19
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("bob", "", "n1", time.Hour)
	id := s.job("ann", "chipA", "", 0)
	expired := 0
	for range 200 {
		p := s.cycle()
		s.rank(p)
		v := s.at(backends.ID{Job: 1})
		for _, a := range p.Actions {
			switch a.Verb {
			case Requeue:
				v.Mark, v.State, v.Wait, v.HeldUntil = a.Mark, backends.Pending, backends.WaitTime, a.Until
			case Release: // and the queue starts the victim again, not the beneficiary
				v.State, v.HeldUntil, v.Started, v.Wait = backends.Running, time.Time{}, s.now.Add(-time.Hour), 0
			}
		}
		expired = p.Memory.Jobs[id].Expired
	}
	if expired != 2 || !strings.Contains(skipped(s.cycle(), id), "2 reclaims for it expired") {
		t.Errorf("%d expired; %q", expired, skipped(s.cycle(), id))
	}
}

func TestResumingVictimIsNotForgotten(t *testing.T) { // R20
	s := newScene(t, 1, 1).pool("chipA", 1)
	victim := s.job("bob", "", "n1", time.Hour, suspendable)
	id := s.job("ann", "chipA", "", 0)
	if got := preempted(s.ripen()); got != "suspend 1" {
		t.Fatalf("preempted %q", got)
	}
	v, b := s.at(victim), s.at(id)
	v.State, v.Mark = backends.Suspended, "r1"
	b.State, b.Started, b.Hosts = backends.Running, s.now, []backends.Placement{{Host: "n1", Slots: 1}}
	for range 2 { // again, until it is seen to be done
		p := s.cycle()
		if len(p.Actions) == 0 || p.Actions[len(p.Actions)-1].Verb != Resume {
			t.Errorf("actions %+v, want a resume", p.Actions)
		}
	}
	v.Resuming = true
	if p := s.cycle(); len(p.Actions) != 0 {
		t.Errorf("actions %+v", p.Actions)
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A victim that is released could start in the free slots that a new reclaim counts on: they
// are reserved first.
func TestFreeSlotsAreReservedBeforeVictimsAreReleased(t *testing.T) { // R19
	for name, c := range map[string]struct {
		host string // of the victim
		asks func(*backends.Job)
	}{
		"a slot of two":              {"n1", slots(2)},
		"the rest of the host":       {"n1*2", exclusive},
		"resources beside its slots": {"n1*3", func(j *backends.Job) { j.Slots, j.Needs = 2, []backends.Amount{{Name: "gpu", Count: 1}} }},
	} {
		s := newScene(t, 1, 3).pool("chipA", 3)
		s.state.Farm.Hosts[0].Has = []backends.Amount{{Name: "gpu", Count: 1}}
		s.state.Abilities.Start = nil
		s.job("bob", "", c.host, time.Hour)
		if name == "a slot of two" {
			s.job("ann", "chipA", "n1", time.Hour)
		}
		held := s.job("bob", "", "", time.Hour, func(j *backends.Job) {
			j.Mark, j.Wait, j.HeldUntil = "r1", backends.WaitTime, noon.Add(time.Hour)
		})
		asks := s.job("ann", "chipA", "", 0, c.asks)
		s.state.Memory.NextID = 2
		var p Plan
		for range 4 {
			s.state.Memory.Reclaims = []Reclaim{{ID: 1, Phase: HandedOver, Planned: s.now, Ended: s.now, Victims: []Victim{{ID: held, User: "bob", Slots: 1, Fate: Taken}}}}
			p = s.cycle()
			s.rank(p)
		}
		if preempted(p) != "requeue 1" {
			t.Errorf("%s: preempted %q; %s", name, preempted(p), skipped(p, asks))
			continue
		}
		at := func(verb Verb, id backends.ID) int {
			return slices.IndexFunc(p.Actions, func(a Action) bool { return a.Verb == verb && a.Job == id })
		}
		first := max(at(Reserve, asks), at(PinTo, asks)) // a job of one slot reserves nothing
		if release := at(Release, held); first < 0 || release < 0 || first > release {
			t.Errorf("%s: reserved or pinned by action %d, released by action %d", name, first, release)
		}
	}
}

// A job that enters its pool and is served in one plan reserves what is free before others rank higher.
func TestBeneficiaryThatEntersReservesBeforeOthersAreRaised(t *testing.T) { // R19
	s := newScene(t, 1, 8).pool("chipA", 9)
	s.policy.PendingThreshold = 0
	s.job("bob", "", "n1", time.Hour)
	wide, small := s.job("ann", "chipA", "", time.Minute, slots(8)), s.job("ann", "chipA", "", 0)
	var acts []string
	for _, a := range s.cycle().Actions {
		if a.Job == wide || a.Job == small {
			acts = append(acts, string(a.Verb)+" "+a.Job.String())
		}
	}
	if got := strings.Join(acts, ", "); got != "reserve 2, pin 2, rank 2, rank 3" {
		t.Error(got)
	}
}
