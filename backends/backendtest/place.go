package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Where jobs run: slots, memory, pins, reservations.
var hostCases = []testCase{
	{"slots and memory of a host are kept to", testCapacity},
	{"the owner's host list", testAsked},
	{"pin", testPin},
	{"pin by shares", testPinShares},
	{"a pin ends", testPinEnds},
	{"reserve", testReserve},
	{"a resuming job goes before normal jobs", testResumesFirst},
	{"straight into a slot", testStart},
}

// onHost is a job that asks for one host by its name.
func (s *suite) onHost(g gate, slots int, host string) backends.Spec {
	spec := s.job(g, slots)
	spec.OneHost, spec.Hosts = true, []string{host}
	return spec
}

func testCapacity(s *suite) {
	memory := s.farm().Hosts[0].Memory
	big := s.newGate()
	heavy := s.job(big, 1)
	heavy.OneHost, heavy.Memory = true, memory*3/4
	for range hostCount {
		s.running(heavy)
	}
	waits := s.submitOne(func() backends.Spec { h := heavy; h.Memory = memory / 2; return h }())
	light := s.newGate()
	soon := s.job(light, 1)
	soon.RunLimit = time.Hour // a queue that plans ahead lets it pass a job that waits for memory
	for range hostCount * (slotsPerHost - 1) {
		s.running(soon)
	}
	if j := s.queryJob(waits); j.State != backends.Pending {
		s.Errorf("a job is %v that needs more memory than any host has left", j.State)
	}
	s.checkCapacity()
	s.open(big)
	s.awaitState(waits, backends.Done)
	s.checkCapacity()
	s.open(light)
	wide := s.short(slotsPerHost + 1)
	j := s.awaitState(s.submitOne(wide), backends.Done)
	slots := 0
	for _, p := range j.Hosts {
		slots += p.Slots
	}
	if slots != slotsPerHost+1 || len(j.Hosts) != 2 {
		s.Errorf("a job of %d slots ran on %+v", slotsPerHost+1, j.Hosts)
	}
}

func testAsked(s *suite) {
	hosts := s.hostNames()
	g := s.newGate()
	for range slotsPerHost {
		id := s.running(s.onHost(g, 1, hosts[1]))
		if j := s.queryJob(id); !slices.Equal(hostsOf(j), hosts[1:]) || !slices.Equal(j.Asked, hosts[1:]) {
			s.Errorf("job %v asked for %v and runs on %v, shows %v", id, hosts[1:], j.Hosts, j.Asked)
		}
	}
	waits := s.submitOne(s.onHost(s.newGate(), 1, hosts[1]))
	s.awaitState(s.submitOne(s.short(1)), backends.Done)
	if j := s.queryJob(waits); j.State != backends.Pending {
		s.Errorf("job %v is %v, want pending: its host is full", waits, j.State)
	}
}

func testPin(s *suite) {
	s.need(s.able.Pin != nil, "pin jobs to hosts")
	hosts := s.hostNames()
	on := map[string]gate{}
	for _, h := range hosts {
		on[h] = s.newGate()
		s.running(s.onHost(on[h], slotsPerHost, h))
	}
	free := s.submitOne(s.short(1))
	asked := s.submitOne(s.onHost(s.newGate(), 1, hosts[0]))
	both := []backends.ID{free, asked}
	s.must("pin", s.able.Pin(s.ctx, []backends.Pin{{ID: free, Hosts: hosts[1:]}, {ID: asked, Hosts: hosts[1:]}}))
	for _, id := range both {
		if j := s.queryJob(id); !slices.Equal(j.Pinned, hosts[1:]) {
			s.Errorf("job %v is pinned to %v, want %v", id, j.Pinned, hosts[1:])
		}
	}
	s.open(on[hosts[0]])
	s.awaitState(s.submitOne(func() backends.Spec { sp := s.short(1); sp.OneHost, sp.Hosts = true, hosts[:1]; return sp }()), backends.Done)
	for _, id := range both {
		if j := s.queryJob(id); j.State != backends.Pending {
			s.Errorf("job %v is %v on %v, want pending: it is pinned to %s, which is full", id, j.State, j.Hosts, hosts[1])
		}
	}
	s.must("take a pin back", s.able.Pin(s.ctx, []backends.Pin{{ID: asked}}))
	if j := s.awaitState(asked, backends.Running); !slices.Equal(hostsOf(j), hosts[:1]) || len(j.Pinned) != 0 || !slices.Equal(j.Asked, hosts[:1]) {
		s.Errorf("unpinned job %+v, want it on the host that its owner asked for", j)
	}
	s.open(on[hosts[1]])
	if j := s.awaitState(free, backends.Done); !slices.Equal(hostsOf(j), hosts[1:]) {
		s.Errorf("pinned to %s, ran on %v", hosts[1], j.Hosts)
	}
	if err := s.able.Pin(s.ctx, []backends.Pin{{ID: free, Hosts: hosts[1:]}}).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("pin of an ended job: %v, want %v", err, backends.ErrWrongState)
	}
}

// testPinEnds: the pin ends by itself, so that the job runs though its engine is gone
// (R21).
func testPinEnds(s *suite) {
	s.need(s.able.PinEnds, "pin a job until a time")
	hosts := s.hostNames()
	s.running(s.onHost(s.newGate(), slotsPerHost, hosts[1]))
	first := s.newGate()
	s.running(s.onHost(first, slotsPerHost, hosts[0]))
	id := s.submitOne(s.short(1))
	ends := s.now().Add(2 * s.Shortest)
	s.must("pin", s.able.Pin(s.ctx, []backends.Pin{{ID: id, Hosts: hosts[1:], Until: ends}}))
	if j := s.queryJob(id); s.now().Before(ends) && (!slices.Equal(j.Pinned, hosts[1:]) || j.PinEnds.Sub(ends).Abs() > time.Second) {
		s.Errorf("job %v is pinned to %v until %v, want %v until %v", id, j.Pinned, j.PinEnds, hosts[1:], ends)
	}
	s.open(first)
	if j := s.awaitState(id, backends.Done); !slices.Equal(hostsOf(j), hosts[:1]) || j.Started.Before(ends.Truncate(time.Second)) {
		s.Errorf("job %+v, want it on %v not before %v", j, hosts[:1], ends)
	}
}

// testPinShares: without the pin the job would start on one host.
func testPinShares(s *suite) {
	s.need(s.able.PinShares, "pin jobs to so many slots of each host")
	hosts := s.hostNames()
	first, second := s.newGate(), s.newGate()
	for range slotsPerHost {
		s.running(s.onHost(first, 1, hosts[0]))
	}
	s.running(s.onHost(second, slotsPerHost, hosts[1]))
	waits := s.submitOne(s.short(2))
	bad := backends.Pin{ID: waits, Hosts: hosts, Slots: []int{1, 2}}
	if err := s.able.Pin(s.ctx, []backends.Pin{bad}).First(); err == nil {
		s.Errorf("a pin of 3 slots was taken for a job of 2")
	}
	s.must("pin", s.able.Pin(s.ctx, []backends.Pin{{ID: waits, Hosts: hosts, Slots: []int{1, 1}}}))
	if j := s.queryJob(waits); !slices.Equal(j.Shares, []int{1, 1}) {
		s.Errorf("job %v has shares %v, want one slot on each host", waits, j.Shares)
	}
	s.open(first)
	s.awaitState(s.submitOne(func() backends.Spec { sp := s.short(1); sp.OneHost, sp.Hosts = true, hosts[:1]; return sp }()), backends.Done)
	if j := s.queryJob(waits); j.State != backends.Pending {
		s.Errorf("job %v is %v on %v, want pending: its share of %s is not free", waits, j.State, j.Hosts, hosts[1])
	}
	s.open(second)
	if j := s.awaitState(waits, backends.Done); !slices.Equal(j.Hosts, []backends.Placement{{Host: hosts[0], Slots: 1}, {Host: hosts[1], Slots: 1}}) {
		s.Errorf("pinned to one slot on each host, ran on %v", j.Hosts)
	}
}

func testReserve(s *suite) {
	s.need(s.able.Reserve != nil, "reserve hosts for a job")
	hosts := s.hostNames()
	parts := make([]gate, slotsPerHost)
	for i := range parts {
		parts[i] = s.newGate()
		s.running(s.onHost(parts[i], 1, hosts[0]))
	}
	s.running(s.onHost(s.newGate(), slotsPerHost, hosts[1]))
	wide := s.job(s.newGate(), slotsPerHost)
	wide.OneHost, wide.Priority = true, backends.At(backends.LevelPBA, 120)
	beneficiary := s.submitOne(wide)
	lower := s.submitOne(s.short(1))
	higher := s.short(1)
	higher.Hold, higher.Priority = true, backends.At(backends.LevelHandOver, 20)
	top := s.submitOne(higher)
	s.must("reserve", s.able.Reserve(s.ctx, []backends.Reservation{{ID: beneficiary, Hosts: hosts[:1], Until: s.now().Add(time.Hour)}}))
	s.open(parts[0])
	s.must("release", s.Backend.Release(s.ctx, []backends.ID{top}))
	s.awaitState(top, backends.Done) // what ranks above may pass
	if j := s.queryJob(lower); !j.Started.IsZero() {
		s.Errorf("job %v started on %v, which is kept for job %v", lower, j.Hosts, beneficiary)
	}
	s.must("take the reservation back", s.able.Reserve(s.ctx, []backends.Reservation{{ID: beneficiary, Hosts: hosts[:1]}}))
	s.awaitState(lower, backends.Done)
	s.must("reserve again, in the past", s.able.Reserve(s.ctx, []backends.Reservation{{ID: beneficiary, Hosts: hosts[:1], Until: s.now().Add(s.Shortest)}}))
	last := s.submitOne(s.short(1))
	s.awaitState(last, backends.Done) // the reservation passes by itself
	for _, g := range parts[1:] {
		s.open(g)
	}
	s.awaitState(beneficiary, backends.Running)
}

func testResumesFirst(s *suite) {
	s.need(s.able.SuspendFrees, "resume jobs before normal ones")
	hosts := s.hostNames()
	s.running(s.onHost(s.newGate(), slotsPerHost, hosts[1]))
	stopped := s.running(s.onHost(s.newGate(), slotsPerHost, hosts[0]))
	s.must("suspend", s.Backend.Suspend(s.ctx, []backends.Act{{ID: stopped, Until: s.now().Add(time.Hour)}}))
	s.awaitState(stopped, backends.Suspended)
	parts := make([]gate, slotsPerHost)
	for i := range parts {
		parts[i] = s.newGate()
		s.awaitState(s.startBeside(s.onHost(parts[i], 1, hosts[0]), hosts[0]), backends.Running)
	}
	later := s.short(1)
	later.RunLimit = 100 * time.Hour // what may end before the others do is no obstacle, and may pass
	normal := s.submitOne(later)
	s.must("resume", s.Backend.Resume(s.ctx, []backends.ID{stopped}))
	s.awaitJob(stopped, "waiting to be resumed", func(j backends.Job) bool { return j.Resuming })
	s.open(parts[0])
	higher := s.short(1)
	higher.Priority = backends.At(backends.LevelPBA, 120)
	s.awaitState(s.startBeside(higher, hosts[0]), backends.Done) // a PBA job may pass
	if j := s.queryJob(normal); !j.Started.IsZero() {
		s.Errorf("normal job %v took a slot that job %v needs to be resumed", normal, stopped)
	}
	for _, g := range parts[1:] {
		s.open(g)
	}
	s.awaitState(stopped, backends.Running)
	s.checkCapacity()
}

func testStart(s *suite) {
	s.need(s.able.Start != nil, "put a job straight into a slot")
	hosts := s.hostNames()
	s.running(s.onHost(s.newGate(), slotsPerHost, hosts[1]))
	s.fillHost(hosts[0])
	id := s.submitOne(s.short(1))
	if err := s.able.Start(s.ctx, id, []backends.Placement{{Host: hosts[1], Slots: 1}}); err != nil {
		s.Fatalf("start job %v on %s: %v", id, hosts[1], err)
	}
	if j := s.awaitState(id, backends.Done); !slices.Equal(hostsOf(j), hosts[1:]) {
		s.Errorf("put on %s, ran on %v", hosts[1], j.Hosts)
	}
}

func (s *suite) fillHost(host string) {
	s.Helper()
	s.running(s.onHost(s.newGate(), slotsPerHost, host))
}
