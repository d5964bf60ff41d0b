// Package follow waits for changes of a queue.
package follow

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// Pauses of a program that follows a queue.
const (
	ReadInterval = 100 * time.Millisecond // at least, between two reads
	RetryPause   = time.Second            // before an unreachable queue is tried again

	pollInterval = 2 * time.Second // between two reads of a queue that does not report changes
)

// Changes returns a function that returns when the queue has changed since its
// last call, or may have.
func Changes(queue backends.Backend) func(context.Context) error {
	changed := queue.Abilities().Changed
	if changed == nil {
		return func(ctx context.Context) error { return clock.Sleep(ctx, pollInterval-ReadInterval) }
	}
	var seen uint64
	return func(ctx context.Context) (err error) {
		current, err := changed(ctx, seen)
		if err == nil {
			seen = current
		} else {
			seen = 0 // a daemon that comes back counts anew
		}
		return err
	}
}

// Dir returns a channel that receives when a process of this host has written to a file in a
// directory, or has made or renamed one. Without inotify, or for a directory that may not be
// watched, it never receives.
func Dir(ctx context.Context, path string) <-chan struct{} {
	news := make(chan struct{}, 1)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return news
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		_ = events.Close()
		return news
	}
	context.AfterFunc(ctx, func() { _ = events.Close() })
	go func() {
		for buffer := make([]byte, 4096); ; {
			if _, err := events.Read(buffer); err != nil {
				return
			}
			select {
			case news <- struct{}{}:
			default: // one that waits is enough
			}
		}
	}()
	return news
}
