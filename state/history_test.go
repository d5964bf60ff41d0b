package state

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A job that is changed without end has its submission and the last changes in
// its object, which does not grow; nor does what waits to be written.
func TestHistoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, new(bytes.Buffer))
	defer w.Close()
	id, at := backends.ID{Job: 12}, time.Unix(1.7e9, 5).UTC()
	w.Put(Change{ID: id, Seq: 1, At: at, Submit: &Submission{Owner: Owner{User: "alice"}, Spec: backends.Spec{Command: []string{"true"}}}, Event: "submitted"})
	w.Put(Change{ID: id, Seq: 2, At: at, RunNo: 1, Event: "start", Begin: &Begin{Host: "n1"}})
	seq := uint64(3)
	var size int64
	for round := range 4 {
		w.mu.Lock()
		for range 25 * maxHistory {
			w.dirty[id] = dropOldLines(append(w.dirty[id], Change{ID: id, Seq: seq, At: at, Event: "modify", Detail: fmt.Sprintf("by alice %d", seq)}))
			seq++
		}
		waiting := len(w.dirty[id])
		w.mu.Unlock()
		if waiting > 2*maxHistory+2 {
			t.Errorf("%d changes wait to be written", waiting)
		}
		flush(t, w)
		w.Put(Change{ID: id, Seq: seq, At: at, Event: "done"})
		seq++
		flush(t, w)
		r := read(t, dir, id)
		first, last := r.History[0], r.History[len(r.History)-1]
		if len(r.History) > maxHistory+2 || len(r.History) < maxHistory || first.Event != "submitted" || last.Event != "done" || len(r.Runs) != 1 {
			t.Errorf("the history has %d lines, from %v to %v; runs %v", len(r.History), first, last, r.Runs)
		}
		info, err := os.Stat(Path(dir, id))
		if err != nil {
			t.Fatal(err)
		}
		if round > 1 && info.Size() > size+size/4 {
			t.Errorf("round %d: the object grew from %d to %d bytes", round, size, info.Size())
		}
		size = max(size, info.Size())
	}
	if size > 512<<10 {
		t.Errorf("the object has %d bytes", size)
	}
}
