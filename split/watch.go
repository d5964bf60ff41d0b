package split

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/clock"
)

// lookEvery is how often results are looked for where nothing tells of them: on a file
// system that other hosts write to.
const lookEvery = 250 * time.Millisecond

// watchDir gives a channel that tells when a file was renamed in a directory by a
// process of this host. Where the system can't tell it is silent.
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

// watchQueue gives a channel that tells when the queue has changed, or may have.
func watchQueue(ctx context.Context, queue Queue) <-chan struct{} {
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
				wait = tryPause // who asks will be told
			}
			signal(news)
			_ = clock.Sleep(ctx, wait)
		}
	}()
	return news
}

// signal never waits: one that is not heard yet is enough.
func signal(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}
