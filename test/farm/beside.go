package farm

import (
	"bytes"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// Beside starts a command that works beside a test, such as pba rebalance. It is asked
// to end by stop, or at the test's end. What it said is shown if the test failed.
func Beside(t testing.TB, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
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
			t.Logf("%q said:\n%s", cmd.Args, said.String())
		}
	})
	return stop
}
