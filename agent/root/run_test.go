package root

import (
	"syscall"
	"testing"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		status  syscall.WaitStatus // wait(2): a signal, or an exit code in the second byte
		code    int
		failure bool
	}{
		{0, 0, false},
		{3 << 8, 3, false},
		{syscall.WaitStatus(syscall.SIGTERM), 0, false},
		{syscall.WaitStatus(syscall.SIGINT), 0, false},
		{syscall.WaitStatus(syscall.SIGKILL), 1, true},
		{syscall.WaitStatus(syscall.SIGSEGV) | 0x80, 1, true}, // with a core
	} {
		if code, err := codeOf(c.status); code != c.code || (err != nil) != c.failure {
			t.Errorf("%#x: %d, %v", c.status, code, err)
		}
	}
}
