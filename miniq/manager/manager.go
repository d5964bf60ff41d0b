package manager

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// Manager is the queue. Its methods must not be called concurrently.
type Manager struct {
	cfg    Config
	now    time.Time // of the last step
	clock  clock.Reading
	ahead  Ahead
	nextID int64
	seq    int64

	jobs   map[backends.ID]*job // ended ones too, until they are forgotten
	arrays map[int64]*array
	names  map[nameKey]int64 // the last job of that name

	keys      map[submissionKey]*keyedSubmission
	keyed     []*keyedSubmission // the same, oldest first
	keyedJobs int                // that they brought

	first *job // those that have not ended, by seq
	last  *job
	open  map[string]int   // how many of them each user has
	held  map[string]int64 // bytes that they were submitted with

	ended  endedJobs
	endSeq int64    // of the job that ended last
	toTrim []string // users whose ended jobs trim compares with their bounds

	hosts  []*host // by name
	byName map[string]*host
	sets   map[string]*backends.HostSet // by work.wants

	shapes []*shape
	byKey  map[shapeKey]*shape
	due    *jobHeap // jobs to which something happens at a time

	limited    *jobHeap               // running jobs that have a run limit
	resuming   []*job                 // suspended ones that shall go on
	reservers  []*job                 // that have the engine's reservation
	overdueJob *overdueReservation    // the reservation of reserve_after
	guaranteed []guarantee            // those that have not run out
	waiters    map[int64][]*condition // by number of the job that they depend on

	freezing     *Frozen // nil: none that is not whole
	frozenNumber uint64

	retry   bool     // something was freed: all shapes are tried again
	touched []*shape // or only these
	woken   []*job   // to be reviewed: what they depend on changed

	overdueNext time.Time // computed with wake
	tickNext    time.Time
	wake        time.Time
	out         []Effect
	rooms       []room // of the round, to be used again
	lateRooms   []room
}

type nameKey struct{ user, name string }

// New returns an empty queue without nodes.
func New(cfg Config) *Manager {
	m := &Manager{
		nextID: 1,
		jobs:   map[backends.ID]*job{},
		arrays: map[int64]*array{},
		names:  map[nameKey]int64{},
		open:   map[string]int{},
		held:   map[string]int64{},
		ended:  endedJobs{of: map[string]*endedOf{}},
		keys:   map[submissionKey]*keyedSubmission{},
		byName: map[string]*host{},
		sets:   map[string]*backends.HostSet{},
		byKey:  map[shapeKey]*shape{},

		waiters: map[int64][]*condition{},
	}
	m.due = newHeap(posDue, func(a, b *job) bool {
		c := a.due.Compare(b.due)
		return c < 0 || c == 0 && a.seq < b.seq
	})
	m.limited = newHeap(posLimit, func(a, b *job) bool {
		c := a.limitAt().Compare(b.limitAt())
		return c < 0 || c == 0 && a.seq < b.seq
	})
	m.setConfig(cfg)
	return m
}

func (m *Manager) setConfig(cfg Config) {
	if cfg.KillGrace == 0 {
		cfg.KillGrace = 10 * time.Second
	}
	if len(cfg.Queues) == 0 {
		cfg.Queues = []Queue{{"normal", backends.LevelNormal}, {"low", backends.LevelLow}}
	}
	m.cfg = cfg
	m.cfg.Queues = slices.Clone(cfg.Queues)
}

// Step takes one event, and returns what is to be done and the answer. A time before the
// previous step's counts as that one, until a ClockRead says that the clock was put back.
func (m *Manager) Step(now time.Time, e Event) ([]Effect, Result) {
	m.out = nil
	if read, ok := e.(ClockRead); ok {
		m.readClock(read)
	} else {
		m.advance(now)
	}
	result := m.apply(e)
	m.dispatch()
	m.trim()
	m.setWake()
	out := m.out
	m.out = nil
	return out, result
}

// apply calls the method for an event.
func (m *Manager) apply(e Event) Result {
	switch e := e.(type) {
	case Submit:
		submitted, again := m.submitOnce(e)
		return Result{Submitted: submitted, Again: again}
	case Kill:
		return forIDs(m, e.By, e.IDs, m.kill)
	case KillNow:
		return forIDs(m, e.By, e.IDs, m.killNow)
	case Requeue:
		return m.requeue(e)
	case Suspend:
		return m.suspend(e)
	case Resume:
		return forIDs(m, e.By, e.IDs, func(by By, j *job) error { return m.resume(by, j) })
	case Hold:
		return forIDs(m, e.By, e.IDs, func(_ By, j *job) error { return m.hold(j, true) })
	case Release:
		return forIDs(m, e.By, e.IDs, func(_ By, j *job) error { return m.hold(j, false) })
	case SetPriority:
		return m.setPriorities(e)
	case Pin:
		return m.pin(e)
	case HoldUntil:
		return m.holdUntil(e)
	case Reserve:
		return m.reserve(e)
	case Guarantee:
		return oneError(m.guarantee(e))
	case Move:
		return m.move(e)
	case Reorder:
		return m.reorder(e)
	case Reopen:
		return m.reopen(e)
	case Modify:
		return m.modify(e)
	case Note:
		return oneError(m.note(e))
	case NodeUp:
		return oneError(m.nodeUp(e))
	case CloseHosts:
		return m.closeHosts(e)
	case NodeDown:
		return oneError(m.nodeDown(e))
	case NodeGone:
		return oneError(m.nodeGone(e))
	case Started:
		return oneError(m.runStarted(e))
	case Stopped:
		return oneError(m.runStopped(e))
	case StartFailed:
		return oneError(m.startFailed(e))
	case Ended:
		return oneError(m.runEnded(e))
	case RunLost:
		return oneError(m.runLost(e))
	case Forget:
		m.forget(e.EndedBefore)
	case Configure:
		m.configure(e.Config)
	case Tick, ClockRead:
	default:
		return oneError(fmt.Errorf("event %T is not known", e))
	}
	return Result{}
}

func oneError(err error) Result { return Result{Errors: backends.Errors{err}} }

func (m *Manager) emit(e Effect) { m.out = append(m.out, e) }

// configure takes a new policy: every shape is built anew, as its key and its
// order may depend on it. The jobs' times of waiting stay.
func (m *Manager) configure(cfg Config) {
	waiting := m.waiting()
	for _, j := range waiting {
		m.dequeue(j)
	}
	m.setConfig(cfg)
	for _, j := range waiting {
		m.enqueue(j)
	}
	m.retry = true
	for user, own := range m.ended.of { // in any order: each is marked for itself
		m.markForTrim(user, own)
	}
}

// waiting lists all jobs that could start, by their time of waiting.
func (m *Manager) waiting() []*job {
	var all []*job
	for j := m.first; j != nil; j = j.next {
		if j.waitList == inShape {
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(a, b *job) int { return a.waitSince.Compare(b.waitSince) })
	return all
}

func (m *Manager) nodeUp(e NodeUp) error {
	if e.Name == "" || !utf8.ValidString(e.Name) || strings.ContainsAny(e.Name, "\x00\n") || e.Slots < 0 || e.Memory < 0 {
		return fmt.Errorf("node %q with %d slots and %d bytes: not a node", e.Name, e.Slots, e.Memory)
	}
	has, features := slices.Clone(e.Has), slices.Clone(e.Features)
	if err := checkAmounts(has); err != nil {
		return fmt.Errorf("node %s: %w", e.Name, err)
	}
	slices.Sort(features)
	h := m.byName[e.Name]
	if h == nil {
		h = &host{name: e.Name}
		m.byName[e.Name] = h
		i, _ := slices.BinarySearchFunc(m.hosts, h, byHostName)
		m.hosts = slices.Insert(m.hosts, i, h)
	}
	h.slots, h.memory, h.closed, h.down = e.Slots, e.Memory, e.Closed, false
	if !slices.Equal(h.has, has) || !slices.Equal(h.features, features) {
		h.units.set(has, features)
		m.recount(h)
	}
	m.nodesChanged()
	return nil
}

// recount finds anew what runs take of a host's resources.
func (m *Manager) recount(h *host) {
	for j := m.first; j != nil; j = j.next {
		if len(j.work.spec.Needs) == 0 || !slices.ContainsFunc(j.hosts, func(p backends.Placement) bool { return p.Host == h.name }) {
			continue
		}
		h.add(h.taken, j.work.spec.Needs, 1)
		if j.holdsSlots() {
			h.add(h.byRuns, j.work.spec.Needs, 1)
		}
	}
}

// maxReason bounds the reason why a host is closed, in bytes.
const maxReason = 256

func (m *Manager) closeHosts(e CloseHosts) Result {
	errs := make(backends.Errors, len(e.Names))
	for i, name := range e.Names {
		h := m.byName[name]
		switch {
		case !e.By.Admin:
			errs[i] = fmt.Errorf("host %q: only an administrator closes and opens hosts: %w", name, backends.ErrDenied)
		case len(e.Reason) > maxReason || strings.ContainsFunc(e.Reason, printable.Hidden):
			errs[i] = fmt.Errorf("host %q: the reason must be one line of at most %d bytes", name, maxReason)
		case h == nil:
			errs[i] = fmt.Errorf("host %q: the queue has no such host", name)
		case e.Open:
			h.shut = nil
		default:
			h.shut = &shutHost{e.By.User, m.now, e.Reason}
		}
	}
	m.nodesChanged()
	return Result{Errors: errs}
}

func byHostName(a, b *host) int { return strings.Compare(a.name, b.name) }

func (m *Manager) nodeDown(e NodeDown) error {
	h := m.byName[e.Name]
	if h == nil {
		return fmt.Errorf("node %q is not known", e.Name)
	}
	h.down = true
	m.nodesChanged()
	return nil
}

func (m *Manager) nodeGone(e NodeGone) error {
	h := m.byName[e.Name]
	if h == nil {
		return fmt.Errorf("node %q is not known", e.Name)
	}
	if h.runs > 0 {
		return fmt.Errorf("node %s has %d runs: %w", e.Name, h.runs, backends.ErrWrongState)
	}
	delete(m.byName, e.Name)
	m.hosts = slices.Delete(m.hosts, h.index, h.index+1)
	m.nodesChanged()
	return nil
}

// nodesChanged finds anew where each shape could go. Jobs that no host could
// hold don't wait for resources: they don't age.
func (m *Manager) nodesChanged() {
	for i, h := range m.hosts {
		h.index = i
	}
	clear(m.sets)
	for _, s := range m.shapes {
		was := s.able
		m.findHosts(s)
		if s.able != was {
			m.restart(s)
		}
	}
	m.countEarly()
	m.retry = true
}

// restart begins or ends the waiting of all jobs of a shape.
func (m *Manager) restart(s *shape) {
	if m.overdueJob != nil && m.overdueJob.job.shape == s {
		m.overdueJob = nil
	}
	for j := s.oldest; j != nil; j = j.younger {
		m.beforeChange(j)
		m.removeFromOrder(j)
		m.addToOrder(j)
		j.waitSince = m.now
	}
}

// link adds a job to the list of those that have not ended.
func (m *Manager) link(j *job) {
	j.prev, m.last = m.last, j
	if j.prev == nil {
		m.first = j
	} else {
		j.prev.next = j
	}
	m.open[j.user]++
	m.held[j.user] += j.bytes
}

func (m *Manager) unlink(j *job) {
	m.beforeUnlink(j)
	if j.prev == nil {
		m.first = j.next
	} else {
		j.prev.next = j.next
	}
	if j.next == nil {
		m.last = j.prev
	} else {
		j.next.prev = j.prev
	}
	j.prev, j.next = nil, nil
	if m.held[j.user] -= j.bytes; m.held[j.user] == 0 {
		delete(m.held, j.user)
	}
	if m.open[j.user]--; m.open[j.user] == 0 {
		delete(m.open, j.user)
	}
}
