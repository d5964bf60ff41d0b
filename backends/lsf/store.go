package lsf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// record is where entries are kept. Without a file, or the permission to write it, they
// last as long as the process.
type record struct {
	path string

	mu  sync.Mutex
	own entries // the process's, where the file can't be used
}

// read returns the entries; without permission to read the file, the process's own.
func (r *record) read() (entries, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, _, err := r.load()
	return all, err
}

// load reads the file. ours is false if the process may not use it.
func (r *record) load() (all entries, ours bool, err error) {
	if r.path == "" {
		return maps.Clone(r.own), false, nil
	}
	f, err := trusted.OpenBy(r.path, func(owner uint32) bool { return owner == ownerOf(filepath.Dir(r.path)) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return entries{}, true, nil
	case errors.Is(err, fs.ErrPermission):
		return maps.Clone(r.own), false, nil
	case err != nil:
		return nil, false, fmt.Errorf("the record of acts on jobs: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, false, err
	}
	file, err := parseRecord(text)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w: the record of acts on jobs can't be read: restore a copy of it, or move it away and run pba restore", r.path, err)
	}
	return file, true, nil
}

// change lets f change the entries, and keeps them: when it returns nil they are on disk,
// if there is a file. It excludes other changes meanwhile.
func (r *record) change(f func(entries)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	unlock, err := r.lock()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, errNoFile) {
		if r.own == nil {
			r.own = entries{}
		}
		f(r.own)
		return nil
	}
	if err != nil {
		return fmt.Errorf("the record of acts on jobs: %w", err)
	}
	defer unlock()
	all, ours, err := r.load()
	if err != nil {
		return err
	}
	if !ours {
		f(all)
		r.own = all
		return nil
	}
	before, err := all.text()
	if err != nil {
		return err
	}
	f(all)
	maps.DeleteFunc(all, func(_ backends.ID, e entry) bool { return e.empty() })
	after, err := all.text()
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	return r.write(after)
}

var errNoFile = errors.New("no file")

// lock excludes other processes until unlock is called.
func (r *record) lock() (unlock func(), err error) {
	if r.path == "" {
		return nil, errNoFile
	}
	f, err := os.OpenFile(r.path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	chownToEngine(f)
	if err := flock.Wait(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func (r *record) write(text []byte) error {
	name, err := disk.Prepare(r.path, 0o600, text)
	if err != nil {
		return err
	}
	if f, err := os.Open(name); err == nil {
		chownToEngine(f)
		_ = f.Close()
	}
	if err := os.Rename(name, r.path); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return disk.OS().SyncDir(filepath.Dir(r.path))
}

// chownToEngine gives a file that root wrote to the engine's user, who owns the directory.
func chownToEngine(f *os.File) {
	if os.Geteuid() == 0 {
		_ = f.Chown(int(ownerOf(filepath.Dir(f.Name()))), -1)
	}
}

func ownerOf(path string) uint32 {
	if info, err := os.Stat(path); err == nil {
		if uid, ok := uidOf(info); ok {
			return uid
		}
	}
	return 0
}

func uidOf(info fs.FileInfo) (uid uint32, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}
