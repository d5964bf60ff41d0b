package state

import (
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Jobs can arrive faster than their objects are written; unwritten ones stay in
// memory. A submission waits while its user's exceed userBacklog, or while all
// users' exceed wholeBacklog and its user's exceed smallBacklog, in bytes.
const (
	userBacklog  = 64 << 20
	wholeBacklog = 4 * userBacklog
	smallBacklog = userBacklog / 16
	jobBacklog   = 512     // of a job besides its specification
	specBacklog  = 768     // of a specification besides its texts
	endBacklog   = 1 << 10 // of a job that has ended
)

// ErrBehind says that objects are not written as fast as jobs are submitted.
var ErrBehind = errors.New("state objects are not written as fast as jobs are handed in")

// backlog counts the memory of jobs that are not written yet, in bytes by user.
type backlog struct {
	coming  map[string]int64 // admitted by Admit, not in dirty yet
	dirty   map[string]int64
	writing map[string]int64
	last    *Submission   // the one that was counted last
	env     *string       // the first of its environment
	written chan struct{} // closed after a batch
}

func newBacklog() backlog {
	return backlog{coming: map[string]int64{}, dirty: map[string]int64{}, written: make(chan struct{})}
}

func (b *backlog) full(user string) bool {
	own := b.coming[user] + b.dirty[user] + b.writing[user]
	if own <= smallBacklog {
		return false
	}
	whole := int64(0)
	for _, part := range []map[string]int64{b.coming, b.dirty, b.writing} {
		for _, n := range part {
			whole += n
		}
	}
	return own > userBacklog || whole > wholeBacklog
}

// count counts the memory of a change that submits or ends a job.
func (b *backlog) count(c *Change) {
	if c.Final != nil {
		b.dirty[c.Final.User] += endBacklog
	}
	s := c.Submit
	if s == nil {
		return
	}
	b.dirty[s.User] += jobBacklog
	if s == b.last { // they share it
		return
	}
	b.last = s
	spec := s.Spec
	if env := spec.Env; len(env) > 0 {
		if &env[0] == b.env { // most have that of the job before
			spec.Env = nil
		}
		b.env = &env[0]
	}
	b.dirty[s.User] += int64(specBacklog + spec.Size())
}

// begin starts a batch; end counts it as dirty again if it was not written.
func (b *backlog) begin() { b.writing, b.dirty = b.dirty, map[string]int64{} }

func (b *backlog) end(written bool) {
	if !written {
		for user, n := range b.writing {
			b.dirty[user] += n
		}
	}
	b.writing = nil
	close(b.written)
	b.written = make(chan struct{})
}

// Admit waits, at most for longest, until a user may submit so many jobs. They count
// until over is called, after they were Put. ErrBehind: the time is up.
func (w *Writer) Admit(longest time.Duration, user string, jobs int) (over func(), err error) {
	w.mu.Lock()
	var late <-chan time.Time
	for w.backlog.full(user) {
		if late == nil {
			late = time.After(longest)
		}
		written := w.backlog.written
		w.wakeLoop()
		w.mu.Unlock()
		select {
		case <-written:
		case <-w.done:
			return nil, ErrBehind
		case <-late:
			return nil, ErrBehind
		}
		w.mu.Lock()
	}
	n := int64(jobs) * jobBacklog
	w.backlog.coming[user] += n
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.backlog.coming[user] -= n; w.backlog.coming[user] == 0 {
			delete(w.backlog.coming, user)
		}
	}, nil
}

// Expire removes the objects of jobs that ended before a time and were not written
// yet.
func (w *Writer) Expire(before time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []backends.ID
	for id, changes := range w.dirty {
		if last := &changes[len(changes)-1]; last.Final != nil && last.Final.Ended.Before(before) {
			ids = append(ids, id)
		}
	}
	w.removed = append(w.removed, ids...)
	w.dropChanges(ids)
	w.wakeLoop()
}
