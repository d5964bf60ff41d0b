package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/test/programs"
)

// slurmPort is where the cluster of the page listens.
const slurmPort = "17900"

// TestSlurmPageIsTyped types docs/slurm.md at a throw-away cluster of one host with
// four slots, as root.
func TestSlurmPageIsTyped(t *testing.T) {
	missing := ""
	for _, program := range []string{"slurmctld", "slurmd", "munged", "sbatch"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = program + " is missing (test/slurm-cluster.sh deps names the packages): docs/slurm.md is not typed"
		}
	}
	if os.Geteuid() != 0 {
		missing = "only root can run Slurm's daemons: docs/slurm.md is not typed"
	}
	if os.Getenv("ALLOTMENT_TEST_SLURM") != "1" {
		t.Skip("skipped: it boots a Slurm cluster: make test-slurm runs it")
	}
	if missing != "" {
		t.Fatal(missing)
	}
	defer syscall.Umask(syscall.Umask(0o022))
	d := newDesk(t, programs.Build(t, "pba"))
	for _, dir := range []string{d.dir, filepath.Join(d.dir, "home")} { // slurmctld reads in it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cluster, extra := filepath.Join(d.dir, "slurm"), filepath.Join(d.dir, "extra.conf")
	if err := os.WriteFile(extra, []byte("PartitionName=low Nodes=ALL PriorityTier=0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("bash", "../slurm-cluster.sh", "down", cluster).CombinedOutput(); err != nil {
			t.Errorf("end the cluster: %v: %s", err, out)
		}
	})
	cmd := exec.Command("bash", "../slurm-cluster.sh", "up", cluster)
	cmd.Env = append(os.Environ(), "NODES=1", "CPUS=4", "BASEPORT="+slurmPort, "SLURM_EXTRA="+extra)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("start a cluster: %v: %s", err, out)
	}
	d.env = append(d.env, "SLURM="+cluster, "SLURM_CONF="+filepath.Join(cluster, "slurm.conf"))
	d.page(t, "docs/slurm.md")
}
