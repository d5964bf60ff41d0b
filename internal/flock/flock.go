// Package flock locks open files (flock(2)). A lock belongs to the open file, so it goes
// with a descriptor that is handed to another process. The kernel releases it when the
// last descriptor is closed, however its process ends.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("another process has locked it")

// Try locks a file, or fails at once with ErrHeld.
func Try(f *os.File) error { return try(f, syscall.LOCK_EX) }

// TryShared is Try for a lock that many processes hold together.
func TryShared(f *os.File) error { return try(f, syscall.LOCK_SH) }

func try(f *os.File, how int) error {
	err := lock(f, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Wait locks a file, however long that takes.
func Wait(f *os.File) error { return lock(f, syscall.LOCK_EX) }

func lock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Open opens a lock file, which it makes for its owner alone, and locks it. The error
// wraps ErrHeld if the lock was held for all of the wait.
func Open(ctx context.Context, path string, wait time.Duration) (*os.File, error) {
	return open(ctx, path, wait, syscall.LOCK_EX)
}

// OpenShared is Open for a lock that many processes hold together. None of them holds it
// while another process has locked the file by Open or Try.
func OpenShared(ctx context.Context, path string, wait time.Duration) (*os.File, error) {
	return open(ctx, path, wait, syscall.LOCK_SH)
}

func open(ctx context.Context, path string, wait time.Duration, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		err := try(f, how)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, ErrHeld) {
			select {
			case <-time.After(poll):
				continue
			case <-timed.Done():
				if ctx.Err() != nil {
					err = ctx.Err()
				}
			}
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
}

// poll is how often Open tries: the kernel can't wait for a limited time.
const poll = 10 * time.Millisecond
