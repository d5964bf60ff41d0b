package miniq_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/test/await"
)

// A job over a limit ends, all of it, and its record says over which one.
func TestLimitEndsJobWithReason(t *testing.T) {
	q := newQueue(t, setup{})
	const eats = `echo up >>"$1"; head -c 300m /dev/zero | tail | sleep 1000 & wait`
	file := filepath.Join(t.TempDir(), "f")
	memory := q.run(eats, file)
	memory.MemoryLimit = 64 << 20
	quick := q.run(`head -c 300m /dev/zero | tail; sleep 1000`)
	quick.MemoryLimit = 64 << 20
	below := q.run(`head -c 30m /dev/zero | tail | tr -d '\0'`)
	below.MemoryLimit = 128 << 20
	long := q.run("sleep 1000 & wait")
	long.RunLimit = time.Second
	ids := q.submit(memory, quick, long, below)
	want := []string{"over its memory limit", "over its memory limit", "over its run limit of 1s"}
	for i, id := range ids[:3] {
		j := q.awaitState(id, backends.Exited)
		if !strings.Contains(j.Reason, want[i]) || j.ExitCode == 0 {
			t.Errorf("job %v ended with %d: %q, want %q", id, j.ExitCode, j.Reason, want[i])
		}
		r, err := q.Record(t.Context(), id)
		if err != nil || len(r.Runs) != 1 {
			t.Fatalf("record %+v, %v", r, err)
		}
		if i < 2 && (!strings.Contains(r.Runs[0].Why, want[i]) || r.Runs[0].User+r.Runs[0].System == 0) {
			t.Errorf("job %v: run %+v", id, r.Runs[0])
		}
	}
	if j := q.awaitState(ids[3], backends.Done); j.Reason != "" {
		t.Errorf("a job below its limit ended: %q", j.Reason)
	}
	for _, line := range q.processes() {
		if strings.Contains(line, "sleep") || strings.Contains(line, "tail") {
			t.Errorf("left behind: %s", line)
		}
	}
}

// Where the kernel can hold a job to its memory limit, it does, and no control
// group is left behind.
func TestTheKernelHoldsMemoryLimits(t *testing.T) {
	groups, err := keeper.PrepareGroups()
	if err != nil {
		t.Skipf("skip: jobs get no control groups here: %v", err)
	}
	q := newQueue(t, setup{})
	spec := q.run(`cat /proc/self/cgroup; head -c 300m /dev/zero | tail; echo after`)
	spec.MemoryLimit, spec.Stdout = 64<<20, filepath.Join(t.TempDir(), "out")
	id := q.submit(spec)[0]
	if j := q.awaitState(id, backends.Exited); !strings.Contains(j.Reason, "it needed more than 64 MiB") {
		t.Errorf("ended: %q", j.Reason)
	}
	out, err := os.ReadFile(spec.Stdout)
	if err != nil || !strings.Contains(string(out), "/allotment-") {
		t.Errorf("the job was in the groups %q, %v", out, err)
	}
	spec = q.run(`cat /proc/self/cgroup; exec sleep 1000`)
	spec.MemoryLimit, spec.Stdout = 64<<20, filepath.Join(t.TempDir(), "out")
	id = q.submit(spec)[0]
	group := ""
	err = await.File(soon(t), spec.Stdout, func(text string) bool {
		for line := range strings.Lines(text) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), "/allotment-"); ok && strings.HasSuffix(line, "\n") {
				group = filepath.Join(groups, "allotment-"+name)
			}
		}
		return group != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(group), "allotment-"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // the keeper: its node clears up
		t.Fatal(err)
	}
	q.awaitState(id, backends.Exited)
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", group, err)
	}
}

// akill ends what a job has started, however it hides: with a session of its own,
// reparented, stopped, without the environment it was given.
func TestKillFindsHiddenProcesses(t *testing.T) {
	q := newQueue(t, setup{})
	dir := t.TempDir()
	spec := q.run(`cd "$1"
		daemon='trap "" HUP INT; echo $$ >pid.$1; mv pid.$1 up.$1; while :; do sleep 1000; done'
		( setsid sh -c "$daemon" sh forked & )                                    # its parent is gone at once
		( ( setsid env -i /bin/sh -c "$daemon" sh bare & ) & )                    # and of its environment nothing is left
		( setsid setsid sh -c '( setsid sh -c "$1" sh deep & ) & exit' sh "$daemon" & )
		( setsid sh -c 'echo $$ >pid.stopped; mv pid.stopped up.stopped; kill -STOP $$' & )
		wait; exec sleep 1000`, dir)
	id := q.submit(spec)[0]
	pids := q.awaitFiles(dir, "up.*", 4)
	if err := q.Kill(t.Context(), []backends.ID{id}).First(); err != nil {
		t.Fatal(err)
	}
	if j := q.awaitState(id, backends.Exited); j.Reason != "killed" {
		t.Errorf("ended: %q", j.Reason)
	}
	for _, file := range pids {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if proc.StartTime(pid) != 0 {
			t.Errorf("%s is still there: process %d", filepath.Base(file), pid)
		}
	}
}
