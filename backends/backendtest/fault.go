package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Queues that are dead, hang, or die between two calls.
var faultCases = []testCase{
	{"a dead queue", testDead},
	{"a queue that hangs", testHangs},
	{"a queue that dies between two calls", testDiesBetween},
	{"a context that is over", testCancelled},
}

// everyCall makes each call of the interface with ctx and hands its errors on.
func (s *suite) everyCall(ctx context.Context, id backends.ID, each func(call string, err error)) {
	s.Helper()
	ids, acts := []backends.ID{id}, []backends.Act{{ID: id, Mark: "fault"}}
	_, err := s.Backend.Snapshot(ctx, time.Time{})
	each("Farm", err)
	_, err = s.Backend.Jobs(ctx, ids)
	each("Jobs", err)
	results := s.Backend.Submit(ctx, []backends.Spec{s.short(1), s.short(1)})
	if len(results) != 2 {
		s.Fatalf("Submit of 2 gave %d results", len(results))
	}
	each("Submit", results[0].Err)
	each("Submit", results[1].Err)
	batch := func(call string, errs backends.Errors) {
		if len(errs) != 1 {
			s.Fatalf("%s of one gave %d errors", call, len(errs))
		}
		each(call, errs[0])
	}
	batch("Kill", s.Backend.Kill(ctx, ids))
	batch("Requeue", s.Backend.Requeue(ctx, acts))
	batch("Suspend", s.Backend.Suspend(ctx, acts))
	batch("Resume", s.Backend.Resume(ctx, ids))
	batch("Hold", s.Backend.Hold(ctx, ids))
	batch("Release", s.Backend.Release(ctx, ids))
	batch("Rank", s.Backend.SetPriority(ctx, []backends.PriorityChange{{ID: id}}))
	if s.able.Pin != nil {
		batch("Pin", s.able.Pin(ctx, []backends.Pin{{ID: id}}))
	}
	if s.able.HoldUntil != nil {
		batch("HoldUntil", s.able.HoldUntil(ctx, []backends.HoldUntil{{ID: id}}))
	}
	if s.able.Reserve != nil {
		batch("Reserve", s.able.Reserve(ctx, []backends.Reservation{{ID: id}}))
	}
	if s.able.Move != nil && s.OtherQueue != "" {
		batch("Move", s.able.Move(ctx, ids, s.OtherQueue))
	}
	if s.able.Start != nil {
		each("Start", s.able.Start(ctx, id, nil))
	}
}

// wantUnreachable is what each call of a queue that can't be asked must give.
func (s *suite) wantUnreachable(call string, err error) {
	s.Helper()
	if !errors.Is(err, backends.ErrUnreachable) {
		s.Errorf("%s: %v, want %v", call, err, backends.ErrUnreachable)
	}
}

func testDead(s *suite) {
	s.need(s.Kill != nil, "be killed by its harness")
	id := s.running(s.job(s.newGate(), 1))
	s.Kill(s.T)
	ctx, cancel := context.WithTimeout(s.ctx, s.Patience)
	defer cancel()
	s.everyCall(ctx, id, s.wantUnreachable)
}

func testHangs(s *suite) {
	s.need(s.Hang != nil && s.Restart != nil, "be made to hang by its harness")
	id := s.running(s.job(s.newGate(), 1))
	s.Hang(s.T)
	const deadline, slack = 100 * time.Millisecond, 5 * time.Second
	for call, do := range map[string]func(context.Context) error{
		"Farm":   func(ctx context.Context) error { _, err := s.Backend.Snapshot(ctx, time.Time{}); return err },
		"Jobs":   func(ctx context.Context) error { _, err := s.Backend.Jobs(ctx, []backends.ID{id}); return err },
		"Resume": func(ctx context.Context) error { return s.Backend.Resume(ctx, []backends.ID{id}).First() },
	} {
		ctx, cancel := context.WithTimeout(s.ctx, deadline)
		began := time.Now()
		s.wantUnreachable(call, do(ctx))
		cancel()
		if took := time.Since(began); took > deadline+slack {
			s.Errorf("%s: came back after %v, its deadline was %v", call, took, deadline)
		}
	}
	s.Restart(s.T)
	s.awaitState(id, backends.Running)
}

func testDiesBetween(s *suite) {
	s.need(s.Kill != nil && s.Restart != nil, "be killed and restarted by its harness")
	runs := s.newGate()
	first := s.running(s.job(runs, hostCount*slotsPerHost))
	waiting := s.short(2)
	waiting.Name, waiting.Memory = "waits\nthrough it", 1<<20
	if s.PlainNames {
		waiting.Name = "waits through it"
	}
	ids := s.submit(waiting, waiting)
	s.must("rank", s.Backend.SetPriority(s.ctx, []backends.PriorityChange{{ID: ids[1], Priority: backends.At(backends.LevelPBA, 120)}}))
	s.must("hold", s.Backend.Hold(s.ctx, ids[:1]))
	was := s.queryJob(first)

	s.Kill(s.T)
	s.wantUnreachable("Requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: first, Started: was.Started}}).First())
	s.Restart(s.T)

	is := s.awaitState(first, backends.Running)
	if !is.Started.Equal(was.Started) || is.Requeues != was.Requeues {
		s.Errorf("job %+v after the restart, want the same run as %+v", is, was)
	}
	farm := s.farm()
	if len(farm.Jobs) != 3 {
		s.Errorf("%d jobs after the restart, want the 3 that were acknowledged, once each", len(farm.Jobs))
	}
	held, ranked := s.queryJob(ids[0]), s.queryJob(ids[1])
	if held.State != backends.Held || held.Name != waiting.Name || ranked.Priority.Level() != backends.LevelPBA {
		s.Errorf("after the restart %+v and %+v, want the first held, the second ranked", held, ranked)
	}
	s.must("release", s.Backend.Release(s.ctx, ids[:1]))
	s.open(runs)
	for _, id := range append(ids, first) {
		if j := s.awaitEnd(id); j.State != backends.Done || j.Requeues != 0 {
			s.Errorf("job %+v, want it done in one run", j)
		}
	}
	if !s.NoProcesses {
		s.wantFile(string(runs)+".runs", s.runs(1))
	}
}

func testCancelled(s *suite) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	cancel(fmt.Errorf("the test is over"))
	if _, err := s.Backend.Snapshot(ctx, time.Time{}); err == nil {
		s.Error("Farm under a context that is over: no error")
	}
	if r := s.Backend.Submit(ctx, []backends.Spec{s.short(1)}); r[0].Err == nil {
		s.Error("Submit under a context that is over: no error")
	}
}
