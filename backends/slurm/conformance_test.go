package slurm_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends/backendtest"
	"github.com/allotment-hpc/allotment/backends/slurm"
	"github.com/allotment-hpc/allotment/test/cluster"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		t.Parallel() // mostly they wait for Slurm's clock
		dir := dirForJobs(t)
		accounted := strings.HasSuffix(t.Name(), "/history") // sacct needs slurmdbd
		c := cluster.New(t, cluster.Options{Nodes: 2, CPUs: 4, Memory: 4096, Slurmdbd: accounted, Conf: []string{
			"PartitionName=low Nodes=ALL PriorityTier=0 State=UP",
		}})
		if accounted {
			for _, add := range [][]string{{"account", "chipA"}, {"user", "root", "account=chipA"}} {
				if out, err := c.Run(t.Context(), append([]string{"sacctmgr", "-iQ", "add"}, add...)...); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
		t.Cleanup(func() {
			if t.Failed() {
				all, err := c.Run(context.Background(), "squeue", "--all", "--states=all", "-O", "JobID: ,Name: ,StateCompact: ,Reason: ,PriorityLong: ,SubmitTime: ,StartTime: ,EndTime: ,RestartCnt: ,ReqNodes: ,NodeList: ,NumCPUs: ")
				t.Logf("its jobs, %v:\n%s\n%s", err, all, c.Log())
			}
		})
		must := func(t *testing.T, err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return backendtest.Harness{
			Backend: open(c, ""), Dir: dir, User: "root", OtherQueue: "low",
			Shortest: time.Second, ShortestLimit: time.Minute, Patience: time.Minute, LowQueue: "low", Project: "chipa", LosesPlace: true,
			Kill:    func(t *testing.T) { c.Saved(); must(t, c.Kill()) },
			Hang:    func(t *testing.T) { must(t, c.Hang()) },
			Restart: func(t *testing.T) { must(t, c.Restart(t.Context())) },
		}
	})
}

// open is the backend of a cluster, with Slurm's commands from a directory; "": from
// PATH.
func open(c *cluster.Cluster, bin string) *slurm.Client {
	config := slurm.DefaultConfig()
	config.Conf, config.Bin = c.Conf(), bin
	return slurm.Open(slurm.Options{Config: config})
}

// dirForJobs outlives the jobs of a cluster that is started after it.
func dirForJobs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "allotment-jobs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
