package farm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/test/await"
	"github.com/allotment-hpc/allotment/test/cluster"
)

func start(t *testing.T) *Farm {
	t.Helper()
	const programs = "../../bin"
	if _, err := os.Stat(filepath.Join(programs, "miniqd")); err != nil {
		t.Skip("skip: there is no bin/miniqd; make test builds it")
	}
	f, err := Start(context.Background(), Options{Programs: programs, Config: "miniq:\n  nodes: [\"n1:2\"]\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// submit submits a job that shows that it runs, as two processes, and does not end by
// itself.
func submit(t *testing.T, f *Farm) {
	t.Helper()
	running := filepath.Join(f.Home, "running")
	line, err := f.Run(context.Background(), "asub", "sh", "-c", "sleep 1000 & touch "+running+"; wait")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := Submitted(line); err != nil || id != 1 {
		t.Fatalf("job %d, %v", id, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := await.There(ctx, running); err != nil {
		t.Fatalf("the job does not run: %v: %s", err, f.Log())
	}
}

func requireGone(t *testing.T, f *Farm) {
	t.Helper()
	if left := f.left(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat(f.Home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", f.Home, err)
	}
}

// Close leaves nothing of a farm whose jobs would run on, and that is no error.
func TestClose(t *testing.T) {
	f := start(t)
	submit(t, f)
	if n := len(f.processes()); n < 4 { // miniqd, its node, the job's two
		t.Errorf("%d processes are seen: %v", n, f.left())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	requireGone(t, f)
}

// Close kills processes that the queue itself leaves behind, and that is an error.
func TestCloseKillsLeftovers(t *testing.T) {
	f := start(t)
	f.patience = time.Second // the job does not end
	submit(t, f)
	if _, err := f.Run(context.Background(), "miniqd", "stop"); err != nil {
		t.Fatal(err)
	}
	err := f.Close()
	if err == nil || !strings.Contains(err.Error(), "left behind, and killed now:") || !strings.Contains(err.Error(), "sleep 1000") {
		t.Errorf("error is %v", err)
	}
	requireGone(t, f)
}

// Close leaves nothing of a farm on Slurm either, also of jobs that would run on.
func TestCloseOfACluster(t *testing.T) {
	cluster.Needed(t)
	f, err := Start(t.Context(), Options{Programs: "../../bin", Slurm: &Slurm{Nodes: 2, Slots: 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	submit(t, f)
	if n := len(f.processes()); n < 6 { // slurmctld, two slurmd, slurmstepd, the job's two
		t.Errorf("%d processes are seen: %v", n, f.left())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	requireGone(t, f)
}

// After Kill the engine is gone at once and has no more cycles.
func TestKill(t *testing.T) {
	f := start(t)
	if _, err := f.Run(t.Context(), "pba", "init"); err != nil {
		t.Fatal(err)
	}
	r, err := f.Rebalance(t.Context(), 100*time.Millisecond, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	<-r.Reports
	if err := r.Kill(); err != nil {
		t.Error(err)
	}
	if _, more := <-r.Reports; more || r.Err() == nil || !strings.Contains(r.Err().Error(), "signal: killed") {
		t.Errorf("more cycles: %v, error is %v", more, r.Err())
	}
}

// The queue itself shows what the programs submitted.
func TestQueue(t *testing.T) {
	f := start(t)
	submit(t, f)
	q := f.Queue()
	defer q.Close()
	snapshot, err := q.Snapshot(t.Context(), time.Now())
	if err != nil || len(snapshot.Jobs) != 1 || snapshot.Jobs[0].ID.Job != 1 {
		t.Errorf("%+v, %v", snapshot, err)
	}
}

func TestSubmitted(t *testing.T) {
	if id, err := Submitted("Job <12> is submitted to queue <normal>.\n"); id != 12 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
	for _, line := range []string{"", "Job <x> is submitted", "Job <12", "12"} {
		if _, err := Submitted(line); err == nil {
			t.Errorf("%q is read", line)
		}
	}
}
