package keeper

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A job's files may be named pipes, and to open one takes until somebody opens
// its other end, perhaps for ever. So nothing is opened that way: a keeper that
// waits there must hear that its job is to be killed.

// fifoPause is how often a keeper that waits for the other end of a named pipe
// looks, and looks for what is wanted of it.
const fifoPause = 50 * time.Millisecond

var errKilled = errors.New("it was killed before the other end was opened")

// openUserFile opens a file that the user names, as open(2) would but for that.
func openUserFile(path string, flags int, killed func() bool) (*os.File, error) {
	fd, err := openNow(path, flags)
	for errors.Is(err, unix.ENXIO) && isFIFO(path) || errors.Is(err, unix.EAGAIN) { // nobody reads there yet, or somebody has a lease
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

// ofTheJob refuses a file of /proc: it would tell of the keeper, which opens it, in the
// name of whoever wrote "self", and not of the job. /proc/self/maps of root's keeper
// may be read by all whom it opens it for.
func ofTheJob(fd int) error {
	var fs unix.Statfs_t
	err := unix.Fstatfs(fd, &fs)
	if err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		return errors.New("it is a file of /proc: the job's command may open it, for the queue's process it means another one")
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

// awaitWriter waits until somebody has opened a named pipe to write: from then on
// it has data or is hung up on.
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

// killed tells whether the record says that the job is to be killed, before
// anything obeys it.
func (k *keep) killed() bool {
	return k.log.Read(k.record) == nil && k.log.Wanted.Has(Kill)
}
