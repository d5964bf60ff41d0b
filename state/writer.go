package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
)

// Writer writes objects in the background, many at a time: changes are on
// disk in the journal already, and stay there until Durable has passed them.
type Writer struct {
	disk  disk.Disk
	dir   string
	log   *slog.Logger
	pause time.Duration

	patience time.Duration // of Close

	mu      sync.Mutex
	dirty   map[backends.ID][]Change
	backlog backlog
	seq     uint64 // of the last Mark
	durable uint64
	busy    bool // a batch is being written
	removed []backends.ID
	wake    chan struct{}
	waiting []chan struct{} // closed after the next batch that began later
	err     error           // of the last batch
	closeBy time.Time       // until when Close waits; zero: it was not called

	begun chan struct{}
	stop  chan struct{}
	done  chan struct{}
}

const (
	batchPause = 5 * time.Second // changes to one job gather for so long: most jobs are short
	retryPause = 5 * time.Second // after a batch that failed
	maxBatch   = 512             // objects written before they are synced
	closeTime  = 5 * time.Second // how long Close writes
	maxDirty   = 4096            // jobs whose changes don't gather any longer
)

// NewWriter writes below a directory, which it makes. It gathers changes; the
// first one is written after Start.
func NewWriter(on disk.Disk, dir string, log *slog.Logger) (*Writer, error) {
	if err := disk.MkdirAll(on, dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of state objects: %w", err)
	}
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	w := &Writer{
		disk: on, dir: dir, log: log, pause: batchPause, patience: closeTime, dirty: map[backends.ID][]Change{}, backlog: newBacklog(),
		wake: make(chan struct{}, 1), begun: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go w.loop(m)
	return w, nil
}

// Put hands a change over; it never waits for the disk. Changes come in the
// order of their Seq; Mark follows the last one of each, since a batch may begin
// between two.
func (w *Writer) Put(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[c.ID] = dropOldLines(append(w.dirty[c.ID], c))
	w.backlog.count(&c)
	w.wakeLoop()
}

// Mark says that every change up to seq has been handed over.
func (w *Writer) Mark(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq = max(w.seq, seq)
	if !w.busy && len(w.dirty) == 0 && len(w.removed) == 0 {
		w.durable = max(w.durable, w.seq)
	}
}

// Marked returns the highest seq that Mark was given.
func (w *Writer) Marked() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}

// Remove removes jobs' objects. No change of these jobs follows.
func (w *Writer) Remove(ids ...backends.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = append(w.removed, ids...)
	w.dropChanges(ids)
	w.wakeLoop()
}

// dropChanges drops changes of objects that are about to be removed.
func (w *Writer) dropChanges(ids []backends.ID) {
	for _, id := range ids {
		delete(w.dirty, id)
	}
}

func (w *Writer) wakeLoop() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Durable returns the place in the journal up to which the objects have everything.
func (w *Writer) Durable() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.durable
}

// Flush returns when everything that was put before it is on disk, or could not
// be written.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	if !w.busy && len(w.dirty) == 0 && len(w.removed) == 0 && w.durable >= w.seq {
		w.mu.Unlock()
		return nil
	}
	written := make(chan struct{})
	w.waiting = append(w.waiting, written)
	w.wakeLoop()
	w.mu.Unlock()
	select {
	case <-written:
	case <-w.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Start begins to write.
func (w *Writer) Start() { close(w.begun) }

// errLate ends a batch that Close would wait for too long.
var errLate = errors.New("the writer is closed")

// Close writes what it can in closeTime, as long as a user would wait for a daemon to
// stop, and ends the writer. One that was not started writes nothing. Durable shows
// whether something was left out.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closeBy = time.Now().Add(w.patience)
	w.mu.Unlock()
	close(w.stop)
	<-w.done
}

func (w *Writer) late() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closeBy.IsZero() && time.Now().After(w.closeBy)
}

func (w *Writer) loop(m *memory) {
	defer close(w.done)
	defer m.close()
	select {
	case <-w.begun:
	case <-w.stop:
		select {
		case <-w.begun: // both came at once
		default:
			return
		}
	}
	for {
		select {
		case <-w.wake:
		case <-w.stop:
			_ = w.writeBatch(m)
			return
		}
		w.gather()
		if w.writeBatch(m) != nil {
			select {
			case <-time.After(retryPause):
				w.wakeLoop()
			case <-w.stop:
			}
		}
	}
}

// gather waits for more changes, unless Flush waits or many jobs are dirty.
func (w *Writer) gather() {
	timer := time.NewTimer(w.pause)
	defer timer.Stop()
	for {
		w.mu.Lock()
		hurry := len(w.waiting) > 0 || len(w.dirty) > maxDirty
		w.mu.Unlock()
		if hurry {
			return
		}
		select {
		case <-timer.C:
			return
		case <-w.wake:
		case <-w.stop:
			return
		}
	}
}

// writeBatch writes everything that is dirty. After an error what was not written is
// dirty again.
func (w *Writer) writeBatch(m *memory) error {
	w.mu.Lock()
	dirty, seq, waiting, removed := w.dirty, w.seq, w.waiting, w.removed
	w.dirty, w.waiting, w.removed = map[backends.ID][]Change{}, nil, nil
	w.busy = true
	w.backlog.begin()
	w.mu.Unlock()
	w.remove(removed) // first: what is written may need the room
	err := w.write(m, dirty)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	w.backlog.end(err == nil)
	if err != nil {
		if errors.Is(err, errLate) {
			w.log.Info("state objects are left to the next start, from the journal", "jobs", len(dirty))
		} else {
			w.log.Error("write state objects; they stay in the journal", "error", err)
		}
		for id, later := range w.dirty {
			dirty[id] = append(dirty[id], later...)
		}
		w.dirty = dirty
		w.dropChanges(w.removed)
	} else {
		if len(w.dirty) == 0 && len(w.removed) == 0 {
			seq = w.seq // what came meanwhile changed nothing
		}
		w.durable = max(w.durable, seq)
	}
	w.err = err
	for _, c := range waiting {
		close(c)
	}
	return err
}

// remove removes objects, and directories that hold none any more. A directory is synced
// once: there may be thousands, and a sync takes as long as a hundred removals.
func (w *Writer) remove(ids []backends.ID) {
	dirs := make(map[string]bool)
	for _, id := range ids {
		path := Path(w.dir, id)
		dirs[filepath.Dir(path)] = true
		if err := w.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("remove a state object", "job", id, "error", err)
		}
	}
	changed := make(map[string]bool)
	for dir := range dirs {
		if w.disk.Remove(dir) == nil { // only an empty one goes
			dir = w.dir
		}
		changed[dir] = true
	}
	for dir := range changed {
		if err := w.disk.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("remove state objects", "directory", dir, "error", err)
		}
	}
}

// write writes objects in groups: each is written beside the old one, all are
// synced, then renamed.
func (w *Writer) write(m *memory, dirty map[backends.ID][]Change) error {
	ids := make([]backends.ID, 0, len(dirty))
	for id := range dirty {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, backends.ID.Compare)
	for group := range slices.Chunk(ids, maxBatch) {
		if w.late() {
			return errLate
		}
		if err := w.writeGroup(m, group, dirty); err != nil {
			return err
		}
	}
	return nil
}

// lastAt returns the time of the last change; zero: not known.
func lastAt(changes []Change) time.Time { return changes[len(changes)-1].At }

func (w *Writer) writeGroup(m *memory, ids []backends.ID, dirty map[backends.ID][]Change) error {
	files, dirs := make([]disk.File, 0, len(ids)), map[string]bool{}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, id := range ids {
		object, err := w.buildObject(m, id, dirty[id])
		if err != nil {
			return err
		}
		f, err := w.create(Path(w.dir, id), object)
		if err != nil {
			return err
		}
		files = append(files, f)
		if at := lastAt(dirty[id]); !at.IsZero() { // Last reads it
			_ = os.Chtimes(f.Name(), at, at)
		}
		dirs[filepath.Dir(f.Name())] = true
	}
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	for i, f := range files {
		if err := w.disk.Rename(f.Name(), Path(w.dir, ids[i])); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := w.disk.SyncDir(dir); err != nil {
			return err
		}
	}
	for _, id := range ids {
		delete(dirty, id)
	}
	return nil
}

// buildObject returns a job's object with its changes. A damaged one is set aside and
// begun anew.
func (w *Writer) buildObject(m *memory, id backends.ID, changes []Change) ([]byte, error) {
	path := Path(w.dir, id)
	object, err := os.ReadFile(path)
	there := !errors.Is(err, fs.ErrNotExist)
	if there {
		if err == nil && slices.ContainsFunc(changes, func(c Change) bool { return c.Doubt }) {
			_, err = m.verify(object, id)
		}
		if err == nil {
			var changed []byte
			if changed, err = m.build(id, object, changes); err == nil {
				return changed, nil
			}
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			return nil, err // it is not the object's fault
		}
		if changes, err = w.setAside(m, id, path, changes, err); err != nil {
			return nil, err
		}
	}
	return m.build(id, nil, changes)
}

// setAside moves a damaged object to AsideDir. It returns the changes for the new
// object, the first of which says so.
func (w *Writer) setAside(m *memory, id backends.ID, path string, changes []Change, why error) ([]Change, error) {
	if err := m.renew(); err != nil {
		return nil, err
	}
	aside, err := Aside(w.disk, w.dir, path)
	if err != nil {
		return nil, fmt.Errorf("set the damaged state object of job %v aside: %w", id, err)
	}
	w.log.Error("a job's state object is damaged: set aside, begun anew", "job", id, "kept_as", aside, "error", why)
	first := changes[0]
	marker := Change{
		ID: id, Seq: first.Seq, N: first.N - 1, At: time.Now(), Event: "damaged",
		Detail: "its state object was damaged and is kept as " + aside + ": what stood there is not in this one",
	}
	return append([]Change{marker}, changes...), nil
}

// AsideDir is the directory for damaged and left over files, below the queue's
// state directory.
const AsideDir = "aside"

// Aside moves a file out of the way, to AsideDir beside the directory of
// objects, and returns its new name. Nothing there is ever overwritten.
func Aside(on disk.Disk, objects, path string) (string, error) {
	dir := filepath.Join(filepath.Dir(objects), AsideDir)
	if err := disk.MkdirAll(on, dir, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(path)+"."+time.Now().UTC().Format("20060102-150405"))
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = fmt.Sprintf("%s-%d", strings.TrimSuffix(to, fmt.Sprintf("-%d", n-1)), n)
	}
	if err := on.Rename(path, to); err != nil {
		return "", err
	}
	return to, errors.Join(on.SyncDir(dir), on.SyncDir(filepath.Dir(path)))
}

// create writes an object beside the one that it is to replace.
func (w *Writer) create(path string, data []byte) (disk.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	f, err := w.disk.OpenFile(path+".new", flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = disk.MkdirAll(w.disk, filepath.Dir(path), 0o700); err == nil {
			f, err = w.disk.OpenFile(path+".new", flags, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(data); err != nil {
		return nil, errors.Join(err, f.Close(), w.disk.Remove(f.Name()))
	}
	return f, nil
}
