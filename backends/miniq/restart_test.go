package miniq_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
)

// gated is a job that says in FILE that it runs, and ends with a status when
// FILE.go appears. It counts its runs there.
func (q *queue) gated(name string, status int) (spec backends.Spec, file string) {
	file = filepath.Join(filepath.Dir(q.Home), name)
	spec = q.run(`echo run >>"$1"; while [ ! -e "$1.go" ]; do sleep 0.02; done; exit "$2"`, file, strconv.Itoa(status))
	return spec, file
}

func release(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// nodePIDs are the node processes of a queue.
func (q *queue) nodePIDs() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == "node" && strings.Contains(string(line), q.Home+"/") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (q *queue) killNodes() { q.t.Helper(); q.signalNodes(syscall.SIGKILL) }

func (q *queue) signalNodes(s syscall.Signal) {
	q.t.Helper()
	pids := q.nodePIDs()
	if len(pids) == 0 {
		q.t.Fatal("no node found")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
}

// What was acknowledged survives kill -9: every job is there exactly once, and
// running ones end with their own status, also while no daemon served.
func TestRunningJobsAreReadopted(t *testing.T) {
	for name, fault := range map[string]func(q *queue){
		"daemon":         func(q *queue) { q.kill() },
		"nodes, daemon":  func(q *queue) { q.killNodes(); q.kill() },
		"stopped softly": func(q *queue) { _ = q.Stop(context.Background(), false); _ = q.cmd.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, setup{})
			meanwhile, file1 := q.gated("meanwhile", 7)
			after, file2 := q.gated("after", 9)
			stopped, file3 := q.gated("stopped", 0)
			ids := q.submit(meanwhile, after, stopped)
			for _, f := range []string{file1, file2, file3} {
				q.awaitFile(f, "run\n")
			}
			was := q.awaitState(ids[1], backends.Running)
			if err := q.Suspend(t.Context(), []backends.Act{{ID: ids[2], Until: time.Now().Add(time.Hour)}}).First(); err != nil {
				t.Fatal(err)
			}
			q.awaitStopped(file3)
			fault(q)
			release(t, file1)
			release(t, file3) // it is stopped and must not see that
			q.awaitGone(file1)
			q.start()
			if j := q.awaitState(ids[0], backends.Exited); j.ExitCode != 7 {
				t.Errorf("the job that ended without a daemon ended with %d, want 7", j.ExitCode)
			}
			if j := q.awaitState(ids[1], backends.Running); !j.Started.Equal(was.Started) {
				t.Errorf("job %+v, want the same run as before: %+v", j, was)
			}
			if j := q.awaitState(ids[2], backends.Suspended); j.Resuming {
				t.Errorf("suspended job %+v, want it to stay so", j)
			}
			release(t, file2)
			if j := q.awaitState(ids[1], backends.Exited); j.ExitCode != 9 {
				t.Errorf("the re-adopted job ended with %d, want 9", j.ExitCode)
			}
			if err := q.Resume(t.Context(), ids[2:]).First(); err != nil {
				t.Fatal(err)
			}
			q.awaitState(ids[2], backends.Done)
			for _, f := range []string{file1, file2, file3} {
				q.awaitFile(f, "run\n")
			}
		})
	}
}

// processesOf lists what /proc has of the processes with a job's file among their arguments.
func processesOf(file string) (dirs []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if line, _ := os.ReadFile(dir + "/cmdline"); strings.Contains(string(line), "\x00"+file+"\x00") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// awaitStopped waits until a job's processes are stopped.
func (q *queue) awaitStopped(file string) {
	q.t.Helper()
	if !await.Until(soon(q.t), func() bool {
		return slices.ContainsFunc(processesOf(file), func(dir string) bool {
			status, _ := os.ReadFile(dir + "/status")
			return strings.Contains(string(status), "State:\tT")
		})
	}) {
		q.t.Fatalf("the job of %s is not stopped", file)
	}
}

// awaitGone waits until no process has a job's file among its arguments.
func (q *queue) awaitGone(file string) {
	q.t.Helper()
	if !await.Until(soon(q.t), func() bool { return len(processesOf(file)) == 0 }) {
		q.t.Fatalf("the job of %s does not end", file)
	}
}

func TestDeadNodeIsReplaced(t *testing.T) {
	q := newQueue(t, setup{})
	spec, file := q.gated("job", 5)
	id := q.submit(spec)[0]
	q.awaitFile(file, "run\n")
	q.killNodes()
	release(t, file)
	if j := q.awaitState(id, backends.Exited); j.ExitCode != 5 {
		t.Errorf("ended with %d, want 5", j.ExitCode)
	}
	next, file := q.gated("next", 0)
	release(t, file)
	q.awaitState(q.submit(next)[0], backends.Done)
}

func TestRequeueSurvivesRestart(t *testing.T) {
	q := newQueue(t, setup{})
	file := filepath.Join(filepath.Dir(q.Home), "stubborn")
	spec := q.run(`trap "" TERM; echo "$ALLOTMENT_REQUEUES" >>"$1"; while [ ! -e "$1.go" ]; do sleep 0.02; done`, file)
	id := q.submit(spec)[0]
	q.awaitFile(file, "0\n")
	act := backends.Act{ID: id, Started: q.awaitState(id, backends.Running).Started, Grace: 1500 * time.Millisecond, Mark: "r1"}
	if err := q.Requeue(t.Context(), []backends.Act{act}).First(); err != nil {
		t.Fatal(err)
	}
	q.restart()
	if j := q.await(id, "marked", func(j *backends.Job) bool { return j.Mark == "r1" }); j.State.Ended() {
		t.Errorf("job %+v, want it still on its way", j)
	}
	q.awaitFile(file, "0\n1\n")
	release(t, file)
	if j := q.awaitState(id, backends.Done); j.Requeues != 1 {
		t.Errorf("job %+v, want one requeue", j)
	}
}

// A job whose exit status is lost is reported so, and none of its processes is left.
func TestKilledKeeperLosesRun(t *testing.T) {
	q := newQueue(t, setup{})
	dir := filepath.Dir(q.Home)
	script := `echo run >>"$1"; setsid sleep 1000 & (trap "" HUP TERM; sleep 1000) & while [ ! -e "$1.go" ]; do sleep 0.02; done`
	once, again := q.run(script, filepath.Join(dir, "once")), q.run(script, filepath.Join(dir, "again"))
	again.Rerunnable = true
	ids := q.submit(once, again)
	q.awaitFile(filepath.Join(dir, "once"), "run\n")
	q.awaitFile(filepath.Join(dir, "again"), "run\n")
	q.killKeepers()
	if j := q.awaitState(ids[0], backends.Exited); j.ExitCode == 0 || !strings.Contains(j.Reason, "not known") {
		t.Errorf("job %+v, want exit unknown", j)
	}
	q.awaitFile(filepath.Join(dir, "again"), "run\nrun\n")
	release(t, filepath.Join(dir, "again"))
	if j := q.awaitState(ids[1], backends.Done); j.Requeues != 0 {
		t.Logf("rerun counts as %d requeues", j.Requeues)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "once")); string(data) != "run\n" {
		t.Errorf("a job that may not be run again ran %q", data)
	}
	for _, line := range q.processes() {
		if strings.Contains(line, "sleep 1000") {
			t.Errorf("left behind: %s", line)
		}
	}
}

func (q *queue) killKeepers() {
	q.t.Helper()
	killed := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		status, _ := os.ReadFile(dir + "/status")
		if !strings.HasPrefix(string(line), "miniq-keeper\x00") || !q.ownKeeper(dir) || strings.Contains(string(status), "State:\tZ") {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		_ = syscall.Kill(pid, syscall.SIGKILL)
		killed++
	}
	if killed == 0 {
		q.t.Fatal("no keeper found")
	}
}

// ownKeeper reports whether a process has a record of this queue open, as its keepers do.
func (q *queue) ownKeeper(proc string) bool {
	record, _ := os.Readlink(proc + "/fd/3")
	return strings.HasPrefix(record, q.Home+"/")
}

// Each acknowledged job has run exactly once in the end, by what the jobs themselves
// wrote.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	q := newQueue(t, setup{})
	file := filepath.Join(filepath.Dir(q.Home), "ran")
	var ids []backends.ID
	want := make(map[string]bool)
	for round := range 8 {
		failed := make(chan struct{})
		go func() {
			defer close(failed)
			time.Sleep(time.Duration(3+7*round) * time.Millisecond) // anywhere within the submissions
			_ = q.cmd.Process.Kill()
		}()
		for {
			r := q.Submit(t.Context(), []backends.Spec{q.run(`echo "$LSB_JOBID" >>"$1"`, file)})[0]
			if r.Err != nil {
				break
			}
			ids = append(ids, r.ID)
			want[r.ID.String()] = true
		}
		<-failed
		_ = q.cmd.Wait()
		q.start()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs, err := q.WaitEnded(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if jobs[i].State != backends.Done {
			t.Errorf("job %+v, want it done", jobs[i])
		}
	}
	data, _ := os.ReadFile(file)
	seen := make(map[string]int)
	for line := range strings.Lines(string(data)) {
		seen[strings.TrimSpace(line)]++
	}
	for id := range want {
		if seen[id] != 1 {
			t.Errorf("job %s ran %d times", id, seen[id])
		}
	}
	if len(jobs) != len(ids) || len(ids) < 8 {
		t.Errorf("%d of %d acknowledged jobs are known", len(jobs), len(ids))
	}
}

func TestTornJournalIsCut(t *testing.T) {
	q := newQueue(t, setup{})
	spec := q.run("exit 0")
	spec.Hold = true
	ids := q.submit(spec, spec)
	q.kill()
	names, _ := filepath.Glob(q.Home + "/miniq/journal.*")
	f, err := os.OpenFile(names[len(names)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `0123abcd {"q":99,"t":1,"e":`)
	f.Close()
	q.start()
	if !strings.Contains(q.logText(), "cut off") {
		t.Errorf("the log does not mention it:\n%s", q.logText())
	}
	more := q.submit(spec)
	q.restart() // what came after the cut is found again
	for _, id := range append(ids, more...) {
		q.awaitState(id, backends.Held)
	}
}

func TestNodeRemovedFromConfig(t *testing.T) {
	q := newQueue(t, setup{Nodes: []string{"n1:1:1G", "n2:1:1G", "n3:1:1G"}})
	spec, file := q.gated("job", 3)
	spec.Hosts = []string{"n2"}
	id := q.submit(spec)[0]
	q.awaitFile(file, "run\n")
	q.kill()
	q.Nodes = []string{"n1:2:1G"}
	q.start()
	q.awaitState(id, backends.Running)
	if got := q.hosts(); got != "n1:2:ok n2:1:closed" {
		t.Errorf("hosts %s; want the one that is busy closed and the idle one gone", got)
	}
	release(t, file)
	if j := q.awaitState(id, backends.Exited); j.ExitCode != 3 {
		t.Errorf("ended with %d, want 3", j.ExitCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for changes := uint64(0); q.hosts() != "n1:2:ok"; {
		var err error
		if changes, err = q.WaitChange(ctx, changes); err != nil {
			t.Fatalf("hosts %s, want n2 gone with its last job: %v", q.hosts(), err)
		}
	}
}

func (q *queue) hosts() string {
	q.t.Helper()
	snapshot, err := q.Snapshot(context.Background(), time.Time{})
	if err != nil {
		q.t.Fatal(err)
	}
	var texts []string
	for _, h := range snapshot.Hosts {
		texts = append(texts, fmt.Sprintf("%s:%d:%v", h.Name, h.Slots, h.State))
	}
	return strings.Join(texts, " ")
}
