package pba

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The lock files in the state directory. A process that runs cycles holds
// RunLock for as long as it runs; a single cycle, and an edit of the plan, hold
// EditLock. The kernel releases both however a process ends.
const (
	RunLock  = "rebalance.lock"
	EditLock = "ledger.lock"
)

// ErrBusy says that somebody else held a lock for all the time that was waited.
var ErrBusy = errors.New("another pba holds the lock")

// lockPoll is how often a lock that is held is tried again.
const lockPoll = 20 * time.Millisecond

// Lock takes the lock of a name in a directory and waits for it at most so
// long. unlock may be called more than once.
func Lock(ctx context.Context, dir, name string, wait time.Duration) (unlock func(), err error) {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	again := time.NewTicker(lockPoll)
	defer again.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // that unlocks it
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-again.C:
		case <-timed.Done():
			if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), f.Close())
			}
			return nil, errors.Join(fmt.Errorf("%w %s for more than %v", ErrBusy, path, wait), f.Close())
		}
	}
}
