package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// TestEndsAreWaitedFor (R15): what ends by its run limit within a cycle after the threshold is
// waited for, and nothing else.
func TestEndsAreWaitedFor(t *testing.T) {
	left := func(d time.Duration) func(*backends.Job) { // at the due cycle, a minute from now
		return func(j *backends.Job) { j.RunLimit = time.Hour + time.Minute + d }
	}
	for _, c := range []struct {
		name    string
		ends    func(*backends.Job)
		need    int
		memory  int64 // GiB of the beneficiary
		waits   string
		victims string
	}{
		{"in a cycle", left(20 * time.Second), 1, 0, "job 1 ends by its run limit in 20s: no job is preempted", ""},
		{"in a second", left(time.Second), 1, 0, "job 1 ends by its run limit in 1s: no job is preempted", ""},
		{"a second late", left(21 * time.Second), 1, 0, "", "requeue 2"},
		{"no run limit", func(*backends.Job) {}, 1, 0, "", "requeue 2"},
		{"it leaves too little", left(20 * time.Second), 2, 0, "", "requeue 2"},
		{"it leaves too little memory", left(20 * time.Second), 1, 2, "", "requeue 2"},
	} {
		s := newScene(t, 1, 2).pool("chipA", 2)
		if c.memory > 0 {
			s.state.Farm.Hosts[0].Memory = 4 << 30
		}
		s.job("bob", "chipB", "n1", time.Hour, c.ends, memory(1))
		s.job("bob", "chipB", "n1", 50*time.Minute, memory(3))
		b := s.job("ann", "chipA", "", 0, slots(c.need), memory(c.memory))
		p := s.ripen()
		if got := preempted(p); c.victims == "" && got != "" || !strings.Contains(got, c.victims) {
			t.Errorf("%s: preempted %q, want %q", c.name, got, c.victims)
		}
		if got := skipped(p, b); !strings.Contains(got, c.waits) || c.waits == "" && got != "" {
			t.Errorf("%s: it waits, %q; want %q", c.name, got, c.waits)
		}
	}
}

// TestEndsAreNotWaitedForLong: one end serves one beneficiary, and the next cycle preempts if the
// job still runs.
func TestEndsAreNotWaitedForLong(t *testing.T) {
	s := newScene(t, 1, 2).pool("chipA", 2)
	s.job("bob", "chipB", "n1", time.Hour, func(j *backends.Job) { j.RunLimit = time.Hour + 80*time.Second })
	s.job("bob", "chipB", "n1", 50*time.Minute)
	first, second := s.job("ann", "chipA", "", 0), s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if !strings.Contains(skipped(p, first), "job 1 ends") || skipped(p, second) != "" || preempted(p) != "requeue 2" {
		t.Errorf("preempted %q, %v", preempted(p), p.Skipped)
	}
	s.state.Farm.Jobs[1].Ending = true
	s.state.Farm.Jobs[0].RunLimit += time.Minute // it has not ended, and can be preempted
	if p = s.cycle(); preempted(p) != "requeue 1" {
		t.Errorf("a cycle later preempted %q: %v", preempted(p), p.Skipped)
	}
}

// TestHostIsReservedUntilTheEnd: what is free there must not go to lower jobs meanwhile.
func TestHostIsReservedUntilTheEnd(t *testing.T) {
	s := newScene(t, 1, 4).pool("chipA", 3)
	s.job("bob", "chipB", "n1", time.Hour, func(j *backends.Job) { j.RunLimit = time.Hour + 80*time.Second })
	s.job("bob", "chipB", "n1*2", 50*time.Minute)
	wide := s.job("ann", "chipA", "", 0, slots(2)) // one slot is free
	p := s.ripen()
	if preempted(p) != "" || !strings.Contains(skipped(p, wide), "job 1 ends") || len(p.Memory.Jobs[wide].Reserved) == 0 {
		t.Errorf("preempted %q, reserved %v, %v", preempted(p), p.Memory.Jobs[wide].Reserved, p.Skipped)
	}
}
