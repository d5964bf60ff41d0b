// Package peer asks the kernel for the user and process at the other end of a socket of
// this machine. It does not import net: miniq's keeper, which has to start within a
// millisecond, uses it too.
package peer

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// UID returns the effective user ID of the process at the other end of a connected
// unix socket, such as a *net.UnixConn. It is the one that the process had when
// it called connect or listen: it stays if a listener changes its user later, or hands
// its socket on (unix(7), SO_PEERCRED).
func UID(conn syscall.Conn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var uid int
	var denied error
	if err := raw.Control(func(fd uintptr) { uid, denied = UIDOf(int(fd)) }); err != nil {
		return 0, err
	}
	return uid, denied
}

// UIDOf is UID for a bare descriptor. For a socket that is not connected it returns
// ENOTCONN: the kernel's own answer is user -1.
func UIDOf(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	if cred.Uid == ^uint32(0) {
		return 0, unix.ENOTCONN
	}
	return int(cred.Uid), nil
}

// PID returns the ID of the process that called connect or listen, as this process's
// namespace numbers it; 0: it has none here. The process may have ended since, and its
// ID be another's.
func PID(conn syscall.Conn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var denied error
	err = raw.Control(func(fd uintptr) { cred, denied = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, denied); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}
