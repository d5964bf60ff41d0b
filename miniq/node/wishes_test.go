package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// peak is the most that a process had in memory, in MiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("process %d: %s", pid, status)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

const bearable = 200 // MiB

// waits is a job that waits until it is killed, and counts a signal.
const waits = `trap 'echo got >>got' USR1; trap '' USR2; echo up >up; while :; do sleep 0.05; done`

// awaitUp awaits that a job of waits has set its traps.
func (n *testNode) awaitUp(job int) *keeper.Record {
	n.t.Helper()
	eventually(n.t, "the job is up", func() bool { _, err := os.Stat(filepath.Join(n.work, "up")); return err == nil })
	return n.awaitBegun(job)
}

// Signals to one job, however many, are gathered: others start, its record stays
// short, a kill is heeded at once, and the last signal arrives.
func TestFloodOfSignals(t *testing.T) {
	const flood = 30_000
	n := startNode(t, t.TempDir())
	n.start(1, waits, 0o22)
	pid := n.awaitUp(1).Keeper.PID
	var frames []byte
	for i := range flood {
		var err error
		signal := []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2}[i%2]
		if frames, err = (Command{Want: &Want{Run: id(1), Verb: keeper.Signal, Signal: signal}}).Append(frames); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	n.start(2, "exit 3", 0o22)
	n.awaitEnd(2, 3)
	info, err := os.Stat(RecordPath(n.dir, id(1)))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > flood { // each signal's line has 10 bytes
		t.Errorf("after %d signals the record has %d bytes", flood, info.Size())
	}
	eventually(t, "the signal arrives", func() bool { got, err := os.ReadFile(filepath.Join(n.work, "got")); return err == nil && len(got) > 0 })
	if mib := peak(t, n.cmd.Process.Pid); mib > bearable {
		t.Errorf("the node took %d MiB", mib)
	}
	if mib := peak(t, pid); mib > bearable {
		t.Errorf("the keeper took %d MiB", mib)
	}
	if _, err := n.conn.Write(frames); err != nil {
		t.Fatal(err)
	}
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill}})
	n.awaitEnd(1, 128+int(syscall.SIGKILL))
}

// A keeper that is signalled all the time for as long as it lives takes a bounded
// part of memory, and is at leisure when that ends.
func TestKeeperMemoryUnderEndlessSignals(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, waits, 0o22)
	r := n.awaitUp(1)
	record, err := os.OpenFile(RecordPath(n.dir, id(1)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	for range 50 { // as a node of an earlier version might: without a pause, and far too much
		if _, err := record.WriteString(strings.Repeat("w sig 12\n", 20_000)); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(r.Keeper.PID, syscall.SIGUSR1)
	}
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill}})
	var mib int
	eventually(t, "the keeper ends", func() bool {
		if !gone(r.Keeper.PID) {
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Keeper.PID)); err == nil && bytes.Contains(status, []byte("VmHWM")) {
				mib = max(mib, peak(t, r.Keeper.PID))
			}
			return false
		}
		return true
	})
	n.awaitEnd(1, 128+int(syscall.SIGKILL))
	if mib > bearable {
		t.Errorf("the keeper took %d MiB", mib)
	}
}

// A node attaches to a run whose record is huge, in bounded memory.
func TestRunWithHugeRecord(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(1, waits, 0o22)
	n.awaitUp(1)
	_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
	if err := os.Truncate(RecordPath(dir, id(1)), 1<<36); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, dir, id(1))
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill}})
	n.awaitEnd(1, 128+int(syscall.SIGKILL))
	if mib := peak(t, n.cmd.Process.Pid); mib > bearable {
		t.Errorf("the node took %d MiB", mib)
	}
}

// Kills are passed at once, others after a pause that grows with the record; past its
// bound signals are dropped, and the queue's own stops are not.
func TestWishesArePassedInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	var w wishes
	popped := func(size int64) string {
		wants, dropped := w.pop(now, size)
		text := ""
		for _, want := range wants {
			text += strings.TrimPrefix(want.Line(), "w ")
		}
		if dropped {
			text += "dropped"
		}
		return strings.ReplaceAll(text, "\n", ",")
	}
	sig := keeper.Want{Verb: keeper.Signal, Signal: 10}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: popped %q, want %q", what, got, want)
		}
	}
	w.Add(sig)
	check("the first one", popped(0), "sig 10,")
	w.Add(sig)
	check("one right after it", popped(0), "")
	w.Add(keeper.Want{Verb: keeper.Kill, Grace: time.Second})
	check("a kill, and what waited", popped(0), "kill 1000,sig 10,")
	w.Add(keeper.Want{Verb: keeper.Kill, Grace: 2 * time.Second})
	check("a kill that is not sooner", popped(0), "")
	now = now.Add(wishPause)
	w.Add(sig)
	check("after the pause", popped(longWish), "sig 10,")
	now = now.Add(wishPause)
	w.Add(sig)
	check("the record is long", popped(longWish), "")
	now = now.Add(wishPause)
	check("the record is long, later", popped(longWish), "sig 10,")
	now = now.Add(time.Hour)
	w.Add(sig)
	w.Add(keeper.Want{Verb: keeper.Note, Text: "x"})
	w.Add(keeper.Want{Verb: keeper.Stop})
	check("the record is as long as any may be", popped(1<<50), "stop,dropped")
	w = wishes{}
	w.Add(keeper.Want{Verb: keeper.Kill})
	check("and it is killed", popped(1<<50), "kill 0,")
}

// hides is a job of which three processes leave session and environment behind.
const hides = `env -i setsid sh -c 'setsid sleep 1000 & echo $! >child; setsid sleep 1001 & echo $! >other; exec sleep 1002' & echo $! >hidden; echo up >up; wait`

// awaitHidden waits until they have, and returns their process IDs.
func (n *testNode) awaitHidden() []int {
	n.t.Helper()
	var pids []int
	for _, name := range []string{"hidden", "child", "other"} {
		eventually(n.t, "it is there", func() bool {
			text, err := os.ReadFile(filepath.Join(n.work, name))
			pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil || err2 != nil {
				return false
			}
			pids = append(pids, pid)
			return true
		})
	}
	eventually(n.t, "their sessions are their own", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			group, err := syscall.Getpgid(pid)
			env, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			return err != nil || group != pid || err2 != nil || bytes.Contains(env, []byte(MarkVariable))
		})
	})
	return pids
}

// awaitLost waits until a run is reported as lost, and checks that none of its processes
// lives.
func (n *testNode) awaitLost(job int, pids []int) {
	n.t.Helper()
	if r := n.nextReport(); r.Kind != Lost || r.Run != id(job) {
		n.t.Errorf("reported was %+v, want that run %d is lost", r, job)
	}
	for _, pid := range pids {
		if !gone(pid) {
			n.t.Errorf("process %d lives while its run is lost", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// What left session and environment behind is found when its keeper was killed:
// the run is not reported as lost, so that its slots are not free, while it lives.
func TestDetachedProcessesAreKilled(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, hides, 0o22)
	r := n.awaitUp(1)
	pids := n.awaitHidden()
	n.start(2, waits, 0o22) // another's
	other := n.awaitBegun(2)
	_ = syscall.Kill(r.Keeper.PID, syscall.SIGKILL)
	n.awaitLost(1, pids)
	if gone(other.Job.PID) {
		t.Error("another job's process was killed")
	}
	n.send(Command{Want: &Want{Run: id(2), Verb: keeper.Kill}})
	n.awaitEnd(2, 128+int(syscall.SIGKILL))
}

// Where jobs have control groups, a later node than that which started the keeper finds
// it, too.
func TestDetachedProcessesAreFoundByGroup(t *testing.T) {
	if _, err := keeper.PrepareGroups(); err != nil {
		t.Skipf("skipped: control groups can't be made here: %v", err)
	}
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(1, hides, 0o22)
	r := n.awaitUp(1)
	pids := n.awaitHidden()
	group := fmt.Sprintf("allotment-%d\n", r.Keeper.PID)
	eventually(t, "they are in their group", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			return err != nil || !bytes.Contains(groups, []byte(group))
		})
	})
	_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
	n = startNode(t, dir, id(1))
	_ = syscall.Kill(r.Keeper.PID, syscall.SIGKILL)
	n.awaitLost(1, pids)
}

// A job's group goes with it.
func TestGroupIsRemovedWithItsJob(t *testing.T) {
	dir, err := keeper.PrepareGroups()
	if err != nil {
		t.Skipf("skipped: control groups can't be made here: %v", err)
	}
	n := startNode(t, t.TempDir())
	n.start(1, waits, 0o22)
	group := filepath.Join(dir, fmt.Sprintf("allotment-%d", n.awaitUp(1).Keeper.PID))
	there := func() bool { _, err := os.Stat(group); return err == nil }
	eventually(t, "it has a group", there)
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill}})
	n.awaitEnd(1, 128+int(syscall.SIGKILL))
	if there() {
		t.Error("its group is there when it has ended")
	}
}

// Wishes that could not be written into a record, on a full disk for instance, are
// written when there is space.
func TestWishesWaitForSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(path, []byte("\nr "+id(1).String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{Options: Options{Log: slog.New(slog.DiscardHandler)}, runs: map[RunID]*run{}, wishTimer: time.NewTimer(time.Hour)}
	r := &run{id: id(1), pidfd: -1}
	n.runs[r.id] = r
	var err error
	if r.record, err = os.Open(path); err != nil { // nothing can be written
		t.Fatal(err)
	}
	n.wish(r, keeper.Want{Verb: keeper.Signal, Signal: 10})
	n.wish(r, keeper.Want{Verb: keeper.Kill, Grace: time.Second})
	if n.wishTime.IsZero() {
		t.Fatal("nothing is scheduled to try again")
	}
	_ = r.record.Close()
	if r.record, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0); err != nil {
		t.Fatal(err)
	}
	defer r.record.Close()
	n.sendAllWishes()
	record, err := keeper.ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []keeper.Want{{Verb: keeper.Kill, Grace: time.Second}, {Verb: keeper.Signal, Signal: 10}}
	if got := record.Wanted.PopAll(); !slices.Equal(got, want) {
		t.Errorf("written was %v, want %v", got, want)
	}
}

// A stop is reported when the job's processes are stopped, and by a later node as well.
func TestStopIsReported(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(1, "echo up >up; exec sleep 60", 0o22)
	pid := n.awaitUp(1).Job.PID
	stopped := func(n *testNode) {
		t.Helper()
		if r := n.nextReport(); r.Kind != Stopped || r.Run != id(1) {
			t.Fatalf("reported was %+v", r)
		}
		eventually(t, "the kernel acts on the signal", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && bytes.Contains(stat, []byte(") T "))
		})
	}
	for range 2 {
		n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Stop}})
		stopped(n)
		n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Continue}})
	}
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Stop}})
	stopped(n)
	_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
	n = startNode(t, dir, id(1))
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Stop}})
	stopped(n)
	n.send(Command{Want: &Want{Run: id(1), Verb: keeper.Kill}})
	n.awaitEnd(1, 128+int(syscall.SIGKILL))
}
