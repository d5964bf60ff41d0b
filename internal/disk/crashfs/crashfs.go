// Package crashfs simulates, for tests, a disk that loses its power: it records which
// writes were synced, and writes down what a machine could find on it after a power
// failure at any moment. It also fails on demand.
//
// It assumes no more than POSIX guarantees. Of a file that was not synced since, each
// sector may or may not have been written, in any order, and so may its new length.
// After a Sync that failed, what it should have written counts as clean: a later Sync
// does not write it. A name that was made, renamed or removed since its directory was
// synced may or may not be so, but a directory's changes happen in their order.
package crashfs

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/allotment-hpc/allotment/internal/disk"
)

// sector is what is written whole or not at all, in bytes.
const sector = 512

// Op is what is about to be done.
type Op struct{ Kind, Path string }

// Kinds of operations.
const (
	Create   = "create" // or open
	Write    = "write"
	Truncate = "truncate"
	Sync     = "sync"
	Mkdir    = "mkdir"
	Rename   = "rename"
	Remove   = "remove"
	SyncDir  = "sync directory"
)

// Disk is a disk. Its files are those of the machine's own below a directory.
type Disk struct {
	root string
	dice *rand.Rand
	hook func(Op) error

	mu      sync.Mutex
	files   map[string]*inode // by path, as programs see it
	safe    map[string]*inode // as it is on disk
	dirs    map[string]bool   // on disk
	pending []change
}

// change is one of a directory that is not on disk yet.
type change struct {
	dir   string
	apply func(files map[string]*inode, dirs map[string]bool)
}

// inode is a file, whatever its name.
type inode struct {
	live  []byte
	safe  []byte       // on disk
	dirty map[int]bool // sectors that the next sync writes
}

// New returns the disk of a directory, in which everything that is there is safe. The
// hook is called before each operation, with the disk locked; its error is the
// operation's.
func New(root string, dice *rand.Rand, hook func(Op) error) (*Disk, error) {
	d := &Disk{root: root, dice: dice, hook: hook, files: map[string]*inode{}, safe: map[string]*inode{}, dirs: map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			d.dirs[path] = true
		case e.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n := &inode{live: data, safe: slices.Clone(data), dirty: map[int]bool{}}
			d.files[path], d.safe[path] = n, n
		}
		return nil
	})
	return d, err
}

func (d *Disk) change(dir string, apply func(map[string]*inode, map[string]bool)) {
	d.pending = append(d.pending, change{dir, apply})
}

// OpenFile opens or makes a file.
func (d *Disk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hook(Op{Create, path}); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	n := d.files[path]
	if n == nil {
		n = &inode{dirty: map[int]bool{}}
		d.files[path] = n
		d.change(filepath.Dir(path), func(files map[string]*inode, _ map[string]bool) { files[path] = n })
	}
	if flag&os.O_TRUNC != 0 {
		n.resize(0)
	}
	return &file{f, d, n, flag&os.O_APPEND != 0, 0}, nil
}

// Mkdir makes a directory.
func (d *Disk) Mkdir(path string, mode fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hook(Op{Mkdir, path}); err != nil {
		return err
	}
	err := os.Mkdir(path, mode)
	if err == nil {
		d.change(filepath.Dir(path), func(_ map[string]*inode, dirs map[string]bool) { dirs[path] = true })
	}
	return err
}

// Rename renames a file.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hook(Op{Rename, to}); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	n := d.files[from]
	delete(d.files, from)
	d.files[to] = n
	d.change(filepath.Dir(to), func(files map[string]*inode, _ map[string]bool) {
		delete(files, from)
		files[to] = n
	})
	return nil
}

// Remove removes a file.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hook(Op{Remove, path}); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	delete(d.files, path)
	d.change(filepath.Dir(path), func(files map[string]*inode, _ map[string]bool) { delete(files, path) })
	return nil
}

// SyncDir makes a directory's names safe.
func (d *Disk) SyncDir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hook(Op{SyncDir, path}); err != nil {
		return err
	}
	d.pending = slices.DeleteFunc(d.pending, func(c change) bool {
		if c.dir == path {
			c.apply(d.safe, d.dirs)
		}
		return c.dir == path
	})
	return nil
}

// Image writes what is left after a power failure now into a new directory. A hook may
// call it: the disk is locked then. Else no operation may run meanwhile.
func (d *Disk) Image(to string) error {
	files, dirs := maps.Clone(d.safe), maps.Clone(d.dirs)
	left := make(map[string]int) // changes of each directory that happened
	for _, c := range d.pending {
		left[c.dir]++
	}
	for _, dir := range slices.Sorted(maps.Keys(left)) {
		left[dir] = d.dice.IntN(left[dir] + 1)
	}
	for _, c := range d.pending {
		if left[c.dir]--; left[c.dir] >= 0 {
			c.apply(files, dirs)
		}
	}
	mood := d.dice.IntN(4) // nothing of what was not synced is there, all of it, or some
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !d.reachable(filepath.Dir(path), dirs) {
			continue
		}
		place := to + strings.TrimPrefix(path, d.root)
		if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(place, files[path].after(mood, d.dice), 0o600); err != nil {
			return err
		}
	}
	return os.MkdirAll(to, 0o700)
}

func (d *Disk) reachable(dir string, dirs map[string]bool) bool {
	for ; len(dir) > len(d.root); dir = filepath.Dir(dir) {
		if !dirs[dir] {
			return false
		}
	}
	return true
}

// resize changes a file's length.
func (n *inode) resize(size int) {
	if size <= len(n.live) {
		n.live = n.live[:size:size]
	} else {
		n.live = append(n.live, make([]byte, size-len(n.live))...)
	}
	n.dirty[size/sector] = true
}

func (n *inode) write(at int, p []byte) {
	if at+len(p) > len(n.live) {
		n.live = append(n.live, make([]byte, at+len(p)-len(n.live))...)
	}
	copy(n.live[at:], p)
	for s := at / sector; s*sector < at+len(p); s++ {
		n.dirty[s] = true
	}
}

// put copies a sector onto an image of the file, as far as both have it.
func put(image, from []byte, s int) {
	if begin, end := s*sector, min((s+1)*sector, len(image)); begin < end {
		clear(image[begin:end])
		if begin < len(from) {
			copy(image[begin:end], from[begin:])
		}
	}
}

// sync makes dirty sectors safe.
func (n *inode) sync() {
	image := make([]byte, len(n.live))
	copy(image, n.safe)
	for s := range n.dirty {
		put(image, n.live, s)
	}
	n.safe = image
	clear(n.dirty)
}

// after returns what is left of a file after a power failure.
func (n *inode) after(mood int, dice *rand.Rand) []byte {
	size := []int{len(n.safe), len(n.live), len(n.safe)}[min(mood, 2)]
	if low, high := min(len(n.safe), len(n.live)), max(len(n.safe), len(n.live)); mood >= 2 && len(n.dirty) > 0 {
		size = low + dice.IntN(high-low+1)
	}
	if len(n.dirty) == 0 {
		size = len(n.safe)
	}
	image := make([]byte, size)
	copy(image, n.safe)
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		if mood == 1 || mood >= 2 && dice.IntN(2) == 0 {
			put(image, n.live, s)
		}
	}
	return image
}

type file struct {
	f      *os.File
	d      *Disk
	n      *inode
	append bool
	at     int
}

func (f *file) Name() string { return f.f.Name() }
func (f *file) Close() error { return f.f.Close() }

// Write writes p, or a part of it if the hook returns an error.
func (f *file) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.append {
		f.at = len(f.n.live)
	}
	written, err := f.write(p, f.at, f.f.Write)
	f.at += written
	return written, err
}

// WriteAt writes as Write does, at a place.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.write(p, int(at), func(p []byte) (int, error) { return f.f.WriteAt(p, at) })
}

func (f *file) write(p []byte, at int, write func([]byte) (int, error)) (int, error) {
	failed := f.d.hook(Op{Write, f.Name()})
	if failed != nil {
		p = p[:f.d.dice.IntN(len(p)+1)]
	}
	written, err := write(p)
	f.n.write(at, p[:written])
	if failed != nil {
		err = failed
	}
	return written, err
}

// Truncate cuts the file, or makes it longer.
func (f *file) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.hook(Op{Truncate, f.Name()}); err != nil {
		return err
	}
	err := f.f.Truncate(size)
	if err == nil {
		f.n.resize(int(size))
	}
	return err
}

// Sync makes the file's content safe. A failed one leaves any part of it written, and
// the rest marked as clean.
func (f *file) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.hook(Op{Sync, f.Name()}); err != nil {
		f.n.safe = f.n.after(f.d.dice.IntN(4), f.d.dice)
		clear(f.n.dirty)
		return err
	}
	f.n.sync()
	return nil
}
