package miniq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/peer"
	"github.com/allotment-hpc/allotment/miniq"
)

// connection is one to the daemon, with what has been read of an answer. It does without
// package net, which takes asub longer to start than the whole conversation.
type connection struct {
	*os.File
	in       *bufio.Reader
	blocking bool      // see Options.Blocking
	until    time.Time // when Read and Write give up
}

func dialSocket(path string, blocking bool) (*connection, error) {
	name, release, err := miniq.ShortName(path)
	if err != nil {
		return nil, err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := connect(fd, name, blocking); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return newConnection(os.NewFile(uintptr(fd), path), blocking), nil // the runtime polls for it, unless it blocks
}

func newConnection(file *os.File, blocking bool) *connection {
	c := &connection{File: file, blocking: blocking}
	c.in = bufio.NewReader(c)
	return c
}

// connect connects, and does not wait for a listener that has no room.
func connect(fd int, name string, blocking bool) error {
	for {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("connect", err)
		}
	}
	if err := checkPeer(fd); err != nil {
		return err
	}
	if !blocking {
		return nil
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(fd, false))
}

// checkPeer returns an error unless root or this user listens at the other end. Jobs, with
// their environments, are sent to no other user, wherever the socket lies.
func checkPeer(fd int) error {
	uid, err := peer.UIDOf(fd)
	if err != nil {
		return fmt.Errorf("read the user ID of the process that listens: %w", err)
	}
	if uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("user %d listens there, which is neither root nor you: nothing was sent", uid)
	}
	return nil
}

// setDeadline has Read and Write give up at a context's deadline.
func (c *connection) setDeadline(ctx context.Context) (err error) {
	at, ok := ctx.Deadline()
	if !ok || at.Equal(c.until) {
		return nil
	}
	c.until = at
	if !c.blocking {
		return c.SetDeadline(at)
	}
	left := unix.NsecToTimeval((max(time.Until(at), 0) + time.Millisecond).Nanoseconds()) // zero would be for ever, and the context ends first
	c.control(func(fd int) {
		err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &left))
	})
	return os.NewSyscallError("setsockopt", err)
}

// Read waits for a part of an answer.
func (c *connection) Read(b []byte) (int, error) {
	if c.blocking && !c.until.IsZero() && !time.Now().Before(c.until) { // the kernel counts for each call anew
		return 0, os.ErrDeadlineExceeded
	}
	return c.File.Read(b)
}

// interrupt ends a Read or Write that waits, and all later ones. It may be called at any
// time, even after close.
func (c *connection) interrupt() {
	c.control(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) })
}

func (c *connection) close() { _ = c.Close() }

// alive reports whether an idle connection can be used: the daemon has sent nothing
// and has not hung up.
func (c *connection) alive() bool {
	quiet := false
	c.control(func(fd int) {
		var b [1]byte
		_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
	})
	return quiet && c.in.Buffered() == 0
}

// control does something to the socket, unless it is closed.
func (c *connection) control(do func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}
