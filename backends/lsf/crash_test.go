package lsf_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/lsf"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// engine is the backend of a cluster in one of the processes that share a record.
type engine struct {
	*lsf.Client
	t *testing.T
}

func newEngine(t *testing.T, c *lsfstandin.Cluster, bin, record string) engine {
	config := lsf.DefaultConfig()
	config.Bin, config.EnvDir = bin, c.EnvDir()
	return engine{lsf.Open(lsf.Options{Config: config, Record: record, LowQueue: "low"}), t}
}

// dying returns a directory of LSF's commands, of which one does not reach LSF.
func dying(t *testing.T, c *lsfstandin.Cluster, at string) string {
	t.Helper()
	return failing(t, c, at, "Failed in an LSF library call: Connection refused")
}

// failing returns a directory of LSF's commands, of which one does nothing but print
// a message.
func failing(t *testing.T, c *lsfstandin.Cluster, at, message string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range lsfstandin.Programs() {
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", filepath.Join(c.Bin(), name))
		if name == at {
			script = fmt.Sprintf("#!/bin/sh\necho '%s' >&2\nexit 255\n", message)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (e engine) submit(hosts ...string) backends.ID {
	e.t.Helper()
	r := e.Submit(e.t.Context(), []backends.Spec{{
		Name: "job", Project: "chipA", Slots: 1, Hosts: hosts, Dir: "/", Priority: backends.At(backends.LevelNormal, backends.DefaultValue),
		Command: []string{"/bin/sleep", "600"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: os.DevNull,
	}})
	if r[0].Err != nil {
		e.t.Fatal(r[0].Err)
	}
	return r[0].ID
}

// await reconciles until so holds of a job. A released job starts within two minutes.
func (e engine) await(id backends.ID, what string, so func(backends.Job) bool) backends.Job {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 3*time.Minute)
	defer cancel()
	var j backends.Job
	if !await.Every(ctx, 100*time.Millisecond, func() bool {
		if err := e.Abilities().Reconcile(e.t.Context()); err != nil {
			e.t.Fatal(err)
		}
		j = e.queryJob(id)
		return so(j)
	}) {
		e.t.Fatalf("waited for %s: %+v", what, j)
	}
	return j
}

func (e engine) queryJob(id backends.ID) backends.Job {
	e.t.Helper()
	jobs, err := e.Jobs(e.t.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		e.t.Fatal(jobs, err)
	}
	return jobs[0]
}

func is(state backends.State) func(backends.Job) bool {
	return func(j backends.Job) bool { return j.State == state && !j.Ending }
}

// A crash in the middle of a requeue leaves a job that comes back held by LSF. The next
// engine ends that hold, and sets the one that was meant.
func TestEngineCrashDuringRequeue(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"bmod", "bresume"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ofMinutes(t, at == "bresume")
			c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
			record := filepath.Join(t.TempDir(), "lsf.json")
			before, next := newEngine(t, c, dying(t, c, at), record), newEngine(t, c, c.Bin(), record)
			id := next.submit()
			was := next.await(id, "a running job", is(backends.Running))
			until := time.Now().Add(time.Hour)
			act := backends.Act{ID: id, Started: was.Started, Until: until, Mark: "r1"}
			if err := before.Requeue(t.Context(), []backends.Act{act}).First(); err != nil {
				t.Fatal(err)
			}
			stat, _, _ := c.Run("bjobs", "-w", id.String())
			if j := before.queryJob(id); j.State != backends.Pending || j.Requeues != 1 || j.Mark != "r1" || !j.HeldUntil.Equal(until) {
				t.Errorf("LSF shows\n%sand we %+v: want it pending, held, put back once", stat, j)
			}
			if err := next.Abilities().Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			j := next.queryJob(id)
			listing, err := c.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if in := listing.Jobs[0]; in.Stat != lsfstandin.PEND || in.Begin.Before(until.Truncate(time.Second)) || j.Requeues != 1 || j.Mark != "r1" || !j.BeginTime.IsZero() {
				t.Errorf("LSF has %s until %v, and shown is %+v: want it to run by itself in the end", in.Stat, in.Begin, j)
			}
			if err := next.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: id}}).First(); err != nil {
				t.Fatal(err)
			}
			if next.checkReleased(c, id); at == "bmod" {
				return // one wait for the end of a minute is enough
			}
			if j := next.await(id, "its second run", is(backends.Running)); j.Requeues != 1 || j.Started.Equal(was.Started) {
				t.Errorf("%+v", j)
			}
		})
	}
}

// A job that the engine stopped and its owner resumed is stopped again while it is held,
// and resumed when it is not and fits.
func TestResumeByOwnerIsUndone(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
	record := filepath.Join(t.TempDir(), "lsf.json")
	e := newEngine(t, c, c.Bin(), record)
	id := e.submit()
	was := e.await(id, "a running job", is(backends.Running))
	if err := e.Suspend(t.Context(), []backends.Act{{ID: id, Started: was.Started, Until: time.Now().Add(time.Hour), Mark: "r1"}}).First(); err != nil {
		t.Fatal(err)
	}
	other := e.submit()
	if err := e.Abilities().Start(t.Context(), other, []backends.Placement{{Host: "h1", Slots: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, message, rc := c.Run("bresume", id.String()); rc != 0 {
		t.Fatal(message)
	}
	e.await(id, "it to be stopped again", is(backends.Suspended))
	if err := e.Resume(t.Context(), []backends.ID{id}).First(); err != nil {
		t.Fatal(err)
	}
	if _, message, rc := c.Run("bresume", id.String()); rc != 0 {
		t.Fatal(message)
	}
	if j := e.await(id, "it to be stopped again beside another one", is(backends.Suspended)); !j.Resuming {
		t.Errorf("%+v does not wait for its room", j)
	}
	// Times are whole seconds: it goes on in a later one than it started in.
	if !await.Soon(func() bool { return time.Now().Unix() > was.Started.Unix() }) {
		t.Fatal("the clock stands")
	}
	if err := e.Kill(t.Context(), []backends.ID{other}).First(); err != nil {
		t.Fatal(err)
	}
	if j := e.await(id, "it to go on", is(backends.Running)); j.Requeues != 0 || j.Mark != "r1" || !j.Started.After(was.Started) {
		t.Errorf("%+v", j)
	}
}

// A job that its owner resumed just before the engine does waits for its room all the
// same.
func TestResumeOfAJobItsOwnerResumed(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
	e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
	id := e.submit()
	was := e.await(id, "a running job", is(backends.Running))
	if err := e.Suspend(t.Context(), []backends.Act{{ID: id, Started: was.Started, Until: time.Now().Add(time.Hour), Mark: "r1"}}).First(); err != nil {
		t.Fatal(err)
	}
	other := e.submit()
	if err := e.Abilities().Start(t.Context(), other, []backends.Placement{{Host: "h1", Slots: 1}}); err != nil {
		t.Fatal(err)
	}
	e.await(other, "the other job", is(backends.Running))
	if _, message, rc := c.Run("bresume", id.String()); rc != 0 {
		t.Fatal(message)
	}
	if !await.Soon(func() bool { return e.queryJob(id).State == backends.Running }) {
		t.Fatal("the owner's resume had no effect")
	}
	if err := e.Resume(t.Context(), []backends.ID{id}).First(); err != nil {
		t.Fatal(err)
	}
	if j := e.await(id, "it to be stopped again", is(backends.Suspended)); !j.Resuming {
		t.Errorf("%+v does not wait for its room", j)
	}
	if err := e.Kill(t.Context(), []backends.ID{other}).First(); err != nil {
		t.Fatal(err)
	}
	e.await(id, "it to go on", is(backends.Running))
}

// The engine sees that an owner lifted a hold or changed a priority.
func TestOwnersChangesAreDetected(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1})
	e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
	e.await(e.submit(), "a full host", is(backends.Running))
	id := e.submit()
	until := time.Now().Add(time.Hour)
	if err := e.Abilities().HoldUntil(t.Context(), []backends.HoldUntil{{ID: id, Until: until}}).First(); err != nil {
		t.Fatal(err)
	}
	if _, message, rc := c.Run("bmod", "-bn", id.String()); rc != 0 {
		t.Fatal(message)
	}
	if err := e.Abilities().Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	listing, err := c.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if in := listing.Jobs[1]; in.Begin.Before(until.Truncate(time.Second)) {
		t.Errorf("it begins at %v, held until %v", in.Begin, until)
	}
	want := backends.At(backends.LevelHandOver, 243)
	if err := e.SetPriority(t.Context(), []backends.PriorityChange{{ID: id, Priority: want}}).First(); err != nil {
		t.Fatal(err)
	}
	if j := e.queryJob(id); j.Priority != want {
		t.Errorf("it shows %d, was given %d", j.Priority, want)
	}
	if _, message, rc := c.Run("bmod", "-sp", "60", id.String()); rc != 0 {
		t.Fatal(message)
	}
	if j := e.queryJob(id); j.Priority != backends.At(backends.LevelVictim, 250) {
		t.Errorf("its owner made it 60, and it shows %v %d", j.Priority.Level(), j.Priority.Value())
	}
}
