package manager

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A job's owner and administrators note things of it until it ends, within bounds.
func TestNote(t *testing.T) {
	b := newBench(t, Config{MaxBytes: 10_000}, 1)
	id, waits := b.submit(spec(1)), b.submit(spec(1))
	array := spec(1)
	array.Array = &backends.Array{Indices: []int{1, 2}}
	elements := backends.ID{Job: b.submit(array).Job}
	progress := func(text string) Note {
		return Note{By: user, ID: id, Key: "progress", Value: text, Progress: text}
	}
	b.must(progress("40 step 3 of 7"))
	if got := b.job(id).Progress; got != "40 step 3 of 7" {
		t.Errorf("progress %q", got)
	}
	b.must(progress("50"))
	b.must(Note{By: admin, ID: id, Key: "k", Value: "v"})
	b.must(Note{By: user, ID: waits, Key: "k", Value: "v"})
	b.must(Note{By: user, ID: backends.ID{Job: elements.Job, Index: 2}, Key: "k", Value: "v"})
	if got := b.job(id).Progress + b.job(waits).Progress; got != "50" {
		t.Errorf("progress %q, want that of the first job alone", got)
	}
	for name, c := range map[string]struct {
		e    Note
		want error
	}{
		"another user":   {Note{By: other, ID: id, Key: "k"}, backends.ErrDenied},
		"no such job":    {Note{By: user, ID: backends.ID{Job: 99}, Key: "k"}, backends.ErrUnknownJob},
		"a whole array":  {Note{By: user, ID: elements, Key: "k"}, backends.ErrWrongState},
		"more than held": {Note{By: user, ID: id, File: "f", Data: make([]byte, 10_000)}, backends.ErrDenied},
	} {
		if err := b.m.MayNote(c.e); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for i := range MaxFiles {
		b.must(Note{By: user, ID: id, File: fmt.Sprint("f", i), Data: make([]byte, 100)})
	}
	b.must(Note{By: user, ID: id, File: "f0", Data: make([]byte, 200)})
	if err := b.m.MayNote(Note{By: user, ID: id, File: "one more"}); !errors.Is(err, backends.ErrDenied) {
		t.Errorf("a file too many: %v", err)
	}
	saved, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(saved)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := again.State()
	if err != nil || !bytes.Equal(saved, twice) || again.jobs[id].notes == nil || again.held[user.User] != b.m.held[user.User] {
		t.Errorf("a restored queue has %+v of the job, and %d bytes of its user's, want %d (%v)", again.jobs[id].notes, again.held[user.User], b.m.held[user.User], err)
	}
	b.ends(id, 0)
	if got := b.job(id).Progress; got != "50" {
		t.Errorf("progress %q after the end", got)
	}
	if err := b.m.MayNote(progress("60")); !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("after the end: %v", err)
	}
	b.must(Kill{admin, []backends.ID{waits, elements}})
	if left := b.m.held[user.User]; left != 0 && len(b.m.Runs()) == 0 {
		t.Errorf("%d bytes are left of jobs that have ended", left)
	}
}
