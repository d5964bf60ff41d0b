package lsf_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/lsfstandin"
)

// saving is a job that does something when it is asked to save itself: it runs, and has set its
// trap.
func (e engine) saving(whenAsked string) backends.Job {
	e.t.Helper()
	dir := e.t.TempDir()
	script := fmt.Sprintf("trap 'echo asked >>%[1]s/asked; %[2]s' USR1; echo run >>%[1]s/runs; while :; do sleep 0.05; done", dir, whenAsked)
	r := e.Submit(e.t.Context(), []backends.Spec{{
		Name: "saves", Project: "chipA", Slots: 1, Dir: dir, Priority: backends.At(backends.LevelNormal, backends.DefaultValue),
		Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: os.DevNull,
	}})
	if r[0].Err != nil {
		e.t.Fatal(r[0].Err)
	}
	j := e.await(r[0].ID, "its run", is(backends.Running))
	e.awaitFile(filepath.Join(dir, "runs"))
	return j
}

func (e engine) awaitFile(path string) {
	e.t.Helper()
	if err := await.There(e.t.Context(), path); err != nil {
		e.t.Fatal(err)
	}
}

func saveAct(j backends.Job, wait time.Duration) []backends.Act {
	return []backends.Act{{ID: j.ID, Started: j.Started, Until: time.Now().Add(time.Hour), Mark: "r1", Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: wait}}}
}

// back reports whether a job was put back, and its engine's hold is on.
func back(j backends.Job) bool {
	return j.State == backends.Pending && !j.Ending && j.Requeues == 1 && !j.HeldUntil.IsZero()
}

// R33: an engine that dies after it has recorded that a job is to save itself, or before it puts it
// back, leaves the rest to the next one.
func TestEngineCrashWhileAJobSavesItself(t *testing.T) {
	t.Parallel()
	for at, x := range map[string]struct {
		wait   time.Duration
		asked  string
		failed int
	}{
		"bkill":                {20 * time.Second, "exit 85", 0},
		"brequeue":             {20 * time.Second, "exit 85", 0},
		"brequeue, it kills":   {time.Second, ":", 1},
		"bmod":                 {20 * time.Second, "exit 85", 0},
		"bresume":              {20 * time.Second, "exit 3", 1},
		"bkill, it dies of it": {20 * time.Second, "trap - USR1; kill -USR1 $$", 1},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ofMinutes(t, at == "brequeue, it kills")
			c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1, Second: second / 5})
			record := filepath.Join(t.TempDir(), "lsf.json")
			command, _, _ := strings.Cut(at, ",")
			before, next := newEngine(t, c, dying(t, c, command), record), newEngine(t, c, c.Bin(), record)
			was := next.saving(x.asked)
			err := before.Requeue(t.Context(), saveAct(was, x.wait)).First()
			if (err == nil) == (command == "bkill") {
				t.Fatal(err)
			}
			if command != "bkill" {
				// It works on until the command at which it dies; then it is gone.
				deadline := time.Now().Add(x.wait + 5*time.Second)
				for before.Abilities().Reconcile(t.Context()) == nil && !back(before.queryJob(was.ID)) && time.Now().Before(deadline) {
					time.Sleep(100 * time.Millisecond)
				}
			}
			if j := before.queryJob(was.ID); j.Mark != "r1" || j.State == backends.Running && !j.Ending || j.State.Ended() {
				t.Fatalf("the engine died at %s, and it is shown as %+v", command, j)
			}
			if j := next.await(was.ID, "it to be back", back); j.FailedSaves != x.failed || j.Lost {
				t.Errorf("%+v, want %d failed checkpoints", j, x.failed)
			}
		})
	}
}

// R33: for how long LSF refuses to put a saved job back counts from its first answer, not from when
// an engine wanted to ask: until then LSF, or the engine, may be away for long.
func TestRefusalToPutBackIsNoted(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1, Second: second / 5})
	record := filepath.Join(t.TempDir(), "lsf.json")
	e := newEngine(t, c, c.Bin(), record)
	job := e.saving("exit 85")
	if err := e.Requeue(t.Context(), saveAct(job, 20*time.Second)).First(); err != nil {
		t.Fatal(err)
	}
	noted := func(what string) bool {
		text, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), what)
	}
	away := newEngine(t, c, dying(t, c, "brequeue"), record)
	if !await.Soon(func() bool { return away.Abilities().Reconcile(t.Context()) != nil && noted(`"judged"`) }) {
		t.Fatal("its end was not seen")
	}
	if noted(`"tried"`) {
		t.Error("noted as tried, and LSF did not answer")
	}
	refused := newEngine(t, c, failing(t, c, "brequeue", fmt.Sprintf("Job <%v>: User permission denied", job.ID)), record)
	if err := refused.Abilities().Reconcile(t.Context()); err != nil || !noted(`"tried"`) {
		t.Errorf("LSF refused: %v, noted %v", err, noted(`"tried"`))
	}
	e.await(job.ID, "it to be back", back)
}

// A queue whose REQUEUE_EXIT_VALUES have 85 puts a saved job back by itself, and may start
// it at once: it has saved itself all the same.
func TestQueueRequeuesSavedJob(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]int{"85 is listed": {99, 85}, "another status is listed": {3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1, Second: second / 5, Edit: func(c *lsfstandin.Config) {
				c.Queues = []lsfstandin.QueueConfig{{Name: "normal", Priority: 30, Requeues: values}}
			}})
			e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
			job := e.saving(fmt.Sprintf("exit %d", values[len(values)-1]))
			if !await.Soon(func() bool { return time.Now().Unix() > job.Started.Unix() }) { // runs are told apart by the second
				t.Fatal("the clock stands")
			}
			if err := e.Requeue(t.Context(), saveAct(job, 20*time.Second)).First(); err != nil {
				t.Fatal(err)
			}
			j := e.await(job.ID, "it to be back", func(j backends.Job) bool { return !j.Ending && j.Requeues == 1 })
			if j.FailedSaves != 0 || j.Mark != "r1" || j.Lost {
				t.Errorf("%+v", j)
			}
		})
	}
}

// A job that is killed while it saves itself stays ended: that is its owner's wish.
func TestSavingJobIsKilled(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1, Second: second / 5})
	e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
	job := e.saving(":")
	if err := e.Requeue(t.Context(), saveAct(job, 20*time.Second)).First(); err != nil {
		t.Fatal(err)
	}
	if _, message, rc := c.Run("bkill", job.ID.String()); rc != 0 {
		t.Fatal(message)
	}
	if j := e.await(job.ID, "its end", is(backends.Exited)); j.Lost || j.Requeues != 0 {
		t.Errorf("%+v", j)
	}
	if stat, _, _ := c.Run("bjobs", "-a", "-w", job.ID.String()); !strings.Contains(stat, " EXIT ") {
		t.Errorf("LSF shows\n%s", stat)
	}
}

// A job whose host does not respond is not told to go for taking too long.
func TestSavingJobsHostIsDown(t *testing.T) {
	t.Parallel()
	c := lsfstandin.New(t, lsfstandin.Options{RootMaySubmit: true, Hosts: 1, Slots: 1, Second: second / 5})
	e := newEngine(t, c, c.Bin(), filepath.Join(t.TempDir(), "lsf.json"))
	job := e.saving(":")
	if err := e.Requeue(t.Context(), saveAct(job, time.Second)).First(); err != nil {
		t.Fatal(err)
	}
	c.SetHost("h1", false, true)
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err := e.Abilities().Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if j := e.queryJob(job.ID); j.FailedSaves != 0 || !j.Ending {
		t.Errorf("%+v", j)
	}
	c.SetHost("h1", false, false)
	if j := e.await(job.ID, "it to be back", back); j.FailedSaves != 1 {
		t.Errorf("%+v", j)
	}
}
