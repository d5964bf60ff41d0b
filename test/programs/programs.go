// Package programs builds the programs for the tests that run them, and ends the queues
// that they leave running.
package programs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Build builds the bundled queue's programs, what its dummy jobs run, the filter, asub,
// ajobs under all its names and besides, in a directory of their own: NAME is cmd/NAME,
// and a path is that of a package.
func Build(t testing.TB, extra ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := Make(t.Context(), dir, extra...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Make is Build for programs that outlive a test, into dir.
func Make(ctx context.Context, dir string, extra ...string) error {
	args := []string{"build", "-o", dir + "/"}
	for _, name := range append([]string{"asub", "ajobs", "esub", "adummy", "miniqd", "miniq-keeper"}, extra...) {
		if !strings.Contains(name, "/") {
			name = "cmd/" + name
		}
		args = append(args, "github.com/allotment-hpc/allotment/"+name)
	}
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, text)
	}
	for _, name := range []string{"ahosts", "aqueues", "akill", "astop", "aresume", "arequeue", "amod", "apeek", "aswitch", "ahist", "atop", "abot"} {
		if err := os.Symlink("ajobs", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Script sets up a test's script with the programs, and a home of its own, with a
// configuration if that is not empty. A queue that the script starts there ends with it.
func Script(t testing.TB, e *testscript.Env, dir, config string) error {
	home := filepath.Join(e.WorkDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	e.Setenv("PATH", e.Getenv("PATH")+":"+dir)
	e.Setenv("ALLOTMENT_HOME", home)
	e.Setenv("TZ", "UTC")
	e.Setenv("GORACE", "atexit_sleep_ms=0") // else each program built with the race detector waits a second at its end
	e.Defer(func() { StopQueue(t, dir, e.Vars) })
	if config == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(home, "config.yaml"), []byte(config), 0o600)
}

// StopQueue kills the jobs and the daemon, if there is one, of the queue that the
// environment names.
func StopQueue(t testing.TB, dir string, env []string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "miniqd"), "stop", "--kill")
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(text, []byte("none is running")) && !bytes.Contains(text, []byte("was stopped on purpose")) {
		t.Logf("miniqd stop --kill: %v: %s", err, text)
	}
}
