// Package trusted opens files that another user could have planted or changed,
// and refuses those that users other than root and the caller may write.
package trusted

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
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
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = check(path, info, os.Geteuid(), allowed)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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

// File is Open's check alone, for files that a library will open.
func File(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return check(path, info, os.Geteuid(), func(uint32) bool { return false })
}

func check(path string, info fs.FileInfo, euid int, allowed func(owner uint32) bool) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is not a regular file", path, ErrNotTrusted)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: %w: its owner is unknown", path, ErrNotTrusted)
	}
	if stat.Uid != 0 && int64(stat.Uid) != int64(euid) && !allowed(stat.Uid) {
		return fmt.Errorf("%s: %w: it belongs to user ID %d; only root's files and your own are used", path, ErrNotTrusted, stat.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: %w: others can write it (mode %#o): chmod go-w it if its contents are right", path, ErrNotTrusted, info.Mode().Perm())
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
