package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Dummy jobs, and heavy ones that are held until theirs are there (R28–R31).
var dummyCases = []testCase{
	{"held from the start", testHeldFromTheStart},
	{"dummy jobs hold slots of their host", testDummies},
	{"dummy jobs end by their limit", testDummyLimit},
	{"a job is no dummy by its looks", testDummyLookalike},
	{"standby jobs keep slots of a host for a project", testStandbys},
}

func testHeldFromTheStart(s *suite) {
	if !s.HoldsSpecs {
		s.Skip("skipped: this backend holds no job by its specification")
	}
	s.need(s.able.HoldUntil != nil, "hold a job until a time")
	held := s.short(1)
	held.HeldUntil = s.now().Add(time.Hour)
	soon := s.short(1)
	soon.HeldUntil = s.now().Add(2 * s.Shortest)
	ids := s.submit(held, soon)
	s.awaitState(s.submitOne(s.short(1)), backends.Done) // there is room
	if err := s.Backend.Release(s.ctx, ids[:1]).First(); err != nil && !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("release of a job that was held from the start: %v", err)
	}
	if j := s.awaitState(ids[1], backends.Done); j.Started.Before(soon.HeldUntil.Truncate(time.Second)) {
		s.Errorf("started at %v, held until %v", j.Started, soon.HeldUntil)
	}
	if j := s.queryJob(ids[0]); j.State != backends.Pending || j.Eligible() || j.HeldUntil.IsZero() || !j.BeginTime.IsZero() {
		s.Errorf("job %+v, want it held by the engine, without a begin time of its owner's", j)
	}
	s.must("release", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: ids[0]}}))
	if j := s.awaitState(ids[0], backends.Done); !j.HeldUntil.IsZero() {
		s.Errorf("released, and still shown as held until %v", j.HeldUntil)
	}
}

// submitDummies submits dummy jobs; every one must be accepted.
func (s *suite) submitDummies(dummies ...backends.Dummy) []backends.ID {
	s.Helper()
	results := s.able.Place(s.ctx, dummies)
	if len(results) != len(dummies) {
		s.Fatalf("Place of %d dummy jobs gave %d results", len(dummies), len(results))
	}
	var ids []backends.ID
	for i, r := range results {
		if r.Err != nil || r.ID == (backends.ID{}) || slices.Contains(ids, r.ID) {
			s.Fatalf("place dummy job %d of %d: %v, %v", i+1, len(dummies), r.ID, r.Err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// checkDummies checks how Farm and Jobs show dummy jobs.
func (s *suite) checkDummies(heavy backends.ID, ids ...backends.ID) {
	s.Helper()
	farm := s.farm()
	for _, id := range ids {
		shown := []backends.Job{s.queryJob(id)}
		for _, j := range slices.Concat(farm.Jobs, farm.Ended) {
			if j.ID == id {
				shown = append(shown, j)
			}
		}
		if len(shown) != 2 {
			s.Errorf("dummy job %v is shown %d times, want it in the farm and by itself", id, len(shown))
		}
		for _, j := range shown {
			if j.DummyFor != heavy || j.Slots != 1 || !j.NoRequeue {
				s.Errorf("dummy job %+v, want one slot for job %v, and that nobody requeues it", j, heavy)
			}
		}
	}
}

// testDummies places dummy jobs on a host whose slots are all taken; the other is free.
func testDummies(s *suite) {
	s.need(s.able.Place != nil, "place dummy jobs")
	hosts := s.hostNames()
	heavyGate, filled, wide := s.newGate(), s.newGate(), s.newGate()
	heavy := s.running(s.onHost(heavyGate, 1, hosts[0]))
	s.running(s.onHost(filled, slotsPerHost-1, hosts[0]))
	waits := s.submitOne(s.onHost(wide, 2, hosts[0]))
	top := backends.At(backends.LevelPBA, 120)
	dummy := backends.Dummy{For: heavy, Host: hosts[0], Priority: top, Limit: time.Hour}
	low := dummy
	low.Priority = backends.At(backends.LevelNormal, 1)
	ids := s.submitDummies(dummy, low, low)
	raised, unused := ids[1], ids[2]
	if p := s.queryJob(ids[0]).Priority; p.Level() != backends.LevelPBA {
		s.Errorf("a dummy job of priority %d shows %d", top, p)
	}
	s.must("rank", s.Backend.SetPriority(s.ctx, []backends.PriorityChange{{ID: raised, Priority: top}}))
	s.awaitState(s.submitOne(s.short(1)), backends.Done) // the other host has room
	s.checkDummies(heavy, ids...)
	for _, id := range ids {
		if j := s.queryJob(id); j.State != backends.Pending {
			s.Errorf("dummy job %v is %v on %v, want it waiting for %s, which is full", id, j.State, j.Hosts, hosts[0])
		}
	}
	s.must("kill a dummy job that waits", s.Backend.Kill(s.ctx, []backends.ID{unused}))
	s.awaitState(unused, backends.Exited)
	s.open(filled)
	both := []backends.ID{ids[0], raised}
	for _, id := range both {
		if j := s.awaitState(id, backends.Running); !slices.Equal(hostsOf(j), hosts[:1]) {
			s.Errorf("dummy job %v is on %v, want it on %s", id, j.Hosts, hosts[0])
		}
	}
	if j := s.queryJob(waits); j.State != backends.Pending {
		s.Errorf("job %v is %v: it ranks below the dummy jobs, and %s has one slot besides", waits, j.State, hosts[0])
	}
	s.checkDummies(heavy, both...)
	s.checkCapacity()
	s.must("kill", s.Backend.Kill(s.ctx, both))
	for _, id := range both {
		s.awaitState(id, backends.Exited)
	}
	s.checkDummies(heavy, ids...) // ended ones too
	s.awaitState(waits, backends.Running)
	if err := s.Backend.Kill(s.ctx, both[:1]).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("killing an ended dummy job: %v, want %v", err, backends.ErrWrongState)
	}
	if err := s.able.Place(s.ctx, []backends.Dummy{{For: heavy, Host: "no-such-host", Priority: top, Limit: time.Hour}})[0].Err; err == nil {
		s.Error("a dummy job was placed on a host that there is not")
	}
	s.open(wide)
	s.open(heavyGate)
	s.awaitState(heavy, backends.Done)
}

func testDummyLimit(s *suite) {
	s.need(s.able.Place != nil, "place dummy jobs")
	heavy := s.running(s.job(s.newGate(), 1))
	id := s.submitDummies(backends.Dummy{For: heavy, Host: s.hostNames()[1], Priority: backends.At(backends.LevelPBA, 120), Limit: s.ShortestLimit})[0]
	s.Patience += s.ShortestLimit
	j := s.awaitJob(id, "its end", func(j backends.Job) bool { return j.State.Ended() })
	if ran := j.Ended.Sub(j.Started); ran < s.ShortestLimit-100*time.Millisecond || !slices.Equal(hostsOf(j), s.hostNames()[1:]) {
		s.Errorf("it ran %v on %v, want its limit of %v on the second host", ran, j.Hosts, s.ShortestLimit)
	}
}

// testDummyLookalike submits a job that looks just like a dummy job.
func testDummyLookalike(s *suite) {
	s.need(s.able.Place != nil, "place dummy jobs")
	heavy := s.running(s.job(s.newGate(), 1))
	id := s.submitDummies(backends.Dummy{For: heavy, Host: s.hostNames()[1], Priority: backends.At(backends.LevelPBA, 120), Limit: time.Hour})[0]
	j := s.queryJob(id)
	lookalike := s.job(s.newGate(), 1)
	lookalike.Name, lookalike.Project, lookalike.Hosts, lookalike.OneHost, lookalike.NoRequeue, lookalike.RunLimit = j.Name, j.Project, j.Asked, true, true, time.Hour
	if s.able.Record != nil {
		record, err := s.able.Record(s.ctx, id)
		if err != nil {
			s.Fatalf("record of dummy job %v: %v", id, err)
		}
		if len(record.Spec.Command) > 0 { // empty where it runs a script of the backend's own
			lookalike.Command = record.Spec.Command
		}
		lookalike.Env = append(lookalike.Env, record.Spec.Env...)
	}
	other := s.submitOne(lookalike)
	if j := s.queryJob(other); j.IsDummy() {
		s.Errorf("job %+v was handed in as any other, and is shown as a dummy job", j)
	}
	s.must("kill", s.Backend.Kill(s.ctx, []backends.ID{id, other}))
}

// testStandbys has a standby job wait for a slot of a full host, run there before a normal job, and
// end for another job.
func testStandbys(s *suite) {
	s.need(s.able.Standbys, "keep slots for a project")
	host := s.hostNames()[0]
	gate, last := s.newGate(), s.newGate()
	s.running(s.onHost(gate, slotsPerHost, host))
	normal := s.submitOne(s.onHost(last, slotsPerHost, host))
	project := s.Project
	if project == "" {
		project = "chipA"
	}
	standby := backends.Dummy{Project: project, Host: host, Priority: backends.At(backends.LevelPlaceholder, backends.DefaultValue), Limit: time.Hour}
	ids := s.submitDummies(standby, standby)
	for _, id := range ids {
		j := s.queryJob(id)
		if !j.IsStandby() || j.Project != project || j.Slots != 1 || !j.NoRequeue || j.State != backends.Pending && j.State != backends.Held || !slices.Equal(j.Asked, []string{host}) {
			s.Errorf("standby job %+v, want one slot on %s for %s, waiting", j, host, project)
		}
	}
	raised := backends.At(backends.LevelHandOver, 220)
	s.must("rank", s.Backend.SetPriority(s.ctx, []backends.PriorityChange{{ID: ids[0], Priority: raised}}))
	s.open(gate)
	for _, id := range ids {
		if j := s.awaitState(id, backends.Running); !slices.Equal(hostsOf(j), []string{host}) || !j.IsStandby() {
			s.Errorf("standby job %+v is not on %s", j, host)
		}
	}
	if j := s.queryJob(normal); j.State != backends.Pending {
		s.Errorf("job %v is %v, and two slots of its host are kept", normal, j.State)
	}
	s.must("kill", s.Backend.Kill(s.ctx, ids))
	s.awaitState(normal, backends.Running)
	for _, j := range s.farm().Ended {
		if slices.Contains(ids, j.ID) && !j.IsStandby() {
			s.Errorf("ended standby job %+v", j)
		}
	}
	s.open(last)
	s.awaitState(normal, backends.Done)
}
