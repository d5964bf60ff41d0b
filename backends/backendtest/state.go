package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What a job's owner may do with it, and in which order jobs start.
var stateCases = []testCase{
	{"priority order, then first come first served", testPriorityOrder},
	{"rank", testRank},
	{"ageing", testAgeing},
	{"requeue keeps ID and place, and counts", testRequeue},
	{"suspend and resume", testSuspend},
	{"hold and release", testHold},
	{"begin time", testBeginTime},
	{"move to another queue", testMove},
}

// fullFarm runs one job on every slot; what is submitted then, waits.
func (s *suite) fullFarm() (backends.ID, gate) {
	s.Helper()
	g := s.newGate()
	return s.running(s.job(g, hostCount*slotsPerHost)), g
}

func (s *suite) wantOrder(ids []backends.ID, want ...backends.ID) {
	s.Helper()
	for _, id := range ids {
		s.awaitState(id, backends.Done)
	}
	if got := s.order(want); !slices.Equal(got, want) { // a queue of whole seconds may show equal start times
		s.Errorf("jobs started in the order %v, want %v", got, want)
	}
}

func testPriorityOrder(s *suite) {
	_, g := s.fullFarm()
	at := func(p backends.Priority) backends.Spec {
		spec := s.short(hostCount * slotsPerHost) // one at a time
		spec.Priority = p
		return spec
	}
	low := at(backends.At(backends.LevelLow, 20))
	if s.LowQueue != "" {
		low = at(20)
		low.Queue = s.LowQueue
	}
	lower, higher := at(s.Values[0]), at(s.Values[1])
	ids := s.submit(lower, low, at(backends.At(backends.LevelNext, 20)), lower, higher)
	s.open(g)
	s.wantOrder(ids, ids[2], ids[4], ids[0], ids[3], ids[1])
}

func testRank(s *suite) {
	_, g := s.fullFarm()
	var ids []backends.ID
	for range 4 {
		ids = append(ids, s.submitOne(s.short(hostCount*slotsPerHost)))
	}
	ranks := []backends.Priority{backends.At(backends.LevelVictim, 30), backends.At(backends.LevelHandOver, 220), backends.At(backends.LevelPBA, 120), backends.At(backends.LevelPBA, 120+s.Apart)}
	var rankings []backends.PriorityChange
	for i, p := range ranks {
		rankings = append(rankings, backends.PriorityChange{ID: ids[i], Priority: p})
	}
	s.must("rank", s.Backend.SetPriority(s.ctx, rankings))
	for i, id := range ids {
		if got := s.queryJob(id).Priority; got < ranks[i] || got > ranks[i]+2 { // a tick may have passed
			s.Errorf("job %v was given %d and shows %d", id, ranks[i], got)
		}
	}
	s.open(g)
	s.wantOrder(ids, ids[1], ids[3], ids[2], ids[0])
}

func testAgeing(s *suite) {
	s.need(s.able.Ages > 0, "age jobs")
	if s.able.Ages > 2*time.Second && s.Step == nil {
		s.Skipf("skipped: this queue ages once in %v, too long to wait for", s.able.Ages)
	}
	s.fullFarm()
	id := s.submitOne(s.job(s.newGate(), 1))
	held := s.job(s.newGate(), 1)
	held.Hold = true
	still := s.submitOne(held)
	s.awaitJob(id, "aged by two ticks", func(j backends.Job) bool {
		return j.Priority == backends.At(backends.LevelNormal, backends.DefaultValue+2)
	})
	if got := s.queryJob(still).Priority; got.Value() != backends.DefaultValue {
		s.Errorf("a held job shows %d, want %d: it does not age", got.Value(), backends.DefaultValue)
	}
}

func testRequeue(s *suite) {
	g := s.newGate()
	first := s.running(s.job(g, hostCount*slotsPerHost))
	s.awaitRuns(g, 1) // a job is running before its script does anything
	later := s.submitOne(s.short(hostCount * slotsPerHost))
	was := s.queryJob(first)
	s.awaitNewStart(was)
	s.must("requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: first, Started: was.Started}}))
	is := s.awaitJob(first, "running again", func(j backends.Job) bool {
		return j.State == backends.Running && j.Requeues == 1 && j.Started.After(was.Started)
	})
	if !is.Submitted.Equal(was.Submitted) {
		s.Errorf("submitted %v before, %v after the requeue; want the same place", was.Submitted, is.Submitted)
	}
	if j := s.queryJob(later); !s.LosesPlace && !j.Started.IsZero() && j.Priority <= is.Priority { // it may have aged meanwhile
		s.Errorf("job %v, submitted later, started before the requeued one got its place again", later)
	}
	s.awaitRuns(g, 2)
	s.open(g)
	s.awaitState(first, backends.Done)
	for _, err := range s.Backend.Requeue(s.ctx, []backends.Act{{ID: first}}) {
		if !errors.Is(err, backends.ErrWrongState) {
			s.Errorf("requeue of an ended job: %v, want %v", err, backends.ErrWrongState)
		}
	}
}

// holdResuming holds a job that waits to be resumed, and has it wait again.
func (s *suite) holdResuming(id backends.ID) {
	s.Helper()
	if s.able.HoldUntil == nil {
		return
	}
	s.must("hold a job that waits to be resumed", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: id, Until: s.now().Add(time.Hour)}}))
	s.awaitJob(id, "held", func(j backends.Job) bool {
		return j.State == backends.Suspended && !j.Resuming && !j.HeldUntil.IsZero()
	})
	s.must("release it", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: id}}))
	s.awaitJob(id, "waiting to be resumed again", func(j backends.Job) bool { return j.Resuming && j.HeldUntil.IsZero() })
}

func testSuspend(s *suite) {
	g := s.newGate()
	whole := hostCount * slotsPerHost
	first := s.running(s.job(g, whole))
	was := s.queryJob(first)
	act := []backends.Act{{ID: first, Started: was.Started, Until: s.now().Add(time.Hour)}}
	s.must("suspend", s.Backend.Suspend(s.ctx, act))
	s.awaitState(first, backends.Suspended)
	if err := s.Backend.Suspend(s.ctx, act).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("suspending a suspended job: %v, want %v", err, backends.ErrWrongState)
	}
	if was.Started.Nanosecond() == 0 { // a queue of whole seconds does not show a shorter pause
		stopped := s.now()
		s.await("the clock to go on", func() (bool, string) { now := s.now(); return now.Sub(stopped) > 3*time.Second, now.String() })
	}
	blocker := s.newGate()
	if s.able.SuspendFrees {
		other := s.startBeside(s.job(blocker, 1), hostsOf(was)[0])
		s.awaitState(other, backends.Running)
		s.must("resume a job that does not fit", s.Backend.Resume(s.ctx, []backends.ID{first}))
		j := s.awaitJob(first, "waiting to be resumed", func(j backends.Job) bool { return j.Resuming || j.State == backends.Running })
		if j.State != backends.Suspended {
			s.Errorf("resumed beside job %v, beyond what its hosts offer", other)
		}
		s.must("resume again", s.Backend.Resume(s.ctx, []backends.ID{first}))
		s.checkCapacity()
		s.holdResuming(first)
	} else {
		s.must("resume", s.Backend.Resume(s.ctx, []backends.ID{first}))
	}
	s.open(blocker)
	is := s.awaitState(first, backends.Running)
	s.must("resume a running job", s.Backend.Resume(s.ctx, []backends.ID{first}))
	if is.Requeues != 0 || !slices.Equal(hostsOf(is), hostsOf(was)) || is.Resuming {
		s.Errorf("resumed as %+v, was %+v; want the same run on the same hosts", is, was)
	}
	if is.Started.Before(was.Started) || s.able.SuspendFrees && !is.Started.After(was.Started) {
		s.Errorf("started %v, at first %v; a resumed job tells its resume", is.Started, was.Started)
	}
	s.open(g)
	s.awaitState(first, backends.Done)
	if !s.NoProcesses {
		s.wantFile(string(g)+".runs", s.runs(1))
	}
}

func testHold(s *suite) {
	spec := s.short(1)
	spec.Hold = true
	submittedHeld := s.submitOne(spec)
	full, g := s.fullFarm()
	heldLater := s.submitOne(s.short(1))
	s.must("hold", s.Backend.Hold(s.ctx, []backends.ID{heldLater}))
	s.awaitState(heldLater, backends.Held)
	if err := s.Backend.Hold(s.ctx, []backends.ID{full}).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("hold of a running job: %v, want %v", err, backends.ErrWrongState)
	}
	s.open(g)
	s.awaitState(s.submitOne(s.short(1)), backends.Done) // there is room now
	both := []backends.ID{submittedHeld, heldLater}
	for _, id := range both {
		if j := s.queryJob(id); j.State != backends.Held || !j.Started.IsZero() {
			s.Errorf("job %v is %v, want held: a later one has ended already", id, j.State)
		}
	}
	s.must("release", s.Backend.Release(s.ctx, both))
	for _, id := range both {
		s.awaitState(id, backends.Done)
	}
}

func testBeginTime(s *suite) {
	begin := s.now().Add(2 * s.Shortest).Truncate(s.Shortest)
	spec := s.short(1)
	spec.BeginTime = begin
	id := s.submitOne(spec)
	j := s.queryJob(id)
	if j.Started.IsZero() && (j.State != backends.Pending || j.Wait != backends.WaitTime || !j.BeginTime.Truncate(time.Second).Equal(begin.Truncate(time.Second))) {
		s.Errorf("job %+v, want it pending for its begin time %v", j, begin)
	}
	if j := s.awaitState(id, backends.Done); j.Started.Before(begin.Truncate(time.Second)) {
		s.Errorf("started at %v, before its begin time %v", j.Started, begin)
	}
}

func testMove(s *suite) {
	s.need(s.able.Move != nil, "move jobs to another queue")
	if s.OtherQueue == "" {
		s.Skip("skipped: the harness names no other queue")
	}
	s.fullFarm()
	ids := s.submit(s.job(s.newGate(), 1), s.job(s.newGate(), 1))
	from := s.queryJob(ids[0]).Queue
	s.must("move", s.able.Move(s.ctx, ids[:1], s.OtherQueue))
	if a, b := s.queryJob(ids[0]).Queue, s.queryJob(ids[1]).Queue; a != s.OtherQueue || b != from {
		s.Errorf("queues %q and %q after the first moved, want %q and %q", a, b, s.OtherQueue, from)
	}
	if err := s.able.Move(s.ctx, ids[1:], "no such queue").First(); err == nil {
		s.Error("moved to a queue that there is not")
	}
	s.must("move back", s.able.Move(s.ctx, ids[:1], from))
	if got := s.queryJob(ids[0]); got.Queue != from || got.Priority.Level() != backends.LevelNormal {
		s.Errorf("moved back: queue %q, priority %d; want %q, a normal job", got.Queue, got.Priority, from)
	}
}
