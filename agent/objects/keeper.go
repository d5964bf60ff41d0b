package objects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
	"github.com/allotment-hpc/allotment/state/transfer"
)

// Options are what a Keeper is made of.
type Options struct {
	Dir     string        // of the objects, a directory below it for each queue; its owner's alone
	Host    string        // this one's name
	Keep    time.Duration // after a job's last change
	Archive string        // where objects go instead of being removed; "": they are removed
	Log     *slog.Logger
}

// Keeper keeps objects. Its methods may be called concurrently.
type Keeper struct {
	o       Options
	writers map[string]*state.Writer // by queue

	mu     sync.Mutex
	table  *Table
	unread map[state.Job]bool // objects that the table does not have yet
	bus    exchange
	rates  map[state.Job]*rate.Limiter
	users  map[int]*rate.Limiter
	purged time.Time

	reading   sync.Mutex
	inspector *state.Inspector // nil: it is closed

	link transfers

	stop, loaded chan struct{}
}

// queues are those whose jobs have objects here.
func queues() []string { return []string{string(measure.Slurm), string(measure.LSF)} }

// Open finds what objects there are. It reads them in the background, those of jobs that are asked
// for first: there may be many.
func Open(o Options) (_ *Keeper, err error) {
	k := &Keeper{o: o, table: NewTable(o.Host, o.Keep), writers: map[string]*state.Writer{}, rates: map[state.Job]*rate.Limiter{}, users: map[int]*rate.Limiter{}, unread: map[state.Job]bool{}, stop: make(chan struct{}), loaded: make(chan struct{})}
	k.bus.init(time.Now())
	if k.inspector, err = state.NewInspector(); err != nil {
		return nil, err
	}
	for _, queue := range queues() {
		if k.writers[queue], err = state.NewWriter(disk.OS(), k.dir(queue), o.Log); err == nil {
			k.writers[queue].Start()
			err = k.list(queue)
		}
		if err != nil {
			close(k.loaded)
			k.Close()
			return nil, fmt.Errorf("open the state objects of this host's jobs: %w", err)
		}
	}
	go k.load()
	return k, nil
}

// Close writes the changes that wait.
func (k *Keeper) Close() {
	close(k.stop)
	<-k.loaded
	for _, w := range k.writers {
		if w != nil {
			w.Close()
		}
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	k.inspector.Close()
	k.inspector = nil
}

var errClosed = errors.New("ahostd ends")

func (k *Keeper) dir(queue string) string { return filepath.Join(k.o.Dir, queue, "objects") }

// list notes which objects a queue has.
func (k *Keeper) list(queue string) error {
	folders, err := state.Folders(k.dir(queue))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		ids, err := state.ListFolder(folder)
		if err != nil {
			return err
		}
		for _, id := range ids {
			k.unread[state.Job{Queue: queue, ID: id}] = true
		}
	}
	return nil
}

// load reads the objects, one after the other.
func (k *Keeper) load() {
	defer close(k.loaded)
	for {
		k.mu.Lock()
		for job := range k.unread {
			k.know(job)
			break
		}
		left := len(k.unread)
		k.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-k.stop:
			return
		default:
		}
	}
}

// know reads an object that was not read yet. The caller has the lock.
func (k *Keeper) know(job state.Job) {
	if !k.unread[job] {
		return
	}
	delete(k.unread, job)
	if err := k.loadObject(job); err != nil {
		k.o.Log.Error("read a job's state object; it is left as it is", "job", job.String(), "error", err)
	}
}

// find returns what is known of an object; nil: there is none. The caller has the lock.
func (k *Keeper) find(job state.Job) *Object {
	k.know(job)
	return k.table.Find(job)
}

// loadObject reads an object. One that is damaged is set aside.
func (k *Keeper) loadObject(job state.Job) error {
	path := state.Path(k.dir(job.Queue), job.ID)
	r, s, user, err := k.read(job)
	if errors.Is(err, state.ErrCorrupt) {
		aside, wrong := state.Aside(disk.OS(), k.dir(job.Queue), path)
		k.o.Log.Error("a job's state object is damaged: set aside", "job", job.String(), "kept_as", aside, "error", err)
		return wrong
	}
	if err != nil {
		return err
	}
	o := &Object{User: user, Grouped: !claimed(r, k.o.Host)}
	o.Load(r, s, k.o.Host)
	if at, err := state.LastChange(k.dir(job.Queue), job.ID); err == nil && at.After(o.Changed) {
		o.Changed = at
	}
	k.table.Add(job, o)
	for _, resource := range r.LimitedOn(k.o.Host) { // an ahostd that was killed has written no end
		k.apply(k.table.Note(job, "unlimited", resource+", as ahostd began anew", time.Now()))
	}
	return nil
}

// read reads an object, with its sequence and its job's user, as it is on disk.
func (k *Keeper) read(job state.Job) (*backends.Record, state.Sequence, int, error) {
	object, err := os.ReadFile(state.Path(k.dir(job.Queue), job.ID))
	if err != nil {
		return nil, state.Sequence{}, 0, err
	}
	return k.inspect(job, object)
}

func (k *Keeper) inspect(job state.Job, object []byte) (*backends.Record, state.Sequence, int, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.inspector == nil {
		return nil, state.Sequence{}, 0, errClosed
	}
	r, owner, s, err := k.inspector.ReadOwned(object, job.ID)
	if err != nil {
		return nil, s, 0, err
	}
	user, err := strconv.ParseUint(owner.UID, 10, 31)
	if err != nil {
		return r, s, measure.NoUser, nil
	}
	return r, s, int(user), nil
}

// Sample takes a sample of the host's jobs.
func (k *Keeper) Sample(s *measure.Sample) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range s.Jobs {
		if job, kept := jobOf(&s.Jobs[i]); kept {
			k.know(job)
		}
	}
	k.apply(k.table.Sample(s.Jobs, s.At))
	const purgeEvery = time.Minute
	if s.At.Sub(k.purged) >= purgeEvery && len(k.unread) == 0 {
		k.purged = s.At
		k.apply(k.table.Purge(s.At))
		k.forgetRates()
	}
}

// Note notes in a job's history what is done to it here, if its object is kept: see Table.Note.
func (k *Keeper) Note(job state.Job, event, detail string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.apply(k.table.Note(job, event, detail, at))
}

// Said returns how far jobs of a sample are, by their own words: see Table.Said.
func (k *Keeper) Said(s *measure.Sample) map[measure.Key]Said {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.table.Said(s.Jobs)
}

// apply carries out acts. The caller has the lock.
func (k *Keeper) apply(acts []Act) {
	for _, a := range acts {
		switch {
		case a.Change != nil:
			k.writers[a.Job.Queue].Put(*a.Change)
		case a.Aside:
			if err := k.setAside(a.Job); err != nil {
				k.o.Log.Error("set the state object of another job with this number aside; this one's is not kept until then", "job", a.Job.String(), "error", err)
				continue
			}
			k.table.Forget(a.Job)
		case a.Remove:
			if err := k.archive(a.Job); err != nil {
				k.o.Log.Error("archive a state object; it stays here until then", "job", a.Job.String(), "error", err)
				continue
			}
			k.writers[a.Job.Queue].Remove(a.Job.ID)
			k.table.Forget(a.Job)
		}
	}
}

const flushTime = 10 * time.Second

// flush returns when what was written for a queue is on disk.
func (k *Keeper) flush(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	return k.writers[queue].Flush(ctx)
}

func (k *Keeper) setAside(job state.Job) error {
	if err := k.flush(context.Background(), job.Queue); err != nil {
		return err
	}
	dir := k.dir(job.Queue)
	aside, err := state.Aside(disk.OS(), dir, state.Path(dir, job.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		k.o.Log.Warn("a job has the number of another user's: that one's state object is set aside", "job", job.String(), "kept_as", aside)
	}
	return err
}

// archive copies an object to the archive, if there is one. What is there already stays.
func (k *Keeper) archive(job state.Job) error {
	if k.o.Archive == "" {
		return nil
	}
	if err := k.flush(context.Background(), job.Queue); err != nil {
		return err
	}
	object, err := os.ReadFile(state.Path(k.dir(job.Queue), job.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := state.Path(filepath.Join(k.o.Archive, job.Queue), job.ID)
	if err == nil {
		err = disk.MkdirAll(disk.OS(), filepath.Dir(to), 0o700)
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		to += "." + time.Now().UTC().Format("20060102-150405")
	}
	return disk.Replace(disk.OS(), to, 0o600, object)
}

// Object returns an object as it is now, for a transfer. fs.ErrNotExist: there is none.
func (k *Keeper) Object(ctx context.Context, job state.Job) ([]byte, state.Sequence, error) {
	k.mu.Lock()
	o := k.find(job)
	k.mu.Unlock()
	if o == nil {
		return nil, state.Sequence{}, fmt.Errorf("no state object of job %v is here: %w", job, fs.ErrNotExist)
	}
	if err := k.flush(ctx, job.Queue); err != nil {
		return nil, state.Sequence{}, err
	}
	object, err := os.ReadFile(state.Path(k.dir(job.Queue), job.ID))
	if err != nil {
		return nil, state.Sequence{}, err
	}
	_, s, _, err := k.inspect(job, object)
	return object, s, err
}

// Take merges an object from another host into this one's, and returns when that is on disk.
func (k *Keeper) Take(ctx context.Context, job state.Job, object []byte, s state.Sequence) error {
	if k.writers[job.Queue] == nil {
		return fmt.Errorf("%w: no objects of %s are kept here", transfer.ErrConflict, job.Queue)
	}
	record, at, user, err := k.inspect(job, object)
	if err != nil {
		return err
	}
	if at != s {
		return fmt.Errorf("%w: its sequence is %v, not %v", transfer.ErrConflict, at, s)
	}
	k.mu.Lock()
	k.know(job)
	act, err := k.table.Merge(job, object, user, at, time.Now())
	if err == nil {
		k.table.Find(job).takeSaid(record)
		k.apply([]Act{act})
	}
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %w", transfer.ErrConflict, err)
	}
	return k.flush(ctx, job.Queue)
}

// Announce returns what is announced with a heartbeat: what has changed, if anything has, and
// a part of the whole list, when its turn is.
func (k *Keeper) Announce(now time.Time) (all []tracker.Announcement) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if entries := k.table.Changes(); len(entries) > 0 {
		all = append(all, tracker.Announcement{Entries: entries})
	}
	if len(k.unread) == 0 && k.bus.pageDue(now) { // an object that waits to be read is not gone
		page, last := k.table.Page()
		k.bus.paged(now, last)
		all = append(all, page)
	}
	for i := range all {
		k.bus.number++
		all[i].Epoch, all[i].Number = k.bus.epoch, k.bus.number
		if k.bus.address != "" {
			all[i].Address, all[i].Fingerprint = k.bus.address, k.bus.fingerprint
		}
	}
	return all
}

// Reconnected has the whole list announced from its beginning.
func (k *Keeper) Reconnected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table.page = state.Job{}
	k.bus.began, k.bus.between = time.Time{}, true
}
