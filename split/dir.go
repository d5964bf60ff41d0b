package split

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/split/task"
)

// Folder holds all splits of a working directory.
const Folder = ".asplit"

// The files of a split's directory, beside those of its tasks.
const (
	fileState  = "state.db"
	fileItems  = "items"
	fileAdded  = "added"
	fileLock   = "lock"
	fileStatus = "status"
)

// lockTime bounds the wait for another process to release the split: one that was killed, or that
// asks whether the split runs.
const lockTime = 3 * time.Second

// Dir is a split's directory, locked by this process.
type Dir struct {
	Path string // absolute
	lock *os.File
}

// CreateDir makes the directory of a new split below a working directory, and returns
// it with its name: name, or a random one if that is empty.
func CreateDir(work, name string) (*Dir, string, error) {
	folder := filepath.Join(work, Folder)
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, "", fmt.Errorf("make a directory for the split: %w", err)
	}
	if err := task.CheckDir(folder); err != nil {
		return nil, "", err
	}
	for given := name != ""; ; {
		if !given {
			name = token()[:4]
		}
		if err := CheckName(name); err != nil {
			return nil, "", err
		}
		err := os.Mkdir(filepath.Join(folder, name), 0o700)
		if err == nil {
			d, err := lockDir(filepath.Join(folder, name))
			return d, name, err
		}
		if !errors.Is(err, fs.ErrExist) || given {
			return nil, "", fmt.Errorf("make a directory for the split: %w (asplit --resume %s continues the one of that name)", err, name)
		}
	}
}

// OpenDir opens the directory of a split that was started before; an empty name means
// the latest one.
func OpenDir(work, name string) (*Dir, string, error) {
	folder := filepath.Join(work, Folder)
	if name == "" {
		var err error
		if name, err = latest(folder); err != nil {
			return nil, "", err
		}
	}
	if err := CheckName(name); err != nil {
		return nil, "", err
	}
	path := filepath.Join(folder, name)
	for _, dir := range []string{folder, path} {
		err := task.CheckDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("no split %s in %s: it has ended, or was started in another directory", name, work)
		}
		if err != nil {
			return nil, "", err
		}
	}
	d, err := lockDir(path)
	return d, name, err
}

func latest(folder string) (string, error) {
	entries, err := splitsIn(folder)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", fmt.Errorf("nothing to resume in %s: each split has ended, or was started in another directory", filepath.Dir(folder))
	}
	newest := slices.MaxFunc(entries, func(a, b fs.DirEntry) int {
		if c := beganAt(folder, a) - beganAt(folder, b); c != 0 {
			return int(max(-1, min(c, 1)))
		}
		return strings.Compare(a.Name(), b.Name())
	})
	return newest.Name(), nil
}

// beganAt returns when a split was begun, in UNIX nanoseconds: the time of its lock.
func beganAt(folder string, e fs.DirEntry) int64 {
	info, err := os.Lstat(filepath.Join(folder, e.Name(), fileLock))
	if err != nil {
		return 0
	}
	return info.ModTime().UnixNano()
}

// lockDir locks a split's directory. It waits for a process that was killed just now
// and may need a moment to be gone. The error wraps ErrBusy if one holds the lock.
func lockDir(path string) (*Dir, error) {
	f, err := flock.Open(context.Background(), filepath.Join(path, fileLock), lockTime)
	if errors.Is(err, flock.ErrHeld) {
		err = ErrBusy
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Dir{Path: path, lock: f}, nil
}

// Close releases the lock.
func (d *Dir) Close() error { return d.lock.Close() }

// Remove removes the directory with all that is in it. It is renamed first, so that
// what a crash leaves behind is no split.
func (d *Dir) Remove() error {
	gone := filepath.Join(filepath.Dir(d.Path), "_ended-"+filepath.Base(d.Path)+"-"+token())
	if err := os.Rename(d.Path, gone); err != nil {
		return fmt.Errorf("remove the split's directory: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove the split's directory: %w", err)
	}
	os.Remove(filepath.Dir(d.Path)) // if it was the last one
	return nil
}

// file returns the path of one of its files.
func (d *Dir) file(name string) string { return filepath.Join(d.Path, name) }
