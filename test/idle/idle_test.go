package idle

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/farm"
	"github.com/allotment-hpc/allotment/test/programs"
)

const (
	watched = 10 * time.Second
	pending = 1000
	running = 4

	// allowed is how many calls all processes together may make in that time: the
	// runtime's own, such as its collector's after the work before. A timer that fires
	// once a second would make more.
	allowed = 8

	// napping is how the runtime's monitor waits while a goroutine runs (sysmon in runtime/proc.go). One wake
	// has the more of them the longer the goroutine waits for a processor of a busy machine.
	napping = "nanosleep({tv_sec=0, tv_nsec=20000}"
)

// In an idle queue with a thousand pending jobs no process wakes up: neither the daemon
// nor the nodes nor the keepers of running jobs.
func TestIdleQueueDoesNotWake(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("skipped: no strace here")
	}
	if err := exec.CommandContext(t.Context(), strace, "-o", os.DevNull, "true").Run(); err != nil {
		t.Skipf("skipped: strace may not trace here: %v", err)
	}
	dir := programs.Build(t)
	home := farm.New(t, farm.Options{Programs: dir, Config: fmt.Sprintf("miniq: {nodes: [\"n1:%d:4G\", \"n2:1:1G\"]}\n", running)}).Home
	fill(t, home)
	awaitIdle(t, func() []int { return processes(home, dir) })
	pids := processes(home, dir)
	if len(pids) != 1+2+running+1 {
		t.Fatalf("processes %v; want a daemon, two nodes and %d keepers", pids, running+1)
	}
	calls := slices.DeleteFunc(trace(t, strace, pids), func(call string) bool { return strings.Contains(call, napping) })
	t.Logf("%d calls in %s by %d processes", len(calls), watched, len(pids))
	if len(calls) > allowed {
		t.Errorf("%d calls in %s, want at most %d:\n%s", len(calls), watched, allowed, strings.Join(calls, "\n"))
	}
}

// fill submits jobs that run for long, one that ends, and jobs that wait: for slots, for
// another job, for their owner and for a time.
func fill(t *testing.T, dir string) {
	t.Helper()
	paths, err := home.Find(func(name string) string { return map[string]string{"ALLOTMENT_HOME": dir}[name] }, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	q := client.Open(client.Options{Paths: paths, Config: miniq.DefaultConfig()})
	defer q.Close()
	job := backends.Spec{Name: "x", Slots: 1, Command: []string{"/bin/sleep", "1000"}, Dir: "/", Stdout: os.DevNull}
	specs := make([]backends.Spec, 0, pending+running+2)
	short := job
	short.Command = []string{"/bin/true"}
	specs = append(specs, short)
	for range running + 1 {
		specs = append(specs, job)
	}
	for i := range pending {
		waits := job
		switch i % 10 {
		case 0:
			waits.Hold = true
		case 1:
			waits.After = "ended(2)"
		case 2:
			waits.BeginTime = time.Now().Add(time.Hour)
		}
		specs = append(specs, waits)
	}
	var ids []backends.ID
	for _, r := range q.Submit(t.Context(), specs) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		ids = append(ids, r.ID)
	}
	if _, err := q.WaitEnded(t.Context(), ids[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := await.Jobs(t.Context(), q, ids[1:running+2], await.In(backends.Running)); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Record(t.Context(), ids[0]); err != nil { // all that is written in the background is written
		t.Fatal(err)
	}
}

// processes returns the queue's processes: those with a program of a directory that have
// the home in their command line, environment or open files.
func processes(home, bin string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		program, _ := os.Readlink(dir + "/exe")
		if filepath.Dir(program) != bin {
			continue
		}
		env, _ := os.ReadFile(dir + "/environ")
		line, _ := os.ReadFile(dir + "/cmdline")
		record, _ := os.Readlink(dir + "/fd/3")
		if strings.Contains(string(env)+string(line)+record, home) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// awaitIdle returns when the processes have not been on a processor for a while:
// what they had to do after the last request is done.
func awaitIdle(t *testing.T, pids func() []int) {
	t.Helper()
	const quiet = 3 * time.Second
	last, since := "", time.Now()
	for deadline := time.Now().Add(time.Minute); time.Since(since) < quiet; time.Sleep(100 * time.Millisecond) {
		if now := switches(pids()); now != last {
			last, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			t.Logf("after a minute they still work")
			return
		}
	}
}

// switches returns how often each thread of the processes has been on a processor.
func switches(pids []int) string {
	var all strings.Builder
	counts := regexp.MustCompile(`(?m)^(non)?voluntary_ctxt_switches:.*$`)
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, task := range tasks {
			status, _ := os.ReadFile(task)
			for _, line := range counts.FindAll(status, -1) {
				all.Write(line)
			}
		}
	}
	return all.String()
}

// trace returns the system calls that begin while it watches.
func trace(t *testing.T, strace string, pids []int) []string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "strace")
	args := []string{"-f", "-tt", "-o", out}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.CommandContext(context.Background(), strace, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for attached := 0; attached < len(pids) && lines.Scan(); {
		if strings.Contains(lines.Text(), "attached") {
			attached++
		}
	}
	time.Sleep(watched) // the time of the experiment
	_ = cmd.Process.Signal(syscall.SIGINT)
	for lines.Scan() {
		_ = lines.Text()
	}
	_ = cmd.Wait()
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return calls(data)
}

// calls returns the lines of strace's output that begin a call, without the first one of
// each thread, in which it was waiting already.
func calls(data []byte) []string {
	begins := regexp.MustCompile(`^\d+ +[0-9:.]+ [a-z0-9_]+\(`)
	waited := make(map[string]bool)
	var all []string
	for line := range bytes.Lines(data) {
		thread, _, _ := strings.Cut(string(line), " ")
		if begins.Match(line) && waited[thread] {
			all = append(all, strings.TrimSpace(string(line)))
		}
		waited[thread] = true
	}
	return all
}
