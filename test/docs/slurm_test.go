package docs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/test/cluster"
	"github.com/allotment-hpc/allotment/test/programs"
)

// TestSlurmPageIsTyped runs docs/slurm.md's commands on a throw-away cluster of one host
// with four slots, as root.
func TestSlurmPageIsTyped(t *testing.T) {
	cluster.Needed(t)
	defer syscall.Umask(syscall.Umask(0o022))
	w := newWorkspace(t, programs.Build(t, "pba"))
	for _, dir := range []string{w.dir, filepath.Join(w.dir, "home")} { // slurmctld reads in it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(w.dir, "slurm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := cluster.New(t, cluster.Options{Dir: dir, Nodes: 1, Conf: []string{"PartitionName=low Nodes=ALL PriorityTier=0"}})
	w.env = append(w.env, "SLURM="+c.Dir, "SLURM_CONF="+c.Conf())
	w.runPage(t, "docs/slurm.md")
}
