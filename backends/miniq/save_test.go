package miniq_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// saver is a job that writes down its ALLOTMENT_RESTARTED and requeues, and when it is asked to
// save itself; then FILE.go lets it end with a status.
func (q *queue) saver(name string, status string) (spec backends.Spec, file string) {
	file = filepath.Join(filepath.Dir(q.Home), name)
	spec = q.run(`trap 'echo asked >>"$1"; while [ ! -e "$1.go" ]; do sleep 0.02; done; exit "$2"' USR1
		echo "run ${ALLOTMENT_RESTARTED-0} $ALLOTMENT_REQUEUES" >>"$1"; while [ ! -e "$1.end" ]; do sleep 0.02; done`, file, status)
	return spec, file
}

func (q *queue) ask(id backends.ID, save backends.Checkpoint) {
	q.t.Helper()
	act := backends.Act{ID: id, Started: q.awaitState(id, backends.Running).Started, Save: save, Mark: "r1"}
	if err := q.Requeue(q.t.Context(), []backends.Act{act}).First(); err != nil {
		q.t.Fatal(err)
	}
}

// R33: a save that is in progress when the daemon, its nodes or the job's keeper die loses
// no job: it ends as it would have, or runs again.
func TestSaveSurvives(t *testing.T) {
	for name, fault := range map[string]func(q *queue){
		"daemon":         func(q *queue) { q.kill(); q.start() },
		"nodes":          func(q *queue) { q.killNodes() },
		"nodes, daemon":  func(q *queue) { q.killNodes(); q.kill(); q.start() },
		"stopped softly": func(q *queue) { _ = q.Stop(context.Background(), false); _ = q.cmd.Wait(); q.start() },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, setup{})
			saves, file1 := q.saver("saves", "85")
			ends, file2 := q.saver("ends", "0")
			ids := q.submit(saves, ends)
			for i, file := range []string{file1, file2} {
				q.awaitFile(file, "run 0 0\n")
				q.ask(ids[i], backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute})
				q.awaitFile(file, "run 0 0\nasked\n")
			}
			fault(q)
			release(t, file1)
			release(t, file2)
			q.awaitFile(file1, "run 0 0\nasked\nrun 1 1\n")
			if j := q.awaitState(ids[0], backends.Running); j.Requeues != 1 || j.FailedSaves != 0 {
				t.Errorf("job %+v, want it saved", j)
			}
			q.awaitState(ids[1], backends.Done)
			q.awaitFile(file2, "run 0 0\nasked\n")
		})
	}
}

// The daemon has it on disk before it asks: one that dies then asks when it is back.
func TestSaveIsOnDiskFirst(t *testing.T) {
	q := newQueue(t, setup{})
	spec, file := q.saver("saves", "85")
	release(t, file)
	id := q.submit(spec)[0]
	q.awaitFile(file, "run 0 0\n")
	started := q.awaitState(id, backends.Running).Started
	q.signalNodes(syscall.SIGSTOP) // so no job is asked
	act := backends.Act{ID: id, Started: started, Save: backends.Checkpoint{Signal: "SIGUSR1", Wait: 30 * time.Second}}
	if err := q.Requeue(t.Context(), []backends.Act{act}).First(); err != nil {
		t.Fatal(err)
	}
	q.hang() // it would replace the nodes; once it is dead, the kernel wakes stopped ones
	q.killNodes()
	q.kill()
	q.awaitFile(file, "run 0 0\n")
	q.start()
	q.awaitFile(file, "run 0 0\nasked\nrun 1 1\n")
	if j := q.awaitState(id, backends.Running); j.Requeues != 1 || j.FailedSaves != 0 {
		t.Errorf("job %+v, want it saved", j)
	}
}

func TestSaveWhenKeeperDies(t *testing.T) {
	q := newQueue(t, setup{})
	spec, file := q.saver("saves", "85")
	id := q.submit(spec)[0]
	q.awaitFile(file, "run 0 0\n")
	q.ask(id, backends.Checkpoint{Signal: "SIGUSR1", Wait: time.Minute})
	q.awaitFile(file, "run 0 0\nasked\n")
	q.killKeepers()
	q.awaitFile(file, "run 0 0\nasked\nrun 0 1\n")
	if j := q.awaitState(id, backends.Running); j.Requeues != 1 || j.FailedSaves != 1 {
		t.Errorf("job %+v, want it to run again, its checkpoint failed", j)
	}
}

// The job's record says that it was asked, and what came of it.
func TestRecordTellsOfSaves(t *testing.T) {
	q := newQueue(t, setup{})
	spec, file := q.saver("saves", "3")
	release(t, file)
	id := q.submit(spec)[0]
	q.awaitFile(file, "run 0 0\n")
	q.ask(id, backends.Checkpoint{Signal: "SIGUSR1", Wait: 30 * time.Second})
	q.awaitFile(file, "run 0 0\nasked\nrun 0 1\n")
	command := filepath.Join(filepath.Dir(q.Home), "save")
	if err := os.WriteFile(command, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	q.ask(id, backends.Checkpoint{Command: command, Wait: 30 * time.Second})
	q.awaitFile(file, "run 0 0\nasked\nrun 0 1\nrun 1 2\n")
	r, err := q.Record(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, e := range r.History {
		lines.WriteString(e.Event + ": " + e.Detail + "\n")
	}
	for _, want := range []string{
		"r1 asked to save its work: SIGUSR1:30s\n", "notice: its checkpoint failed, 1 in a row: exit status 3\n",
		"r1 asked to save its work: command:30s:" + command + "\n", "notice: its checkpoint was made: the next run can go on from there\n",
	} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the record lacks %q:\n%s", want, lines.String())
		}
	}
}
