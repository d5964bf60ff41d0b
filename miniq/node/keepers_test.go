package node

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// TestMain makes the test binary be keepers and nodes, too.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "miniq-keeper":
		status := keeper.Run()
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(status), 0, 0) // without what the race detector waits for
	case "a-node":
		if err := Main(Options{Dir: os.Args[1], Keeper: "/proc/self/exe", Log: slog.New(slog.DiscardHandler)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	keeper.CloseOnExecFrom(3) // as the daemon does: what runs the tests may have left some open
	os.Exit(m.Run())
}

// testNode is a node process that a test talks to.
type testNode struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	conn net.Conn
	in   *bufio.Reader
	work string // where jobs run
}

func startNode(t *testing.T, dir string, runs ...RunID) *testNode {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "node"), os.NewFile(uintptr(pair[1]), "daemon")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Args = []string{"a-node", dir}
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	n := &testNode{t: t, dir: dir, cmd: cmd, conn: conn, in: bufio.NewReader(conn), work: t.TempDir()}
	t.Cleanup(func() { _, _ = conn.Close(), cmd.Wait() })
	var a Attach
	for _, r := range runs {
		a.Runs = append(a.Runs, Expected{Run: r, Confirmed: true})
	}
	n.send(Command{Attach: &a})
	return n
}

func (n *testNode) send(c Command) {
	n.t.Helper()
	frame, err := c.Append(nil)
	if err == nil {
		_, err = n.conn.Write(frame)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// nextReport returns the next report of a run other than Started.
func (n *testNode) nextReport() Report {
	n.t.Helper()
	for {
		var r Report
		if err := miniq.ReadFrame(n.in, &r); err != nil {
			n.t.Fatal(err)
		}
		if r.Kind != Started && r.Kind != Attached {
			return r
		}
	}
}

func id(job int) RunID { return RunID{ID: backends.ID{Job: int64(job)}, Run: 1} }

// start orders a run of a script in n.work; the mask is its umask.
func (n *testNode) start(job int, script string, mask uint32, env ...string) {
	n.t.Helper()
	n.send(Command{Start: &Start{Run: id(job), Order: encoded(n.t, keeper.Order{
		Argv: []string{"/bin/sh", "-c", script}, Env: append(env, "PATH="+os.Getenv("PATH")),
		Dir: n.work, Umask: mask, Stdout: strconv.Itoa(job),
	})}})
}

func (n *testNode) output(job int) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.work, strconv.Itoa(job)))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

// awaitEnd awaits the end of a run.
func (n *testNode) awaitEnd(job, code int) {
	n.t.Helper()
	if r := n.nextReport(); r.Kind != Ended || r.Run != id(job) || r.End.Code != code {
		n.t.Fatalf("reported was %+v (%+v), want that run %s ended with %d", r, r.End, id(job), code)
	}
}

func (n *testNode) record(job int) *keeper.Record {
	n.t.Helper()
	r, err := keeper.ReadRecord(RecordPath(n.dir, id(job)))
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// awaitBegun waits until a run has a process and returns its record.
func (n *testNode) awaitBegun(job int) *keeper.Record {
	n.t.Helper()
	var r *keeper.Record
	eventually(n.t, "a run begins", func() bool {
		var err error
		r, err = keeper.ReadRecord(RecordPath(n.dir, id(job)))
		return err == nil && r.Job.PID != 0
	})
	return r
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not so: %s", what)
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || len(text) == 0
}

// Short jobs share keepers. None sees anything of the one before: its directory,
// umask, environment, files.
func TestKeepersAreReused(t *testing.T) {
	const runs = 25
	n := startNode(t, t.TempDir())
	keepers, held := map[proc.Process]int{}, map[string]bool{}
	for job := 1; job <= runs; job++ {
		n.work = t.TempDir()
		mask, mine := uint32(job%8), fmt.Sprintf("V%d=x", job)
		n.start(job, `umask; pwd; echo /proc/$$/fd/*; readlink /proc/$PPID/fd/* | sed 's/:.*//'; env | grep ^V`, mask, mine)
		n.awaitEnd(job, 0)
		lines := strings.Split(strings.TrimSpace(n.output(job)), "\n")
		r := n.record(job)
		if _, used := keepers[r.Keeper]; used && r.Before.User+r.Before.System == 0 {
			t.Errorf("run %d does not say what its keeper's earlier runs used", job)
		}
		keepers[r.Keeper]++
		self := fmt.Sprintf("/proc/%d/fd/", r.Job.PID)
		if lines[0] != fmt.Sprintf("%04o", mask) || lines[1] != n.work || lines[2] != self+"0 "+self+"1 "+self+"2 "+self+"3" { // 3 is that directory
			t.Errorf("run %d sees %q, want umask %o, directory %s, no more than its own files", job, lines[:3], mask, n.work)
		}
		if own := lines[len(lines)-1]; own != mine || strings.HasPrefix(lines[len(lines)-2], "V") {
			t.Errorf("run %d has the environment of others: %q", job, lines)
		}
		files := slices.DeleteFunc(lines[3:len(lines)-1], func(l string) bool { return !strings.HasPrefix(l, "/") })
		if len(files) > 8 { // /dev/null, the record, the job's three, what the runtime reads of its control group
			t.Errorf("run %d: its keeper holds %q", job, files)
		}
		held[strings.Join(files[:3], " ")] = true
		n.send(Command{Forget: &RunID{ID: id(job).ID, Run: 1}})
	}
	if len(keepers) > runs*2/3 {
		t.Errorf("%d runs had %d keepers", runs, len(keepers))
	}
	if len(held) != 1 {
		t.Errorf("keepers hold different files: %v", held)
	}
}

// A keeper that is killed while it is idle costs nothing but, at most, a start that is
// tried again.
func TestIdleKeeperIsKilled(t *testing.T) {
	n := startNode(t, t.TempDir())
	for job := 1; job < 21; job += 2 {
		n.start(job, "exit 3", 0o22)
		n.awaitEnd(job, 3)
		_ = syscall.Kill(n.record(job).Keeper.PID, syscall.SIGKILL)
		if job > 10 {
			eventually(t, "the keeper is gone", func() bool { return gone(n.record(job).Keeper.PID) })
		}
		n.start(job+1, "exit 4", 0o22)
		if r := n.nextReport(); r.Run != id(job+1) || (r.Kind != Ended || r.End.Code != 4) && (r.Kind != Failed || !r.Again) {
			t.Fatalf("reported was %+v", r)
		}
	}
}

// One that is killed while it has a run takes that with it, as any other.
func TestReusedKeeperIsKilled(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, "exit 3", 0o22)
	n.awaitEnd(1, 3)
	n.start(2, "sleep 1000 & wait", 0o22)
	r := n.awaitBegun(2)
	_ = syscall.Kill(r.Keeper.PID, syscall.SIGKILL)
	if got := n.nextReport(); got.Kind != Lost || got.Run != id(2) {
		t.Errorf("reported was %+v, want that run 2 is lost", got)
	}
	if !gone(r.Job.PID) {
		t.Error("its process is there")
	}
}

// A run that ended before it was to be killed did so by itself; one that obeyed the
// signal did not, whatever its status is.
func TestEndSaysIfRunEndedItself(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.start(1, "exit 0", 0o22)
	n.start(2, "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done", 0o22)
	if r := n.nextReport(); r.Kind != Ended || r.Run != id(1) || !r.End.Self {
		t.Errorf("reported was %+v (%+v), want that run 1 ended by itself", r, r.End)
	}
	eventually(t, "the second one is up", func() bool {
		data, err := os.ReadFile(filepath.Join(n.work, "2"))
		return err == nil && string(data) == "up\n"
	})
	n.send(Command{Want: &Want{Run: id(2), Verb: keeper.Kill, Grace: time.Hour}})
	if r := n.nextReport(); r.Kind != Ended || r.Run != id(2) || r.End.Code != 0 || r.End.Self {
		t.Errorf("reported was %+v (%+v), want that run 2 was ended, with status 0", r, r.End)
	}
}

// A run that has ended when it is to be killed has ended by itself, though its keeper was slow
// to see that.
func TestEndBeforeKillIsSeenLate(t *testing.T) {
	const runs = 10
	for _, grace := range []time.Duration{0, time.Hour} {
		n := startNode(t, t.TempDir())
		var keepers, jobs [runs + 1]int
		for job := 1; job <= runs; job++ {
			n.start(job, "while ! test -e go; do sleep 0.02; done", 0o22)
		}
		for job := 1; job <= runs; job++ {
			r := n.awaitBegun(job)
			keepers[job], jobs[job] = r.Keeper.PID, r.Job.PID
			n.send(Command{Want: &Want{Run: id(job), Verb: keeper.Note, Text: "heard"}})
			eventually(t, "its keeper does what is wanted", func() bool { return strings.Contains(n.output(job), "heard") })
			_ = syscall.Kill(keepers[job], syscall.SIGSTOP)
		}
		if err := os.WriteFile(filepath.Join(n.work, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for job := 1; job <= runs; job++ {
			eventually(t, "the job has ended", func() bool { return gone(jobs[job]) })
			n.send(Command{Want: &Want{Run: id(job), Verb: keeper.Kill, Grace: grace}})
			_ = syscall.Kill(keepers[job], syscall.SIGCONT)
		}
		for range runs {
			if r := n.nextReport(); r.Kind != Ended || r.End.Code != 0 || !r.End.Self {
				t.Errorf("grace %v: reported was %+v (%+v), want that it ended by itself", grace, r, r.End)
			}
		}
	}
}

// What was wanted of a run that is over does nothing to the next one of its keeper.
func TestLateWishesAreDropped(t *testing.T) {
	n := startNode(t, t.TempDir())
	const waits = `while ! test -e go; do sleep 0.02; done; exit 7`
	for job := 1; job < 9; job += 2 {
		n.start(job, "exit 3", 0o22)
		n.awaitEnd(job, 3)
		_ = os.Remove(filepath.Join(n.work, "go"))
		n.start(job+1, waits, 0o22)
		for _, verb := range []keeper.Verb{keeper.Kill, keeper.Stop} {
			n.send(Command{Want: &Want{Run: id(job), Verb: verb}})
		}
		r := n.awaitBegun(job + 1)
		_ = syscall.Kill(r.Keeper.PID, syscall.SIGUSR1)
		if job > 4 { // its own wishes reach it
			n.send(Command{Want: &Want{Run: id(job + 1), Verb: keeper.Kill}})
			n.awaitEnd(job+1, 128+int(syscall.SIGKILL))
			continue
		}
		if err := os.WriteFile(filepath.Join(n.work, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.awaitEnd(job+1, 7)
	}
}

// When the node is killed, keepers without a run end at once, others with theirs;
// the next node learns of every end.
func TestIdleKeepersEndWithNode(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(1, `while ! test -e go; do sleep 0.02; done; exit 7`, 0o22)
	busy := n.awaitBegun(1).Keeper.PID
	n.start(2, "exit 3", 0o22)
	n.awaitEnd(2, 3)
	idle := n.record(2).Keeper.PID
	n.start(3, "exit 5", 0o22)
	_ = n.cmd.Process.Kill()
	eventually(t, "the idle keeper ends", func() bool { return gone(idle) })
	if gone(busy) {
		t.Fatal("the other one is gone, too")
	}
	next := startNode(t, dir, id(1), id(2))
	next.awaitEnd(2, 3)
	if err := os.WriteFile(filepath.Join(n.work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // run 3 may have begun, or not
		if r := next.nextReport(); r.Run == id(1) {
			if r.Kind != Ended || r.End.Code != 7 {
				t.Errorf("reported was %+v", r)
			}
			break
		}
	}
	eventually(t, "the keeper ends with its run", func() bool { return gone(busy) })
}

// Idle keepers end.
func TestIdleKeepersEndAfterAWhile(t *testing.T) {
	n := startNode(t, t.TempDir())
	for job := 1; job <= 4; job++ {
		n.start(job, "exit 3", 0o22)
	}
	for range 4 {
		n.nextReport()
	}
	for job := 1; job <= 4; job++ {
		eventually(t, "an idle keeper ends", func() bool { return gone(n.record(job).Keeper.PID) })
	}
	n.start(5, "exit 4", 0o22)
	n.awaitEnd(5, 4)
}
