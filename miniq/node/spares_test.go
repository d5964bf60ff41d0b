package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// The file of a record that is done with is the next run's, and says nothing of
// the run before.
func TestRecordsAreReused(t *testing.T) {
	dir := t.TempDir()
	n := &node{Options: Options{Dir: dir}, runs: map[RunID]*run{}}
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.spares.find(filepath.Join(dir, "runs"))
	id := func(job int64) RunID { return RunID{ID: backends.ID{Job: job}, Run: 1} }
	claim := func(n *node, job int64) *run {
		t.Helper()
		r, err := n.claim(id(job))
		if err == nil {
			err = r.reread()
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.begun() || r.job.End != nil || r.job.Run != id(job).String() {
			t.Fatalf("the new record of run %d is %+v", job, r.job)
		}
		return r
	}
	inode := func(job int64) os.FileInfo {
		t.Helper()
		info, err := os.Stat(n.path(id(job), recordSuffix))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := claim(n, 1)
	if _, err := first.record.WriteString("k 100 5\nj 101 6 7\nx 0 1 2 3 4 \"\"\n"); err != nil {
		t.Fatal(err)
	}
	before := inode(1)
	n.forget(id(1))
	second := claim(n, 2)
	if !os.SameFile(before, inode(2)) {
		t.Error("the second run has a file of its own")
	}
	if _, err := second.record.WriteString("k 100 5\n" + strings.Repeat("w stop\n", longSpare/7)); err != nil {
		t.Fatal(err)
	}
	n.forget(id(2))
	claim(n, 6)
	if now := inode(6); !os.SameFile(before, now) || now.Size() > 100 {
		t.Errorf("the third run's file is another one, or has %d bytes", now.Size())
	}
	n.forget(id(6))
	if r, err := n.claim(id(4)); err != nil { // by a node of an earlier version
		t.Fatal(err)
	} else if err := r.record.Truncate(0); err != nil || r.reread() != nil {
		t.Fatal(err)
	}
	n.forget(id(4))
	if _, err := os.Stat(n.path(id(4), recordSuffix)); !errors.Is(err, os.ErrNotExist) || len(n.spares.names) > 0 {
		t.Error("a record that does not say whose it is may be used again")
	}
	claim(n, 5)
	before = inode(5)
	n.forget(id(5))
	next := &node{Options: Options{Dir: dir}, runs: map[RunID]*run{}}
	next.spares.find(filepath.Join(dir, "runs"))
	claim(next, 3)
	if !os.SameFile(before, inode(3)) {
		t.Error("the next node does not find the spare file")
	}
	next.spares.add(next.path(id(9), recordSuffix)) // there is none
	if _, err := next.claim(id(3)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a record that is there is claimed: %v", err)
	}
	if found, err := next.records(); err != nil || len(found) != 1 {
		t.Errorf("records %v, %v", found, err)
	}
}

// When the machine goes down a file may have its new name and its old lines.
func TestLinesOfOtherRunsDontCount(t *testing.T) {
	run := RunID{ID: backends.ID{Job: 7}, Run: 1}
	end := "k 100 5\nj 101 6 7\nx 0 1 2 3 4 \"\"\n"
	for lines, kind := range map[string]Kind{"r 6.0.1\n" + end: Lost, "r 7.0.1\n" + end: Ended, end: Ended} {
		if keeper.ParseRecord([]byte(lines)).End == nil {
			t.Fatal("these lines hold no end")
		}
		dir := t.TempDir()
		record := filepath.Join(dir, "runs", run.String()+recordSuffix)
		if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(record, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		got := talk(t, dir, 2, Command{Attach: &Attach{Runs: []Expected{{Run: run, Confirmed: true, Doubtful: true}}}})
		if got[0].Kind != kind && got[1].Kind != kind {
			t.Errorf("%q: %+v, want %s", lines, got, kind)
		}
	}
}

// A node that is killed when it has given a spare file a run's name, and not yet written
// the run into it, leaves an earlier run's lines. The run is executed once.
func TestInterruptedClaim(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	n.start(6, "exit 3", 0o22)
	n.awaitEnd(6, 3)
	n.send(Command{Forget: &RunID{ID: id(6).ID, Run: 1}})
	spare := filepath.Join(dir, "runs", sparePrefix+"0")
	eventually(t, "the record is kept", func() bool { _, err := os.Stat(spare); return err == nil })
	_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
	if err := os.Rename(spare, RecordPath(dir, id(7))); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, dir, id(7))
	if r := n.nextReport(); r.Kind != Absent {
		t.Fatalf("reported was %+v, want that the run is absent", r)
	}
	n.start(7, "echo began; exit 4", 0o22)
	n.awaitEnd(7, 4)
	_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
	n = startNode(t, dir, id(7))
	n.awaitEnd(7, 4)
	if run := n.record(7).Run; run != id(7).String() {
		t.Errorf("the record is that of run %q", run)
	}
}
