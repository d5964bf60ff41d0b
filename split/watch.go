package split

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/clock"
)

// pollInterval is the interval between two checks for results: inotify does not report files
// that other hosts write.
const pollInterval = 250 * time.Millisecond

// watchDir returns a channel that receives when a process of this host has renamed a
// file in a directory. Without inotify it never receives.
func watchDir(ctx context.Context, path string) <-chan struct{} {
	news := make(chan struct{}, 1)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return news
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MOVED_TO); err != nil {
		_ = unix.Close(fd)
		return news
	}
	f := os.NewFile(uintptr(fd), path)
	context.AfterFunc(ctx, func() { _ = f.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			if _, err := f.Read(buffer); err != nil {
				return
			}
			signal(news)
		}
	}()
	return news
}

// WatchQueue returns a channel that receives when the queue has changed, or may have.
func WatchQueue(ctx context.Context, queue Queue) <-chan struct{} {
	const (
		pause    = 100 * time.Millisecond
		tryPause = time.Second
	)
	news := make(chan struct{}, 1)
	next := queue.Changes()
	go func() {
		for ctx.Err() == nil {
			wait := pause
			if next(ctx) != nil {
				wait = tryPause // the next query returns the error
			}
			signal(news)
			_ = clock.Sleep(ctx, wait)
		}
	}()
	return news
}

// signal does not block: one pending signal is enough.
func signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}
