package slurm_test

import (
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// A job that an administrator requeued into a hold has a reason of its own. It is held nevertheless: a
// rank does not release it.
func TestRankOfJobRequeuedIntoHold(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 1, CPUs: 2, Memory: 1024})
	id := f.sbatch("--requeue")
	f.await("it runs", func() bool { return f.job(id).State == backends.Running })
	if out, err := f.cluster.Run(t.Context(), "scontrol", "requeuehold", id.String()); err != nil {
		t.Fatal(out, err)
	}
	f.await("it has left its host", func() bool { return strings.Contains(f.show(id), "JobState=PENDING") })
	if j := f.job(id); j.State != backends.Held {
		t.Errorf("it is %v, and waits for %v: %s", j.State, j.Wait, j.Reason)
	}
	for _, level := range []backends.Level{backends.LevelHandOver, backends.LevelNormal} {
		if err := f.queue.SetPriority(t.Context(), []backends.PriorityChange{{ID: id, Priority: backends.At(level, 100)}}).First(); err != nil {
			t.Error(err)
		}
		if text := f.show(id); !strings.Contains(text, "JobState=PENDING") || !strings.Contains(text, "Priority=0 ") {
			t.Fatalf("a rank of level %v has released it:\n%s", level, text)
		}
	}
}
