package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	backend "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/programs"
)

// build builds the programs, with that of the jobs.
func build(t *testing.T) string {
	t.Helper()
	return programs.Build(t, "test/crash/worker")
}

// farm is a queue with two nodes in a directory of its own, which its clients
// start when they need it.
type farm struct {
	bin  string // the programs
	home string
	jobs string // the directory of the jobs' files
	*backend.Client
}

func (f *farm) paths() home.Paths {
	return home.Paths{Config: filepath.Join(f.home, "config.yaml"), State: f.home, Runtime: f.home}
}

// newFarm needs ALLOTMENT_HOME to be dir, and PATH to begin with bin.
func newFarm(bin, dir string) (*farm, error) {
	f := &farm{bin: bin, home: dir, jobs: filepath.Join(dir, "written")}
	if err := os.MkdirAll(f.jobs, 0o700); err != nil {
		return nil, err
	}
	config := "miniq: {nodes: [\"n1:8:8G\", \"n2:8:8G\"]}\n"
	if err := os.WriteFile(f.paths().Config, []byte(config), 0o600); err != nil {
		return nil, err
	}
	f.Client = f.client()
	return f, nil
}

func (f *farm) client() *backend.Client {
	return backend.Open(backend.Options{Paths: f.paths(), Config: miniq.DefaultConfig(), Start: true, Timeout: time.Minute})
}

// stop ends the daemon, and every job that still runs.
func (f *farm) stop(ctx context.Context) error {
	_, err := f.Status(ctx) // this starts it, if need be: its nodes find what runs
	if err == nil {
		err = f.Stop(ctx, true)
	}
	return errors.Join(err, f.Close())
}

// newTempFarm prepares the environment of a test and a short directory: a socket is in it.
func newTempFarm(t *testing.T, bin string) (*farm, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		(&farm{home: dir}).killAll() // of a queue that was broken on purpose
		if t.Failed() && os.Getenv("CRASH_KEEP") != "" {
			t.Logf("kept: %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	t.Setenv("ALLOTMENT_HOME", dir)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return newFarm(bin, dir)
}
