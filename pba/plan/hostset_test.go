package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// hostSet names hosts of the scene.
func (s *scene) hostSet(name string, hosts ...string) *scene {
	s.policy.HostSets = append(s.policy.HostSets, HostSet{name, hosts})
	return s
}

// poolOn adds an allocation that is limited to a host set.
func (s *scene) poolOn(set, name string, slots int) *scene {
	s.pool(name, slots)
	s.policy.Allocations[len(s.policy.Allocations)-1].Hosts = set
	return s
}

func needs(name string) func(*backends.Job) {
	return func(j *backends.Job) { j.Needs = []backends.Amount{{Name: name, Count: 1}} }
}

func TestChargesLieOnThePoolsHosts(t *testing.T) { // R9
	s := newScene(t, 4, 2).hostSet("gpu", "n3", "n4").poolOn("gpu", "chipA", 2).pool("chipB", 2)
	off := s.job("ann", "chipA", "n1", 3*time.Hour)
	partly := s.job("ann", "chipA", "n2 n3", 2*time.Hour)
	on := s.job("ann", "chipA", "n4*2", time.Hour)
	offRest := s.job("bob", "chipB", "n3", time.Hour)
	onRest := s.job("bob", "chipB", "n1", time.Hour)
	p := s.cycle()
	for id, want := range map[backends.ID]int64{off: 0, partly: 0, on: 1, offRest: 0, onRest: 2} {
		if poolOf(p, id) != want {
			t.Errorf("job %v is charged to %d, want %d", id, poolOf(p, id), want)
		}
	}
	if want := []Beyond{{Project: "chipA", Slots: 3}, {Project: "chipB", Slots: 1}}; !equal(p.Beyond, want) {
		t.Errorf("beyond %v, want %v", p.Beyond, want)
	}
}

func TestPendingJobsMatchPoolsWhereTheyMayRun(t *testing.T) { // R9
	gpu := func(s *scene) {
		for i := range s.state.Farm.Hosts[2:] {
			s.state.Farm.Hosts[i+2].Has = []backends.Amount{{Name: "gpu", Count: 1}}
		}
	}
	asks := func(host string) func(*backends.Job) { return func(j *backends.Job) { j.Asked = []string{host} } }
	for name, c := range map[string]struct {
		change func(*backends.Job)
		want   int64
	}{
		"any host: the rest first": {func(*backends.Job) {}, 2},
		"suits the set":            {suits("n3"), 1},
		"suits the rest":           {suits("n1", "n2"), 2},
		"asks for the set":         {asks("n4"), 1},
		"needs what the set has":   {needs("gpu"), 1},
		"needs what no host has":   {needs("fpga"), 0},
		"too wide for one host":    {slots(3), 0},
		"spans hosts":              {spanning(3), 2},
	} {
		s := newScene(t, 4, 2).hostSet("gpu", "n3", "n4").poolOn("gpu", "chipA", 3).pool("chipA", 3)
		gpu(s)
		id := s.job("ann", "chipA", "", 0, c.change)
		if p := s.cycle(); poolOf(p, id) != c.want {
			t.Errorf("%s: it holds room in %d, want %d", name, poolOf(p, id), c.want)
		}
	}
}

func TestVictimsAreOnThePoolsHosts(t *testing.T) { // R9, R15
	s := newScene(t, 4, 1).hostSet("gpu", "n3", "n4").poolOn("gpu", "chipA", 1)
	for _, host := range []string{"n3", "n4", "n1", "n2"} {
		s.job("bob", "", host, time.Duration(10*(1+s.next))*time.Minute)
	}
	s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if preempted(p) != "requeue 1" {
		t.Errorf("preempted %q, want 1, the youngest in the set", preempted(p))
	}
	if hosts := names(p.Memory.Reclaims[0].Hosts); !equal(hosts, []string{"n3"}) {
		t.Errorf("it shall run on %v", hosts)
	}
}

// A free slot outside the set does not serve a job of a pool that is limited to it.
func TestFreeSlotsOutsideTheSetServeNoPool(t *testing.T) { // R15
	s := newScene(t, 2, 1).hostSet("gpu", "n2").poolOn("gpu", "chipA", 1)
	s.job("bob", "", "n2", time.Hour)
	s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "requeue 1" {
		t.Errorf("preempted %q, want 1", preempted(p))
	}
}

// Charges move between pools only where the jobs' hosts allow it (R9).
func TestMovesRespectHosts(t *testing.T) {
	for name, c := range map[string]struct {
		host string
		want int64
	}{"can move": {"n1", 1}, "can't move": {"n2", 0}} {
		s := newScene(t, 2, 2).hostSet("gpu", "n2").pool("chipA", 1).poolOn("gpu", "chipA:a", 1)
		first := s.job("ann", "chipA:a", "n2", 2*time.Hour)
		second := s.job("ann", "chipA:a", c.host, time.Hour)
		p := s.cycle()
		if poolOf(p, first) != 2 || poolOf(p, second) != c.want {
			t.Errorf("%s: charged to %d and %d", name, poolOf(p, first), poolOf(p, second))
		}
	}
	// The waiting GPU job gets its pool's room, since the other one may run elsewhere.
	s := newScene(t, 2, 2).hostSet("gpu", "n2").pool("chipA", 1).poolOn("gpu", "chipA", 1)
	running := s.job("ann", "chipA", "n1", time.Hour)
	either := s.job("ann", "chipA", "", 0)
	s.cycle()
	s.state.Farm.Jobs = s.state.Farm.Jobs[1:]
	gpu := s.job("ann", "chipA", "", 0, suits("n2"))
	if p := s.cycle(); poolOf(p, either) != 1 || poolOf(p, gpu) != 2 {
		t.Errorf("after %v: %d and %d", running, poolOf(p, either), poolOf(p, gpu))
	}
}

// The beneficiary of an open reclaim keeps a pool on the reclaim's hosts.
func TestBeneficiaryStaysWithItsHosts(t *testing.T) {
	s := newScene(t, 2, 1).hostSet("gpu", "n2").pool("chipA", 1).poolOn("gpu", "chipA", 1)
	s.job("ann", "chipA", "n1", 2*time.Hour)
	s.job("bob", "", "n2", time.Hour)
	id := s.job("ann", "chipA", "", 0)
	p := s.ripen()
	if preempted(p) != "requeue 2" || poolOf(p, id) != 2 {
		t.Fatalf("preempted %q for pool %d", preempted(p), poolOf(p, id))
	}
	v := s.at(backends.ID{Job: 2})
	v.State, v.Hosts, v.Mark, v.HeldUntil = backends.Pending, nil, "r1", s.now.Add(time.Hour)
	s.state.Farm.Jobs = s.state.Farm.Jobs[1:] // the other pool has room now
	if p := s.cycle(); poolOf(p, id) != 2 || !p.Memory.Reclaims[0].Phase.Open() {
		t.Errorf("it holds room in %d, reclaim %+v", poolOf(p, id), p.Memory.Reclaims[0])
	}
}

func TestUnknownHostSetServesNoJob(t *testing.T) {
	for _, sets := range [][]HostSet{nil, {{"big", []string{"n1"}}}} {
		s := newScene(t, 2, 1).poolOn("gpu", "chipA", 1).poolOn("fpga", "chipA:s", 1)
		s.policy.HostSets = sets
		s.job("bob", "", "n1", time.Hour)
		s.job("bob", "", "n2", time.Hour)
		id := s.job("ann", "chipA", "", 0)
		p := s.ripen()
		if preempted(p) != "" || poolOf(p, id) != 0 || p.Farm.Guaranteed != 0 {
			t.Errorf("%v: preempted %q, pool %d, guaranteed %d", sets, preempted(p), poolOf(p, id), p.Farm.Guaranteed)
		}
		if n := strings.Count(strings.Join(p.Warnings, "\n"), "host_sets"); n != 1 || !strings.Contains(p.Warnings[0], "chipA on gpu, chipA:s on fpga") {
			t.Errorf("%v: warnings %q", sets, p.Warnings)
		}
	}
}

// A set whose hosts are down keeps its jobs' room.
func TestRoomOutlastsHostsThatAreDown(t *testing.T) {
	s := newScene(t, 2, 1).hostSet("gpu", "n2").poolOn("gpu", "chipA", 1)
	s.state.Farm.Hosts[1].State = backends.HostDown
	id := s.job("ann", "chipA", "", 0)
	if p := s.cycle(); poolOf(p, id) != 1 {
		t.Errorf("it holds room in %d", poolOf(p, id))
	}
}

func TestExplainSaysWhereAPoolIs(t *testing.T) { // R27
	s := newScene(t, 2, 1).hostSet("gpu", "n2").poolOn("gpu", "chipA", 2)
	on, off := s.job("ann", "chipA", "n2", time.Hour), s.job("ann", "chipA", "n1", time.Hour)
	waits := s.job("ann", "chipA", "", 0, suits("n1"))
	for id, want := range map[backends.ID]string{
		on:    "it is charged to chipA on gpu",
		off:   "it runs on hosts that are not those of a pool that it matches",
		waits: "it can't run on the hosts of a pool that it matches",
	} {
		e, _ := Explain(s.state, s.policy, s.now, id)
		if last := e.Tests[len(e.Tests)-1]; !strings.Contains(e.Place, want) || last.Passed != (id == on) {
			t.Errorf("%v: %q, tests %+v", id, e.Place, e.Tests)
		}
	}
}

func TestUnmetGuaranteesAreCountedByHostSet(t *testing.T) { // R9, R24
	s := newScene(t, 4, 1).hostSet("gpu", "n3", "n4").poolOn("gpu", "chipA", 2).pool("chipB", 1)
	for _, host := range []string{"n3", "n4"} {
		s.job("bob", "", host, time.Hour, func(j *backends.Job) { j.Interactive = true })
	}
	s.job("ann", "chipA", "", 0, suits("n3", "n4"))
	p := s.cycle()
	if len(p.Sets) != 2 || p.Sets[0].Short() || !p.Sets[1].Short() {
		t.Fatalf("sets %+v: n1 and n2 are idle, which doesn't help a pool on gpu", p.Sets)
	}
	const want = "host set gpu: jobs wait for 1 of 2 guaranteed slots, and only 0 can be preempted now"
	if !slices.Contains(p.Warnings, want) {
		t.Errorf("warnings %q, want %q", p.Warnings, want)
	}
	if rest := p.Sets[0]; rest != (SetStatus{Guaranteed: 1, Free: 2}) {
		t.Errorf("the hosts in no set: %+v", rest)
	}
}

// A job of a pool that started on hosts that are not the pool's does not take the room of a job
// that entered another pool before.
func TestStrayedJobTakesNoRoomOfOthers(t *testing.T) { // R9
	s := newScene(t, 2, 1).hostSet("gpu", "n2").poolOn("gpu", "chipA", 1).pool("chipA", 1)
	s.job("bob", "", "n2", time.Hour)
	s.job("bob", "", "n1", time.Hour)
	entered := s.job("ann", "chipA", "", 0, suits("n1"))
	stray := s.job("ann", "chipA", "", 0)
	s.rank(s.cycle())
	if p := s.cycle(); poolOf(p, entered) != 2 || poolOf(p, stray) != 1 {
		t.Fatalf("they hold room in %d and %d", poolOf(p, entered), poolOf(p, stray))
	}
	s.state.Farm.Hosts[0].Slots = 2
	j := s.at(stray)
	j.State, j.Started, j.Hosts = backends.Running, s.now, []backends.Placement{{Host: "n1", Slots: 1}}
	if p := s.cycle(); poolOf(p, entered) != 2 || poolOf(p, stray) != 0 {
		t.Errorf("they are in %d and %d", poolOf(p, entered), poolOf(p, stray))
	}
}
