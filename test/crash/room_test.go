package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
)

// smallBlocks mounts a file system of 16 MB with blocks of 1 KiB.
func smallBlocks(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(16<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := mountPoint(t)
	for _, argv := range [][]string{{"mkfs.ext4", "-q", "-b", "1024", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skip: no file system can be mounted here: %v: %s", err, out)
		}
	}
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// mountPoint makes a directory with a short name: a socket is in it.
func mountPoint(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

func unmount(t *testing.T, dir string) {
	(&farm{home: dir}).killAll()
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// newFarmIn returns a farm with its state in dir.
func newFarmIn(t *testing.T, bin, dir string) *farm {
	t.Helper()
	t.Setenv("ALLOTMENT_HOME", dir)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	f, err := newFarm(bin, dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// trueJob returns a job that needs no space of its own.
func trueJob() backends.Spec {
	return backends.Spec{Command: []string{"true"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: os.DevNull, Slots: 1}
}

// TestRecordRoom: a run whose record has no room is not executed until there is some.
// The record's first block has no room for all lines of a run.
func TestRecordRoom(t *testing.T) {
	bin := build(t)
	dir := smallBlocks(t)
	f := newFarmIn(t, bin, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const block, before = 1024, 31 // bytes that the block has left
	for _, node := range []string{"n1", "n2"} {
		runs := filepath.Join(dir, "miniq", "nodes", node, "runs")
		if err := os.MkdirAll(runs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(runs, "spare.0"), []byte(strings.Repeat("\n", block-before)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held := trueJob()
	held.Hold = true
	s := f.Submit(ctx, []backends.Spec{held})[0]
	if s.Err != nil {
		t.Fatal(s.Err)
	}
	defer func() { _ = f.stop(context.WithoutCancel(ctx)) }()
	d := tmpfs{dir}
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	ids := []backends.ID{s.ID}
	if err := f.Release(ctx, ids).First(); err != nil {
		t.Fatal(err)
	}
	waits := func(jobs []backends.Job) bool {
		return strings.Contains(jobs[0].Reason, "could not be started") || jobs[0].State.Ended()
	}
	if jobs, err := await.Jobs(ctx, f.Client, ids, waits); err != nil || jobs[0].State.Ended() {
		t.Errorf("on a full disk the job does not wait: %+v, %v", jobs, err)
	}
	if err := d.free(); err != nil {
		t.Fatal(err)
	}
	ended, err := f.WaitEnded(ctx, ids)
	if err != nil || len(ended) != 1 || ended[0].State != backends.Done {
		t.Fatalf("with space again the job ended as %+v, %v; want it done", ended, err)
	}
}

// TestNoInodes: when no file can be made any more, forgetting ended jobs makes room, with
// a daemon and without one.
func TestNoInodes(t *testing.T) {
	bin := build(t)
	for name, serving := range map[string]bool{"served": true, "stopped": false} {
		t.Run(name, func(t *testing.T) {
			dir := mountPoint(t)
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,nr_inodes=400,mode=0700"); err != nil {
				t.Skipf("skip: no file system can be mounted here: %v", err)
			}
			t.Cleanup(func() { unmount(t, dir) })
			noInodes(t, bin, dir, serving)
		})
	}
}

func noInodes(t *testing.T, bin, dir string, serving bool) {
	t.Helper()
	f := newFarmIn(t, bin, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer func() { _ = f.stop(context.WithoutCancel(ctx)) }()
	submit := func(n int, hold bool) []backends.ID {
		t.Helper()
		specs, ids := make([]backends.Spec, n), make([]backends.ID, n)
		for i := range specs {
			specs[i] = trueJob()
			specs[i].Hold = hold
		}
		for i, s := range f.Submit(ctx, specs) {
			if ids[i] = s.ID; s.Err != nil {
				t.Fatal(s.Err)
			}
		}
		return ids
	}
	ids := submit(40, false)
	if _, err := f.WaitEnded(ctx, ids); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Record(ctx, ids[0]); err != nil { // their objects are written
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("filler%d", n)), nil, 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	held := submit(5, true) // only the journal has room for them
	if !serving {
		if err := f.Stop(ctx, false); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "miniqd"), "compact", "--keep", "0s").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Forgot 40 jobs") {
		t.Fatalf("compact: %v: %s", err, out)
	}
	if !serving { // a client starts no daemon that was stopped
		if out, err := exec.CommandContext(ctx, filepath.Join(bin, "miniqd")).CombinedOutput(); err != nil {
			t.Fatalf("miniqd: %v: %s", err, out)
		}
	}
	if err := f.Release(ctx, held).First(); err != nil {
		t.Fatal(err)
	}
	ended, err := f.WaitEnded(ctx, held)
	if err != nil || len(ended) != len(held) {
		t.Fatalf("what was held before: %+v, %v", ended, err)
	}
	for i := range ended {
		if ended[i].State != backends.Done {
			t.Errorf("job %+v, want it done", ended[i])
		}
	}
}
