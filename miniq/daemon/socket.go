package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
)

// clientSocket is the socket in the runtime directory, which may be removed while
// the daemon runs. systemd-logind removes a user's at logout.
type clientSocket struct {
	paths  home.Paths
	lock   *stateLock
	log    *slog.Logger
	accept func(*net.UnixListener) // returns when the listener is closed

	accepting sync.WaitGroup
	mu        sync.Mutex
	listener  *net.UnixListener // nil: not listening
	made      fs.FileInfo       // of the socket
	opened    bool              // clients are accepted
	closed    bool
}

// listen makes the socket, in the place of whatever has its name.
func (w *clientSocket) listen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listenLocked()
}

func (w *clientSocket) listenLocked() error {
	listener, made, err := listen(miniq.Socket(w.paths))
	if err != nil {
		return err
	}
	if w.listener != nil {
		_ = w.listener.Close()
	}
	w.listener, w.made = listener, made
	if w.opened {
		w.accepting.Go(func() { w.accept(listener) })
	}
	return nil
}

// open accepts clients.
func (w *clientSocket) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.opened || w.closed {
		return
	}
	w.opened = true
	if l := w.listener; l != nil {
		w.accepting.Go(func() { w.accept(l) })
	}
}

// close stops listening, and returns when no client is being accepted.
func (w *clientSocket) close() {
	w.mu.Lock()
	if !w.closed && w.inPlace() {
		_ = os.Remove(miniq.Socket(w.paths))
	}
	w.closed = true
	if w.listener != nil {
		_ = w.listener.Close()
	}
	w.mu.Unlock()
	w.accepting.Wait()
}

// inPlace reports whether the socket's path leads to this daemon.
func (w *clientSocket) inPlace() bool {
	now, err := os.Lstat(miniq.Socket(w.paths))
	return err == nil && w.made != nil && os.SameFile(now, w.made)
}

// restore makes the socket again if it has been removed. Without the state directory
// there is nothing to serve: errNoPlace.
func (w *clientSocket) restore() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.inPlace() {
		return nil
	}
	if err := w.lock.lost(); err != nil {
		return fmt.Errorf("%w: %w", errSocketGone, err)
	}
	if err := w.paths.Prepare(); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := w.paths.CheckOwner(); err != nil {
			return err
		}
	}
	if err := w.listenLocked(); err != nil {
		return err
	}
	w.log.Warn("the socket was removed: listening anew", "socket", miniq.Socket(w.paths))
	return nil
}

// errSocketGone says that neither the state directory nor the socket is there any more.
var errSocketGone = errors.New("the socket was removed")

// listen makes a socket: for the daemon's own user alone from the first moment or,
// where root listens, for all.
func listen(path string) (*net.UnixListener, fs.FileInfo, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("remove the socket of an earlier miniqd: %w", err)
	}
	name, release, err := miniq.ShortName(path)
	if err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	defer release()
	// A umask would hold for files that other goroutines make meanwhile. The mode of
	// the descriptor becomes the file's (Linux: unix_bind).
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var denied error
		err := raw.Control(func(fd uintptr) { denied = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, denied)
	}}
	l, err := config.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(false) // on close the name may belong to another daemon's socket
	if os.Getuid() == 0 {
		err = os.Chmod(path, 0o666)
	}
	info, statErr := os.Lstat(path)
	if err = errors.Join(err, statErr); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen at %s: %w", path, err), listener.Close())
	}
	return listener, info, nil
}

// serves reports whether a process listens at a socket, even if its backlog is full.
func serves(socket string) bool {
	name, release, err := miniq.ShortName(socket)
	if err != nil {
		return false
	}
	defer release()
	conn, err := net.DialTimeout("unix", name, time.Second) //nolint:noctx // local, bounded
	if err != nil {
		return errors.Is(err, syscall.EAGAIN)
	}
	_ = conn.Close()
	return true
}

// watcher has the socket made again when it is removed. It wakes for that alone: when
// something is removed from the runtime directory, when another process asks for it (wakeWatcher),
// and, while there is no place for the socket, when something changes where that was.
type watcher struct {
	clientSocket *clientSocket
	lost         func(error) // called when the state directory has gone, too
	events       int         // inotify; -1: there is none
	above        int         // the watch of a directory above the runtime directory; -1: there is none
	wake         *os.File    // closed to end it
	woken        *os.File
	logged       string // the error that was logged last
	ended        chan struct{}
}

const (
	// pollPause is how often a watcher without inotify checks.
	pollPause = 10 * time.Second
	// drainPause gives the removal of a directory time to end, and bounds how often
	// the socket is made again.
	drainPause = 100 * time.Millisecond
)

func watch(d *clientSocket, lost func(error)) (*watcher, error) {
	woken, wake, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &watcher{clientSocket: d, lost: lost, above: -1, wake: wake, woken: woken, ended: make(chan struct{})}
	if w.events, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		d.log.Warn("inotify is not available: a removed socket is noticed by polling", "every", pollPause, "why", err)
		w.events = -1
	}
	go w.run()
	return w, nil
}

func (w *watcher) stop() {
	_ = w.wake.Close()
	<-w.ended
	_ = w.woken.Close()
	if w.events >= 0 {
		_ = unix.Close(w.events)
	}
}

func (w *watcher) run() {
	defer close(w.ended)
	for here := true; ; {
		w.arm(here) // first: what changes later is an event
		err := w.clientSocket.restore()
		here = err == nil
		if errors.Is(err, errSocketGone) {
			w.lost(err)
			return
		}
		w.logOnce(err)
		if !w.awaitEvent(here) || !w.drainEvents() {
			return
		}
	}
}

// logOnce logs, once, what keeps the socket from being made.
func (w *watcher) logOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.logged {
		w.clientSocket.log.Error("the socket was removed and can't be made again: no client can connect; tried again when its directory changes", "error", err)
	}
	w.logged = text
}

// arm asks for the events that matter.
func (w *watcher) arm(here bool) {
	if w.events < 0 {
		return
	}
	const gone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	_, _ = unix.InotifyAddWatch(w.events, w.clientSocket.lock.path, gone|unix.IN_ATTRIB|unix.IN_ONLYDIR)
	mask := uint32(gone | unix.IN_DELETE | unix.IN_MOVED_FROM)
	if !here {
		mask |= unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ATTRIB
	}
	was := w.above
	w.above = -1
	for dir := w.clientSocket.paths.Runtime; ; dir = filepath.Dir(dir) { // the nearest one that is there
		watch, err := unix.InotifyAddWatch(w.events, dir, mask|unix.IN_ONLYDIR)
		if err == nil && dir != w.clientSocket.paths.Runtime {
			w.above = watch
		}
		if err == nil || dir == filepath.Dir(dir) {
			break
		}
		mask |= unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ATTRIB
	}
	if was >= 0 && was != w.above {
		_, _ = unix.InotifyRmWatch(w.events, uint32(was))
	}
}

// awaitEvent waits for an event; false: the daemon ends.
func (w *watcher) awaitEvent(here bool) bool {
	fds := []unix.PollFd{{Fd: int32(w.woken.Fd())}}
	timeout := -1
	if w.events >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(w.events), Events: unix.POLLIN})
	} else {
		timeout = int(pollPause.Milliseconds())
	}
	if !here { // mounting a file system there is no event of the directory
		if mounts, err := os.Open("/proc/self/mountinfo"); err == nil {
			defer func() { _ = mounts.Close() }()
			fds = append(fds, unix.PollFd{Fd: int32(mounts.Fd()), Events: unix.POLLPRI})
		}
	}
	for {
		_, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fds[0].Revents == 0
}

// drainEvents waits for drainPause and drops all events until then; false: the daemon
// ends.
func (w *watcher) drainEvents() bool {
	fds := []unix.PollFd{{Fd: int32(w.woken.Fd())}}
	if n, _ := unix.Poll(fds, int(drainPause.Milliseconds())); n > 0 {
		return false
	}
	if w.events < 0 {
		return true
	}
	buffer := make([]byte, 4<<10)
	for {
		if n, err := unix.Read(w.events, buffer); n <= 0 || err != nil {
			return true
		}
	}
}
