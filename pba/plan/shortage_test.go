package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

const gib = 1 << 30

// withMemory gives each host so much.
func (s *scene) withMemory(each int64) *scene {
	for i := range s.state.Farm.Hosts {
		s.state.Farm.Hosts[i].Memory = each * gib
	}
	return s
}

func needing(name string, n int) func(*backends.Job) {
	return func(j *backends.Job) { j.Needs = append(j.Needs, backends.Amount{Name: name, Count: n}) }
}

// jobs adds several that wait.
func (s *scene) jobs(n int, change ...func(*backends.Job)) {
	for range n {
		s.job("bob", "", "", time.Hour, change...)
	}
}

func shortagesOf(p Plan) string {
	var all []string
	for _, s := range p.Shortages {
		text := fmt.Sprintf("%s %d", s.Cause, s.Slots)
		if s.Cause == LackResource {
			text = fmt.Sprintf("%s %q %d", s.Cause, s.Name, s.Slots)
		}
		if s.Free > 0 {
			text += fmt.Sprintf(" of %d", s.Free)
		}
		if s.Lacking > 0 {
			text += fmt.Sprintf(" for %dG on %d", s.Lacking/gib, s.Hosts)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func TestShortages(t *testing.T) { // R46
	for name, c := range map[string]struct {
		hosts, slots int
		set          func(*scene)
		want         string
	}{
		"nothing waits": {1, 4, func(s *scene) { s.job("bob", "", "n1", time.Hour) }, ""},
		"what fits starts": {1, 4, func(s *scene) {
			s.jobs(4)
		}, ""},
		"a full farm": {2, 2, func(s *scene) {
			s.withMemory(64)
			s.job("bob", "", "n1*2", time.Hour, memory(2))
			s.job("bob", "", "n2*2", time.Hour, memory(2))
			s.jobs(3, memory(1))
			s.jobs(1, slots(2), memory(1))
		}, "slots 5"},
		"memory alone": {2, 8, func(s *scene) { // 12 slots are free, and no memory
			s.withMemory(64)
			s.job("bob", "", "n1*2", time.Hour, memory(64))
			s.job("bob", "", "n2*2", time.Hour, memory(64))
			s.jobs(10, memory(16))
		}, "memory 10 of 12 for 160G on 2"},
		"more jobs wait for memory than slots are free": {1, 4, func(s *scene) {
			s.withMemory(64)
			s.job("bob", "", "n1", time.Hour, memory(60))
			s.jobs(7, memory(16))
		}, "slots 4, memory 3 of 3 for 44G on 1"},
		"a part fits": {1, 8, func(s *scene) {
			s.withMemory(64)
			s.jobs(3, slots(2), memory(24))
		}, "memory 2 of 4 for 8G on 1"},
		"the host with most memory is named": {2, 4, func(s *scene) {
			s.withMemory(64)
			s.job("bob", "", "n1", time.Hour, memory(60))
			s.job("bob", "", "n2", time.Hour, memory(40))
			s.jobs(1, memory(32))
		}, "memory 1 of 6 for 8G on 1"},
		"hosts' memory is not known": {1, 2, func(s *scene) {
			s.job("bob", "", "n1*2", time.Hour, memory(500))
			s.jobs(1, memory(500))
		}, "slots 1"},
		"no host has as many slots": {2, 4, func(s *scene) { s.jobs(1, slots(5)) }, "slots 5"},
		"slots on several hosts": {2, 4, func(s *scene) {
			s.withMemory(64)
			s.jobs(1, spanning(6), memory(600))
		}, "memory 6 of 8 for 472G on 2"},
		"an exclusive job": {2, 4, func(s *scene) {
			s.job("bob", "", "n1", time.Hour)
			s.job("bob", "", "n2", time.Hour)
			s.jobs(1, func(j *backends.Job) { j.Exclusive = true })
		}, "slots 1"},
		"a resource is taken": {1, 4, func(s *scene) {
			s.state.Farm.Hosts[0].Has = []backends.Amount{{Name: "gpu", Count: 1}}
			s.job("bob", "", "n1", time.Hour, needing("gpu", 1))
			s.jobs(2, needing("gpu", 1))
			s.jobs(1, needing("fpga", 1))
		}, `resource "gpu" 2 of 3, resource "fpga" 1 of 3`},
		"memory and a resource": {1, 4, func(s *scene) {
			s.withMemory(64)
			s.jobs(1, needing("gpu", 1), memory(65))
		}, `resource "gpu" 1 of 4`},
		"hosts with slots don't suit": {2, 4, func(s *scene) {
			s.job("bob", "", "n1*4", time.Hour)
			s.jobs(1, func(j *backends.Job) { j.Suits = &backends.HostSet{Hosts: []string{"n1"}} })
			s.jobs(4, func(j *backends.Job) { j.Asked = []string{"n1"} })
		}, `slots 1, resource "" 4 of 4`},
		"what the engine holds": {1, 4, func(s *scene) {
			s.jobs(1, slots(3), func(j *backends.Job) {
				j.State, j.HeldUntil = backends.Held, s.now.Add(time.Minute)
			})
			s.jobs(1, func(j *backends.Job) { j.State = backends.Held }) // by its owner
			s.jobs(1, func(j *backends.Job) { j.Wait = backends.WaitDependency })
			s.jobs(1, func(j *backends.Job) { j.Wait = backends.WaitOther })
		}, "rules 3"},
		"what is not understood": {1, 4, func(s *scene) { s.jobs(2, func(j *backends.Job) { j.Unserved = "odd" }) }, "other 2"},
		"queues that are not managed": {1, 1, func(s *scene) {
			s.policy.Queues = []string{"normal"}
			s.jobs(2, func(j *backends.Job) { j.Queue = "elsewhere" })
		}, ""},
	} {
		s := newScene(t, c.hosts, c.slots)
		c.set(s)
		if got := shortagesOf(s.cycle()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Slots that are kept for a job of a pool are no lack of slots: rules keep them. The job itself
// waits for the rest of its slots.
func TestKeptSlotsAreOfRules(t *testing.T) { // R46
	s := newScene(t, 1, 4).pool("chipA", 4)
	for range 3 {
		s.job("bob", "", "n1", time.Hour)
	}
	s.job("ann", "chipA", "", time.Hour, slots(4))
	p := s.ripen()
	if preempted(p) == "" {
		t.Fatal("no job is preempted")
	}
	s.jobs(2)
	p = s.cycle()
	if got := shortagesOf(p); got != "slots 5, rules 1" {
		t.Errorf("%s", got)
	}
}

// A job that starts in the free slots that are kept for it does not wait.
func TestNominatedJobsStart(t *testing.T) { // R46
	s := newScene(t, 1, 4).pool("chipA", 2)
	s.job("bob", "", "n1*2", time.Hour)
	s.job("ann", "chipA", "", time.Hour, slots(2))
	for range 4 {
		p := s.cycle()
		if got := shortagesOf(p); got != "" {
			t.Errorf("%s", got)
		}
		s.rank(p)
	}
}

func TestNamesOfShortagesAreBounded(t *testing.T) { // R46
	s := newScene(t, 1, 100)
	for i := range 30 {
		s.jobs(2, needing(fmt.Sprintf("r%02d", i), 1))
	}
	p := s.cycle()
	sum := 0
	for _, one := range p.Shortages {
		sum += one.Slots
	}
	last := p.Shortages[len(p.Shortages)-1]
	if len(p.Shortages) != maxLackingNames+1 || last.Name != OtherNames || last.Slots != 20 || sum != 60 {
		t.Errorf("%s", shortagesOf(p))
	}
	s = newScene(t, 1, 1)
	s.job("bob", "", "n1", time.Hour)
	for i := range maxRequests + 7 {
		s.jobs(1, memory(int64(i+1)))
	}
	if got, want := shortagesOf(s.cycle()), fmt.Sprintf("slots %d, other 7", maxRequests); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLawShortages: on random farms each job that waits counts once at most; no more slots count
// for memory and resources than are free; memory is named only where it lacks, and where there is
// enough of everything, slots alone are.
func TestLawShortages(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		hosts, each := rapid.IntRange(1, 4).Draw(r, "hosts"), rapid.IntRange(1, 8).Draw(r, "slots")
		s := newScene(t, hosts, each)
		if rapid.Bool().Draw(r, "pool") {
			s.pool("chipA", rapid.IntRange(1, hosts*each).Draw(r, "guarantee"))
		}
		left := make([]int, hosts)
		for i := range s.state.Farm.Hosts {
			h := &s.state.Farm.Hosts[i]
			h.Memory = rapid.Int64Range(0, 64).Draw(r, "memory") * gib
			h.Has = []backends.Amount{{Name: "gpu", Count: rapid.IntRange(0, 2).Draw(r, "gpus")}}
			left[i] = each
		}
		for range rapid.IntRange(0, 12).Draw(r, "running") {
			i := rapid.IntRange(0, hosts-1).Draw(r, "host")
			if n := rapid.IntRange(1, each).Draw(r, "of its slots"); n <= left[i] {
				left[i] -= n
				s.job("bob", "", fmt.Sprintf("n%d*%d", i+1, n), time.Hour, memory(rapid.Int64Range(0, 16).Draw(r, "used")))
			}
		}
		free, waits := 0, 0
		for _, n := range left {
			free += n
		}
		for range rapid.IntRange(0, 12).Draw(r, "pending") {
			n := rapid.IntRange(1, 6).Draw(r, "asks")
			waits += n
			change := []func(*backends.Job){slots(n), memory(rapid.Int64Range(0, 40).Draw(r, "asks for memory"))}
			if rapid.Bool().Draw(r, "spans") {
				change[0] = spanning(n)
			}
			if rapid.IntRange(0, 4).Draw(r, "gpu") == 0 {
				change = append(change, needing("gpu", 1))
			}
			if rapid.IntRange(0, 4).Draw(r, "suits") == 0 {
				change = append(change, func(j *backends.Job) { j.Suits = &backends.HostSet{Hosts: []string{"n1"}} })
			}
			s.job(rapid.SampledFrom([]string{"ann", "bob"}).Draw(r, "user"), "chipA", "", time.Hour, change...)
		}
		sum, lacking := 0, 0
		for _, one := range s.cycle().Shortages {
			sum += one.Slots
			switch one.Cause {
			case LackMemory:
				if one.Lacking <= 0 || one.Hosts <= 0 || one.Hosts > hosts {
					r.Errorf("memory, and none lacks: %+v", one)
				}
				lacking += one.Slots
			case LackResource:
				lacking += one.Slots
			case LackSlots, ByRules, Unexamined:
			}
			if one.Free > free || one.Slots <= 0 {
				r.Errorf("%d slots are free: %+v", free, one)
			}
		}
		if sum > waits || lacking > free {
			r.Errorf("%d slots wait, %d are free: %d count, %d for lack of memory or resources", waits, free, sum, lacking)
		}
		for i := range s.state.Farm.Hosts {
			s.state.Farm.Hosts[i].Memory, s.state.Farm.Hosts[i].Has[0].Count = 1<<50, 1000
		}
		for _, one := range s.cycle().Shortages {
			if one.Cause == LackMemory || one.Cause == LackResource && one.Name != "" {
				r.Errorf("there is enough of all but slots: %+v", one)
			}
		}
	})
}
