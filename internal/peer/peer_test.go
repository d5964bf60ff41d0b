package peer_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/peer"
)

const stranger = 65534

// listen makes a socket of no file, which any user may connect to.
func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@allotment-%s-%d", t.Name(), os.Getpid()), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects to a listener and returns both ends.
func dial(t *testing.T, l *net.UnixListener, as func(do func())) (caller, called *net.UnixConn) {
	t.Helper()
	var err error
	as(func() { caller, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caller.Close() })
	if called, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { called.Close() })
	return caller, called
}

// myself calls do as the user of the test.
func myself(do func()) { do() }

// another calls do as another user, in a thread that ends with it.
func another(t *testing.T) func(do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skip: only root can be another user")
	}
	return func(do func()) {
		done := make(chan syscall.Errno)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread is of no use to others
			keep := ^uintptr(0)
			_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, stranger, keep)
			if errno == 0 {
				do()
			}
			done <- errno
		}()
		if errno := <-done; errno != 0 {
			t.Fatal(errno)
		}
	}
}

func TestBothEndsSeeTheirPeer(t *testing.T) {
	caller, called := dial(t, listen(t), myself)
	for name, conn := range map[string]*net.UnixConn{"caller": caller, "called": called} {
		if uid, err := peer.UID(conn); err != nil || uid != os.Getuid() {
			t.Errorf("the %s's peer is %d, %v; want %d", name, uid, err, os.Getuid())
		}
	}
}

// UID is that of the process at the other end, not the caller's or the socket's owner's.
func TestPeerOfAnotherUser(t *testing.T) {
	caller, called := dial(t, listen(t), another(t))
	if uid, err := peer.UID(called); err != nil || uid != stranger {
		t.Errorf("a caller of another user is %d, %v; want %d", uid, err, stranger)
	}
	if uid, err := peer.UID(caller); err != nil || uid != os.Getuid() {
		t.Errorf("who listens is %d, %v; want %d", uid, err, os.Getuid())
	}
}

func TestSocketPair(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range pair {
		defer unix.Close(fd)
		if uid, err := peer.UIDOf(fd); err != nil || uid != os.Getuid() {
			t.Errorf("the peer is %d, %v; want %d", uid, err, os.Getuid())
		}
	}
}

func TestUnconnectedSocketIsAnError(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if uid, err := peer.UIDOf(fd); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("a socket that is not connected: user %d, %v; want %v", uid, err, unix.ENOTCONN)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if uid, err := peer.UID(r); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("a pipe: user %d, %v; want %v", uid, err, unix.ENOTSOCK)
	}
	conn, _ := dial(t, listen(t), myself)
	conn.Close()
	if uid, err := peer.UID(conn); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: user %d, %v; want %v", uid, err, net.ErrClosed)
	}
}
