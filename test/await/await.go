// Package await waits in tests: for a file's content and for the end of a process by the
// kernel's events, and for conditions without events by polling.
package await

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
)

// Until polls every 20 ms until is returns true; false: the context ended first. It is
// for conditions without events: other processes' state, queues other than the bundled.
func Until(ctx context.Context, is func() bool) bool { return Every(ctx, 20*time.Millisecond, is) }

// Every is Until with another pause, for conditions that are costly to check. A pause is at
// least twice as long as the check before it took, so that checks never take most of a busy
// machine.
func Every(ctx context.Context, pause time.Duration, is func() bool) bool {
	for {
		checked := time.Now()
		if is() {
			return true
		}
		timer := time.NewTimer(max(pause-time.Since(checked), 2*time.Since(checked)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// Soon is Until for at most a minute, far longer than its conditions take.
func Soon(is func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return Until(ctx, is)
}

// Dir waits until is returns true. It checks again after each change in a directory.
func Dir(ctx context.Context, dir string, is func() bool) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer func() { _ = events.Close() }()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Now()) })
	defer stop()
	for buffer := make([]byte, 4096); !is(); {
		if _, err := events.Read(buffer); err != nil {
			return fmt.Errorf("wait for a change in %s: %w", dir, errors.Join(err, context.Cause(ctx)))
		}
	}
	return nil
}

// File waits until is accepts a file's content. The file need not exist yet, but its
// directory must.
func File(ctx context.Context, path string, is func(text string) bool) error {
	var text []byte
	err := Dir(ctx, filepath.Dir(path), func() (so bool) {
		var err error
		text, err = os.ReadFile(path)
		return err == nil && is(string(text))
	})
	if err != nil {
		return fmt.Errorf("%s holds %q: %w", path, text, err)
	}
	return nil
}

// There waits until a file exists.
func There(ctx context.Context, path string) error {
	return File(ctx, path, func(string) bool { return true })
}

// End waits until a process has ended, a child or not; false: the context ended first.
func End(ctx context.Context, pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true // it is gone
	}
	defer func() { _ = unix.Close(fd) }()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		const pollTime = 100 // ms: at the context
		if n, err := unix.Poll(fds, pollTime); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
	return false
}

// Stopped waits until each thread of a child process has stopped after SIGSTOP.
func Stopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Queue is the bundled queue, which reports each change.
type Queue interface {
	Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error)
	WaitChange(ctx context.Context, seen uint64) (uint64, error)
}

// Jobs waits until are accepts the jobs of these IDs, in their order, and returns them.
func Jobs(ctx context.Context, q Queue, ids []backends.ID, are func([]backends.Job) bool) ([]backends.Job, error) {
	for seen := uint64(0); ; {
		jobs, err := q.Jobs(ctx, ids)
		if err != nil || len(jobs) == len(ids) && are(jobs) {
			return jobs, err
		}
		if seen, err = q.WaitChange(ctx, seen); err != nil {
			return jobs, fmt.Errorf("wait for jobs: %w: at last %+v", err, jobs)
		}
	}
}

// In reports, for Jobs, whether all are in a state.
func In(s backends.State) func([]backends.Job) bool {
	return func(jobs []backends.Job) bool {
		return !slices.ContainsFunc(jobs, func(j backends.Job) bool { return j.State != s })
	}
}
