package backendtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Checkpoints on demand (R33): how a run that was asked to save itself ends, and what
// becomes of its job.
var saveCases = []testCase{
	{"asked by a signal: saved, and the next run is told", testSaved},
	{"asked by a signal: finished", testSaveFinishes},
	{"asked by a signal: failed", testSaveFails},
	{"asked by a signal: out of time", testSaveTakesTooLong},
	{"asked by a signal: failed, failed again, then saved", testSaveAfterFailures},
	{"asked by a signal: killed meanwhile", testSaveKilled},
	{"asked by a signal: all processes get it", testSaveReachesAll},
	{"asked by a command: saved, and the next run is told", testSavedByCommand},
	{"asked by a command: failed", testSaveCommandFails},
	{"asked by a command: out of time", testSaveCommandTakesTooLong},
}

// Times that jobs have to save themselves: plenty, and too little.
const (
	plentyToSave = 20 * time.Second
	littleToSave = 2 * time.Second
)

// saveScript is a job's script that writes a line when it begins, its ALLOTMENT_RESTARTED, and
// one when it is asked to save itself. TRAP is what it does then; it ends with 0 when its
// gate opens. The first arguments are those of gateScript.
const saveScript = `asked() { echo asked >>"$1.asked"; }
TRAP
echo "${ALLOTMENT_RESTARTED-unset}" >>"$1.runs"; while [ ! -e "$1" ]; do sleep 0.05; done; exit 0`

// saver is a job that does this when it is asked by SIGUSR1: commands of a shell; "": no
// more than what the signal does to any process.
func (s *suite) saver(g gate, then string) backends.Spec {
	spec := s.job(g, 1)
	trap := ""
	if then != "" {
		trap = `trap 'asked "$1"; ` + then + `' USR1`
	}
	spec.Command[2] = strings.Replace(saveScript, "TRAP", trap, 1)
	return spec
}

// runSaver runs a job and returns when its script has begun.
func (s *suite) runSaver(g gate, then string) backends.Job {
	s.Helper()
	s.need(!s.NoProcesses, "run processes")
	id := s.running(s.saver(g, then))
	s.awaitLines(string(g)+".runs", "unset")
	return s.queryJob(id)
}

// told is what a run writes that follows one which saved itself.
func (s *suite) told() string {
	if s.Untold {
		return "unset"
	}
	return "1"
}

// awaitLines waits until a file that jobs write to has just these lines.
func (s *suite) awaitLines(path string, lines ...string) {
	s.Helper()
	want := strings.Join(lines, "\n") + "\n"
	s.await(fmt.Sprintf("%s to be %q", path, want), func() (bool, string) {
		got, err := os.ReadFile(path)
		return err == nil && string(got) == want, fmt.Sprintf("%q, %v", got, err)
	})
}

// askToSave requeues a job's run with a checkpoint.
func (s *suite) askToSave(j backends.Job, save backends.Checkpoint) {
	s.Helper()
	s.awaitNewStart(j)
	s.must("requeue with a checkpoint", s.Backend.Requeue(s.ctx, []backends.Act{{ID: j.ID, Started: j.Started, Save: save, Mark: "r1"}}))
}

// awaitNextRun waits until a job that was asked to save itself runs again, and checks how
// the queue judged it.
func (s *suite) awaitNextRun(was backends.Job, failedSaves int) backends.Job {
	s.Helper()
	j := s.awaitJob(was.ID, "its next run", func(j backends.Job) bool {
		return j.State.Ended() || j.State == backends.Running && j.Requeues == was.Requeues+1 && !j.Ending
	})
	if j.State.Ended() || j.FailedSaves != failedSaves {
		s.Fatalf("job %+v, want it to run again with %d failed checkpoints", j, failedSaves)
	}
	return j
}

// finishSaver opens a job's gate and waits for its end.
func (s *suite) finishSaver(g gate, id backends.ID) {
	s.Helper()
	s.open(g)
	s.awaitState(id, backends.Done)
}

func bySignal(wait time.Duration) backends.Checkpoint {
	return backends.Checkpoint{Signal: "SIGUSR1", Wait: wait}
}

func (s *suite) needSignal() {
	s.Helper()
	s.need(s.able.SavesBySignal, "ask a job by a signal to save itself")
}

func testSaved(s *suite) {
	s.needSignal()
	g := s.newGate()
	was := s.runSaver(g, "exit "+strconv.Itoa(backends.ExitSaved))
	began := time.Now()
	s.askToSave(was, bySignal(plentyToSave))
	s.awaitNextRun(was, 0)
	s.awaitLines(string(g)+".runs", "unset", s.told())
	if took := time.Since(began); s.Patience <= 2*plentyToSave && took > plentyToSave {
		s.Errorf("its next run came after %v: a job that has saved itself need not wait until its %v are over", took, plentyToSave)
	}
	s.awaitLines(string(g)+".asked", "asked")
	s.finishSaver(g, was.ID)
}

func testSaveFinishes(s *suite) {
	s.needSignal()
	g := s.newGate()
	was := s.runSaver(g, "exit 0")
	s.askToSave(was, bySignal(plentyToSave))
	if j := s.awaitEnd(was.ID); j.State != backends.Done || j.ExitCode != 0 {
		s.Errorf("job %+v, want it done: it ended with 0", j)
	}
	s.awaitEnd(s.submitOne(s.short(1))) // the queue has looked at its jobs since
	if j := s.queryJob(was.ID); j.State != backends.Done {
		s.Errorf("job %+v, want it to stay done", j)
	}
	s.awaitLines(string(g)+".runs", "unset")
}

func testSaveFails(s *suite) {
	s.needSignal()
	for what, then := range map[string]string{"dead of the signal": "", "another status": "exit 3"} {
		g := s.newGate()
		was := s.runSaver(g, then)
		s.askToSave(was, bySignal(plentyToSave))
		s.Log(what)
		s.awaitNextRun(was, 1)
		s.awaitLines(string(g)+".runs", "unset", "unset")
		s.finishSaver(g, was.ID)
	}
}

func testSaveTakesTooLong(s *suite) {
	s.needSignal()
	g := s.newGate()
	was := s.runSaver(g, ":")
	began := time.Now()
	s.askToSave(was, bySignal(littleToSave))
	s.awaitLines(string(g)+".asked", "asked")
	s.awaitNextRun(was, 1)
	if took := time.Since(began); took < littleToSave-100*time.Millisecond {
		s.Errorf("it had %v to save itself, want %v", took, littleToSave)
	}
	s.awaitLines(string(g)+".runs", "unset", "unset")
	s.finishSaver(g, was.ID)
}

// The count of failures is of those in a row, and a run after one has no state to go on from.
func testSaveAfterFailures(s *suite) {
	s.needSignal()
	g := s.newGate()
	was := s.runSaver(g, `test "$(wc -l <"$1.asked")" -gt 2 || exit 3; exit `+strconv.Itoa(backends.ExitSaved))
	lines := []string{"unset"}
	for _, failed := range []int{1, 2, 0} {
		s.askToSave(was, bySignal(plentyToSave))
		was = s.awaitNextRun(was, failed)
		lines = append(lines, "unset")
		if failed == 0 {
			lines[len(lines)-1] = s.told()
		}
		s.awaitLines(string(g)+".runs", lines...)
	}
	s.must("requeue without a checkpoint", s.Backend.Requeue(s.ctx, []backends.Act{{ID: was.ID}}))
	s.awaitNextRun(was, 0)
	s.awaitLines(string(g)+".runs", append(lines, "unset")...)
	s.finishSaver(g, was.ID)
}

func testSaveKilled(s *suite) {
	s.needSignal()
	g := s.newGate()
	was := s.runSaver(g, ":")
	s.askToSave(was, bySignal(plentyToSave))
	s.awaitLines(string(g)+".asked", "asked")
	s.must("kill", s.Backend.Kill(s.ctx, []backends.ID{was.ID}))
	s.awaitState(was.ID, backends.Exited)
	s.awaitLines(string(g)+".runs", "unset")
}

// The shell does nothing about the signal; the process that it waits for says that it has saved.
func testSaveReachesAll(s *suite) {
	s.needSignal()
	g := s.newGate()
	spec := s.saver(g, "exit "+strconv.Itoa(backends.ExitSaved))
	spec.Command = append([]string{"/bin/sh", "-c", `trap : USR1; /bin/sh -c "$0" "$@"; exit $?`}, spec.Command[2:]...)
	s.need(!s.NoProcesses, "run processes")
	id := s.running(spec)
	s.awaitLines(string(g)+".runs", "unset")
	was := s.queryJob(id)
	s.askToSave(was, bySignal(plentyToSave))
	s.awaitNextRun(was, 0)
	s.awaitLines(string(g)+".asked", "asked")
	s.finishSaver(g, id)
}

// saveCommand writes a program that writes a line beside a gate and does this.
func (s *suite) saveCommand(g gate, then string, wait time.Duration) backends.Checkpoint {
	s.Helper()
	path := string(g) + ".save"
	script := "#!/bin/sh\necho asked >>" + string(g) + ".asked\n" + then + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		s.Fatalf("write a program: %v", err)
	}
	return backends.Checkpoint{Command: path, Wait: wait}
}

func (s *suite) needCommand() {
	s.Helper()
	s.need(s.able.SavesByCommand, "save a job by a command")
}

func testSavedByCommand(s *suite) {
	s.needCommand()
	g := s.newGate()
	was := s.runSaver(g, "")
	s.askToSave(was, s.saveCommand(g, "exit 0", plentyToSave))
	s.awaitNextRun(was, 0)
	s.awaitLines(string(g)+".runs", "unset", s.told())
	s.awaitLines(string(g)+".asked", "asked")
	s.finishSaver(g, was.ID)
}

func testSaveCommandFails(s *suite) {
	s.needCommand()
	g := s.newGate()
	was := s.runSaver(g, "")
	s.askToSave(was, s.saveCommand(g, "exit 1", plentyToSave))
	s.awaitNextRun(was, 1)
	s.awaitLines(string(g)+".runs", "unset", "unset")
	s.awaitLines(string(g)+".asked", "asked")
	s.finishSaver(g, was.ID)
}

func testSaveCommandTakesTooLong(s *suite) {
	s.needCommand()
	g := s.newGate()
	was := s.runSaver(g, "")
	s.askToSave(was, s.saveCommand(g, "exec sleep 1000", littleToSave))
	s.awaitNextRun(was, 1)
	s.awaitLines(string(g)+".runs", "unset", "unset")
	s.finishSaver(g, was.ID)
}
