package miniq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/miniq"
)

// connection is one to the daemon, with what has been read of an answer. It does without
// package net: that takes asub longer to start than the whole conversation, and wakes
// another thread for each part of it. A request blocks its thread.
type connection struct {
	fd    int
	in    *bufio.Reader
	until time.Time // when Read and Write give up

	mu     sync.Mutex
	closed bool
}

func dialSocket(path string) (*connection, error) {
	name, release, err := miniq.ShortName(path)
	if err != nil {
		return nil, err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &connection{fd: fd}
	if err := c.connect(name); err != nil {
		c.close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.in = bufio.NewReader(c)
	return c, nil
}

// connect connects, and does not wait for a listener that has no room.
func (c *connection) connect(name string) error {
	if err := retry(func() error { return unix.Connect(c.fd, &unix.SockaddrUnix{Name: name}) }); err != nil {
		return os.NewSyscallError("connect", err)
	}
	if err := c.checkPeer(); err != nil {
		return err
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(c.fd, false))
}

// checkPeer returns an error unless root or this user listens at the other end. Jobs, with
// their environments, are sent to no other user, wherever the socket lies.
func (c *connection) checkPeer() error {
	uid, err := peer.UIDOf(c.fd)
	if err != nil {
		return fmt.Errorf("read the user ID of the process that listens: %w", err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("user %d listens there, which is neither root nor you: nothing was sent", uid)
	}
	return nil
}

// setDeadline has Read and Write give up at a context's deadline.
func (c *connection) setDeadline(ctx context.Context) error {
	at, ok := ctx.Deadline()
	if !ok || at.Equal(c.until) {
		return nil
	}
	c.until = at
	left := unix.NsecToTimeval((max(time.Until(at), 0) + time.Millisecond).Nanoseconds()) // zero would be for ever, and the context ends first
	return os.NewSyscallError("setsockopt", errors.Join(unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &left)))
}

// failed returns the error of a system call that transfers data.
func (c *connection) failed(call string, err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return os.ErrDeadlineExceeded
	}
	return os.NewSyscallError(call, err)
}

// Read waits for a part of an answer.
func (c *connection) Read(b []byte) (n int, err error) {
	if !c.until.IsZero() && !time.Now().Before(c.until) {
		return 0, os.ErrDeadlineExceeded
	}
	err = retry(func() error { n, err = unix.Read(c.fd, b); return err })
	switch {
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write sends the whole of b, and waits until the daemon takes it.
func (c *connection) Write(b []byte) (sent int, err error) {
	for sent < len(b) {
		var n int
		if err := retry(func() error { n, err = unix.Write(c.fd, b[sent:]); return err }); err != nil {
			return sent, c.failed("write", err)
		}
		sent += n
	}
	return sent, nil
}

// retry makes a system call again that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// interrupt ends a Read or Write that waits, and all later ones. It may be called at any
// time, even after close.
func (c *connection) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	}
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		_ = unix.Close(c.fd)
	}
}

// alive reports whether an idle connection can be used: the daemon has sent nothing
// and has not hung up.
func (c *connection) alive() bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return c.in.Buffered() == 0 && errors.Is(err, unix.EAGAIN)
}
