package manager

import (
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/heap"
)

// round is one walk down the queue, best rank first. On its way it keeps what jobs have
// a right to, so that rooms is always what is left for the next rank.
type round struct {
	*Manager
	rooms     []room
	total     int               // free slots that no job has a right to yet
	heads     *heap.Heap[entry] // best rank first
	rights    []right           // best rank first
	whole     bool              // all shapes are tried
	reserved  bool              // the reservation of reserve_after is made, or kept
	late      []room            // what of rooms is left for jobs that will still run when the reservation's job needs its slots; nil: as rooms
	lateTotal int               // free slots of late
	lateAt    time.Time         // when that job needs them
	spare     *spares           // see spares
	tries     int               // jobs for which no slots were found that could be kept for them
}

// entry is a shape and the rank of its first job.
type entry struct {
	rank
	shape *shape
	job   *job
}

// right is what a job that does not run keeps from lower-ranked ones.
type right struct {
	rank
	apply func(*round) // deducts it, or resumes the job
}

// dispatch starts and resumes all that fits.
func (m *Manager) dispatch() {
	for m.retry || len(m.touched) > 0 || len(m.woken) > 0 {
		for len(m.woken) > 0 {
			j := m.woken[0]
			m.woken = m.woken[1:]
			m.review(j)
		}
		if m.retry || len(m.touched) > 0 {
			m.newRound().walk()
		}
	}
	m.woken = nil
}

func (m *Manager) newRound() *round {
	m.rooms = slices.Grow(m.rooms[:0], len(m.hosts))[:len(m.hosts)]
	r := &round{Manager: m, rooms: m.rooms, heads: heap.New(func(a, b entry) bool { return a.before(b.rank) }, nil)}
	mostSlots, mostMemory := 0, int64(0)
	for i, h := range m.hosts {
		r.rooms[i] = m.room(h)
		r.total += r.rooms[i].slots
		mostSlots, mostMemory = max(mostSlots, r.rooms[i].slots), max(mostMemory, r.rooms[i].memory)
	}
	touched := m.touched
	r.whole, m.retry, m.touched = m.retry, false, nil
	for _, s := range touched {
		s.touched = false
	}
	if r.total == 0 {
		return r
	}
	if r.whole {
		touched = m.shapes
	} else if m.overdueJob != nil {
		r.rights = append(r.rights, right{m.rank(m.overdueJob.job), (*round).keepReservation})
	}
	for _, s := range touched {
		if s.oldest == nil || !s.able {
			continue
		}
		k := &s.key
		may := k.slots <= r.total && k.perSlot <= mostMemory && (!k.oneHost || k.slots <= mostSlots)
		if may || m.overdue(s) {
			r.pushHead(s)
		}
	}
	r.addClaims()
	r.addReservations()
	slices.SortStableFunc(r.rights, func(a, b right) int {
		switch {
		case a.before(b.rank):
			return -1
		case b.before(a.rank):
			return 1
		}
		return 0
	})
	return r
}

// walk is the round: each step takes the better of the next head and the next
// right. A job goes before its own right.
func (r *round) walk() {
	for r.total > 0 {
		if len(r.woken) > 0 { // jobs that the last start let start: a new round ranks them among the rest
			r.retry = true
			return
		}
		switch {
		case len(r.rights) > 0 && (r.heads.Len() == 0 || r.rights[0].before(r.heads.Top().rank)):
			apply := r.rights[0].apply
			r.rights = r.rights[1:]
			apply(r)
		case r.heads.Len() > 0:
			r.try()
		default:
			return
		}
	}
}

// try starts the best head, or passes its shape over.
func (r *round) try() {
	e := r.heads.Pop()
	var placed []backends.Placement
	rooms, total := r.roomsFor(e.job)
	if total > 0 {
		placed = r.fit(e.shape, rooms)
	}
	if placed == nil {
		if !r.reserved && r.overdue(e.shape) {
			r.reserveForOverdue(e)
		}
		return
	}
	s := e.shape
	lasts := r.lasts(e.job)
	r.start(e.job, placed)
	for _, p := range placed {
		r.deduct(p, &s.key, s.needs, lasts)
	}
	if s.oldest != nil {
		r.pushHead(s)
	}
}

// deduct subtracts slots, their memory and resources from what is left in the round; with
// lasts also from what is left for jobs that run for longer.
func (r *round) deduct(p backends.Placement, k *shapeKey, needs []backends.Amount, lasts bool) {
	h := r.byName[p.Host]
	if h == nil {
		return
	}
	r.total -= r.rooms[h.index].take(p.Slots, k, needs)
	if r.late == nil {
		return
	}
	late := &r.late[h.index]
	if lasts {
		r.lateTotal -= late.take(p.Slots, k, needs)
	}
	r.lateTotal -= late.limit(&r.rooms[h.index])
}

// take subtracts slots, their memory and resources, and returns how many slots that were.
func (room *room) take(slots int, k *shapeKey, needs []backends.Amount) int {
	n := min(room.slots, slots)
	if k.exclusive {
		n = room.slots
	}
	room.slots -= n
	room.whole = false
	if k.perSlot > 0 && room.memory != math.MaxInt64 {
		room.memory = max(0, room.memory-k.perSlot*int64(slots))
	}
	room.add(room.free, needs, -1)
	return n
}

// addClaims adds a right for each suspended job that is to go on: at its own rank from
// LevelPBA up, else below every job at LevelPBA and before all others.
func (r *round) addClaims() {
	resuming := slices.Clone(r.resuming)
	slices.SortFunc(resuming, func(a, b *job) int {
		if r.rank(a).before(r.rank(b)) {
			return -1
		}
		return 1
	})
	for _, j := range resuming {
		at := r.rank(j)
		if at.priority.Level() < backends.LevelPBA {
			at = rank{backends.At(backends.LevelPBA, 0), math.MaxInt64}
		}
		r.rights = append(r.rights, right{at, func(r *round) { r.resumeOrDeduct(j) }})
	}
}

// resumeOrDeduct resumes a suspended job, or keeps for it what is free on its hosts. One
// that has not stopped yet has its slots still.
func (r *round) resumeOrDeduct(j *job) {
	if j.holdsSlots() {
		return
	}
	fits := true
	for _, p := range j.hosts {
		h := r.byName[p.Host]
		room := &r.lasting()[h.index]
		if h.down || room.slots < p.Slots || j.work.spec.Exclusive && !room.whole {
			fits = false
		}
	}
	for _, p := range j.hosts {
		r.deduct(p, &shapeKey{exclusive: j.work.spec.Exclusive}, nil, true) // its memory and resources are its own already
	}
	if fits {
		r.resumeRun(j)
	}
}

// addReservations adds the engine's reservations as rights. One holds while its job could
// start but for the slots: hosts don't stand idle for a job that is held.
func (r *round) addReservations() {
	for _, j := range r.reservers {
		if j.waitList != inShape {
			continue
		}
		r.rights = append(r.rights, right{r.rank(j), func(r *round) { r.deductHosts(j) }})
	}
}

func (r *round) deductHosts(j *job) {
	if j.waitList != inShape {
		return // started in this very round
	}
	for _, name := range j.reserve.hosts {
		h := r.byName[name]
		if h == nil {
			continue
		}
		key, empty := &j.shape.key, r.roomWithoutRuns(h)
		if n := j.shape.capacity(&empty); n < key.fewest() {
			continue // no use to it: a suspended job there would wait for it, and it for that job
		}
		room := &r.rooms[h.index]
		r.total -= room.slots
		room.slots, room.whole = 0, false
		if r.late != nil {
			r.lateTotal -= r.late[h.index].limit(room)
		}
	}
}

// pushHead adds a shape's first job to those that are tried in the order of ranks.
func (r *round) pushHead(s *shape) {
	j := r.head(s)
	r.heads.Push(entry{r.rank(j), s, j})
}
