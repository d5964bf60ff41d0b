package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/node"
)

// TestMain makes the test binary be node and keeper too.
func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the nodes
	switch {
	case os.Args[0] == "miniq-keeper":
		exit(keeper.Run())
	case len(os.Args) > 5 && os.Args[1] == "node":
		if err := node.Main(node.Options{Dir: os.Args[5], Keeper: os.Args[7], Log: slog.Default()}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// exit ends a keeper without the second that the race detector sleeps at an end.
func exit(status int) { _, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(status), 0, 0) }

// faulty is a disk whose journal can be made to fail.
type faulty struct {
	disk.Disk
	mu       sync.Mutex
	changed  sync.Cond
	full     bool            // writes take half and fail
	tight    bool            // those that make room ahead do
	bad      bool            // syncs fail
	tried    []byte          // what was written last
	journal  []byte          // what was synced
	removed  map[string]bool // files, by their names
	failures int
}

func newDisk() *faulty {
	d := &faulty{Disk: disk.OS(), removed: map[string]bool{}}
	d.changed.L = &d.mu
	return d
}

func (d *faulty) set(full, bad bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.bad = full, bad
}

// awaitEntry returns when the journal holds an entry of a kind.
func (d *faulty) awaitEntry(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !bytes.Contains(d.journal, strconv.AppendQuote(nil, kind)) {
		d.changed.Wait()
	}
}

// awaitRemoval returns when a file of this name has been removed.
func (d *faulty) awaitRemoval(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.removed[name] {
		d.changed.Wait()
	}
}

func (d *faulty) Remove(path string) error {
	err := d.Disk.Remove(path)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.removed[filepath.Base(path)] = true
		d.changed.Broadcast()
	}
	return err
}

// awaitFailure does something and returns when the disk has failed after it began.
func (d *faulty) awaitFailure(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.failures
	do()
	for d.failures == before {
		d.changed.Wait()
	}
}

// fail counts a failure and wakes those that wait for one, under mu.
func (d *faulty) fail(why syscall.Errno) error {
	d.failures++
	d.changed.Broadcast()
	return why
}

func (d *faulty) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	f, err := disk.OS().OpenFile(path, flag, mode)
	if err != nil || !strings.HasPrefix(filepath.Base(path), segmentPrefix) {
		return f, err
	}
	return &faultyFile{f, d}, nil
}

type faultyFile struct {
	disk.File
	d *faulty
}

func (f *faultyFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	lines := bytes.TrimRight(p, "\x00")
	if f.d.full || f.d.tight && len(lines) < len(p) {
		n, _ := f.File.WriteAt(p[:len(lines)/2], at)
		return n, f.d.fail(syscall.ENOSPC)
	}
	f.d.tried = bytes.Clone(lines)
	return f.File.WriteAt(p, at)
}

func (f *faultyFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.bad {
		return f.d.fail(syscall.EIO)
	}
	f.d.journal = append(f.d.journal, f.d.tried...)
	f.d.changed.Broadcast()
	return f.File.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.full && f.d.bad {
		return f.d.fail(syscall.EIO)
	}
	f.d.tried = nil
	return f.File.Truncate(size)
}

type server struct {
	t      *testing.T
	o      Options
	client *client.Client
	stop   func()
}

// serve runs a daemon in this process.
func serve(t *testing.T, dir string, change func(*Options)) *server {
	t.Helper()
	o := options(t, dir)
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan struct{})
	var ended error
	o.Ready = func() { close(ready) }
	go func() { defer close(over); ended = Run(ctx, o) }()
	select {
	case <-ready:
	case <-over:
		t.Fatalf("the daemon did not start: %v", ended)
	}
	s := &server{t: t, o: o, client: client.Open(client.Options{Paths: o.Paths, Config: o.Config})}
	s.stop = sync.OnceFunc(func() {
		if err := s.client.Stop(t.Context(), true); err != nil && t.Context().Err() == nil {
			t.Errorf("stop: %v", err)
		}
		cancel()
		<-over
		_ = s.client.Close()
	})
	t.Cleanup(func() {
		_ = s.client.Stop(context.Background(), true)
		cancel()
		<-over
	})
	return s
}

func options(t *testing.T, dir string) Options {
	t.Helper()
	c := miniq.DefaultConfig()
	c.Nodes = []miniq.Node{{Name: "n1", Slots: 4}}
	return Options{
		Paths:  home.Paths{State: dir, Runtime: dir, Config: filepath.Join(dir, "config.yaml")},
		Config: c, Program: os.Args[0], Keeper: os.Args[0], Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func (s *server) spec(script string) backends.Spec {
	return backends.Spec{Name: "x", Slots: 1, Command: []string{"/bin/sh", "-c", script}, Dir: s.o.Paths.State, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: "/dev/null"}
}

func (s *server) held() backends.Spec {
	spec := s.spec("exit 0")
	spec.Hold = true
	return spec
}

func (s *server) submit(specs ...backends.Spec) []backends.ID {
	s.t.Helper()
	var ids []backends.ID
	for _, r := range s.client.Submit(s.t.Context(), specs) {
		if r.Err != nil {
			s.t.Fatalf("submit: %v", r.Err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// listJobs returns the jobs that a daemon recovers from a copy of the state as it is
// now, as after a kill -9.
func (s *server) listJobs() []backends.Job {
	s.t.Helper()
	var dir string
	for { // the daemon may rename and remove files meanwhile: a copy that missed one is inconsistent
		dir = s.t.TempDir()
		err := os.CopyFS(dir, os.DirFS(miniq.StateDir(s.o.Paths)))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			s.t.Fatal(err)
		}
	}
	d, err := recoverDaemon(options(s.t, dir), dir)
	if err != nil {
		s.t.Fatal(err)
	}
	d.objects.Close()
	return d.m.Snapshot(time.Now(), time.Time{}).Jobs
}

// A full disk, or one that fails to sync: the request is refused with a clear
// error, nothing of it is done, the daemon lives on, and ends that happened
// meanwhile are kept.
func TestFullDiskRefusesRequests(t *testing.T) {
	for name, fault := range map[string][2]bool{"full": {true, false}, "no sync": {false, true}, "nothing at all works": {true, true}} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			s := serve(t, t.TempDir(), func(o *Options) { o.Disk = d })
			file := filepath.Join(s.o.Paths.State, "gate")
			before := s.submit(s.held(), s.spec("while [ ! -e "+file+" ]; do sleep 0.02; done; exit 3"))
			d.awaitEntry("started") // its end is all that is to come of it
			d.set(fault[0], fault[1])
			r := s.client.Submit(t.Context(), []backends.Spec{s.held()})[0]
			if r.Err == nil || !strings.Contains(r.Err.Error(), "free some space") || r.ID != (backends.ID{}) {
				t.Errorf("a submission on a full disk: %+v", r)
			}
			if err := s.client.Release(t.Context(), before[:1]).First(); err == nil {
				t.Error("a release on a full disk was acknowledged")
			}
			if snapshot, err := s.client.Snapshot(t.Context(), time.Time{}); err != nil || len(snapshot.Jobs) != 2 || snapshot.Jobs[0].State != backends.Held {
				t.Errorf("the queue on a full disk: %+v, %v; want the two jobs, the first held", snapshot, err)
			}
			d.awaitFailure(func() { // the job's end can't be written yet
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			})
			d.set(false, false)
			after := s.submit(s.held())
			jobs, err := s.client.WaitEnded(t.Context(), before[1:])
			if err != nil || jobs[0].ExitCode != 3 {
				t.Errorf("the end that could not be written: %+v, %v; want status 3", jobs, err)
			}
			if got := s.listJobs(); len(got) != 2 || got[0].ID != before[0] || got[1].ID != after[0] {
				t.Errorf("after a restart there are %+v, want jobs %v and %v alone", got, before[0], after[0])
			}
		})
	}
}

// The journal is shortened while the daemon works, and nothing is lost by it.
func TestCompaction(t *testing.T) {
	d := newDisk()
	s := serve(t, t.TempDir(), func(o *Options) { o.CompactAt, o.Disk = 20_000, d })
	var ids []backends.ID
	for range 30 {
		ids = append(ids, s.submit(s.held(), s.held(), s.held())...)
	}
	for _, err := range s.client.Abilities().Move(t.Context(), ids[:30], "low") {
		if err != nil {
			t.Fatal(err)
		}
	}
	d.awaitRemoval(segmentName(1))
	got := s.listJobs()
	moved := 0
	for i := range got {
		if got[i].Queue == "low" {
			moved++
		}
	}
	if len(got) != len(ids) || moved != 30 {
		t.Errorf("%d jobs after a restart, %d of them moved; want %d and 30", len(got), moved, len(ids))
	}
}

// A job's command, environment and script are not in the queue's state; after a
// restart they are read from its state object, where a damaged one harms its
// own job alone.
func TestBodiesComeFromStateObjects(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, nil)
	array, script := s.held(), s.held()
	array.Array = &backends.Array{Indices: []int{1, 3}}
	array.Command = []string{"/bin/sh", "-c", `echo "$LSB_JOBINDEX $A"`}
	array.Env, array.Stdout = append(array.Env, "A=ä\xff"), "out.%J.%I"
	script.Command, script.Script, script.Stdout = nil, []byte("echo script"), "out.%J"
	ids := s.submit(array, script, s.held())
	s.stop()

	damaged := filepath.Join(dir, "miniq", "jobs", "0", "3.db")
	if err := os.WriteFile(damaged, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = serve(t, dir, nil)
	if err := s.client.Release(t.Context(), ids).First(); err != nil {
		t.Fatal(err)
	}
	jobs, err := s.client.WaitEnded(t.Context(), ids)
	if err != nil || len(jobs) != 4 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for name, want := range map[string]string{"out.1.1": "1 ä\xff\n", "out.1.3": "3 ä\xff\n", "out.2": "script\n"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	r, err := s.client.Record(t.Context(), ids[2])
	if err != nil || jobs[3].ExitCode != 126 || !strings.Contains(r.History[len(r.History)-2].Detail, "damaged") {
		t.Errorf("the job whose object is damaged: %+v, %+v, %v; want it ended and a clear reason", jobs[3], r, err)
	}
}

func TestUnreadableStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, nil)
	s.submit(s.held())
	s.stop()
	path := filepath.Join(dir, "miniq", snapshotName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, content := range map[string]string{
		"newer version": strings.Replace(string(good), fmt.Sprintf("allotment-miniq %d ", format), fmt.Sprintf("allotment-miniq %d ", format+1), 1),
		"damaged":       string(good[:len(good)-1]) + "x",
		"is damaged":    "",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Run(t.Context(), options(t, dir))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want %q and the file's name", err, want)
		}
	}
}

func TestOneDaemonPerStateDirectory(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, nil)
	if err := Run(t.Context(), options(t, dir)); !Running(err) {
		t.Errorf("a second daemon: %v, want %v", err, errRunning)
	}
	s.submit(s.held()) // the first one serves on
}

func TestEndedJobsAreForgotten(t *testing.T) {
	s := serve(t, t.TempDir(), nil)
	id := s.submit(s.spec("exit 0"))[0]
	if _, err := s.client.WaitEnded(t.Context(), []backends.ID{id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Record(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = serve(t, s.o.Paths.State, func(o *Options) { o.Config.KeepFinished = 1 })
	s.client = client.Open(client.Options{Paths: s.o.Paths})
	if jobs, err := s.client.Jobs(t.Context(), []backends.ID{id}); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %+v, %v; want it forgotten", jobs, err)
	}
}
