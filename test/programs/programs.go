// Package programs makes the programs for the tests that run them, and ends
// what they leave running.
package programs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build makes the bundled queue's programs, the filter, asub, ajobs under all its
// names and the programs that are named besides, in a directory of their own.
func Build(t testing.TB, besides ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	args := []string{"build", "-o", dir + "/"}
	for _, name := range append([]string{"asub", "ajobs", "esub", "miniqd", "miniq-keeper"}, besides...) {
		args = append(args, "github.com/allotment-hpc/allotment/cmd/"+name)
	}
	if text, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, text)
	}
	for _, name := range []string{"ahosts", "aqueues", "akill", "astop", "aresume", "arequeue", "amod"} {
		if err := os.Symlink("ajobs", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// StopQueue kills the jobs and the daemon, if there is one, of the queue that the
// environment names.
func StopQueue(t testing.TB, dir string, env []string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "miniqd"), "stop", "--kill")
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(text, []byte("none is running")) {
		t.Logf("miniqd stop --kill: %v: %s", err, text)
	}
}
