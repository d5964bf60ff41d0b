package backendtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// From submission to the end: what is asked for, listed and written.
var lifeCases = []testCase{
	{"hosts", testHosts},
	{"submit and list", testSubmit},
	{"names with spaces, quotes, newlines and control characters", testHostileNames},
	{"a thousand jobs in one snapshot", testThousand},
	{"many callers at a time", testConcurrent},
	{"output, environment and exit codes", testOutput},
	{"run limit", testRunLimit},
	{"kill", testKill},
	{"arrays", testArray},
	{"dependency", testDependency},
	{"unknown ID", testUnknownID},
}

func testHosts(s *suite) {
	farm := s.farm()
	if len(farm.Hosts) != hostCount {
		s.Fatalf("%d hosts, want %d", len(farm.Hosts), hostCount)
	}
	if farm.At.IsZero() {
		s.Error("Farm.At is zero: the queue's clock must be told")
	}
	seen := map[string]bool{}
	for _, h := range farm.Hosts {
		if h.Slots != slotsPerHost || h.Memory <= 0 || h.State != backends.HostUp || h.Name == "" || seen[h.Name] {
			s.Errorf("host %+v, want a name of its own, %d slots, some memory, up", h, slotsPerHost)
		}
		seen[h.Name] = true
	}
}

func testSubmit(s *suite) {
	if got := s.Backend.Submit(s.ctx, nil); len(got) != 0 {
		s.Errorf("Submit of nothing gave %d results", len(got))
	}
	before := s.now().Add(-2 * time.Second).Truncate(s.TimeResolution) // queues may count whole seconds
	g := s.newGate()
	spec := s.job(g, 2)
	spec.Name, spec.Project, spec.Memory, spec.OneHost = "first", "chipA:synthesis", 64<<20, true
	spec.RunLimit, spec.NoRequeue = time.Hour, true
	spec.Description = backends.Tag{Preempt: backends.PreemptSuspend, Step: "synthesis"}.String() + " the user's text"
	first := s.running(spec)
	wide := s.submitOne(s.job(g, hostCount*slotsPerHost))
	j := s.queryJob(first)
	tag, _, err := backends.ParseTag(j.Tag)
	if err != nil || tag.Preempt != backends.PreemptSuspend {
		s.Errorf("tag %q, %v: the tag that the job was submitted with must be readable", j.Tag, err)
	}
	if j.Name != "first" || j.Project != s.Project || j.Step != "synthesis" || j.Slots != 2 || j.Memory != 64<<20 || !j.OneHost || !j.NoRequeue || j.RunLimit != time.Hour {
		s.Errorf("job %+v is not what was submitted", j)
	}
	if j.User == "" || s.User != "" && j.User != s.User {
		s.Errorf("user %q, want %q", j.User, s.User)
	}
	if j.Submitted.Before(before) || j.Started.Before(j.Submitted) || !j.Ended.IsZero() {
		s.Errorf("submitted %v, started %v, ended %v; the test began at %v", j.Submitted, j.Started, j.Ended, before)
	}
	if len(j.Hosts) != 1 || j.Hosts[0].Slots != 2 {
		s.Errorf("runs on %+v, want 2 slots of one host", j.Hosts)
	}
	if w := s.awaitJob(wide, "known to wait for slots", func(j backends.Job) bool { return j.Eligible() }); w.Queue == "" || !w.Started.IsZero() {
		s.Errorf("pending job %+v, want it in a queue and not started", w)
	}
	farm := s.farm()
	if len(farm.Jobs) != 2 || farm.Jobs[0].ID != first || farm.Jobs[1].ID != wide || len(farm.Ended) != 0 {
		s.Errorf("farm lists %+v and %+v, want jobs %v and %v in order of submission", farm.Jobs, farm.Ended, first, wide)
	}
	jobs, err := s.Backend.Jobs(s.ctx, []backends.ID{wide, {Job: 1 << 40}, first})
	if err != nil || len(jobs) != 2 || jobs[0].ID != wide || jobs[1].ID != first {
		s.Errorf("Jobs gave %+v, %v; want those that exist in the order of the argument", jobs, err)
	}
	s.open(g)
	s.awaitState(wide, backends.Done)
	farm = s.farm()
	if len(farm.Jobs) != 0 || len(farm.Ended) != 2 {
		s.Errorf("after both ended the farm lists %d jobs and %d ended, want 0 and 2", len(farm.Jobs), len(farm.Ended))
	}
	later, err := s.Backend.Snapshot(s.ctx, farm.At.Add(time.Hour))
	if err != nil || len(later.Ended) != 0 {
		s.Errorf("jobs that ended in an hour or later: %d, %v; want none", len(later.Ended), err)
	}
}

func testHostileNames(s *suite) {
	g := s.newGate()
	names := []string{
		"a b  c", `quote " and ' and \ and` + "`", "line\nbreak\r\nand\ttab", "\x1b[31mred\x07\x01", "%J %I %s $HOME $(id) ;|&<>*?",
		"--name", "-", "ünïcödé 名前", "a|b;c:d=e,f", strings.Repeat("long", 200),
	}
	for i, name := range names {
		spec := s.job(g, 1)
		spec.Name, spec.Hold = name, true
		result := s.Backend.Submit(s.ctx, []backends.Spec{spec})
		if err := result[0].Err; err != nil {
			if errors.Is(err, backends.ErrUnreachable) {
				s.Fatalf("name %q: %v", name, err)
			}
			s.Logf("name %q is refused: %v", name, err) // a clear refusal is no fault
			continue
		}
		if got := s.queryJob(result[0].ID).Name; got != name {
			s.Errorf("name %d: %q came back as %q", i, name, got)
		}
	}
	farm := s.farm()
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.State != backends.Held || j.Project != s.Project {
			s.Errorf("job %v, named %q, is %v of project %q; want held, %s: its name must not change how it is read", j.ID, j.Name, j.State, j.Project, s.Project)
		}
	}
}

func testThousand(s *suite) {
	const n = 1000
	specs := make([]backends.Spec, n)
	g := s.newGate()
	for i := range specs {
		specs[i] = s.job(g, 1)
		specs[i].Name, specs[i].Hold = "job "+strconv.Itoa(i), true
	}
	ids := s.submit(specs...)
	farm := s.farm()
	if len(farm.Jobs) != n {
		s.Fatalf("one snapshot lists %d jobs, want %d", len(farm.Jobs), n)
	}
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.ID != ids[i] || j.Name != specs[i].Name {
			s.Fatalf("place %d: job %v %q, want %v %q: order of submission", i, j.ID, j.Name, ids[i], specs[i].Name)
		}
	}
	s.must("kill all", s.Backend.Kill(s.ctx, ids))
	s.await("all jobs to be gone", func() (bool, string) {
		n := len(s.farm().Jobs)
		return n == 0, strconv.Itoa(n) + " jobs"
	})
}

func testConcurrent(s *suite) {
	const callers, each = 8, 10
	g := s.newGate()
	var all sync.Map
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for range each {
				spec := s.job(g, 1)
				spec.Hold = true
				r := s.Backend.Submit(s.ctx, []backends.Spec{spec})
				if _, twice := all.LoadOrStore(r[0].ID, true); r[0].Err != nil || twice {
					s.Errorf("submit: ID %v, %v; want an ID of its own", r[0].ID, r[0].Err)
				}
				if _, err := s.Backend.Snapshot(s.ctx, time.Time{}); err != nil {
					s.Errorf("farm: %v", err)
				}
			}
		})
	}
	wait.Wait()
	if got := len(s.farm().Jobs); got != callers*each {
		s.Errorf("%d jobs, want %d", got, callers*each)
	}
}

func testOutput(s *suite) {
	s.need(!s.NoProcesses, "run processes")
	dir := filepath.Join(s.Dir, "working dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.Fatal(err)
	}
	input := filepath.Join(s.Dir, "in")
	if err := os.WriteFile(input, []byte("from stdin\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	spec := s.short(1)
	spec.Command = []string{"/bin/sh", "-c", `cat; echo "$COLOUR|$1|$(pwd)"; echo oops >&2; umask >&2; exit 3`, "sh", "an  argument; with $HOME"}
	spec.Dir, spec.Stdin, spec.Umask = dir, input, 0o027
	spec.Env = append(spec.Env, "COLOUR=dark green")
	spec.Stdout, spec.Stderr = filepath.Join(s.Dir, "out.%J"), filepath.Join(s.Dir, "err.%J")
	id := s.submitOne(spec)
	if j := s.awaitState(id, backends.Exited); j.ExitCode != 3 || j.Ended.Before(j.Started) {
		s.Errorf("exit code %d, started %v, ended %v; want 3", j.ExitCode, j.Started, j.Ended)
	}
	s.wantFile(filepath.Join(s.Dir, "out."+id.String()), "from stdin\ndark green|an  argument; with $HOME|"+dir+"\n")
	if got := s.readFile(filepath.Join(s.Dir, "err."+id.String())); !strings.HasPrefix(got, "oops\n") || !strings.HasSuffix(strings.TrimSpace(got), "027") {
		s.Errorf("standard error %q, want oops and the umask 027", got)
	}

	script := s.short(1)
	script.Command, script.Script = nil, []byte("#!/bin/sh\necho script \"$0\" >\"$OUT\"\nexit 0\n")
	script.Env = append(script.Env, "OUT="+filepath.Join(s.Dir, "script.out"))
	if j := s.awaitEnd(s.submitOne(script)); j.State != backends.Done || j.ExitCode != 0 {
		s.Errorf("the script ended %v with %d, want done with 0", j.State, j.ExitCode)
	}
	if got := s.readFile(filepath.Join(s.Dir, "script.out")); !strings.HasPrefix(got, "script ") {
		s.Errorf("the script wrote %q", got)
	}

	missing := s.short(1)
	missing.Command = []string{filepath.Join(s.Dir, "no such program")}
	if j := s.awaitEnd(s.submitOne(missing)); j.State != backends.Exited || j.ExitCode == 0 {
		s.Errorf("a program that does not exist ended %v with %d, want exited with a status", j.State, j.ExitCode)
	}
}

func testRunLimit(s *suite) {
	spec := s.job(s.newGate(), 1)
	spec.RunLimit = s.ShortestLimit
	id := s.submitOne(spec)
	s.Patience += s.ShortestLimit
	j := s.awaitState(id, backends.Exited)
	if ran := j.Ended.Sub(j.Started); ran < s.ShortestLimit-100*time.Millisecond {
		s.Errorf("it ran %v, less than its limit of %v", ran, s.ShortestLimit)
	}
}

func testKill(s *suite) {
	runs := s.running(s.job(s.newGate(), slotsPerHost))
	full := s.running(s.job(s.newGate(), slotsPerHost))
	pends := s.submitOne(s.job(s.newGate(), slotsPerHost))
	heldSpec := s.job(s.newGate(), 1)
	heldSpec.Hold = true
	held := s.submitOne(heldSpec)
	stopped := full
	s.must("suspend", s.Backend.Suspend(s.ctx, []backends.Act{{ID: stopped, Until: s.now().Add(time.Hour)}}))
	s.awaitState(stopped, backends.Suspended)
	all := []backends.ID{pends, held, stopped, runs}
	s.must("kill", s.Backend.Kill(s.ctx, all))
	for _, id := range all {
		s.awaitState(id, backends.Exited)
	}
	if j := s.queryJob(runs); j.ExitCode <= 128 || j.Ended.IsZero() {
		s.Errorf("killed job: exit code %d, ended %v; want 128 + the signal", j.ExitCode, j.Ended)
	}
	for _, err := range s.Backend.Kill(s.ctx, all) {
		if !errors.Is(err, backends.ErrWrongState) {
			s.Errorf("killing an ended job: %v, want %v", err, backends.ErrWrongState)
		}
	}
}

func testArray(s *suite) {
	g := s.newGate()
	spec := s.job(g, 1)
	spec.Array = &backends.Array{Indices: []int{1, 3, 5, 7}, Limit: 2}
	if !s.NoProcesses {
		spec.Stdout = filepath.Join(s.Dir, "array.%J.%I")
		spec.Command = []string{"/bin/sh", "-c", `echo element; while [ ! -e "$1" ]; do sleep 0.05; done`, "sh", string(g)}
	}
	array := s.submitOne(spec)
	if array.Index != 0 {
		s.Fatalf("the array's own ID is %v, want no index", array)
	}
	element := func(i int) backends.ID { return backends.ID{Job: array.Job, Index: i} }
	s.awaitState(element(1), backends.Running)
	s.awaitState(element(3), backends.Running)
	s.awaitJob(element(5), "waiting for another element", func(j backends.Job) bool {
		return j.State == backends.Pending && j.Wait == backends.WaitThrottle
	})
	jobs, err := s.Backend.Jobs(s.ctx, []backends.ID{array})
	if err != nil || len(jobs) != 4 {
		s.Fatalf("Jobs of the array's ID gave %d, %v; want its 4 elements", len(jobs), err)
	}
	for i, want := range spec.Array.Indices {
		if jobs[i].ID != element(want) {
			s.Errorf("element %d is %v, want %v", i, jobs[i].ID, element(want))
		}
	}
	s.must("kill an element", s.Backend.Kill(s.ctx, []backends.ID{element(3)}))
	s.awaitState(element(3), backends.Exited)
	s.awaitState(element(5), backends.Running)
	if j := s.queryJob(element(1)); j.State != backends.Running {
		s.Errorf("element 1 is %v after element 3 was killed, want running", j.State)
	}
	s.open(g)
	for _, i := range []int{1, 5, 7} {
		s.awaitState(element(i), backends.Done)
	}
	if !s.NoProcesses {
		s.wantFile(filepath.Join(s.Dir, "array."+strconv.FormatInt(array.Job, 10)+".7"), "element\n")
	}
	second := s.submitOne(spec2(s.job(s.newGate(), 1), 1, 2))
	s.must("kill a whole array", s.Backend.Kill(s.ctx, []backends.ID{second}))
	for i := range 2 {
		s.awaitState(backends.ID{Job: second.Job, Index: i + 1}, backends.Exited)
	}
}

func spec2(spec backends.Spec, indices ...int) backends.Spec {
	spec.Array = &backends.Array{Indices: indices}
	return spec
}

func testDependency(s *suite) {
	g := s.newGate()
	first := s.running(s.job(g, 1))
	spec := s.short(1)
	spec.After = "done(" + first.String() + ")"
	second := s.submitOne(spec)
	s.awaitJob(second, "waiting for the other job", func(j backends.Job) bool {
		return j.State == backends.Pending && j.Wait == backends.WaitDependency
	})
	other := s.submitOne(s.short(1)) // there is room, and later jobs pass
	s.awaitState(other, backends.Done)
	if j := s.queryJob(second); j.State != backends.Pending {
		s.Errorf("the dependent job is %v, want pending while job %v runs", j.State, first)
	}
	s.open(g)
	s.awaitState(second, backends.Done)
}

func testUnknownID(s *suite) {
	g := s.newGate()
	known := s.running(s.job(g, 1))
	unknown := backends.ID{Job: 1 << 40}
	want := func(what string, errs backends.Errors) {
		s.Helper()
		if !errors.Is(errs[0], backends.ErrUnknownJob) {
			s.Errorf("%s of an unknown ID: %v, want %v", what, errs[0], backends.ErrUnknownJob)
		}
	}
	one := []backends.ID{unknown}
	want("Requeue", s.Backend.Requeue(s.ctx, []backends.Act{{ID: unknown}}))
	want("Suspend", s.Backend.Suspend(s.ctx, []backends.Act{{ID: unknown}}))
	want("Resume", s.Backend.Resume(s.ctx, one))
	want("Hold", s.Backend.Hold(s.ctx, one))
	want("Release", s.Backend.Release(s.ctx, one))
	want("Rank", s.Backend.SetPriority(s.ctx, []backends.PriorityChange{{ID: unknown}}))
	if s.able.Pin != nil {
		want("Pin", s.able.Pin(s.ctx, []backends.Pin{{ID: unknown}}))
	}
	errs := s.Backend.Kill(s.ctx, []backends.ID{unknown, known, {Job: known.Job, Index: 9}})
	want("Kill", errs)
	if errs[1] != nil {
		s.Errorf("kill of job %v beside an unknown one: %v", known, errs[1])
	}
	if !errors.Is(errs[2], backends.ErrUnknownJob) {
		s.Errorf("kill of an element that there is not: %v, want %v", errs[2], backends.ErrUnknownJob)
	}
	jobs, err := s.Backend.Jobs(s.ctx, one)
	if err != nil || len(jobs) != 0 {
		s.Errorf("Jobs of an unknown ID: %v, %v; want none, and no error", jobs, err)
	}
}

func (s *suite) awaitEnd(id backends.ID) backends.Job {
	s.Helper()
	return s.awaitJob(id, "its end", func(j backends.Job) bool { return j.State.Ended() })
}

func (s *suite) readFile(path string) string {
	s.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.Errorf("a job's file: %v", err)
	}
	return string(data)
}

func (s *suite) wantFile(path, want string) {
	s.Helper()
	if got := s.readFile(path); got != want {
		s.Errorf("%s holds %q, want %q", path, got, want)
	}
}

// order sorts ids by the time at which their jobs started.
func (s *suite) order(ids []backends.ID) []backends.ID {
	s.Helper()
	sorted := slices.Clone(ids)
	started := map[backends.ID]time.Time{}
	for _, id := range ids {
		started[id] = s.queryJob(id).Started
	}
	slices.SortStableFunc(sorted, func(a, b backends.ID) int { return started[a].Compare(started[b]) })
	return sorted
}
