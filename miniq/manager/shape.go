package manager

import (
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// shapeKey is all of a job that decides where it fits. Jobs of one shape fit
// together or not at all, so that a shape which does not fit is passed over
// whole, however many jobs it has.
type shapeKey struct {
	slots     int
	perSlot   int64
	oneHost   bool
	perHost   int // slots on each host, the last one may have fewer; 0: as they come
	exclusive bool
	hosts     string // names, each ended by a NUL
	wants     string // resources, features and conditions
	shares    string // of a pin: slots on each host; empty: as they come
	limit     int    // of its run time; see limitClass
}

// shape is a queue of jobs that could start, all with the same needs.
//
// A waiting job's value grows with each tick until it has gained all it can.
// Growing jobs keep their order among each other, and so do grown ones; the
// first of the shape is the better of the two tops.
type shape struct {
	key     shapeKey
	index   int               // in Manager.shapes
	allowed []*host           // nil: all of them
	groups  [][]*host         // those of allowed that are alike, where a job of several hosts must have such; nil: it need not
	work    *work             // of its first job, for its resources, features and conditions
	needs   []backends.Amount // resources that it takes of each host
	shares  []int             // slots on each of allowed; nil: as they come
	able    bool              // the hosts that take jobs now could hold it, were they empty
	touched bool              // jobs came in since the last round

	growing *jobHeap // by rank
	grown   *jobHeap // by rank
	capping *jobHeap // the growing ones, by the tick at which they have grown
	oldest  *job     // by waitSince
	newest  *job
}

func (m *Manager) keyOf(j *job) shapeKey {
	k := shapeKey{slots: j.work.spec.Slots, perSlot: j.work.perSlot, oneHost: j.work.oneHost(), perHost: j.work.perHost(), exclusive: j.work.spec.Exclusive, wants: j.work.wants}
	if m.cfg.SlotsOnly {
		k.perSlot = 0
	}
	if m.cfg.ReserveAfter > 0 {
		k.limit = limitClass(j.work.spec.RunLimit)
	}
	if hosts := j.allowed(); len(hosts) > 0 {
		k.hosts = strings.Join(hosts, "\x00") + "\x00"
	}
	if k.allows(j.shares) { // else it was changed since it was pinned
		k.shares = fmt.Sprint(j.shares)
	}
	return k
}

// allows reports whether the slots of a job may be these, each on a host.
func (k *shapeKey) allows(shares []int) bool {
	sum, rest := 0, 0
	for _, n := range shares {
		sum += n
		if n != k.perHost {
			rest++
		}
		if k.perHost > 0 && n > k.perHost {
			return false
		}
	}
	return sum > 0 && sum == k.slots && (k.perHost == 0 || rest <= 1)
}

// alike reports whether the job may have all hosts of its pin.
func (s *shape) alike() bool {
	return s.groups == nil || len(s.groups) == 1 && len(s.groups[0]) == len(s.allowed)
}

func (m *Manager) shapeOf(j *job) *shape {
	key := m.keyOf(j)
	if s := m.byKey[key]; s != nil {
		return s
	}
	s := &shape{key: key, index: len(m.shapes), work: j.work, needs: j.work.spec.Needs}
	if key.shares != "" {
		s.shares = j.shares
	}
	s.growing = newHeap(posRank, growsBefore)
	s.grown = newHeap(posRank, func(a, b *job) bool { return m.final(a).before(m.final(b)) })
	s.capping = newHeap(posCap, func(a, b *job) bool {
		x, y := a.ageFrom+m.mayGain(a), b.ageFrom+m.mayGain(b)
		return x < y || x == y && a.turn < b.turn
	})
	m.findHosts(s)
	m.shapes = append(m.shapes, s)
	m.byKey[key] = s
	return s
}

// findHosts finds the hosts that a shape could go to, were they empty, which changes with the nodes only.
func (m *Manager) findHosts(s *shape) {
	s.allowed = nil
	if s.key.hosts != "" {
		s.allowed = []*host{}
		for name := range strings.SplitSeq(strings.TrimSuffix(s.key.hosts, "\x00"), "\x00") {
			if h := m.byName[name]; h != nil {
				s.allowed = append(s.allowed, h)
			}
		}
	}
	if s.key.wants != "" {
		s.allowed = m.serving(s.allowed, s.work)
	}
	s.groups = nil
	if len(s.work.spec.Same) > 0 && !s.key.oneHost {
		s.groups = m.alike(s.allowed, s.work)
	}
	if s.shares != nil && (len(s.shares) != len(s.allowed) || !s.alike()) {
		s.able = false // a host of its pin is not there, or not like the others
		return
	}
	s.able = m.couldHold(s.work, s.key, s.allowed, func(h *host) bool { return h.takes() })
}

// growsBefore orders growing jobs: levels first, as no value ever leaves its
// level; then what the value would have been at tick 0.
func growsBefore(a, b *job) bool {
	if x, y := a.base.Level(), b.base.Level(); x != y {
		return x > y
	}
	x, y := int64(a.base.Value())-a.ageFrom, int64(b.base.Value())-b.ageFrom
	return x > y || x == y && a.turn < b.turn
}

// final returns the rank that a job has once it gains no more.
func (m *Manager) final(j *job) rank {
	if !j.ageing {
		return rank{j.base, j.turn}
	}
	return rank{j.base + backends.Priority(m.mayGain(j)), j.turn}
}

// enqueue lets a job wait for resources.
func (m *Manager) enqueue(j *job) {
	s := m.shapeOf(j)
	j.waitList, j.shape = inShape, s
	if j.waitSince.IsZero() {
		m.beforeChange(j)
		j.waitSince = m.now
	}
	s.append(j)
	m.addToOrder(j)
}

// addToOrder puts a job into its shape's order.
func (m *Manager) addToOrder(j *job) {
	s := j.shape
	if s.able {
		m.startAgeing(j)
	}
	m.arrange(j)
	m.touch(s)
}

// arrange is line for a job whose age is known.
func (m *Manager) arrange(j *job) {
	s := j.shape
	if j.ageing && m.mayGain(j) > m.tick(m.now)-j.ageFrom {
		s.growing.Push(j)
		s.capping.Push(j)
	} else {
		s.grown.Push(j)
	}
}

// removeFromOrder is the inverse of line.
func (m *Manager) removeFromOrder(j *job) {
	s := j.shape
	if s.growing.has(j) {
		s.growing.remove(j)
		s.capping.remove(j)
	} else {
		s.grown.remove(j)
	}
	m.stopAgeing(j)
}

// dequeue takes a job out of the queue.
func (m *Manager) dequeue(j *job) {
	s := j.shape
	m.removeFromOrder(j)
	s.unlink(j)
	j.waitList, j.shape = notWaiting, nil
	if s.oldest == nil {
		m.dropShape(s)
	}
	if j.reserve != nil {
		m.retry = true
	}
	if m.overdueJob != nil && m.overdueJob.job == j {
		m.overdueJob, m.retry = nil, true
	}
}

func (m *Manager) dropShape(s *shape) {
	last := m.shapes[len(m.shapes)-1]
	m.shapes[s.index], last.index = last, s.index
	m.shapes[len(m.shapes)-1] = nil
	m.shapes = m.shapes[:len(m.shapes)-1]
	delete(m.byKey, s.key)
}

func (m *Manager) touch(s *shape) {
	if !s.touched {
		s.touched = true
		m.touched = append(m.touched, s)
	}
}

// head returns the shape's first job.
func (m *Manager) head(s *shape) *job {
	tick := m.tick(m.now)
	for j := s.capping.Top(); j != nil && j.ageFrom+m.mayGain(j) <= tick; j = s.capping.Top() {
		s.capping.remove(j)
		s.growing.remove(j)
		s.grown.Push(j)
	}
	a, b := s.growing.Top(), s.grown.Top()
	switch {
	case a == nil:
		return b
	case b == nil || m.rank(a).before(m.rank(b)):
		return a
	}
	return b
}

// append links a job in by waitSince; the youngest, as nearly all are, costs nothing.
func (s *shape) append(j *job) {
	at := s.newest
	for at != nil && at.waitSince.After(j.waitSince) {
		at = at.older
	}
	j.older = at
	if at == nil {
		j.younger, s.oldest = s.oldest, j
	} else {
		j.younger, at.younger = at.younger, j
	}
	if j.younger == nil {
		s.newest = j
	} else {
		j.younger.older = j
	}
}

func (s *shape) unlink(j *job) {
	if j.older == nil {
		s.oldest = j.younger
	} else {
		j.older.younger = j.younger
	}
	if j.younger == nil {
		s.newest = j.older
	} else {
		j.younger.older = j.older
	}
	j.older, j.younger = nil, nil
}

// overdueAt returns when the shape's oldest job may reserve what it needs.
func (m *Manager) overdueAt(s *shape) time.Time {
	return s.oldest.waitSince.Add(m.cfg.ReserveAfter)
}

func (m *Manager) overdue(s *shape) bool {
	return m.cfg.ReserveAfter > 0 && !m.overdueAt(s).After(m.now)
}
