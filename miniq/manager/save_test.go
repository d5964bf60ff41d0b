package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

var (
	saveBySignal  = backends.Checkpoint{Signal: "SIGUSR1", Wait: 30 * time.Second}
	saveByCommand = backends.Checkpoint{Command: "/opt/save", Wait: time.Minute}
)

// R33: how a run that was asked to save itself ended says what becomes of its job.
func TestEndOfASave(t *testing.T) {
	for name, c := range map[string]struct {
		save  backends.Checkpoint
		end   Ended
		done  bool // else it is requeued
		saved bool
	}{
		"saved":                        {save: saveBySignal, end: Ended{ExitCode: 85, Asked: true}, saved: true},
		"finished":                     {save: saveBySignal, end: Ended{Asked: true}, done: true},
		"finished before it was asked": {save: saveBySignal, end: Ended{Self: true}, done: true},
		"dead of the signal":           {save: saveBySignal, end: Ended{ExitCode: 138, Asked: true}},
		"another status":               {save: saveBySignal, end: Ended{ExitCode: 1, Asked: true}},
		"out of time":                  {save: saveBySignal, end: Ended{ExitCode: 137, Asked: true}},
		"0 of a keeper that can't ask": {save: saveBySignal, end: Ended{}},
		"command saved":                {save: saveByCommand, end: Ended{ExitCode: 137, Asked: true, Saved: true}, saved: true},
		"command saved, and the job ended with 0": {save: saveByCommand, end: Ended{Self: true, Asked: true, Saved: true}, saved: true},
		"command failed": {save: saveByCommand, end: Ended{ExitCode: 137, Asked: true}},
		"command failed, as the job had finished":   {save: saveByCommand, end: Ended{Self: true, Asked: true}, done: true},
		"command failed, and the job says it saved": {save: saveByCommand, end: Ended{ExitCode: 85, Self: true, Asked: true}, saved: true},
		"killed without being asked":                {end: Ended{ExitCode: 85}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{}, 1)
			id := b.submit(spec(1))
			b.must(Requeue{admin, []backends.Act{{ID: id, Save: c.save, Until: b.now.Add(time.Minute)}}})
			if k := effectOf[KillRun](b); k != (KillRun{id, 1, c.save.Wait, c.save, true}) {
				t.Errorf("its end is %+v", k)
			}
			if r := b.m.Runs()[0]; !r.Killing || r.Save != c.save {
				t.Errorf("its run is %+v", r)
			}
			b.refuses(Requeue{admin, []backends.Act{{ID: id}}}, backends.ErrWrongState)
			c.end.ID, c.end.Run = id, 1
			b.must(c.end)
			if c.done {
				b.state(id, backends.Done)
				return
			}
			failed := 0
			if c.save.OnDemand() && !c.saved {
				failed = 1
			}
			if j := b.job(id); j.State != backends.Pending || j.Requeues != 1 || j.FailedSaves != failed {
				t.Errorf("job %+v, want it requeued with %d failed checkpoints", j, failed)
			}
			b.after(time.Minute)
			if s := effectOf[StartRun](b); s.Restarted != c.saved || s.Run != 2 {
				t.Errorf("its next run is %+v", s)
			}
		})
	}
}

// The count is of failures in a row; only a run that follows a saved one is told to go on, and one
// that was never begun changes nothing.
func TestSavesInARow(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	ends := func(e Ended, failed int, restarted bool) {
		t.Helper()
		b.must(Requeue{admin, []backends.Act{{ID: id, Save: saveBySignal}}})
		e.ID, e.Run, e.Asked = id, b.run(id), !e.Unbegun
		b.must(e)
		if s, j := effectOf[StartRun](b), b.job(id); s.Restarted != restarted || j.FailedSaves != failed {
			t.Errorf("after %+v it is told to go on: %v, and %d checkpoints failed; want %v, %d", e, s.Restarted, j.FailedSaves, restarted, failed)
		}
	}
	ends(Ended{ExitCode: 1}, 1, false)
	ends(Ended{ExitCode: 137}, 2, false)
	ends(Ended{ExitCode: 143, Unbegun: true}, 2, false)
	ends(Ended{ExitCode: 85}, 0, true)
	ends(Ended{ExitCode: 143, Unbegun: true}, 0, true)
	ends(Ended{ExitCode: 1}, 1, false)
	b.must(Requeue{admin, []backends.Act{{ID: id, Save: saveBySignal}}})
	b.must(RunLost{id, b.run(id), "its keeper is gone"})
	if j := b.job(id); j.State != backends.Running || j.FailedSaves != 2 {
		t.Errorf("job %+v, want it to run again: its keeper was lost when it saved itself", j)
	}
}

// A kill of its owner's ends a job that saves itself.
func TestKillOfAJobThatSaves(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	b.must(Requeue{admin, []backends.Act{{ID: id, Save: saveBySignal}}})
	b.must(Kill{user, []backends.ID{id}})
	if r := b.m.Runs()[0]; r.Save != (backends.Checkpoint{}) {
		t.Errorf("run %+v still saves itself", r)
	}
	b.ends(id, 85)
	b.state(id, backends.Exited)
}

// A suspended job is asked, too: its keeper continues it.
func TestSuspendedJobSaves(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	b.must(Suspend{admin, []backends.Act{{ID: id}}})
	b.must(Requeue{admin, []backends.Act{{ID: id, Save: saveBySignal}}})
	if k := effectOf[KillRun](b); k.Save != saveBySignal {
		t.Errorf("it is ended by %+v", k)
	}
	b.must(Ended{ID: id, Run: 1, ExitCode: 85, Asked: true})
	if s := effectOf[StartRun](b); !s.Restarted {
		t.Errorf("its next run is %+v", s)
	}
}

func TestWhoMayAskForASave(t *testing.T) {
	b := newBench(t, Config{}, 4)
	id, stays := b.submit(spec(1)), b.submit(backends.Spec{NoRequeue: true})
	b.refuses(Requeue{other, []backends.Act{{ID: id, Save: saveBySignal}}}, backends.ErrDenied)
	b.refuses(Requeue{admin, []backends.Act{{ID: stays, Save: saveBySignal}}}, backends.ErrDenied)
	for _, save := range []backends.Checkpoint{
		{Signal: "SIGKILL", Wait: time.Second},
		{Signal: "SIGUSR1"},
		{Signal: "SIGUSR1", Wait: 48 * time.Hour},
		{Signal: "SIGUSR1", Command: "/a", Wait: time.Second},
		{Command: "save", Wait: time.Second},
		{Command: "/a\n", Wait: time.Second},
		{Command: "/" + strings.Repeat("a", 2000), Wait: time.Second},
		{Wait: time.Second},
		{Command: "/" + backends.Escape("\xff"), Wait: time.Second},
	} {
		if b.do(Requeue{admin, []backends.Act{{ID: id, Save: save}}}); b.last.Errors.First() == nil {
			t.Errorf("a job can be asked by %+v", save)
		}
	}
	b.state(id, backends.Running)
	// A job that is being ended is no victim: its owner gets no more time than by a kill.
	b.must(Requeue{user, []backends.Act{{ID: id, Save: saveBySignal}}})
	if k := effectOf[KillRun](b); k.Grace != 10*time.Second || k.Save.Wait != k.Grace {
		t.Errorf("its owner's requeue ends it by %+v", k)
	}
}
