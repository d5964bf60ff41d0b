package slurm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/cluster"
)

// A job that starts between the look at it and its pin keeps its nodes: Slurm would take a
// list of required nodes as a wish to shrink.
func TestPinOfAJobThatHasStarted(t *testing.T) {
	t.Parallel()
	f := newUnmanaged(t, cluster.Options{Nodes: 3, CPUs: 2, Memory: 1024})
	id := f.sbatch("--hold", "-N2", "-n2")
	bin := t.TempDir()
	for _, name := range []string{"squeue", "sinfo", "scancel"} {
		if err := os.Symlink("/usr/bin/"+name, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
text=$(cat)
case "$text $*" in
*NodeList=*)
	scontrol release %[1]s
	until [ "$(squeue --noheader --jobs=%[1]s --format=%%T)" = RUNNING ]; do :; done ;;
esac
printf '%%s\n' "$text" | scontrol "$@"
`, id)
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	err := open(f.cluster, bin).Abilities().Pin(t.Context(), []backends.Pin{{ID: id, Hosts: []string{"node1"}}}).First()
	if !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("the pin: %v", err)
	}
	j := f.job(id)
	if j.State != backends.Running || len(j.Hosts) != 2 || len(j.Pinned) > 0 {
		t.Errorf("after the pin the job has %v, pinned to %v: %v", j.Hosts, j.Pinned, j.State)
	}
	if text, err := f.cluster.Run(t.Context(), "scontrol", "show", "job", id.String()); err != nil || !strings.Contains(text, "NumNodes=2 ") {
		t.Errorf("%s, %v", text, err)
	}
}
