package state

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
)

func open(t *testing.T, dir string, log *bytes.Buffer) *Writer {
	t.Helper()
	w, err := NewWriter(disk.OS(), dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.pause = 0
	w.Start()
	return w
}

func flush(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string, id backends.ID) *backends.Record {
	t.Helper()
	r, err := Read(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hostile returns a Spec whose texts are hard to store: quotes, control bytes, SQL.
func hostile() backends.Spec {
	text := "a 'b' \"c\"\n\x1b[31m\x00\xff\xfe; DROP TABLE spec; --"
	return backends.Spec{
		Name: text, Project: "chipA:synthesis", Queue: "normal", Description: text, Priority: 3020, Slots: 3, Memory: 5 << 30, OneHost: true, PerHost: 2, Select: text, Same: []string{"rack", text},
		Hosts: []string{"n1", "n2"}, Command: []string{"/bin/echo", text, ""}, Dir: "/tmp/\xff", Env: []string{"A=1", "B=" + text}, Umask: 0o27,
		Stdin: text, Stdout: "%J.out", Stderr: text, Truncate: backends.Truncate{Stderr: true}, RunLimit: time.Hour,
		BeginTime: time.Unix(1e9, 17).UTC(), HeldUntil: time.Unix(2e9, 3).UTC(), Hold: true, NoRequeue: true, Rerunnable: true, Interactive: true, Exclusive: true, After: "done(1)", PreExec: text, PostExec: "true", Mail: backends.Mail{Begin: true, To: "ann"}, Notify: text, Group: text,
	}
}

func TestObjectRoundTrip(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	at := time.Unix(1.7e9, 5).UTC()
	id := backends.ID{Job: 12}
	script := backends.ID{Job: 13}
	w.Put(Change{ID: id, Seq: 1, At: at, Submit: &Submission{Owner: Owner{User: "alice"}, Spec: hostile()}, Event: "submitted"})
	w.Put(Change{ID: script, Seq: 2, At: at, Submit: &Submission{Owner: Owner{User: "bob"}, Spec: backends.Spec{Script: []byte("#!/bin/sh\n\x00\xff")}}})
	flush(t, w)
	for range 2 { // the same again, as after a crash
		w.Put(Change{ID: id, Seq: 3, At: at, RunNo: 1, Event: "started", Detail: "on n1", Begin: &Begin{Host: "n1"}})
		w.Put(Change{ID: id, Seq: 4, At: at, RunNo: 1, Event: "ended", End: &End{ExitCode: 3, At: at, User: time.Second, MaxRSS: 4096}})
	}
	flush(t, w)
	r := read(t, dir, id)
	if diff := cmp.Diff(hostile(), r.Spec); diff != "" {
		t.Errorf("spec:\n%s", diff)
	}
	if got := read(t, dir, script).Spec.Script; string(got) != "#!/bin/sh\n\x00\xff" {
		t.Errorf("script %q", got)
	}
	runs := []backends.RunRecord{{Run: 1, Host: "n1", Started: at, Ended: at, ExitCode: 3, User: time.Second, MaxRSS: 4096}}
	if diff := cmp.Diff(runs, r.Runs); diff != "" {
		t.Errorf("results:\n%s", diff)
	}
	if len(r.History) != 3 || r.History[1].Detail != "on n1" {
		t.Errorf("history %+v, want three lines", r.History)
	}
	w.Mark(4)
	if w.Durable() != 4 {
		t.Errorf("durable up to %d, want 4", w.Durable())
	}
}

func TestSQLiteShellOpensObject(t *testing.T) {
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("skipped: no sqlite3 shell here")
	}
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	id := backends.ID{Job: 7}
	w.Put(Change{ID: id, Seq: 1, At: time.Now(), Submit: &Submission{Owner: Owner{User: "alice"}, Spec: backends.Spec{Command: []string{"true"}}}, Event: "submitted"})
	flush(t, w)
	out, err := exec.Command(shell, Path(dir, id), "PRAGMA integrity_check; SELECT value FROM spec WHERE key = 'command'; SELECT event FROM history").CombinedOutput()
	if err != nil || string(out) != "ok\ntrue\nsubmitted\n" {
		t.Errorf("sqlite3 says %q, %v", out, err)
	}
	if info, err := os.Stat(Path(dir, id)); err != nil || info.Mode().Perm() != 0o600 || info.Size() > 8<<10 {
		t.Errorf("object %v, %v; want mode 0600 and a few KiB", info, err)
	}
}

func TestElementBeginsAsItsArray(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	array, element := backends.ID{Job: 5}, backends.ID{Job: 5, Index: 3}
	spec := backends.Spec{Name: "sweep", Command: []string{"true"}, Array: &backends.Array{Indices: []int{1, 3, 9}, Limit: 2}}
	w.Put(Change{ID: element, Seq: 2, At: time.Now(), Event: "started"})
	w.Put(Change{ID: array, Seq: 1, At: time.Now(), Submit: &Submission{Owner: Owner{User: "alice"}, Spec: spec}, Event: "submitted"})
	flush(t, w)
	if r := read(t, dir, element); r.Spec.Name != "sweep" || r.Spec.Array != nil || len(r.History) != 1 {
		t.Errorf("element %+v, want its array's specification and its own history", r)
	}
	if r := read(t, dir, array); !cmp.Equal(r.Spec.Array, spec.Array) || len(r.History) != 1 {
		t.Errorf("array %+v", r)
	}
	if r := read(t, dir, backends.ID{Job: 5, Index: 9}); r.Spec.Name != "sweep" {
		t.Errorf("an element without an object of its own reads %+v", r)
	}
}

// What elements have in common is in their array's object alone.
func TestElementsDoNotRepeatTheirArray(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	spec := hostile()
	spec.Command, spec.Script = nil, bytes.Repeat([]byte("x"), 1<<20)
	spec.Array = &backends.Array{Indices: []int{1, 2, 3}, Limit: 2}
	w.Put(Change{ID: backends.ID{Job: 5}, Seq: 1, At: time.Now(), Submit: &Submission{Owner: Owner{User: "alice", UID: "7"}, Spec: spec}, Event: "submitted"})
	for _, index := range spec.Array.Indices {
		w.Put(Change{ID: backends.ID{Job: 5, Index: index}, Seq: 2, At: time.Now(), RunNo: 1, Event: "start", Begin: &Begin{Host: "n1"}})
	}
	flush(t, w)
	want := spec
	want.Array = nil
	for _, index := range spec.Array.Indices {
		id := backends.ID{Job: 5, Index: index}
		if info, err := os.Stat(Path(dir, id)); err != nil || info.Size() > 8<<10 {
			t.Errorf("element %v takes %d bytes, %v; want a few KiB", id, info.Size(), err)
		}
		r := read(t, dir, id)
		if diff := cmp.Diff(want, r.Spec); diff != "" || len(r.History) != 1 || len(r.Runs) != 1 {
			t.Errorf("element %v has the history %+v, the runs %+v and the specification\n%s", id, r.History, r.Runs, diff)
		}
		if owner, err := ReadOwner(dir, id); err != nil || owner.User != "alice" || owner.UID != "7" {
			t.Errorf("element %v belongs to %+v, %v", id, owner, err)
		}
	}
	if err := os.Remove(Path(dir, backends.ID{Job: 5})); err != nil {
		t.Fatal(err)
	}
	if r := read(t, dir, backends.ID{Job: 5, Index: 2}); r.Spec.Script != nil || len(r.Runs) != 1 {
		t.Errorf("without its array's object an element reads %d bytes of script and %d runs, want 0 and 1", len(r.Spec.Script), len(r.Runs))
	}
}

// fullDisk is a disk that has room for a new file after one was removed.
type fullDisk struct {
	disk.Disk
	room atomic.Bool
}

func (d *fullDisk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if flag&os.O_CREATE != 0 && !d.room.Load() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	return d.Disk.OpenFile(path, flag, mode)
}

func (d *fullDisk) Remove(path string) error {
	err := d.Disk.Remove(path)
	if err == nil {
		d.room.Store(true)
	}
	return err
}

// On a disk without an inode left objects are removed before others are written.
func TestRemovalGoesFirst(t *testing.T) {
	dir, log := t.TempDir(), new(bytes.Buffer)
	d := &fullDisk{Disk: disk.OS()}
	d.room.Store(true)
	w, err := NewWriter(d, dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.pause = 0
	w.Start()
	defer w.Close()
	old, late := backends.ID{Job: 1}, backends.ID{Job: 2}
	w.Put(Change{ID: old, Seq: 1, At: time.Now(), Submit: &Submission{Spec: backends.Spec{Command: []string{"true"}}}})
	flush(t, w)
	d.room.Store(false)
	w.Put(Change{ID: old, Seq: 2, At: time.Now(), Event: "kill"})
	w.Put(Change{ID: late, Seq: 3, At: time.Now(), Submit: &Submission{Spec: backends.Spec{Command: []string{"true"}}}})
	if err := w.Flush(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("without room: %v", err)
	}
	w.Remove(old)
	flush(t, w)
	if _, err := os.Stat(Path(dir, old)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed object: %v, want none", err)
	}
	read(t, dir, late)
}

// countingDisk is a disk that counts how often each directory is synced.
type countingDisk struct {
	disk.Disk
	mu    sync.Mutex
	syncs map[string]int
}

func (d *countingDisk) SyncDir(path string) error {
	d.mu.Lock()
	d.syncs[path]++
	d.mu.Unlock()
	return d.Disk.SyncDir(path)
}

// The removal of many objects syncs the directory of those that they left empty once.
func TestRemovalSyncsOnce(t *testing.T) {
	dir := t.TempDir()
	d := &countingDisk{Disk: disk.OS(), syncs: map[string]int{}}
	w, err := NewWriter(d, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var ids []backends.ID
	for n := range int64(20) {
		id := backends.ID{Job: n * perDir}
		ids = append(ids, id)
		if err := os.MkdirAll(filepath.Dir(Path(dir, id)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(Path(dir, id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Remove(ids...)
	w.Start()
	defer w.Close()
	flush(t, w)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || d.syncs[dir] != 1 {
		t.Errorf("%d directories are left, %v, after %d syncs; want none after one", len(left), err, d.syncs[dir])
	}
}

// A daemon's stop does not wait until thousands of objects are written: the journal
// has what they lack.
func TestCloseIsBounded(t *testing.T) {
	for patience, durable := range map[time.Duration]uint64{-time.Second: 0, time.Hour: 7} {
		w := open(t, t.TempDir(), new(bytes.Buffer))
		w.mu.Lock()
		w.pause, w.patience = time.Hour, patience
		w.mu.Unlock()
		w.Put(Change{ID: backends.ID{Job: 1}, Seq: 7, Submit: &Submission{Owner: Owner{User: "alice"}, Spec: backends.Spec{Command: []string{"true"}}}})
		w.Mark(7)
		w.Close()
		if got := w.Durable(); got != durable {
			t.Errorf("with a patience of %v everything up to %d is durable, want %d", patience, got, durable)
		}
	}
}

func TestDamagedObjectIsSetAside(t *testing.T) {
	dir, log := t.TempDir(), new(bytes.Buffer)
	w := open(t, dir, log)
	ids := []backends.ID{{Job: 1}, {Job: 2}}
	for i, id := range ids {
		w.Put(Change{ID: id, Seq: uint64(i + 1), At: time.Now(), Submit: &Submission{Spec: backends.Spec{Name: "x", Command: []string{"true"}}}})
	}
	flush(t, w)
	data, _ := os.ReadFile(Path(dir, ids[0]))
	for i := 20; i < len(data); i++ {
		data[i] ^= 0x5a
	}
	if err := os.WriteFile(Path(dir, ids[0]), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, ids[0]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("reading a damaged object: %v, want %v", err, ErrCorrupt)
	}
	for i, id := range ids {
		w.Put(Change{ID: id, Seq: uint64(i + 3), At: time.Now(), Event: "ended"})
	}
	flush(t, w)
	w.Close()
	if r := read(t, dir, ids[1]); len(r.History) != 1 {
		t.Errorf("the sound object's history is %+v, want one line", r.History)
	}
	if !strings.Contains(log.String(), "set aside") {
		t.Errorf("the log does not mention it: %s", log)
	}
}

func BenchmarkWriter(b *testing.B) {
	dir := b.TempDir()
	w, err := NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	w.Start()
	defer w.Close()
	env := make([]string, 20)
	for i := range env {
		env[i] = "VARIABLE_" + strconv.Itoa(i) + "=" + strings.Repeat("v", 40)
	}
	for i := range b.N {
		id := backends.ID{Job: int64(i + 1)}
		w.Put(Change{ID: id, Seq: uint64(i), At: time.Now(), Submit: &Submission{Owner: Owner{User: "u"}, Spec: backends.Spec{Name: "x", Command: []string{"true"}, Env: env}}})
		w.Put(Change{ID: id, Seq: uint64(i), N: 1, At: time.Now(), RunNo: 1, Event: "started", Begin: &Begin{Host: "n1"}})
		w.Put(Change{ID: id, Seq: uint64(i), N: 2, At: time.Now(), RunNo: 1, Event: "ended", End: &End{}})
	}
	if err := w.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// A damaged byte anywhere in an array's object keeps no other object from being
// written, its elements' included.
func TestDamagedArrayIsSetAside(t *testing.T) {
	dir, log := t.TempDir(), new(bytes.Buffer)
	w := open(t, dir, log)
	defer w.Close()
	array := backends.ID{Job: 1}
	spec := backends.Spec{Name: "sweep", Command: []string{"true"}, Array: &backends.Array{Indices: []int{1, 2, 3}}}
	w.Put(Change{ID: array, Seq: 1, At: time.Now(), Submit: &Submission{Owner: Owner{User: "alice"}, Spec: spec}, Event: "submitted"})
	flush(t, w)
	sound, err := os.ReadFile(Path(dir, array))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(sound); at += 31 {
		damaged := bytes.Clone(sound)
		damaged[at] ^= 0xa5
		if err := os.WriteFile(Path(dir, array), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		id := backends.ID{Job: 1, Index: at + 1}
		w.Put(Change{ID: id, Seq: 2, At: time.Now(), RunNo: 1, Event: "start", Begin: &Begin{Host: "n1"}})
		w.Put(Change{ID: id, Seq: 3, At: time.Now(), RunNo: 1, Event: "done", End: &End{}})
		flush(t, w)
		if _, err := os.Stat(Path(dir, id)); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}
