package miniq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/allotment-hpc/allotment/miniq"
	"golang.org/x/sys/unix"
)

// Stop ends the daemon and returns when its process is gone. Running jobs go on
// under their keepers and are found again by the next daemon; with killJobs they
// are killed first. Jobs that wait are kept.
func (c *Client) Stop(ctx context.Context, killJobs bool) error {
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return fmt.Errorf("watch miniqd's process %d: %w", s.PID, err)
	}
	defer func() { _ = unix.Close(process) }()
	if err := c.call(ctx, &miniq.Request{Op: miniq.OpStop, KillJobs: killJobs}, func(*miniq.Response) error { return nil }); err != nil {
		return err
	}
	if s.PID == os.Getpid() { // a daemon in its caller's process
		return nil
	}
	return awaitEnd(ctx, process)
}

// awaitEnd waits until the process of a pidfd has ended.
func awaitEnd(ctx context.Context, process int) error {
	left := DefaultTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	for began := time.Now(); ; {
		n, err := unix.Poll(fds, int(max(left-time.Since(began), 0).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for miniqd to end: %w", err)
		case n > 0:
			return nil
		default:
			return errors.New("miniqd has stopped serving, but its process does not end; see miniqd.log")
		}
	}
}
