package backendtest

import (
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What only the engine does: conditional acts, and holds that end by themselves.
var actCases = []testCase{
	{"an act on another run is refused", testConditional},
	{"the mark is shown", testMark},
	{"a requeued job is held until its time", testRequeueUntil},
	{"a suspended job is held until its time", testSuspendUntil},
	{"the engine's hold", testHoldUntil},
	{"jobs that have ended are requeued", testReopen},
	{"jobs of a job group", testGroup},
	{"a job ends without a grace", testKillNow},
}

func testConditional(s *suite) {
	id := s.running(s.job(s.newGate(), 1))
	was := s.queryJob(id)
	wrong := backends.Act{ID: id, Started: was.Started.Add(-time.Hour), Until: s.now().Add(time.Hour), Mark: "r1"}
	for what, errs := range map[string]backends.Errors{
		"requeue": s.Backend.Requeue(s.ctx, []backends.Act{wrong}),
		"suspend": s.Backend.Suspend(s.ctx, []backends.Act{wrong}),
	} {
		if !errors.Is(errs[0], backends.ErrWrongState) {
			s.Errorf("%s of a run that is over: %v, want %v", what, errs[0], backends.ErrWrongState)
		}
	}
	is := s.queryJob(id)
	if is.State != backends.Running || !is.Started.Equal(was.Started) || is.Mark != "" || !is.HeldUntil.IsZero() || is.Requeues != 0 {
		s.Errorf("job %+v, want it untouched", is)
	}
	s.awaitNewStart(was)
	s.must("requeue of the run that is meant", s.Backend.Requeue(s.ctx, []backends.Act{{ID: id, Started: was.Started}}))
	again := s.awaitJob(id, "its second run", func(j backends.Job) bool { return j.State == backends.Running && j.Requeues == 1 })
	if err := s.Backend.Suspend(s.ctx, []backends.Act{{ID: id, Started: was.Started}}).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("suspending run 1 while run 2 is on: %v, want %v", err, backends.ErrWrongState)
	}
	if again.Started.Equal(was.Started) {
		s.Errorf("two runs of job %v started at %v: they can't be distinguished", id, was.Started)
	}
}

// An owner's command, and no act of the engine's.
func testReopen(s *suite) {
	s.need(s.able.Reopen != nil, "requeue a job that has ended")
	failing := s.short(1)
	failing.Command = []string{"/bin/sh", "-c", "exit 3"}
	ids := s.submit(failing, s.short(1))
	was := []backends.Job{s.awaitState(ids[0], backends.Exited), s.awaitState(ids[1], backends.Done)}
	for _, j := range was {
		s.awaitNewStart(j)
	}
	s.must("requeue of jobs that have ended", s.able.Reopen(s.ctx, ids))
	for _, j := range was {
		s.awaitJob(j.ID, "in the queue again", func(now backends.Job) bool { return !now.State.Ended() || now.Started.After(j.Started) })
	}
	waits := s.submitOne(s.job(s.newGate(), hostCount*slotsPerHost))
	for i, err := range s.able.Reopen(s.ctx, []backends.ID{waits, {Job: 99_999}}) {
		if want := []error{backends.ErrWrongState, backends.ErrUnknownJob}[i]; !errors.Is(err, want) {
			s.Errorf("requeue as one that has ended: %v, want %v", err, want)
		}
	}
	_ = s.Backend.Kill(s.ctx, append(ids, waits))
}

func testGroup(s *suite) {
	s.need(s.able.InGroup != nil, "job groups")
	inGroup, err := s.able.InGroup(s.ctx, "/chipA/nightly")
	s.need(!errors.Is(err, backends.ErrUnable), "job groups")
	var specs []backends.Spec
	for _, group := range []string{"/chipA/nightly", "/chipA", "/chipA/nightly/deep", ""} {
		spec := s.short(1)
		spec.Group, spec.Hold = group, true
		specs = append(specs, spec)
	}
	specs[0].Name, specs[0].Array = "grouped", &backends.Array{Indices: []int{1, 2}}
	if err == nil && inGroup(&backends.Job{ID: backends.ID{Job: 99_999}}) {
		s.Errorf("a job that is not there is in the group")
	}
	ids := s.submit(specs...)
	if inGroup, err = s.able.InGroup(s.ctx, "/chipA/nightly"); err != nil {
		s.Fatalf("jobs of a group: %v", err)
	}
	jobs := s.farm().Jobs
	for i := range jobs {
		if want := jobs[i].ID.Job == ids[0].Job; inGroup(&jobs[i]) != want {
			s.Errorf("job %v is in the group: %v, want %v", jobs[i].ID, !want, want)
		}
	}
	_ = s.Backend.Kill(s.ctx, ids)
}

func testKillNow(s *suite) {
	s.need(s.able.KillNow != nil, "end jobs without a grace")
	g := s.newGate()
	spec := s.job(g, 1)
	spec.Command = []string{"/bin/sh", "-c", `trap "" INT TERM; ` + gateScript, "sh", string(g), "0"}
	id := s.running(spec)
	s.awaitRuns(g, 1)
	s.must("end without a grace", s.able.KillNow(s.ctx, []backends.ID{id}))
	s.awaitState(id, backends.Exited)
	for i, err := range s.able.KillNow(s.ctx, []backends.ID{id, {Job: 99_999}}) {
		if want := []error{backends.ErrWrongState, backends.ErrUnknownJob}[i]; !errors.Is(err, want) {
			s.Errorf("end without a grace: %v, want %v", err, want)
		}
	}
}

func testMark(s *suite) {
	jobs := []backends.ID{s.running(s.job(s.newGate(), 1)), s.running(s.job(s.newGate(), 1))}
	until := s.now().Add(time.Hour)
	s.must("requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: jobs[0], Until: until, Mark: "r7", Notice: "requeued for chipA by pba"}}))
	s.must("suspend", s.Backend.Suspend(s.ctx, []backends.Act{{ID: jobs[1], Until: until, Mark: "r8"}}))
	for i, want := range []string{"r7", "r8"} {
		if j := s.queryJob(jobs[i]); j.Mark != want {
			s.Errorf("job %v shows the mark %q right after it was set, want %q", jobs[i], j.Mark, want)
		}
	}
	s.awaitState(jobs[0], backends.Pending)
	s.awaitState(jobs[1], backends.Suspended)
	farm := s.farm()
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.Mark == "" {
			s.Errorf("the snapshot shows no mark on job %v", j.ID)
		}
	}
}

func testRequeueUntil(s *suite) {
	s.need(s.able.HoldUntil != nil, "hold a job until a time")
	id := s.running(s.job(s.newGate(), 1))
	until := s.now().Add(2 * s.Shortest)
	s.must("requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: id, Started: s.queryJob(id).Started, Until: until}}))
	j := s.awaitJob(id, "back in the queue", func(j backends.Job) bool {
		return j.Requeues == 1 && j.State == backends.Pending || !j.Started.Before(until)
	})
	if j.State == backends.Pending && s.now().Before(until) && (j.Eligible() || j.HeldUntil.IsZero()) {
		s.Errorf("job %+v, want it held until %v", j, until)
	}
	j = s.awaitJob(id, "its second run, with nobody's help", func(j backends.Job) bool { return j.State == backends.Running && j.Requeues == 1 })
	if j.Started.Before(until.Truncate(time.Second)) {
		s.Errorf("started again at %v, held until %v", j.Started, until)
	}
}

func testSuspendUntil(s *suite) {
	s.need(s.able.HoldUntil != nil, "hold a job until a time")
	id := s.running(s.job(s.newGate(), 1))
	until := s.now().Add(max(2*s.Shortest, 5*time.Second)) // Slurm's listing may not show one of 2 s
	s.must("suspend", s.Backend.Suspend(s.ctx, []backends.Act{{ID: id, Started: s.queryJob(id).Started, Until: until}}))
	s.awaitJob(id, "suspended", func(j backends.Job) bool { return j.State == backends.Suspended || !j.Started.Before(until) })
	j := s.awaitState(id, backends.Running)
	if j.Started.Before(until.Truncate(time.Second)) || j.Requeues != 0 {
		s.Errorf("went on at %v with %d requeues, held until %v", j.Started, j.Requeues, until)
	}
}

func testHoldUntil(s *suite) {
	s.need(s.able.HoldUntil != nil, "hold a job until a time")
	_, g := s.fullFarm()
	ids := s.submit(s.short(1), s.short(1), s.short(1))
	hour := s.now().Add(time.Hour)
	s.must("hold until", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: ids[0], Until: hour}, {ID: ids[1], Until: hour}}))
	s.open(g)
	s.awaitState(ids[2], backends.Done)
	for _, err := range s.Backend.Release(s.ctx, ids[:2]) {
		if err != nil && !errors.Is(err, backends.ErrWrongState) { // no hold of its owner's to release
			s.Errorf("release of a job that the engine holds: %v", err)
		}
	}
	s.awaitState(s.submitOne(s.short(1)), backends.Done)
	for _, id := range ids[:2] {
		if j := s.queryJob(id); j.State != backends.Pending || j.Eligible() || j.HeldUntil.IsZero() {
			s.Errorf("job %+v, want it held: its owner can't lift the engine's hold", j)
		}
	}
	s.must("a zero time", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: ids[0]}}))
	s.awaitState(ids[0], backends.Done)
	soon := s.now().Add(s.Shortest)
	s.must("a nearer time", s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: ids[1], Until: soon}}))
	if j := s.awaitState(ids[1], backends.Done); j.Started.Before(soon.Truncate(time.Second)) {
		s.Errorf("started at %v, held until %v", j.Started, soon)
	}
	if err := s.able.HoldUntil(s.ctx, []backends.HoldUntil{{ID: ids[1], Until: hour}}).First(); !errors.Is(err, backends.ErrWrongState) {
		s.Errorf("holding an ended job: %v, want %v", err, backends.ErrWrongState)
	}
}
