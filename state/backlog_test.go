package state

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
)

// A user who submits jobs faster than their objects are written waits; others don't.
func TestBacklog(t *testing.T) {
	w, err := NewWriter(disk.OS(), t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.pause = 0
	defer w.Close()
	script := bytes.Repeat([]byte("x"), 1<<20)
	n := 0
	for ; n < 1000; n++ {
		over, err := w.Admit(0, "ann", 1)
		if errors.Is(err, ErrBehind) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Put(Change{ID: backends.ID{Job: int64(n + 1)}, Seq: uint64(n + 1), Event: "submitted", Submit: &Submission{Owner: Owner{User: "ann"}, Spec: backends.Spec{Script: script}}})
		over()
	}
	if n < userBacklog>>21 || n > userBacklog>>20 {
		t.Errorf("%d jobs of 1 MiB were accepted that are not written", n)
	}
	for _, user := range []string{"bob", "cid"} {
		if _, err := w.Admit(0, user, 10); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	w.Start()
	if _, err := w.Admit(time.Hour, "ann", 1); err != nil {
		t.Errorf("when they are written: %v", err)
	}
	w.mu.Lock() // the writer looks for more
	defer w.mu.Unlock()
	if len(w.backlog.dirty)+len(w.backlog.writing) != 0 {
		t.Errorf("%v and %v are counted, want nothing", w.backlog.dirty, w.backlog.writing)
	}
}

// Jobs that are on their way count as well.
func TestBacklogOfRequests(t *testing.T) {
	w, err := NewWriter(disk.OS(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	over, err := w.Admit(0, "ann", 2*userBacklog/jobBacklog)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Admit(0, "ann", 1); !errors.Is(err, ErrBehind) {
		t.Errorf("beside a large request: %v, want %v", err, ErrBehind)
	}
	over()
	if _, err := w.Admit(0, "ann", 1); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// What ended before a time and was not written needs no object.
func TestExpire(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(disk.OS(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.pause = 0
	defer w.Close()
	now := time.Now()
	for i, ended := range []time.Time{now.Add(-time.Hour), now, {}} {
		id := backends.ID{Job: int64(i + 1)}
		w.Put(Change{ID: id, Seq: 1, N: 2 * i, At: now, Submit: &Submission{Spec: backends.Spec{Command: []string{"true"}}}})
		if !ended.IsZero() {
			w.Put(Change{ID: id, Seq: 1, N: 2*i + 1, At: now, Final: &backends.Job{ID: id, Ended: ended}})
		}
	}
	w.Expire(now.Add(-time.Minute))
	w.Start()
	flush(t, w)
	for i, want := range []bool{false, true, true} {
		if _, err := os.Stat(Path(dir, backends.ID{Job: int64(i + 1)})); (err == nil) != want {
			t.Errorf("object of job %d: %v, want it there: %v", i+1, err, want)
		}
	}
}
