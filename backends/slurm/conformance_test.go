package slurm_test

import (
	"os"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends/backendtest"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/test/cluster"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		c := cluster.New(t, cluster.Options{Nodes: 2, CPUs: 4, Memory: 4096, Conf: []string{
			"PartitionName=low Nodes=ALL PriorityTier=0 State=UP",
		}})
		must := func(t *testing.T, err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return backendtest.Harness{
			Backend: slurm.Open(slurm.Options{Config: slurm.DefaultConfig()}), Dir: dirForJobs(t), User: "root", OtherQueue: "low",
			Shortest: time.Second, ShortestLimit: time.Minute, Patience: time.Minute, LowQueue: "low", Project: "chipa", LosesTurn: true,
			Kill:    func(t *testing.T) { c.Saved(); must(t, c.Kill()) },
			Hang:    func(t *testing.T) { must(t, c.Hang()) },
			Restart: func(t *testing.T) { must(t, c.Restart(t.Context())) },
		}
	})
}

// dirForJobs outlives the jobs that write into it: it is there until the cluster
// has ended them.
func dirForJobs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "allotment-jobs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
