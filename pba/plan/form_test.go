package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// has gives each host of a scene some units of a resource.
func (s *scene) has(name string, count int, hosts ...string) *scene {
	for i := range s.state.Farm.Hosts {
		h := &s.state.Farm.Hosts[i]
		if len(hosts) == 0 || strings.Contains(" "+strings.Join(hosts, " ")+" ", " "+h.Name+" ") {
			h.Has = append(h.Has, backends.Amount{Name: name, Count: count})
		}
	}
	return s
}

func gpus(n int) func(*backends.Job) {
	return func(j *backends.Job) { j.Needs = []backends.Amount{{Name: "gpu", Count: n}} }
}

func exclusive(j *backends.Job) { j.Exclusive = true }

// lying gives a job the least and the most hosts, the slots on each, and their unit.
func lying(least, most, perHost, unit int) func(*backends.Job) {
	return func(j *backends.Job) {
		j.OneHost, j.MinHosts, j.MaxHosts, j.PerHost, j.Unit = most == 1, least, most, perHost, unit
	}
}

// placed lists where reclaims will have their beneficiaries run, as "n1*2 n2*1".
func placed(p Plan) string {
	var at []string
	for _, r := range p.Memory.Reclaims {
		for _, h := range r.Hosts {
			at = append(at, fmt.Sprintf("%s*%d", h.Host, h.Slots))
		}
	}
	return strings.Join(at, " ")
}

func TestVictimsLeaveTheFormThatIsAskedFor(t *testing.T) { // R17, R32
	for name, c := range map[string]struct {
		slots                      int
		least, most, perHost, unit int
		preempted, placed          string
	}{
		"two hosts":               {2, 2, 2, 0, 0, "requeue 1, requeue 3", "n1*1 n2*1"},
		"at least two":            {2, 2, 0, 0, 0, "requeue 1, requeue 3", "n1*1 n2*1"},
		"three hosts, one each":   {3, 0, 0, 1, 0, "requeue 1, requeue 3, requeue 5", "n1*1 n2*1 n3*1"},
		"two each, one on a last": {3, 0, 0, 2, 0, "requeue 1, requeue 2, requeue 3", "n1*2 n2*1"},
		"at most two":             {3, 0, 2, 0, 0, "requeue 1, requeue 2, requeue 3", "n1*2 n2*1"},
		"tasks of two":            {4, 0, 0, 0, 2, "requeue 1, requeue 2, requeue 3, requeue 4", "n1*2 n2*2"},
		"a task of two":           {2, 0, 0, 0, 2, "requeue 1, requeue 2", "n1*2"},
	} {
		s := newScene(t, 3, 2).pool("chipA", 4)
		for i := range 6 {
			s.job("bob", "", fmt.Sprintf("n%d", i/2+1), time.Duration(i+1)*time.Hour)
		}
		s.job("ann", "chipA", "", 0, slots(c.slots), lying(c.least, c.most, c.perHost, c.unit))
		if p := s.ripen(); preempted(p) != c.preempted || placed(p) != c.placed {
			t.Errorf("%s: preempted %q for %q", name, preempted(p), placed(p))
		}
	}
}

func TestFreeSlotsServeTheFormThatIsAskedFor(t *testing.T) { // R15, R32
	s := newScene(t, 3, 4).pool("chipA", 4)
	s.job("bob", "", "n3*4", time.Hour)
	id := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0))
	if p := s.ripen(); preempted(p) != "" || !strings.Contains(skipped(p, id), "free") {
		t.Errorf("preempted %q, %q", preempted(p), skipped(p, id))
	}
	s = newScene(t, 3, 4).pool("chipA", 4)
	s.job("bob", "", "n2*4", time.Hour)
	s.job("bob", "", "n3*4", 2*time.Hour)
	s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0))
	if p := s.ripen(); preempted(p) != "requeue 1" { // n1 is free, and one host is not enough
		t.Errorf("preempted %q", preempted(p))
	}
}

func TestVictimsFreeWhatIsMissing(t *testing.T) { // R17, R32
	farm := func() *scene {
		s := newScene(t, 2, 4).pool("chipA", 2).has("gpu", 2, "n1")
		s.job("bob", "", "n1", time.Hour)              // young, but has no GPU
		s.job("bob", "", "n1", 2*time.Hour, gpus(1))   //
		s.job("bob", "", "n1*2", 3*time.Hour, gpus(1)) // old
		s.job("bob", "", "n2*4", time.Hour)
		return s
	}
	for name, c := range map[string]struct {
		change func(*scene)
		asks   []func(*backends.Job)
		want   string
	}{
		"one GPU":                        {func(*scene) {}, []func(*backends.Job){gpus(1)}, "requeue 2"},
		"both GPUs":                      {func(*scene) {}, []func(*backends.Job){gpus(2)}, "requeue 2, requeue 3"},
		"CPUs free, GPUs busy":           {func(s *scene) { s.state.Farm.Jobs = s.state.Farm.Jobs[1:] }, []func(*backends.Job){gpus(1)}, "requeue 2"},
		"a suspended one keeps its GPU":  {func(s *scene) { suspendable(s.at(backends.ID{Job: 2})) }, []func(*backends.Job){gpus(1)}, "requeue 3"},
		"slots, and a GPU that is free":  {func(s *scene) { s.state.Farm.Hosts[0].Has[0].Count = 3 }, []func(*backends.Job){gpus(1)}, "requeue 1"},
		"no GPU: the youngest, any host": {func(*scene) {}, nil, "requeue 1"},
		"two slots and a GPU":            {func(*scene) {}, []func(*backends.Job){gpus(1), slots(2)}, "requeue 1, requeue 2"},
	} {
		s := farm()
		c.change(s)
		s.job("ann", "chipA", "", 0, c.asks...)
		if p := s.ripen(); preempted(p) != c.want {
			t.Errorf("%s: preempted %q, want %q", name, preempted(p), c.want)
		}
	}
}

// A suspended job holds its GPU: the slots that it left are of no use to another that needs one.
func TestSuspendedJobsHoldTheirResources(t *testing.T) {
	s := newScene(t, 1, 2).pool("chipA", 1).has("gpu", 1)
	s.job("bob", "", "n1", time.Hour, gpus(1), func(j *backends.Job) { j.State = backends.Suspended })
	id := s.job("ann", "chipA", "", 0, gpus(1))
	if p := s.ripen(); preempted(p) != "" || !strings.Contains(skipped(p, id), "can't be met") || len(p.Memory.Jobs[id].Reserved) > 0 {
		t.Errorf("preempted %q, %q, reserves %v", preempted(p), skipped(p, id), p.Memory.Jobs[id].Reserved)
	}
}

// Two jobs are not served with one GPU.
func TestResourcesAreNominatedOnce(t *testing.T) {
	s := newScene(t, 1, 4).pool("chipA", 2).has("gpu", 2)
	s.job("bob", "", "n1", time.Hour, gpus(1))
	s.job("ann", "chipA", "", 0, gpus(1))
	s.job("ann", "chipA", "", 0, gpus(1))
	if p := s.ripen(); preempted(p) != "requeue 1" {
		t.Errorf("preempted %q: one GPU is free", preempted(p))
	}
}

func TestHostsAreEmptiedForExclusiveJobs(t *testing.T) { // R17, R32
	farm := func() *scene {
		s := newScene(t, 3, 4).pool("chipA", 8)
		s.job("bob", "", "n1*4", time.Hour)
		s.job("bob", "", "n2*2", 2*time.Hour)
		s.job("bob", "", "n2", 3*time.Hour)
		s.job("bob", "", "n3*4", time.Hour/2)
		return s
	}
	for name, c := range map[string]struct {
		change func(*scene)
		asks   []func(*backends.Job)
		want   string
	}{
		"the host with the least to free": {func(*scene) {}, nil, "requeue 3, requeue 2"},
		"one can't be preempted":          {func(s *scene) { s.at(backends.ID{Job: 3}).NoRequeue = true }, nil, "requeue 4"},
		"a suspended one would stay":      {func(s *scene) { suspendable(s.at(backends.ID{Job: 2})) }, nil, "requeue 4"},
		"two hosts":                       {func(*scene) {}, []func(*backends.Job){slots(2), lying(2, 2, 0, 0)}, "requeue 4, requeue 3, requeue 2"},
		"its pool has room for one":       {func(s *scene) { s.policy.Allocations[0].Guarantee = 7 }, nil, "requeue 3, requeue 2"},
		"its pool has less than a host":   {func(s *scene) { s.policy.Allocations[0].Guarantee = 3 }, nil, ""},
		"others in the pool need the rest": {func(s *scene) {
			s.policy.Allocations[0].Guarantee = 7
			s.at(backends.ID{Job: 4}).User, s.at(backends.ID{Job: 4}).Project = "ann", "chipA"
		}, nil, ""},
	} {
		s := farm()
		c.change(s)
		id := s.job("ann", "chipA", "", 0, append(c.asks, exclusive)...)
		if p := s.ripen(); preempted(p) != c.want {
			t.Errorf("%s: preempted %q, want %q; %s", name, preempted(p), c.want, skipped(p, id))
		}
	}
}

// Exclusive jobs of few slots get no more whole hosts than their pool has slots for.
func TestExclusiveJobsTakeNoMoreThanTheirPool(t *testing.T) {
	s := newScene(t, 3, 4).pool("chipA", 8)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.job("bob", "", n+"*4", time.Hour)
	}
	for range 3 {
		s.job("ann", "chipA", "", 0, exclusive)
	}
	if p := s.ripen(); strings.Count(preempted(p), "requeue") != 2 {
		t.Errorf("preempted %q for three jobs of 4 slots each; the pool has 8", preempted(p))
	}
}

// The pool that it is charged to has no whole host left; another one of its pools has.
func TestExclusiveJobMovesToThePoolWithRoomForItsHost(t *testing.T) {
	s := newScene(t, 3, 4).pool("chipA", 4).pool("chipA", 4)
	s.job("ann", "chipA", "n1", 2*time.Hour, exclusive)
	s.job("ann", "chipA", "n2", time.Hour, exclusive)
	s.job("bob", "", "n3*4", time.Hour)
	waits := s.job("ann", "chipA", "", 0, exclusive)
	if p := s.ripen(); preempted(p) != "requeue 3" || poolOf(p, waits) != 2 {
		t.Errorf("preempted %q for a job of pool %d: %s", preempted(p), poolOf(p, waits), skipped(p, waits))
	}
}

// Slots beside a job that has its host for itself are of no use.
func TestNoVictimBesideAnExclusiveJob(t *testing.T) {
	s := newScene(t, 1, 2).pool("chipA", 1)
	s.job("bob", "", "n1", 2*time.Hour, exclusive)
	s.job("bob", "", "n1", time.Hour)
	s.job("ann", "chipA", "", 0)
	if p := s.ripen(); preempted(p) != "" {
		t.Errorf("preempted %q", preempted(p))
	}
}

// What no managed hosts could ever run keeps no room from others.
func TestImpossibleRequestsHoldNoRoom(t *testing.T) { // R32
	for name, c := range map[string]struct {
		change []func(*backends.Job)
		why    string
	}{
		"more hosts than there are": {[]func(*backends.Job){slots(3), lying(3, 3, 0, 0)}, "it needs 3 hosts"},
		"more hosts than suit":      {[]func(*backends.Job){slots(2), lying(2, 2, 0, 0), suits("n2")}, "it needs 2 hosts"},
		"more GPUs than a host has": {[]func(*backends.Job){gpus(3)}, "it needs 3 gpu"},
		"more slots on each":        {[]func(*backends.Job){slots(4), lying(0, 0, 3, 0)}, "in the form"},
		"no host suits":             {[]func(*backends.Job){suits("other")}, "no managed host suits it"},
		"a host larger than a pool": {[]func(*backends.Job){exclusive}, "it has its hosts for itself, 2 slots at least"},
	} {
		s := newScene(t, 2, 2).pool("chipA", 4).has("gpu", 2)
		if strings.HasPrefix(name, "a host") {
			s.policy.Allocations[0].Guarantee = 1
		}
		s.state.Farm.Hosts[0].State = backends.HostClosed // a host that comes back counts
		s.job("bob", "", "n2*2", time.Hour)
		id := s.job("ann", "chipA", "", 0, c.change...)
		p := s.ripen()
		e, _ := Explain(s.state, s.policy, s.now, id)
		if poolOf(p, id) != 0 || preempted(p) != "" || len(p.Memory.Jobs[id].Reserved) > 0 || !strings.Contains(e.Place, c.why) {
			t.Errorf("%s: pool %d, preempted %q, %q", name, poolOf(p, id), preempted(p), e.Place)
		}
	}
}

// A job of some form that can't be served reserves hosts of that form.
func TestReservationsHaveTheForm(t *testing.T) { // R15
	s := newScene(t, 3, 2).pool("chipA", 4)
	for _, n := range []string{"n1*2", "n2*2", "n3"} {
		s.job("bob", "", n, time.Hour, func(j *backends.Job) { j.Interactive = true })
	}
	id := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0))
	if p := s.ripen(); len(p.Memory.Jobs[id].Reserved) != 2 || p.Memory.Jobs[id].Reserved[0] != "n3" {
		t.Errorf("it reserves %v", p.Memory.Jobs[id].Reserved)
	}
}

// A pool of a host set holds no room for a job that needs more hosts than the set has.
func TestPoolsOfFewHostsHoldNoRoomForMany(t *testing.T) { // R9, R32
	s := newScene(t, 4, 1).hostSet("gpu", "n4").poolOn("gpu", "chipA", 2).pool("chipA", 2)
	id := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0), suits("n1", "n2", "n3", "n4"))
	other := s.job("ann", "chipA", "", 0, slots(2), lying(2, 2, 0, 0))
	if p := s.cycle(); poolOf(p, id) != 2 || poolOf(p, other) == 1 {
		t.Errorf("they hold room in %d and %d", poolOf(p, id), poolOf(p, other))
	}
}
