// Package backendtest is the suite that every backend must pass. A backend's
// own test file only says how to make one:
//
//	func TestConformance(t *testing.T) { backendtest.Run(t, open) }
//
// A case that needs an ability which the backend lacks skips with a line that
// names it; every other case must pass.
package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Harness is one fresh, empty queue to be tested: two hosts of four slots each,
// with managed memory, nothing submitted yet. What open started it also stops,
// through t.Cleanup.
type Harness struct {
	Backend backends.Backend
	// Dir is an absolute directory that jobs and the test can both write to.
	// The suite makes its gates and its jobs' output files there.
	Dir string
	// User is the name that the queue should record for what we submit; empty: any.
	User string
	// Project is what the suite's project is called in the queue; empty: chipA, as
	// it is submitted. Slurm writes accounts in small letters.
	Project string
	// LosesPlace says that a requeued job has its place again only a moment after it has
	// left its slots: a job behind it may get them first.
	LosesPlace bool
	// Uncounted says that the queue does not pass the number of requeues to a run:
	// ALLOTMENT_REQUEUES is unset.
	Uncounted bool
	// Untold says that the queue can't set a variable of a run that follows one which saved
	// itself: ALLOTMENT_RESTARTED is unset.
	Untold bool
	// TimeResolution is the resolution of the queue's start times; zero: one second or less.
	TimeResolution time.Duration
	// Apart is how far two values of a level must be apart for the queue to order their
	// jobs by them; 0: 1.
	Apart int
	// Values are two values of LevelNormal whose jobs a submission puts in their order: the
	// lower, the higher; zero: DefaultValue and the next above it by Apart.
	Values [2]backends.Priority
	// PlainNames says that a name with a control character is refused.
	PlainNames bool
	// HoldsSpecs says that Spec.HeldUntil is kept to. Where the queue itself asks the
	// submit filter, that holds jobs in the queue's own way.
	HoldsSpecs bool
	// OtherQueue is a queue that is not the default one, for Move.
	OtherQueue string
	// LowQueue is the queue of the jobs at LevelLow, where that is no priority.
	LowQueue string
	// Shortest is the shortest delay that the queue keeps to when it is asked
	// for a begin time or a run limit; zero: one second.
	Shortest time.Duration
	// ShortestLimit is the shortest run limit, where it is not Shortest.
	ShortestLimit time.Duration
	// Patience bounds every wait; zero: 30 seconds.
	Patience time.Duration

	// Step, where it is not nil, makes time pass in a queue of virtual time.
	// The suite calls it instead of waiting.
	Step func()
	// NoProcesses says that jobs are not really run: what they would have
	// written is not checked.
	NoProcesses bool

	// Faults; nil where they can't be made, then their cases skip. Kill ends
	// the queue at once, as kill -9 does; Hang makes it accept requests and
	// answer none; Restart brings it back after either. Running jobs outlive
	// all three.
	Kill    func(t *testing.T)
	Hang    func(t *testing.T)
	Restart func(t *testing.T)
}

// Hosts and slots that a Harness offers.
const (
	hostCount    = 2
	slotsPerHost = 4
)

// Run runs every case on a queue of its own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, group := range [][]testCase{lifeCases, stateCases, hostCases, actCases, saveCases, dummyCases, historyCases, faultCases} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				c.run(newSuite(t, open(t)))
			})
		}
	}
}

type testCase struct {
	name string
	run  func(*suite)
}

// suite is one case's queue with the helpers that cases are written in.
type suite struct {
	*testing.T
	Harness
	ctx   context.Context
	able  backends.Abilities
	gates int
}

func newSuite(t *testing.T, h Harness) *suite {
	t.Helper()
	if h.Backend == nil || !filepath.IsAbs(h.Dir) {
		t.Fatal("backendtest: a Harness needs a Backend and an absolute Dir")
	}
	h.Shortest = max(h.Shortest, time.Second)
	h.ShortestLimit = max(h.ShortestLimit, h.Shortest)
	h.TimeResolution = max(h.TimeResolution, time.Second)
	h.Apart = max(h.Apart, 1)
	if h.Values == [2]backends.Priority{} {
		h.Values = [2]backends.Priority{backends.DefaultValue, backends.DefaultValue + backends.Priority(h.Apart)}
	}
	if h.Project == "" {
		h.Project = "chipA"
	}
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*h.Patience)
	t.Cleanup(cancel)
	s := &suite{T: t, Harness: h, ctx: ctx, able: h.Backend.Abilities()}
	t.Cleanup(s.openAllGates)
	return s
}

// need skips the case where an ability is absent.
func (s *suite) need(present bool, ability string) {
	s.Helper()
	if !present {
		s.Skipf("skipped: this backend can't %s", ability)
	}
}

// gate is a file that a job waits for: the job runs until the test opens it.
type gate string

const (
	gatePattern = "gate-*.closed"
	gateScript  = `echo "${ALLOTMENT_REQUEUES-unset}" >>"$1.runs"; while [ ! -e "$1" ]; do sleep 0.05; done; exit "$2"`
)

// GateScript is the shell script of the suite's jobs, for a Step that plays
// them: their Command is /bin/sh -c GateScript sh GATE STATUS, and they end with
// STATUS when the file GATE exists.
const GateScript = gateScript

func (s *suite) newGate() gate {
	s.Helper()
	s.gates++
	path := filepath.Join(s.Dir, "gate-"+strconv.Itoa(s.gates))
	if err := os.WriteFile(path+".closed", nil, 0o600); err != nil {
		s.Fatalf("make a gate: %v", err)
	}
	return gate(path)
}

func (s *suite) open(g gate) {
	s.Helper()
	if err := os.WriteFile(string(g), nil, 0o600); err != nil {
		s.Errorf("open a gate: %v", err)
	}
}

// openAllGates lets every job of the case end, so that none outlives the test.
func (s *suite) openAllGates() {
	closed, _ := filepath.Glob(filepath.Join(s.Dir, gatePattern))
	for _, path := range closed {
		_ = os.WriteFile(path[:len(path)-len(".closed")], nil, 0o600)
	}
}

// job is a Spec of so many slots that runs until g opens and exits with 0.
func (s *suite) job(g gate, slots int) backends.Spec {
	return backends.Spec{
		Name: "job", Project: "chipA", Priority: backends.At(backends.LevelNormal, backends.DefaultValue), Slots: slots,
		Command: []string{"/bin/sh", "-c", gateScript, "sh", string(g), "0"},
		Dir:     s.Dir, Env: []string{"PATH=/usr/bin:/bin"}, Umask: 0o077,
		Stdout: os.DevNull, Stderr: os.DevNull, Stdin: os.DevNull,
	}
}

// short is a job that ends at once.
func (s *suite) short(slots int) backends.Spec {
	g := s.newGate()
	s.open(g)
	return s.job(g, slots)
}

// submit submits jobs; every one must be accepted.
func (s *suite) submit(specs ...backends.Spec) []backends.ID {
	s.Helper()
	results := s.Backend.Submit(s.ctx, specs)
	if len(results) != len(specs) {
		s.Fatalf("Submit of %d jobs gave %d results", len(specs), len(results))
	}
	ids := make([]backends.ID, len(results))
	for i, r := range results {
		if r.Err != nil {
			s.Fatalf("submit job %d of %d: %v", i+1, len(specs), r.Err)
		}
		if r.ID == (backends.ID{}) {
			s.Fatalf("submit job %d of %d: no error and no ID", i+1, len(specs))
		}
		ids[i] = r.ID
	}
	return ids
}

func (s *suite) submitOne(spec backends.Spec) backends.ID {
	s.Helper()
	return s.submit(spec)[0]
}

// running submits a job and waits until it runs.
func (s *suite) running(spec backends.Spec) backends.ID {
	s.Helper()
	id := s.submitOne(spec)
	s.awaitState(id, backends.Running)
	return id
}

func (s *suite) farm() *backends.Snapshot {
	s.Helper()
	farm, err := s.Backend.Snapshot(s.ctx, time.Time{})
	if err != nil {
		s.Fatalf("farm: %v", err)
	}
	return farm
}

func (s *suite) now() time.Time {
	s.Helper()
	return s.farm().At
}

func (s *suite) hostNames() []string {
	s.Helper()
	var names []string
	for _, h := range s.farm().Hosts {
		names = append(names, h.Name)
	}
	if len(names) != hostCount {
		s.Fatalf("hosts %q, want %d of them", names, hostCount)
	}
	return names
}

// queryJob asks for one job anew.
func (s *suite) queryJob(id backends.ID) backends.Job {
	s.Helper()
	jobs, err := s.Backend.Jobs(s.ctx, []backends.ID{id})
	if err != nil {
		s.Fatalf("look at job %v: %v", id, err)
	}
	if len(jobs) != 1 || jobs[0].ID != id {
		s.Fatalf("look at job %v: got %+v", id, jobs)
	}
	return jobs[0]
}

// await polls until cond holds; it backs off and gives up after Patience.
func (s *suite) await(what string, cond func() (ok bool, seen string)) {
	s.Helper()
	deadline := time.Now().Add(s.Patience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		checked := time.Now()
		if s.able.Reconcile != nil {
			if err := s.able.Reconcile(s.ctx); err != nil {
				s.Fatalf("reconcile: %v", err)
			}
		}
		ok, seen := cond()
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			s.Fatalf("waited %v for %s; seen at last: %s", s.Patience, what, seen)
		case s.Step != nil:
			s.Step()
		default:
			// A generic backend has no event to wait for. Cases run beside each other: one that
			// waits leaves the machine to the others.
			time.Sleep(max(pause, 2*time.Since(checked)))
		}
	}
}

func (s *suite) awaitJob(id backends.ID, what string, cond func(backends.Job) bool) backends.Job {
	s.Helper()
	var job backends.Job
	s.await(fmt.Sprintf("job %v: %s", id, what), func() (bool, string) {
		job = s.queryJob(id)
		return cond(job), fmt.Sprintf("%+v", job)
	})
	return job
}

func (s *suite) awaitState(id backends.ID, state backends.State) backends.Job {
	s.Helper()
	return s.awaitJob(id, state.String(), func(j backends.Job) bool { return j.State == state })
}

// runs returns what n runs behind a gate have written: their ALLOTMENT_REQUEUES, one a
// line.
func (s *suite) runs(n int) string {
	var b strings.Builder
	for i := range n {
		if s.Uncounted {
			b.WriteString("unset\n")
		} else {
			b.WriteString(strconv.Itoa(i) + "\n")
		}
	}
	return b.String()
}

// awaitRuns waits until n runs behind a gate have written what runs returns.
func (s *suite) awaitRuns(g gate, n int) {
	s.Helper()
	if s.NoProcesses {
		return
	}
	want := s.runs(n)
	s.await(fmt.Sprintf("the runs %q to begin", want), func() (bool, string) {
		got, err := os.ReadFile(string(g) + ".runs")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Fatalf("a job's file: %v", err)
		}
		return string(got) == want, fmt.Sprintf("%q", got)
	})
}

// awaitNewStart waits until a run that begins now has another start time than the job had.
func (s *suite) awaitNewStart(was backends.Job) {
	s.Helper()
	if s.TimeResolution > time.Second {
		s.await("another "+s.TimeResolution.String(), func() (bool, string) {
			now := s.now()
			return !now.Before(was.Started.Truncate(s.TimeResolution).Add(s.TimeResolution)), now.String()
		})
	}
}

// startBeside runs a job on a host where a suspended job holds slots. A queue whose backend
// has Start gives these slots to no job by itself.
func (s *suite) startBeside(spec backends.Spec, host string) backends.ID {
	s.Helper()
	id := s.submitOne(spec)
	if s.able.Start != nil {
		if err := s.able.Start(s.ctx, id, []backends.Placement{{Host: host, Slots: spec.Slots}}); err != nil {
			s.Fatalf("start job %v on %s: %v", id, host, err)
		}
	}
	return id
}

// must wants every element of a batch call to succeed.
func (s *suite) must(what string, errs backends.Errors) {
	s.Helper()
	if err := errs.First(); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// checkCapacity checks that no host holds more slots or memory than it offers.
func (s *suite) checkCapacity() {
	s.Helper()
	farm := s.farm()
	slots, memory := map[string]int{}, map[string]int64{}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State != backends.Running {
			continue
		}
		for _, p := range j.Hosts {
			slots[p.Host] += p.Slots
			memory[p.Host] += j.Memory * int64(p.Slots) / int64(max(j.Slots, 1))
		}
	}
	for _, h := range farm.Hosts {
		if slots[h.Name] > h.Slots || memory[h.Name] > h.Memory {
			s.Errorf("host %s offers %d slots and %d bytes; %d and %d are used", h.Name, h.Slots, h.Memory, slots[h.Name], memory[h.Name])
		}
	}
}

// hostsOf names the hosts that a job is on, in order of their names.
func hostsOf(j backends.Job) []string {
	var names []string
	for _, p := range j.Hosts {
		names = append(names, p.Host)
	}
	slices.Sort(names)
	return names
}
