package keeper

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A job's files may be named pipes: open(2) of one blocks until its other end is
// opened, perhaps for ever. So files are opened without blocking: a keeper that waits
// for the other end must notice that its job is to be killed.

// fifoPause is the interval at which a keeper that waits for the other end of a named
// pipe tries again, and checks for a kill.
const fifoPause = 50 * time.Millisecond

var errKilled = errors.New("it was killed before the other end was opened")

// openUserFile opens a file that the user names like open(2), but a kill ends the wait.
func openUserFile(path string, flags int, killed func() bool) (*os.File, error) {
	fd, err := openNow(path, flags)
	for errors.Is(err, unix.ENXIO) && isFIFO(path) || errors.Is(err, unix.EAGAIN) { // no reader yet, or another process has a lease
		if killed() {
			return nil, errKilled
		}
		time.Sleep(fifoPause)
		fd, err = openNow(path, flags)
	}
	if err != nil {
		return nil, err
	}
	if err = ofTheJob(fd); err == nil && flags&unix.O_ACCMODE == unix.O_RDONLY {
		err = awaitWriter(fd, killed)
	}
	if err == nil { // before an os.File is made of it, which would poll it
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&unix.O_APPEND)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ofTheJob returns an error for a file of /proc: the keeper opens it, so "self" would
// mean the keeper and not the job, and the job could read /proc/self/maps of root's
// keeper.
func ofTheJob(fd int) error {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	if err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		return errors.New("it is a file of /proc, which would describe the queue's process: open it in the job's command")
	}
	return err
}

func openNow(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666) // the job's umask decides
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func isFIFO(path string) bool {
	var s unix.Stat_t
	return unix.Stat(path, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFIFO
}

// awaitWriter waits until a named pipe was opened to write: from then on it has data
// or has hung up. It returns nil at once for any other file.
func awaitWriter(fd int, killed func() bool) error {
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(fifoPause.Milliseconds()))
		switch {
		case n > 0, err != nil && !errors.Is(err, unix.EINTR):
			return nil
		case killed():
			return errKilled
		}
	}
}

// killed reports whether the record asks for a kill. It is for the time before obey.
func (k *supervisor) killed() bool {
	return k.log.Read(k.record) == nil && k.log.Wanted.Has(Kill)
}
