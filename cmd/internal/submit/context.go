package submit

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends/bsub"
)

// Context is what a command line means in this process, now.
func Context() (bsub.Context, error) {
	dir, err := os.Getwd()
	if err != nil {
		return bsub.Context{}, fmt.Errorf("find the working directory: %w", err)
	}
	return bsub.Context{Now: time.Now(), Dir: dir, Env: os.Environ(), Umask: umask()}, nil
}

// umask is this process's file mode mask, which can only be read by writing it.
func umask() uint32 {
	mask := syscall.Umask(0o77)
	syscall.Umask(mask)
	return uint32(mask)
}
