package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func suits(hosts ...string) func(*backends.Job) {
	return func(j *backends.Job) { j.Suits = &backends.HostSet{Hosts: hosts} }
}

func unserved(why string) func(*backends.Job) {
	return func(j *backends.Job) { j.Unserved = why }
}

func component(j *backends.Job) { j.Component = true }

func TestJobsThatAreNotUnderstoodHoldNoRoom(t *testing.T) {
	for name, odd := range map[string]func(*backends.Job){"an option": unserved("--switches"), "a component": component} {
		s := newScene(t, 2, 1).pool("chipA", 1)
		s.job("bob", "", "n1", time.Hour)
		s.job("bob", "", "n2", time.Hour)
		first := s.job("ann", "chipA", "", 0, odd)
		plain := s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if p.Memory.Jobs[first].Pool != 0 || p.Memory.Jobs[plain].Pool != 1 || preempted(p) != "requeue 2" {
			t.Errorf("%s: room of %+v and %+v, preempted %q", name, p.Memory.Jobs[first], p.Memory.Jobs[plain], preempted(p))
		}
	}
}

func TestExplainNamesWhatIsNotUnderstood(t *testing.T) {
	s := newScene(t, 1, 1).pool("chipA", 1)
	id := s.job("ann", "chipA", "", 0, unserved("--switches"))
	if e, ok := Explain(s.state, s.policy, s.now, id); !ok || !strings.Contains(e.Place, "--switches") {
		t.Errorf("%v %+v", ok, e)
	}
}

func TestComponentsAreNeverVictims(t *testing.T) {
	s := newScene(t, 1, 1).pool("chipA", 1)
	s.job("bob", "", "n1", time.Hour, component)
	id := s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "" || !strings.Contains(skipped(p, id), "part of a job") {
		t.Errorf("preempted %q, %q", preempted(p), skipped(p, id))
	}
}

func TestVictimsAreOnHostsThatSuit(t *testing.T) {
	s := newScene(t, 3, 1).pool("chipA", 1)
	for _, host := range []string{"n1", "n2", "n3"} {
		s.job("bob", "", host, time.Hour)
	}
	s.job("ann", "chipA", "", 0, suits("n2"))
	if p := s.ripen(); preempted(p) != "requeue 2" {
		t.Errorf("preempted %q, want 2, which runs on n2", preempted(p))
	}
}

func TestFreeSlotsElsewhereServeNoJob(t *testing.T) {
	s := newScene(t, 3, 1).pool("chipA", 2)
	s.job("bob", "", "n2", time.Hour)
	s.job("ann", "chipA", "", 0, suits("n2"))
	s.job("ann", "chipA", "", 0, suits("n2", "n3"))
	if p := s.ripen(); preempted(p) != "requeue 1" {
		t.Errorf("preempted %q, want 1: n1 is free, but suits neither", preempted(p))
	}
}
