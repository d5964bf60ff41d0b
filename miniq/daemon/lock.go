package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/miniq"
)

// errRunning says that another daemon serves already.
var errRunning = errors.New("another miniqd is running")

// stateLock is the right to change a state directory. The directory itself is locked:
// no other one can take its place unnoticed, and no file must stay in it for that. The
// file named lock is locked too, since miniqd locked that alone until version 0.1.
type stateLock struct {
	path string
	dir  *os.File
	info fs.FileInfo // of dir
	file *os.File    // nil: there is none
}

// lockState locks a state directory; flag opens the file named lock. flock.ErrHeld: another
// process holds it.
func lockState(path string, flag int) (*stateLock, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	l := &stateLock{path: path, dir: dir}
	if err := l.acquire(flag); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *stateLock) acquire(flag int) error {
	err := flock.Try(l.dir)
	if err != nil && !unlockable(err) {
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	if l.info, err = l.dir.Stat(); err != nil {
		return err
	}
	l.file, err = os.OpenFile(filepath.Join(l.path, miniq.LockName), flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE == 0 {
		return l.lost()
	}
	if err != nil {
		return err
	}
	if err := flock.Try(l.file); err != nil {
		return fmt.Errorf("lock %s: %w", l.file.Name(), err)
	}
	return l.lost()
}

// unlockable reports whether an error says that the file system locks no directories,
// as NFS does: the lock file has to do there.
func unlockable(err error) bool {
	return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP)
}

func (l *stateLock) close() {
	_ = l.dir.Close()
	if l.file != nil {
		_ = l.file.Close()
	}
}

// lost returns an error if the directory's path does not lead to it any more.
func (l *stateLock) lost() error {
	now, err := os.Stat(l.path)
	if err == nil && os.SameFile(now, l.info) {
		return nil
	}
	return &lostError{l.path}
}

// lostError says that the state directory was removed, moved or replaced while it was
// in use, or what is in it was.
type lostError struct{ path string }

func (e *lostError) Error() string { return e.path + " was removed or replaced while miniqd served it" }

// guardedDisk is a disk on which nothing is made, renamed or removed any more once the state
// directory is lost: what has its name then is not this daemon's.
type guardedDisk struct {
	disk.Disk
	lock *stateLock
}

func (g guardedDisk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	if err := g.lock.lost(); err != nil {
		return nil, err
	}
	return g.Disk.OpenFile(path, flag, mode)
}

func (g guardedDisk) Mkdir(path string, mode fs.FileMode) error {
	if err := g.lock.lost(); err != nil {
		return err
	}
	return g.Disk.Mkdir(path, mode)
}

func (g guardedDisk) Rename(from, to string) error {
	if err := g.lock.lost(); err != nil {
		return err
	}
	return g.Disk.Rename(from, to)
}

func (g guardedDisk) Remove(path string) error {
	if err := g.lock.lost(); err != nil {
		return err
	}
	return g.Disk.Remove(path)
}

// sign writes this process and its socket into the lock file, for other processes.
func (l *stateLock) sign(socket string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(miniq.LockText(os.Getpid(), socket), 0)
	return err
}

// describeHolder names the process that has locked a state directory, by its lock file.
func describeHolder(path string) string {
	pid, socket := miniq.LockHolder(path)
	if pid == 0 {
		return "another process (fuser " + path + " names it)"
	}
	return fmt.Sprintf("process %d, which was to listen at %s", pid, socket)
}

const (
	acquireTime = 30 * time.Second // that a daemon waits for another one to serve or to end
	warnAfter   = time.Second
	firstPause  = 5 * time.Millisecond
	mostPause   = 200 * time.Millisecond
)

// acquireState locks a state directory. If another process holds it, claim waits until that
// one listens (errRunning) or has ended, for acquireTime at most.
func acquireState(ctx context.Context, state, socket string, log *slog.Logger) (*stateLock, error) {
	began := time.Now()
	warned := false
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		lock, err := lockState(state, os.O_RDWR|os.O_CREATE)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, flock.ErrHeld) {
			return nil, err
		}
		if _, other := miniq.LockHolder(state); serves(socket) || other != "" && serves(other) {
			return nil, errRunning
		}
		if time.Since(began) > acquireTime {
			return nil, fmt.Errorf("%s is locked by %s; no process listens at %s after %v: kill that process, jobs run on", state, describeHolder(state), socket, acquireTime)
		}
		if !warned && time.Since(began) > warnAfter {
			warned = true
			log.Warn("waiting for another miniqd", "state", state, "held_by", describeHolder(state))
		}
		wakeWatcher(state)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// wakeWatcher makes the daemon of a state directory check that its socket is still there.
func wakeWatcher(state string) {
	now := time.Now()
	_ = os.Chtimes(state, now, now) // may fail: the daemon finds out by itself
}
