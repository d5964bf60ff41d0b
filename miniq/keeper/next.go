package keeper

import (
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// A program in Go takes as long to start as two jobs `true` to run. So a keeper
// is used again where its job was of the plain kind: it ended soon, at no
// terminal, without a memory limit. Then the keeper has caught no signal, started
// no goroutine and no timer, and made no control group. Umask, directory and
// files are set anew by each run; the rest (environment, session, user,
// resource limits for good) it sets in the job's process alone. All its runs are
// of one user.
//
// NextFD carries messages (SOCK_SEQPACKET): the keeper sends "idle", of one byte; the
// node sends an order, with the record as the only descriptor. The lock goes with the
// record, as it belongs to the open file. An idle keeper ends when the node hangs up.

// mostRuns bounds what a keeper may gather: it collects no garbage.
const mostRuns = 400

// MaxNext is the longest order in bytes that a keeper takes at NextFD.
const MaxNext = 32 << 10

var errNext = errors.New("malformed order for the next run")

// next finishes a run that is over, and waits for the next one's record and order,
// which it reads into data. An order for another user is an error.
func (k *supervisor) next(as *User, data []byte) (*os.File, *Order, error) {
	if err := os.Chdir("/"); err != nil { // no file system is kept busy
		return nil, nil, err
	}
	if k.output != nil {
		_ = k.output.Close()
	}
	if err := k.record.Close(); err != nil { // releases the lock before the node hears of it
		return nil, nil, err
	}
	if err := untilUninterrupted(func() error { return unix.Sendmsg(NextFD, []byte{1}, nil, nil, unix.MSG_NOSIGNAL) }); err != nil {
		return nil, nil, err
	}
	_, _ = pollRaw([]unix.PollFd{{Fd: NextFD, Events: unix.POLLIN}})
	return receiveNext(NextFD, as, data)
}

// untilUninterrupted calls do again as long as a signal interrupts it.
func untilUninterrupted(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func receiveNext(fd int, as *User, data []byte) (*os.File, *Order, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	var n, size, flags int
	err := untilUninterrupted(func() (err error) {
		n, size, flags, _, err = unix.Recvmsg(fd, data, rights, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case n == 0:
		return nil, nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil || len(messages) != 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, nil, errNext
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, nil, errNext
	}
	order, err := runnableOrder(data[:n])
	if err != nil || !order.As.Same(as) {
		return nil, nil, errors.Join(errNext, unix.Close(fds[0]))
	}
	return os.NewFile(uintptr(fds[0]), "record"), order, nil
}

// Same reports whether a keeper of one user may run the other's jobs, too.
func (u *User) Same(v *User) bool {
	if u == nil || v == nil {
		return u == v
	}
	return u.UID == v.UID && u.GID == v.GID && u.Limits == v.Limits && slices.Equal(u.Groups, v.Groups)
}

// NewNextSocket returns the two ends of the socket that further orders go through. The node
// keeps the first, which does not block, and the keeper gets the second as NextFD.
func NewNextSocket() (ours, theirs *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.SetNonblock(pair[0], true); err != nil {
		return nil, nil, errors.Join(err, syscall.Close(pair[0]), syscall.Close(pair[1]))
	}
	return os.NewFile(uintptr(pair[0]), "keeper"), os.NewFile(uintptr(pair[1]), "next"), nil
}

// AwaitIdle returns when the keeper at the other end has ended a run and closed
// its record. An error means that it takes no other.
func AwaitIdle(ours *os.File) error {
	_, err := ours.Read(make([]byte, 1))
	return err
}

// SendOrder gives an idle keeper its next order, and the run's record, whose lock is
// the keeper's from now on if the caller closes its own. If it fails the keeper
// was sent nothing.
func SendOrder(ours, record *os.File, order []byte) error {
	if len(order) > MaxNext {
		return errNext
	}
	raw, err := ours.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		sent = untilUninterrupted(func() error {
			return unix.Sendmsg(int(fd), order, unix.UnixRights(int(record.Fd())), nil, unix.MSG_NOSIGNAL)
		})
	})
	return errors.Join(err, sent)
}
