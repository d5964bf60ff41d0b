package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// errRunning says that another daemon serves already.
var errRunning = errors.New("another miniqd is running")

// claim takes the state directory and the socket. It holds start.lock
// meanwhile, so that whoever finds the lock taken knows that its owner listens,
// or is on its way out.
func claim(state, socket string) (lock *os.File, listener *net.UnixListener, err error) {
	start, err := openLock(filepath.Join(state, "start.lock"))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = start.Close() }()
	if err := flock(start, syscall.LOCK_EX); err != nil {
		return nil, nil, err
	}
	lock, err = openLock(filepath.Join(state, "lock"))
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		if serves(socket) {
			return nil, nil, errRunning
		}
		err = flock(lock, syscall.LOCK_EX) // it has closed its socket and is about to end
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	listener, err = listen(socket)
	return lock, listener, err
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func serves(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second) //nolint:noctx // local, bounded
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// listen makes the socket: for the daemon's own user alone from the first moment,
// or, where root listens, for all.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier miniqd: %w", err)
	}
	mask := 0o177
	if os.Getuid() == 0 {
		mask = 0o111
	}
	old := syscall.Umask(mask)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(true)
	return l, nil
}
