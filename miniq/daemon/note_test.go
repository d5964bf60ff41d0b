package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// noteSome has a job note things, and returns them.
func (s *server) noteSome(id backends.ID) (f backends.Attachment, settings map[string]string) {
	s.t.Helper()
	able := s.client.Abilities()
	f = backends.Attachment{Name: "result.bin", Executable: true, Data: []byte("\x00caf\xe9\n")}
	settings = map[string]string{"phase": "caf\xe9 \x1b[31m", "progress": "40 step 3 of 7"}
	for _, err := range []error{
		able.Set(s.t.Context(), id, "phase", "first"),
		able.Set(s.t.Context(), id, "phase", settings["phase"]),
		able.Set(s.t.Context(), id, "progress", settings["progress"]),
		able.Attach(s.t.Context(), id, f),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return f, settings
}

func (s *server) checkNotes(when string, id backends.ID, want backends.Attachment, settings map[string]string) {
	s.t.Helper()
	able := s.client.Abilities()
	got, err := able.Attached(s.t.Context(), id, want.Name)
	if err != nil || got.Name != want.Name || got.Executable != want.Executable || !bytes.Equal(got.Data, want.Data) {
		s.t.Errorf("%s: file %+v, %v", when, got, err)
	}
	r, err := able.Record(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	read := map[string]string{}
	for _, one := range r.Settings {
		read[one.Key] = one.Value
	}
	if fmt.Sprint(read) != fmt.Sprint(settings) || len(r.Files) != 1 || r.Files[0].Size != int64(len(want.Data)) {
		s.t.Errorf("%s: settings %q and files %+v, want %q", when, read, r.Files, settings)
	}
	jobs, err := s.client.Jobs(s.t.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 || jobs[0].Progress != settings["progress"] {
		s.t.Errorf("%s: jobs %+v, %v", when, jobs, err)
	}
}

// What a job notes is there again after the queue's end, from its journal alone and from a
// state that was written since.
func TestNotes(t *testing.T) {
	s := serve(t, t.TempDir(), nil)
	array := s.held()
	array.Array = &backends.Array{Indices: []int{1, 2}}
	ids := s.submit(s.held(), array)
	ids[1].Index = 2 // it has no object of its own yet
	for _, id := range ids {
		f, settings := s.noteSome(id)
		s.checkNotes("at once", id, f, settings)
		for _, j := range s.listJobs() { // from the journal
			if j.ID == id && j.Progress != settings["progress"] {
				t.Errorf("after a crash: progress %q", j.Progress)
			}
		}
		if _, err := s.client.Compact(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.checkNotes("compacted", id, f, settings)
		for _, j := range s.listJobs() { // from the state
			if j.ID == id && j.Progress != settings["progress"] {
				t.Errorf("after a crash, compacted: progress %q", j.Progress)
			}
		}
	}
	found, err := Check(t.Context(), miniq.StateDir(s.o.Paths), false)
	if err != nil || len(found.Findings) != 0 {
		t.Errorf("findings %+v, %v", found, err)
	}
	able := s.client.Abilities()
	if err := s.client.Release(t.Context(), ids[:1]).First(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.WaitEnded(t.Context(), ids[:1]); err != nil {
		t.Fatal(err)
	}
	if err := able.Set(t.Context(), ids[0], "late", "1"); !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("after the end: %v", err)
	}
	s.checkNotes("ended", ids[0], backends.Attachment{Name: "result.bin", Executable: true, Data: []byte("\x00caf\xe9\n")}, map[string]string{"phase": "caf\xe9 \x1b[31m", "progress": "40 step 3 of 7"})
	if _, err := able.Attached(t.Context(), ids[0], "other"); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A journal whose end no object has is followed.
func TestNotesAreReplayed(t *testing.T) {
	dir := t.TempDir()
	o := options(t, dir)
	d, err := recoverDaemon(o, miniq.StateDir(o.Paths))
	if err != nil {
		t.Fatal(err)
	}
	ann := manager.By{User: "ann"}
	id := backends.ID{Job: 1}
	d.process([]input{
		{event: manager.Submit{By: ann, Specs: []backends.Spec{{Slots: 1, Hold: true}}}, bodies: []body{{Command: []string{"true"}}}},
		{event: manager.Note{By: ann, ID: id, File: "f", Data: []byte("data")}},
		{event: manager.Note{By: ann, ID: id, Key: "k", Value: "v"}},
		{event: manager.Note{By: manager.By{User: "bob"}, ID: id, Key: "k", Value: "not bob's"}},
	})
	pending := newPendingChanges()
	d.objects.Close()
	again := newDaemon(o, miniq.StateDir(o.Paths))
	again.Disk, again.objects = d.Disk, pending
	if err := again.recover(); err != nil {
		t.Fatal(err)
	}
	var attached []byte
	var set string
	for _, c := range pending.changes[id] {
		if c.Attach != nil {
			attached = c.Attach.Data
		}
		if c.Set != nil {
			set = c.Set.Value
		}
	}
	if string(attached) != "data" || set != "v" {
		t.Errorf("replayed: file %q, setting %q", attached, set)
	}
	_, _ = d.journal.f.Close(), again.journal.f.Close()
}

// Bounds are kept, with an error that says which.
func TestNotesAreBounded(t *testing.T) {
	s := serve(t, t.TempDir(), nil)
	id := s.submit(s.held())[0]
	able := s.client.Abilities()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"key":      {able.Set(t.Context(), id, "../x", "1"), "no name of a setting"},
		"value":    {able.Set(t.Context(), id, "k", strings.Repeat("x", state.MaxValue+1)), "takes no more"},
		"progress": {able.Set(t.Context(), id, "progress", "101"), "no progress"},
		"file":     {able.Attach(t.Context(), id, backends.Attachment{Name: "f", Data: make([]byte, state.MaxFile+1)}), "takes no more"},
		"name":     {able.Attach(t.Context(), id, backends.Attachment{Name: "/etc/passwd"}), "no name of a file"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	if err := able.Set(t.Context(), id, "progress", "40 "+strings.Repeat("é", 200)); err != nil {
		t.Fatal(err)
	}
	jobs, err := s.client.Jobs(t.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 || len(jobs[0].Progress) != state.MaxBrief-1 {
		t.Errorf("%v, %v; want %d bytes of progress", jobs, err, state.MaxBrief-1)
	}
}

func TestNoting(t *testing.T) {
	var n noting
	now := time.Now()
	a, b := backends.ID{Job: 1}, backends.ID{Job: 2}
	taken := 0
	for n.acquire(now, a) {
		taken++
	}
	if taken != noteBurst || !n.acquire(now, b) {
		t.Errorf("%d at once, want %d, of each job for itself", taken, noteBurst)
	}
	now = now.Add(time.Second)
	for taken = 0; n.acquire(now, a); {
		taken++
	}
	if taken != notesPerSecond {
		t.Errorf("%d after a second, want %d", taken, notesPerSecond)
	}
	for i := range 20_000 {
		n.acquire(now.Add(time.Duration(i)*time.Second), backends.ID{Job: int64(i)})
	}
	if len(n.jobs) > 10_001 {
		t.Errorf("%d jobs are kept", len(n.jobs))
	}
}
