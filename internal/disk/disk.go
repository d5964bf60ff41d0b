// Package disk is the part of a file system that programs need which must not
// lose what they wrote: they write, sync and rename through it, so that tests can
// put one below them that fails, or that forgets at a power failure what was not
// synced (package crashfs). Reading goes past it.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is an open file. What was written is safe when Sync has returned nil, and
// the file's name when SyncDir has; after a Sync that failed nothing is known of
// what was written since the last one that did not.
type File interface {
	io.Writer
	io.WriterAt
	Name() string
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Disk makes, renames and removes files, as package os does.
type Disk interface {
	OpenFile(path string, flag int, mode fs.FileMode) (File, error)
	Mkdir(path string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(path string) error // what was made, renamed and removed in it is safe
}

// OS is the machine's own file system.
func OS() Disk { return system{} }

type system struct{}

func (system) OpenFile(path string, flag int, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err // not a File that holds no *os.File
	}
	return file{f}, nil
}

// file is synced by fdatasync(2): its times are not needed.
type file struct{ *os.File }

func (f file) Sync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

func (system) Mkdir(path string, mode fs.FileMode) error { return os.Mkdir(path, mode) }
func (system) Rename(from, to string) error              { return os.Rename(from, to) }
func (system) Remove(path string) error                  { return os.Remove(path) }

func (system) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MkdirAll makes a directory and those above it that are missing, and syncs the name of
// each new one.
func MkdirAll(d Disk, path string, mode fs.FileMode) error {
	err := d.Mkdir(path, mode)
	above := filepath.Dir(path)
	if errors.Is(err, fs.ErrNotExist) && above != path {
		if err := MkdirAll(d, above, mode); err != nil {
			return err
		}
		err = d.Mkdir(path, mode)
	}
	if errors.Is(err, fs.ErrExist) {
		info, statErr := os.Stat(path)
		if statErr == nil && info.IsDir() {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	return d.SyncDir(above)
}

// Replace replaces a file's content: all of it or, after an error or a power failure,
// nothing.
func Replace(d Disk, path string, mode fs.FileMode, parts ...[]byte) error {
	f, err := d.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = f.Write(part)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, d.Remove(f.Name()))
	}
	return d.SyncDir(filepath.Dir(path))
}

// Put is Replace for a directory that others may write in; the mode is the file's,
// whatever the caller's umask. A power failure may bring the old content back.
func Put(path string, mode fs.FileMode, content []byte) error {
	temp, err := Prepare(path, mode, content)
	return exchange(path, temp, err)
}

// PutUnsynced is Put for a file that is soon written again: a power failure may leave it
// empty or broken.
func PutUnsynced(path string, mode fs.FileMode, content []byte) error {
	temp, err := prepare(path, mode, content, false)
	return exchange(path, temp, err)
}

func exchange(path, temp string, err error) error {
	if err == nil {
		if err = os.Rename(temp, path); err != nil {
			err = errors.Join(err, os.Remove(temp))
		}
	}
	return err
}

// Prepare writes the content of a file into a new one beside it, and returns its name
// when all of it is synced: for several files that must change at nearly one instant,
// and for directories that others may write in. The mode is the file's, whatever the
// caller's umask. The caller must rename or remove the new file.
func Prepare(path string, mode fs.FileMode, content []byte) (string, error) {
	return prepare(path, mode, content, true)
}

func prepare(path string, mode fs.FileMode, content []byte, synced bool) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && synced {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
