package lease

import (
	"math"
	"slices"
	"time"
)

// worker is one that is there.
type worker struct {
	name          string
	host          *host
	milli, memory int64 // what it brought
	freeMilli     int64 // what its leases leave
	freeMemory    int64
	leases        []*lease // in no order
	closed        Why      // why it gets no new lease; 0: it does
	released      bool     // it got its Release

	at        int // its place in the ranking
	idleSince time.Time
	idleAt    int // its place in Manager.idle; -1: none
	seq       uint64
}

// host is what workers of one machine have in common.
type host struct {
	name    string
	shared  bool
	workers []*worker
	heard   bool // a heartbeat came

	// What was free by the last heartbeat, less what was granted since then, and what leases that
	// ended since then took. It may be below zero.
	free, memory int64
}

// unlimited stands for memory that is not limited: more than all leases could take.
const unlimited = math.MaxInt64

// score returns the free milli-cores of a host: what the last heartbeat said, less what was granted
// since (R51). Otherwise all grants between two heartbeats would go to one host. What leases took
// that ended since then is added.
func (h *host) score() int64 { return h.free }

// take notes that a lease begins on a worker of the host, or with negative figures that one ends.
func (h *host) take(milli, memory int64) {
	h.free -= milli
	if h.memory != unlimited {
		h.memory = min(h.memory-memory, MaxMemory)
	}
}

// fit returns what a worker can take. Of a shared host that is no more than is free there.
func (w *worker) fit() fit {
	if w.closed != 0 {
		return none()
	}
	f := fit{milli: w.freeMilli, memory: w.freeMemory, capMilli: w.milli, capMemory: w.memory, score: w.host.score()}
	if w.host.shared {
		f.milli, f.memory = min(f.milli, w.host.free), min(f.memory, w.host.memory)
	}
	return f
}

// take notes that a lease begins on the worker, or with negative figures that one ends.
func (w *worker) take(milli, memory int64) {
	w.freeMilli -= milli
	if w.memory != unlimited {
		w.freeMemory -= memory
	}
	w.host.take(milli, memory)
}

// holds reports whether a slot fits a worker that has no leases.
func (w *worker) holds(r *request) bool {
	return w.closed == 0 && w.milli >= r.milli && w.memory >= r.memory
}

func (m *Manager) create(e Create) error {
	if err := checkName("worker", e.Worker); err != nil {
		return err
	}
	if err := checkName("host", e.Host); err != nil {
		return err
	}
	h := m.hosts[e.Host]
	switch {
	case e.Milli < 1 || e.Milli > MaxMilli:
		return invalid("a worker with %d milli-cores: want 1 to %d", e.Milli, MaxMilli)
	case e.Memory < 0 || e.Memory > MaxMemory:
		return invalid("a worker with %d bytes of memory: want 0 to %d", e.Memory, int64(MaxMemory))
	case m.workers[e.Worker] != nil:
		return taken("worker %q", e.Worker)
	case len(m.workers) >= m.limits.Workers:
		return overLimit("%d workers are there", len(m.workers))
	case h != nil && h.shared != e.Shared:
		return invalid("host %q has workers that a queue granted, or shared ones: not both", e.Host)
	}
	if h == nil {
		h = &host{name: e.Host, shared: e.Shared, memory: unlimited}
		m.hosts[e.Host] = h
	}
	m.seq++
	w := &worker{name: e.Worker, host: h, milli: int64(e.Milli), memory: e.Memory, idleAt: -1, seq: m.seq}
	if e.Memory == 0 {
		w.memory = unlimited
	}
	w.freeMilli, w.freeMemory = w.milli, w.memory
	if !h.heard && (!h.shared || len(h.workers) == 0) {
		h.free += w.milli
	}
	h.workers = append(h.workers, w)
	m.workers[w.name] = w
	m.ranking.insert(w)
	m.rest(w)
	for _, r := range slices.Clone(m.parked) {
		if w.holds(r) {
			m.unpark(r)
			m.waiting.Push(r)
		}
	}
	return nil
}

func (m *Manager) heartbeat(e Heartbeat) error {
	w := m.workers[e.Worker]
	switch {
	case w == nil:
		return unknown("worker %.60q", e.Worker)
	case e.Free < 0 || e.Free > MaxMilli:
		return invalid("%d milli-cores are free: want 0 to %d", e.Free, MaxMilli)
	case e.Memory < 0 || e.Memory > MaxMemory:
		return invalid("%d bytes of memory are free: want 0 to %d", e.Memory, int64(MaxMemory))
	}
	w.host.heard, w.host.free = true, int64(e.Free)
	if w.host.shared {
		w.host.memory = e.Memory
	}
	m.ranking.update(w.host)
	return nil
}

func (m *Manager) gone(e Gone) error {
	w := m.workers[e.Worker]
	if w == nil {
		return unknown("worker %.60q", e.Worker)
	}
	w.closed, w.released = WorkerGone, true
	for _, l := range inOrder(w.leases) {
		m.end(l, WorkerGone)
		m.emit(Revoke{l.number, w.name, l.job.holder.name, l.request.id, WorkerGone})
	}
	m.wake(w)
	h := w.host
	if !h.heard && !h.shared {
		h.free -= w.milli
	}
	m.ranking.remove(w)
	h.workers = slices.DeleteFunc(h.workers, func(other *worker) bool { return other == w })
	if len(h.workers) == 0 {
		delete(m.hosts, h.name)
	} else {
		m.ranking.update(h)
	}
	delete(m.workers, w.name)
	return nil
}

func (m *Manager) withdraw(e Withdraw) error {
	w := m.workers[e.Worker]
	if w == nil {
		return unknown("worker %.60q", e.Worker)
	}
	if w.closed != 0 {
		return nil // it returns its slots already
	}
	w.closed = Withdrawn
	m.wake(w)
	m.ranking.update(w.host)
	for _, l := range inOrder(w.leases) {
		m.emit(Revoke{l.number, w.name, l.job.holder.name, l.request.id, Withdrawn})
	}
	m.releaseEmpty(w)
	return nil
}

// releaseEmpty releases a worker that gets no new leases and has returned the last.
func (m *Manager) releaseEmpty(w *worker) {
	if w.closed != 0 && !w.released && len(w.leases) == 0 {
		w.released = true
		m.emit(Release{w.name, w.closed})
	}
}

// rest notes that a worker has no lease from now on.
func (m *Manager) rest(w *worker) {
	w.idleSince = m.now
	m.idle.Push(w)
}

// wake notes that a worker is not idle, or is no longer of use.
func (m *Manager) wake(w *worker) {
	if w.idleAt >= 0 {
		m.idle.Remove(w.idleAt)
		w.idleAt = -1
	}
}

// releaseIdle releases the workers that had no lease for Limits.Idle. While a request waits that a
// worker could hold, none is released: its turn may come next.
func (m *Manager) releaseIdle() {
	for m.limits.Idle > 0 && m.idle.Len() > 0 {
		w := m.idle.Top()
		if m.now.Before(w.idleSince.Add(m.limits.Idle)) {
			return
		}
		m.wake(w)
		if m.waiting.Len() > 0 {
			m.rest(w)
			continue
		}
		w.closed = Idle
		m.ranking.update(w.host)
		m.releaseEmpty(w)
	}
}
