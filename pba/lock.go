package pba

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/internal/flock"
)

// The lock files in the state directory. A process that runs cycles holds
// RunLock for as long as it runs; a single cycle, and an edit of the plan, hold
// EditLock. The kernel releases both however a process ends.
const (
	RunLock  = "rebalance.lock"
	EditLock = "ledger.lock"
)

// ErrBusy is returned where another process held a lock for the whole wait.
var ErrBusy = errors.New("another pba holds the lock")

// Lock acquires the lock of a name in a directory and waits for it at most so
// long. unlock may be called more than once.
func Lock(ctx context.Context, dir, name string, wait time.Duration) (unlock func(), err error) {
	path := filepath.Join(dir, name)
	f, err := flock.Open(ctx, path, wait)
	switch {
	case errors.Is(err, flock.ErrHeld):
		return nil, fmt.Errorf("%w %s for more than %v", ErrBusy, path, wait)
	case err != nil:
		return nil, err
	}
	return func() { _ = f.Close() }, nil // that unlocks it
}
