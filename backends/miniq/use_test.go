package miniq_test

import (
	"path/filepath"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/await"
)

// A job's record shows what all its processes use, while it runs and when it has ended.
func TestResourceUsage(t *testing.T) {
	q := newQueue(t, setup{})
	file := filepath.Join(t.TempDir(), "f")
	spec := q.run(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 40m /dev/zero | { tail -c 30m; sleep 1000; } >/dev/null & echo up >"$1"; wait`, file)
	id := q.submit(spec)[0]
	q.awaitFile(file, "up\n")
	var run backends.RunRecord
	await.Until(soon(t), func() bool {
		r, err := q.Record(t.Context(), id)
		if err != nil || len(r.Runs) != 1 {
			t.Fatalf("record %+v, %v", r, err)
		}
		run = r.Runs[0]
		return run.User > 0 && run.MaxRSS > 1<<20
	})
	if run.User == 0 || run.MaxRSS <= 1<<20 || !run.Ended.IsZero() {
		t.Errorf("while it runs: %+v", run)
	}
	if err := q.Kill(t.Context(), []backends.ID{id}).First(); err != nil {
		t.Fatal(err)
	}
	q.awaitState(id, backends.Exited)
	r, err := q.Record(t.Context(), id)
	if err != nil || len(r.Runs) != 1 {
		t.Fatalf("record %+v, %v", r, err)
	}
	if end := r.Runs[0]; end.User < run.User || end.MaxRSS < 1<<20 || end.Ended.IsZero() {
		t.Errorf("in the end %+v, while it ran %+v", end, run)
	}
}
