// Package trusted opens files that another user could have planted or changed,
// and refuses those that users other than root and the caller may write.
package trusted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotTrusted is wrapped by every refusal for owner, mode or kind of a file.
var ErrNotTrusted = errors.New("not trusted")

// Open opens a file for reading if it may be trusted: a regular file, owned by
// root or by the calling user, writable by its owner alone. It checks the open file
// itself, which can't be exchanged in between, and a named pipe does not block. For a
// file that is missing it returns fs.ErrNotExist.
func Open(path string) (*os.File, error) {
	return OpenBy(path, func(uint32) bool { return false })
}

// OpenBy is Open for a file that some other user may own too. may is called only for an
// owner other than root and the caller.
func OpenBy(path string, allowed func(owner uint32) bool) (*os.File, error) {
	// Not by package os: to it a regular file is one to be polled for, which starts the
	// runtime's poller in each asub.
	fd, err := open(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var info unix.Stat_t
	err = unix.Fstat(fd, &info)
	if err == nil {
		err = check(path, &info, os.Geteuid(), allowed)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(path string) (fd int, err error) {
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Read reads a file that Open opens.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// ErrExposed is wrapped by the refusal of a private file that other users can read.
var ErrExposed = errors.New("others can read it")

// Others are the bits of a mode by which others than the owner can read a file.
const Others = 0o077

// ReadPrivate reads a file that keeps a secret: one that Open opens, of at most so many bytes,
// whose mode has none of these bits (Others). Mode, owner and content are those of the same open
// file, whatever a link or a rename does meanwhile. With ErrExposed it returns the content, too.
func ReadPrivate(path string, most int64, others uint32) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(content)) > most:
		return nil, fmt.Errorf("%s: it has more than %d bytes", path, most)
	case info.Mode&others != 0:
		err = fmt.Errorf("%s: %w: %w (mode %#o): replace the secret in it, which may be known, and chmod 600 it", path, ErrNotTrusted, ErrExposed, info.Mode&0o777)
	}
	return content, err
}

// File is Open's check alone, for files that a library will open.
func File(path string) error {
	return FileBy(path, func(uint32) bool { return false })
}

// FileBy is OpenBy's check alone.
func FileBy(path string, allowed func(owner uint32) bool) error {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return check(path, &info, os.Geteuid(), allowed)
}

func check(path string, info *unix.Stat_t, euid int, allowed func(owner uint32) bool) error {
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s: %w: it is not a regular file", path, ErrNotTrusted)
	}
	if info.Uid != 0 && int64(info.Uid) != int64(euid) && !allowed(info.Uid) {
		return fmt.Errorf("%s: %w: it belongs to user ID %d; only root's files and your own are used", path, ErrNotTrusted, info.Uid)
	}
	if info.Mode&0o022 != 0 {
		return fmt.Errorf("%s: %w: others can write it (mode %#o): chmod go-w it if its contents are right", path, ErrNotTrusted, info.Mode&0o777)
	}
	return nil
}

// OwnerOf allows the owner of a directory, for OpenBy.
func OwnerOf(dir string) (allowed func(owner uint32) bool) {
	info, err := os.Stat(dir)
	return func(owner uint32) bool {
		if err != nil {
			return false
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return ok && stat.Uid == owner
	}
}

// ForeignOwner is the error for a directory that belongs to another user.
type ForeignOwner struct{ UID uint32 }

func (e ForeignOwner) Error() string { return fmt.Sprintf("it belongs to user ID %d", e.UID) }

// Dir returns an error if a path is no directory of the caller's own, or one that others
// can write: they could put files there. Its text does not name the path, unless the
// path can't be looked at.
func Dir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return errors.New("it is not a directory")
	case int64(stat.Uid) != int64(os.Geteuid()):
		return ForeignOwner{stat.Uid}
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write it (mode %#o): chmod go-w it if its contents are right", info.Mode().Perm())
	}
	return nil
}
