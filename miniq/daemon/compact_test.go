package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// What ended longer ago than it is kept goes, with its state object; the journal
// is shortened; nothing else is lost: by a daemon that serves, and without one.
func TestCompact(t *testing.T) {
	for name, serving := range map[string]bool{"served": true, "stopped": false} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, t.TempDir(), nil)
			state := filepath.Join(s.o.Paths.State, "miniq")
			held := s.submit(s.held(), s.held())
			array := s.spec("exit 0")
			array.Array = &backends.Array{Indices: []int{1, 2, 3}}
			ended := s.submit(array, s.spec("exit 2"))
			if _, err := s.client.WaitEnded(t.Context(), ended); err != nil {
				t.Fatal(err)
			}
			if c, err := s.client.Compact(t.Context(), nil); err != nil || c.Forgotten != 0 || c.Objects != 0 || c.Journal == 0 {
				t.Errorf("what is kept for a week: %+v, %v; want a shorter journal alone", c, err)
			}
			if _, err := Compact(s.o, nil); !errors.Is(err, ErrServing) {
				t.Errorf("compacting what is served: %v, want %v", err, ErrServing)
			}
			if err := s.client.Kill(t.Context(), held[:1]).First(); err != nil { // in the journal
				t.Fatal(err)
			}
			var c *miniq.Compacted
			var err error
			if serving {
				c, err = s.client.Compact(t.Context(), new(time.Duration))
			} else {
				noRuns(t, state)
				_, state = copyState(t, state)
				o := options(t, filepath.Dir(state))
				c, err = Compact(o, new(time.Duration))
			}
			if err != nil || c.Forgotten != 5 || c.Objects < 5*4096 || c.Journal == 0 || c.Left == 0 {
				t.Errorf("compacted %+v, %v; want 5 jobs and their objects gone", c, err)
			}
			found, err := Check(t.Context(), state, false)
			if err != nil || len(found.Findings) != 0 || found.Jobs != 1 || found.Objects != 1 {
				t.Errorf("after it: %+v, %v; want one job and its object", found, err)
			}
			names, err := segments(state)
			if err != nil || len(names) != 1 {
				t.Errorf("segments %q, %v; want one", names, err)
			}
			if info, err := os.Stat(filepath.Join(state, names[0])); err != nil || info.Size() != 0 {
				t.Errorf("segment %v, %v; want it empty", info.Size(), err)
			}
			if id := s.submit(s.held())[0]; serving && id.Job != 5 {
				t.Errorf("the next job is %v, want 5: numbers are not given again", id)
			}
		})
	}
}

// noRuns waits until the nodes have removed the records of runs that ended.
func noRuns(t *testing.T, state string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // no event of the queue reports it
		left, err := filepath.Glob(filepath.Join(state, "nodes", "*", "runs", "*.run"))
		if err == nil && len(left) == 0 {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("runs that are left: %q, %v", left, err)
		}
	}
}

// The journal may become longer where the state is larger, before it is shortened.
func TestCompactAt(t *testing.T) {
	s := serve(t, t.TempDir(), nil)
	s.submit(s.held(), s.held())
	s.stop()
	d, err := recoverDaemon(s.o, miniq.StateDir(s.o.Paths))
	if err != nil {
		t.Fatal(err)
	}
	defer d.objects.Close()
	info, err := os.Stat(filepath.Join(d.state, snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	if at := d.compactAt(); at <= compactSize || at > compactSize+info.Size() {
		t.Errorf("it is shortened at %d bytes, with a state of about %d", at, info.Size())
	}
}

// A short journal that ends many jobs is shortened as a long one is: each of them is replayed.
func TestCompactByNumber(t *testing.T) {
	const jobs = 1000
	d := newDisk()
	s := serve(t, t.TempDir(), func(o *Options) { o.CompactAt, o.Disk = jobs*noteSize, d })
	first, err := segments(miniq.StateDir(s.o.Paths))
	if err != nil {
		t.Fatal(err)
	}
	array := s.held()
	array.Array = &backends.Array{}
	for i := range jobs + 1 {
		array.Array.Indices = append(array.Array.Indices, i+1)
	}
	if err := s.client.Kill(t.Context(), s.submit(array)).First(); err != nil {
		t.Fatal(err)
	}
	d.awaitRemoval(first[0])
}

// What is asked for in the midst of a batch is done when the batch is over: the journal's
// segment that goes may hold the rest of it.
func TestShorteningKeepsTheRestOfTheBatch(t *testing.T) {
	dir := t.TempDir()
	o := options(t, dir)
	state := miniq.StateDir(o.Paths)
	d, err := recoverDaemon(o, state)
	if err != nil {
		t.Fatal(err)
	}
	submit := input{
		event:  manager.Submit{By: manager.By{User: "ann"}, Specs: []backends.Spec{{Slots: 1}}},
		bodies: []body{{Command: []string{"true"}}},
	}
	saved := make(chan error, 1)
	d.process([]input{submit, {do: func() { d.compact(func(err error) { saved <- err }) }}, submit})
	for waits := true; waits; {
		select {
		case err := <-saved:
			if err != nil {
				t.Fatal(err)
			}
			waits = false
		case in := <-d.inputs:
			d.process([]input{in})
		}
	}
	d.objects.Close()
	_ = d.journal.f.Close()
	again, err := recoverDaemon(o, state)
	if err != nil {
		t.Fatal(err)
	}
	defer again.objects.Close()
	if n := len(again.m.Snapshot(time.Now(), time.Time{}).Jobs); n != 2 {
		t.Errorf("%d jobs are left, want 2", n)
	}
}
