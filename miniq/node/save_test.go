package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// saver is a job that writes a file when it is asked, and ends with a status: "": it goes on.
func saver(then string) string {
	return `trap 'echo asked >>asked; ` + then + `' USR1; echo up >up; while :; do sleep 0.05; done`
}

// awaitText waits until a file where jobs run holds a text.
func (n *testNode) awaitText(name, want string) {
	n.t.Helper()
	eventually(n.t, name+" holds "+want, func() bool {
		got, err := os.ReadFile(filepath.Join(n.work, name))
		return err == nil && string(got) == want
	})
}

func (n *testNode) askBySignal(job int, wait time.Duration) {
	n.t.Helper()
	n.send(Command{Want: &Want{Run: id(job), Verb: keeper.Kill, Grace: wait, Signal: syscall.SIGUSR1}})
}

// program writes a program where jobs run and returns its path.
func (n *testNode) program(script string) string {
	n.t.Helper()
	path := filepath.Join(n.work, "save it")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *testNode) askByCommand(job int, script string, wait time.Duration) {
	n.t.Helper()
	n.send(Command{Want: &Want{Run: id(job), Verb: keeper.Kill, Grace: wait, Text: n.program(script)}})
}

// awaitSave awaits the end of a run that was asked to save itself.
func (n *testNode) awaitSave(job, code int, saved bool, text string) keeper.End {
	n.t.Helper()
	r := n.nextReport()
	if r.Kind != Ended || r.Run != id(job) || r.End.Code != code || !r.End.Asked || r.End.Saved != saved || !strings.Contains(r.End.Text, text) {
		n.t.Fatalf("reported was %+v (%+v), want that run %s was asked, and ended with %d, saved %v, %q", r, r.End, id(job), code, saved, text)
	}
	return *r.End
}

func (n *testNode) within(wait time.Duration, do func()) {
	n.t.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > wait {
		n.t.Errorf("it took %v, more than %v", took, wait)
	}
}

const plenty = 5 * time.Minute

// R33: all processes of the job get the signal; what its first process has left behind is not
// waited for when that says that it has saved its work.
func TestSaveBySignal(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, `(trap '' TERM; trap 'echo child >child' USR1; while :; do sleep 0.05; done) & `+saver("sleep 0.2; exit 85"), 0o22)
	n.awaitUp(1)
	n.within(plenty/2, func() {
		n.askBySignal(1, plenty)
		if e := n.awaitSave(1, 85, false, ""); e.Self {
			t.Errorf("the end %+v says that it ended by itself", e)
		}
	})
	n.awaitText("asked", "asked\n")
	n.awaitText("child", "child\n")
}

// Programs that the handler of the signal starts, to save the work, do not get it: they would die.
func TestSaversChildrenAreSpared(t *testing.T) { // R33
	n := startNode(t, t.TempDir())
	n.start(1, `trap 'for i in 0 1 2 3 4 5 6 7 8 9; do sleep 0.02 || exit 3; done; exit 85' USR1; echo up >up; sleep 1000 & wait`, 0o22)
	n.awaitUp(1)
	n.askBySignal(1, plenty)
	n.awaitSave(1, 85, false, "")
}

// One that finishes instead ends with its own status, and one that does nothing has all its time.
func TestSaveBySignalOtherEnds(t *testing.T) {
	for then, c := range map[string]struct {
		code int
		wait time.Duration
	}{"exit 0": {0, plenty}, "exit 3": {3, plenty}, "": {137, time.Second}} {
		n := startNode(t, t.TempDir())
		n.start(1, saver(then), 0o22)
		n.awaitUp(1)
		began := time.Now()
		n.askBySignal(1, c.wait)
		n.awaitSave(1, c.code, false, "")
		if c.code == 137 && time.Since(began) < c.wait {
			t.Errorf("it had %v", time.Since(began))
		}
		n.awaitText("asked", "asked\n")
	}
}

// A job that is stopped is continued: else it could not save anything.
func TestStoppedJobSaves(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, saver("exit 85"), 0o22)
	n.awaitUp(1)
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Stop}})
	if r := n.nextReport(); r.Kind != Stopped {
		t.Fatalf("reported was %+v", r)
	}
	n.askBySignal(1, plenty)
	n.awaitSave(1, 85, false, "")
}

// A kill ends a job that saves itself: SIGTERM, and SIGKILL after its own grace.
func TestKillDuringSave(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, `trap 'exit 9' TERM; `+saver(""), 0o22)
	n.awaitUp(1)
	n.askBySignal(1, plenty)
	n.awaitText("asked", "asked\n")
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill, Grace: plenty / 2}})
	n.awaitSave(1, 9, false, "")
}

// A node that takes over asks once more, as it can't know more; the job is asked once, and
// its time ends as it would have.
func TestSaveSurvivesNode(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(1, saver(""), 0o22)
	n.start(2, `trap 'echo asked >>asked2; sleep 0.5; exit 85' USR1; echo up >up2; while :; do sleep 0.05; done`, 0o22)
	n.awaitUp(1)
	n.awaitText("up2", "up\n")
	n.askBySignal(1, 2*time.Second)
	n.askBySignal(2, plenty)
	n.awaitText("asked", "asked\n")
	_ = n.cmd.Process.Kill()
	next := startNode(t, dir, id(1), id(2))
	next.within(plenty/2, func() {
		next.askBySignal(1, plenty)
		next.askBySignal(2, plenty)
		codes := map[RunID]int{}
		for range 2 {
			r := next.nextReport()
			if r.Kind != Ended || !r.End.Asked {
				t.Fatalf("reported was %+v", r)
			}
			codes[r.Run] = r.End.Code
		}
		if codes[id(1)] != 137 || codes[id(2)] != 85 {
			t.Errorf("they ended with %v", codes)
		}
	})
	for _, name := range []string{"asked", "asked2"} {
		n.awaitText(name, "asked\n")
	}
}

// The command runs where the job does, with its environment and umask; what it writes is in the
// job's output. When it has ended the job does, whatever of it is left.
func TestSaveByCommand(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, `trap '' TERM USR1; echo up >up; while :; do sleep 0.05; done`, 0o27, "COLOUR=dark green")
	n.awaitUp(1)
	n.within(plenty/2, func() {
		n.askByCommand(1, `pwd; echo "$COLOUR"; umask; echo "$#"; read x || echo "no input"; echo oops >&2; echo saved >state; sleep 0.3; exit 0`, plenty)
		n.awaitSave(1, 137, true, "")
	})
	if got, want := n.output(1), n.work+"\ndark green\n0027\n0\nno input\noops\n"; got != want {
		t.Errorf("it wrote %q, want %q", got, want)
	}
	n.awaitText("state", "saved\n")
}

func TestSaveByCommandFails(t *testing.T) {
	for script, c := range map[string]struct {
		text string
		wait time.Duration
	}{
		"exit 3":      {"the command that saves it ended with status 3", plenty},
		"kill -9 $$":  {"the command that saves it was ended by signal", plenty},
		"sleep 1000":  {"the command that saves it took too long", time.Second},
		"#no program": {"run ", plenty},
	} {
		n := startNode(t, t.TempDir())
		n.start(1, waits, 0o22)
		n.awaitUp(1)
		if script == "#no program" {
			n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill, Grace: c.wait, Text: "/no/such/program"}})
			if r := n.nextReport(); r.Kind != Ended || r.End.Code != 137 || r.End.Asked || !strings.Contains(r.End.Text, "/no/such/program, which saves it: no such file") {
				t.Errorf("reported was %+v (%+v)", r, r.End)
			}
			continue
		}
		n.askByCommand(1, script, c.wait)
		n.awaitSave(1, 137, false, c.text)
	}
}

// A job that ends by itself while its command runs says so; the command is waited for.
func TestJobEndsWhileCommandSaves(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, `echo up >up; while ! test -e go; do sleep 0.02; done; exit 7`, 0o22)
	n.awaitUp(1)
	n.askByCommand(1, `echo >go; sleep 0.5; exit 0`, plenty)
	if e := n.awaitSave(1, 7, true, ""); !e.Self {
		t.Errorf("the end %+v does not say that it ended by itself", e)
	}
}

// What a job's output blocks is dropped: a pipe that nobody reads delays no save.
func TestSaveCommandWithoutReader(t *testing.T) {
	n := startNode(t, t.TempDir())
	pipe := filepath.Join(n.work, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	n.send(Command{Start: &Start{Run: id(1), Order: encoded(n.t, keeper.Order{
		Argv: []string{"/bin/sh", "-c", waits}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: n.work, Stdout: filepath.Join(n.work, "out"), Stderr: pipe,
	})}})
	n.awaitUp(1)
	pid := n.awaitBegun(1).Job.PID
	_ = reader.Close()
	_ = os.Remove(filepath.Join(n.work, "fd"))
	n.within(plenty/2, func() {
		n.askByCommand(1, `readlink /proc/$$/fd/2 >fd; exit 0`, plenty)
		n.awaitSave(1, 137, true, "")
	})
	n.awaitText("fd", "/dev/null\n")
	if !gone(pid) {
		t.Error("the job's process " + strconv.Itoa(pid) + " is left")
	}
}
