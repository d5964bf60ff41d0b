// Package lease decides which slots of a user's standing workers are held by which task: it is the
// resource manager of R50, with the placement of R51 and the order of R52.
//
// Workers bring slots that a queue granted them. Holders (runs of asplit, or any process of the
// same user) open jobs and request slots for them. A request is acknowledged at once; when a slot
// is free the manager locks it and posts it back to the holder, which frees it in the end. A grant
// is a lease: it ends with its holder, or with its worker.
//
// The package is pure: events go in, actions come out. It knows no clock, file or connection, and
// the same events give the same actions. Lease numbers are counted, so they name leases and prove
// nothing: who may send an event is decided by the caller.
package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/heap"
)

// Manager is the resource manager. Its methods must not be called concurrently.
type Manager struct {
	limits Limits
	now    time.Time // of the last step

	workers map[string]*worker
	hosts   map[string]*host
	holders map[string]*holder
	jobs    map[uint64]*job
	leases  map[uint64]*lease
	ranking ranking

	waiting *heap.Heap[*request] // those that some worker could hold, or may
	parked  []*request           // those that no worker could hold
	idle    *heap.Heap[*worker]

	lastJob, lastLease, seq uint64

	waits  int   // requests in waiting and parked
	tasks  int   // bytes of their tasks
	wanted int64 // milli-cores of more workers that they would use up
	want   int   // as the last Want said

	out []Action
}

// lease is a slot of a worker in a holder's hands.
type lease struct {
	number        uint64
	worker        *worker
	job           *job
	request       *request // it may have ended
	milli, memory int64
	locked        bool // it is being posted back
	task          bool // its worker does one

	inWorker, inJob int // its places in their leases
}

// New returns a manager without workers.
func New(limits Limits) *Manager {
	limits.settle()
	return &Manager{
		limits:  limits,
		workers: map[string]*worker{},
		hosts:   map[string]*host{},
		holders: map[string]*holder{},
		jobs:    map[uint64]*job{},
		leases:  map[uint64]*lease{},
		waiting: heap.New(func(a, b *request) bool { return order(a, b) < 0 }, func(r *request, i int) { r.at = i }),
		idle: heap.New(func(a, b *worker) bool {
			c := cmp.Or(a.idleSince.Compare(b.idleSince), cmp.Compare(a.seq, b.seq))
			return c < 0
		}, func(w *worker, i int) { w.idleAt = i }),
	}
}

// Step takes one event, and returns what is to be done. With an error, which wraps ErrInvalid,
// ErrLimit, ErrUnknown or ErrTaken, the event is refused and changes nothing; what only time
// brings is still done. A time before the previous step's counts as that one.
//
// It takes a time proportional to the logarithm of what there is, for each lease that begins or
// ends; one proportional to the number of workers and of requests that none could hold where a
// worker comes or goes.
func (m *Manager) Step(now time.Time, e Event) ([]Action, error) {
	m.out = nil
	if now.After(m.now) {
		m.now = now
	}
	err := m.apply(e)
	m.dispatch()
	m.releaseIdle()
	m.setWant()
	out := m.out
	m.out = nil
	return out, err
}

// Wake returns when a Tick is due; the zero time: at no time.
func (m *Manager) Wake() time.Time {
	if m.limits.Idle == 0 || m.idle.Len() == 0 {
		return time.Time{}
	}
	return m.idle.Top().idleSince.Add(m.limits.Idle)
}

func (m *Manager) apply(e Event) error {
	switch e := e.(type) {
	case Create:
		return m.create(e)
	case Heartbeat:
		return m.heartbeat(e)
	case Gone:
		return m.gone(e)
	case Withdraw:
		return m.withdraw(e)
	case OpenJob:
		return m.openJob(e)
	case CloseJob:
		return m.closeJob(e)
	case Request:
		return m.request(e)
	case Cancel:
		return m.cancel(e)
	case Posted:
		return m.posted(e)
	case PostFailed:
		return m.postFailed(e)
	case Free:
		return m.free(e)
	case Done:
		return m.done(e)
	case HolderGone:
		return m.holderGone(e)
	case Tick:
		return nil
	}
	return invalid("event %T", e)
}

func (m *Manager) emit(a Action) { m.out = append(m.out, a) }

// dispatch grants slots to requests in their order (R52), until the first one fits no worker.
// Where no core is free a request waits, whatever memory is; a core that comes free goes to the
// first request.
func (m *Manager) dispatch() {
	for m.waiting.Len() > 0 {
		r := m.waiting.Top()
		w := m.ranking.best(r.milli, r.memory)
		switch {
		case w != nil:
			m.grant(r, w)
		case m.ranking.could(r.milli, r.memory):
			return
		default:
			m.park(r)
		}
	}
}

// grant locks a slot of a worker for a request, and has it posted back (R50).
func (m *Manager) grant(r *request, w *worker) {
	m.lastLease++
	l := &lease{
		number: m.lastLease, worker: w, job: r.job, request: r, milli: r.milli, memory: r.memory, locked: true, task: r.task != "",
		inWorker: len(w.leases), inJob: len(r.job.leases),
	}
	m.leases[l.number] = l
	w.leases, r.job.leases = append(w.leases, l), append(r.job.leases, l)
	w.take(l.milli, l.memory)
	m.wake(w)
	m.ranking.update(w.host)
	m.emit(Lock{l.number, w.name, r.job.holder.name, int(l.milli), l.memory, r.task})
	m.emit(Grant{l.number, w.name, w.host.name, r.job.holder.name, r.id, r.job.number, r.postBack, int(l.milli), l.memory})
	m.lower(r, 1)
	if r.slots == 0 {
		m.remove(r)
	}
}

// end ends a lease: its slot is free.
func (m *Manager) end(l *lease, why Why) {
	delete(m.leases, l.number)
	w, j := l.worker, l.job
	w.leases = takeOut(w.leases, l.inWorker, func(l *lease, at int) { l.inWorker = at })
	j.leases = takeOut(j.leases, l.inJob, func(l *lease, at int) { l.inJob = at })
	j.held--
	j.holder.held--
	w.take(-l.milli, -l.memory)
	m.ranking.update(w.host)
	m.emit(Unlock{l.number, w.name, j.holder.name, why})
	if len(w.leases) > 0 {
		return
	}
	if w.closed == 0 {
		m.rest(w)
	}
	m.releaseEmpty(w)
}

// lockedLease returns a lease that is being posted back.
func (m *Manager) lockedLease(number uint64) (*lease, error) {
	l := m.leases[number]
	switch {
	case l == nil:
		return nil, unknown("lease %d", number)
	case !l.locked:
		return nil, taken("lease %d was posted back", number)
	}
	return l, nil
}

func (m *Manager) posted(e Posted) error {
	l, err := m.lockedLease(e.Lease)
	if err != nil {
		return err
	}
	l.locked = false
	return nil
}

func (m *Manager) postFailed(e PostFailed) error {
	l, err := m.lockedLease(e.Lease)
	if err != nil {
		return err
	}
	if r := l.request; r.slots > 0 {
		m.drop(r)
	}
	m.end(l, NotPosted)
	return nil
}

func (m *Manager) free(e Free) error {
	l := m.leases[e.Lease]
	if l == nil || l.job.holder.name != e.Holder {
		return unknown("lease %d of holder %.60q", e.Lease, e.Holder)
	}
	m.end(l, Freed)
	return nil
}

// done ends the lease of a task that its worker has done.
func (m *Manager) done(e Done) error {
	l := m.leases[e.Lease]
	switch {
	case l == nil || l.worker.name != e.Worker || !l.task:
		return unknown("task of lease %d on worker %.60q", e.Lease, e.Worker)
	case len(e.Result) > MaxResult:
		return invalid("a result of %d bytes: at most %d", len(e.Result), MaxResult)
	}
	m.end(l, Finished)
	m.emit(Result{l.number, l.worker.name, l.job.holder.name, l.request.id, l.job.number, e.Result})
	return nil
}

// setWant says how many workers more would be of use: as many as the waiting requests would fill
// that such a worker could hold, within Limits.Workers.
func (m *Manager) setWant() {
	size := int64(m.limits.Milli)
	want := int(min((m.wanted+size-1)/size, int64(m.limits.Workers-len(m.workers))))
	if want != m.want {
		m.want = want
		m.emit(Want{want})
	}
}

// takeOut takes one out of a list in no order. The last one gets its place, which is noted.
func takeOut[T any](list []*T, at int, note func(*T, int)) []*T {
	last := len(list) - 1
	list[at] = list[last]
	note(list[at], at)
	list[last] = nil
	return list[:last]
}

// inOrder returns leases by their numbers.
func inOrder(leases []*lease) []*lease {
	return slices.SortedFunc(slices.Values(leases), func(a, b *lease) int { return cmp.Compare(a.number, b.number) })
}
