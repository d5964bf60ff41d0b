package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/flock"
)

// A record whose lines can't be read does not keep the node from attaching; its run's
// end is reported when its keeper is gone.
func TestDamagedRecordDoesNotBlockAttach(t *testing.T) {
	id := RunID{ID: backends.ID{Job: 3}, Run: 1}
	path := filepath.Join(t.TempDir(), id.String()+recordSuffix)
	if err := os.WriteFile(path, []byte("\x00 123 456\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := flock.Wait(keeper); err != nil {
		t.Fatal(err)
	}
	record, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Options: Options{Log: slog.New(slog.DiscardHandler)}, done: make(chan *run), quit: make(chan struct{})}
	r := &run{id: id, record: record, pidfd: -1}
	if err := n.watch(r); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.done:
		t.Error("it is over while its keeper lives")
	default:
	}
	_ = keeper.Close()
	if got := <-n.done; got != r {
		t.Errorf("over is %v, want %v", got.id, id)
	}
}
