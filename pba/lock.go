package pba

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/flock"
)

// The lock files in the state directory. A process that runs cycles holds
// RunLock for as long as it runs; a single cycle, and an edit of the plan, hold
// EditLock. Servers that show what cycles see hold ViewLock together. The kernel releases
// each however a process ends.
const (
	RunLock  = "rebalance.lock"
	EditLock = "ledger.lock"
	ViewLock = "view.lock"
)

// ErrBusy is returned where another process held a lock for the whole wait.
var ErrBusy = errors.New("another pba holds the lock")

// Lock acquires the lock of a name in a directory and waits for it at most so
// long. unlock may be called more than once.
func Lock(ctx context.Context, dir, name string, wait time.Duration) (unlock func(), err error) {
	return lock(ctx, flock.Open, filepath.Join(dir, name), wait)
}

// LockShared is Lock for a lock that many processes hold together.
func LockShared(ctx context.Context, dir, name string, wait time.Duration) (unlock func(), err error) {
	return lock(ctx, flock.OpenShared, filepath.Join(dir, name), wait)
}

func lock(ctx context.Context, open func(context.Context, string, time.Duration) (*os.File, error), path string, wait time.Duration) (unlock func(), err error) {
	f, err := open(ctx, path, wait)
	switch {
	case errors.Is(err, flock.ErrHeld):
		return nil, fmt.Errorf("%w %s for more than %v", ErrBusy, path, wait)
	case err != nil:
		return nil, err
	}
	return func() { _ = f.Close() }, nil // that unlocks it
}

// Locked reports whether a process holds the lock of a name in a directory. It waits for none,
// and makes no file.
func Locked(dir, name string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the lock file: %w", err)
	}
	defer func() { _ = f.Close() }() // that unlocks it
	err = flock.Try(f)
	if errors.Is(err, flock.ErrHeld) {
		return true, nil
	}
	return false, err
}
