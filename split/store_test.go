package split

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/metrics"
)

// What has happened is stored though the run is interrupted, and what could not be stored is stored with what
// follows: else a task that is still open would add its items again.
func TestSave(t *testing.T) {
	open := func(name string) *store {
		s, err := openStore(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	broken := open("broken")
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	r := &runner{store: broken, core: NewCore(metrics.Options{RoundItems: 1})}
	if err := r.save(interrupted, &row{Task: Task{N: 1, Host: "n1", State: Done}}); err == nil {
		t.Fatal("a store that is closed stores")
	}
	r.store = open("whole")
	for n := range int64(2) {
		if err := r.save(interrupted, &row{Task: Task{N: n + 2, Host: "n1", State: Done}}); err != nil {
			t.Fatal(err)
		}
	}
	var stored []int64
	if err := r.store.Tasks(t.Context(), func(w row) error { stored = append(stored, w.N); return nil }); err != nil || len(stored) != 3 || len(r.unsaved) > 0 {
		t.Errorf("%v are stored, %v", stored, err)
	}
}
