package farm

import (
	"bytes"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/allotment-hpc/allotment/test/programs"
)

// New starts a farm that ends with the test. It builds the programs unless o names them.
func New(t testing.TB, o Options, extra ...string) *Farm {
	t.Helper()
	if o.Programs == "" {
		o.Programs = programs.Build(t, extra...)
	}
	f, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Log())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// StartForTest starts a command that runs beside a test, such as pba rebalance. stop, or the
// test's end, terminates it. Its output is logged if the test failed.
func StartForTest(t testing.TB, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%q said:\n%s", cmd.Args, output.String())
		}
	})
	return stop
}
