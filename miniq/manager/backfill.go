package manager

import (
	"math"
	"math/bits"
	"time"
)

// Backfill (R37): EASY, with one reservation. From the run limits of the runs on the hosts where
// slots are kept for a job follows by when it will have them all. A job below it may take of
// these slots if its own run limit ends by then; else it may take what is free then beside them.

// held is what some runs hold of a host.
type held struct {
	slots  int
	memory int64
	units  []int // of each of the host's resources
}

// add adds what one run holds there.
func (s *held) add(h *host, j *job, slots, sign int) {
	s.slots += sign * slots
	s.memory += int64(sign) * j.work.perSlot * int64(slots)
	if len(s.units) == len(h.has) {
		h.add(s.units, j.work.spec.Needs, sign)
	}
}

// countEarly counts anew what runs hold of the hosts where slots are kept that end, by their run
// limits, by when the job needs these.
func (m *Manager) countEarly() {
	k := m.overdueJob
	if k == nil || k.at.IsZero() {
		return
	}
	k.early, k.place = make([]held, len(k.placed)), make(map[string]int, len(k.placed))
	for i, p := range k.placed {
		k.place[p.Host] = i
		if h := m.byName[p.Host]; h != nil {
			k.early[i].units = make([]int, len(h.has))
		}
	}
	for _, j := range m.limited.Items() {
		j.early = nil
		m.addEarly(j)
	}
}

// addEarly counts a run that has begun.
func (m *Manager) addEarly(j *job) {
	k := m.overdueJob
	if k == nil || k.at.IsZero() || j.work.spec.RunLimit <= 0 || j.limitAt().After(k.at) {
		return
	}
	j.early = k
	m.bookEarly(j, 1)
}

// dropEarly counts a run no more that ends, or is suspended.
func (m *Manager) dropEarly(j *job) {
	if j.early != nil && j.early == m.overdueJob {
		m.bookEarly(j, -1)
	}
	j.early = nil
}

func (m *Manager) bookEarly(j *job, sign int) {
	for _, p := range j.hosts {
		if i, kept := m.overdueJob.place[p.Host]; kept {
			m.overdueJob.early[i].add(m.byName[p.Host], j, p.Slots, sign)
		}
	}
}

// keepForLate keeps what the reservation's job will need from those jobs that will still run then.
func (r *round) keepForLate() {
	r.lateRooms = append(r.lateRooms[:0], r.rooms...)
	r.late, r.lateTotal, r.lateAt = r.lateRooms, r.total, r.overdueJob.at
	for i := range r.late {
		r.late[i].left.free = append([]int(nil), r.late[i].left.free...)
	}
	k, s := r.overdueJob, r.overdueJob.job.shape
	for i, p := range k.placed {
		h := r.byName[p.Host]
		if h == nil {
			continue
		}
		room, early := &r.late[h.index], &k.early[i]
		lacks := max(0, p.Slots-early.slots)
		if s.key.exclusive {
			lacks = room.slots
		}
		lacks = min(room.slots, lacks)
		room.slots -= lacks
		r.lateTotal -= lacks
		room.whole = false
		if room.memory != math.MaxInt64 {
			room.memory = max(0, room.memory-max(0, s.key.perSlot*int64(p.Slots)-early.memory))
		}
		for _, a := range s.needs {
			if n := h.at(a.Name); n >= 0 {
				room.free[n] -= max(0, a.Count-early.units[n])
			}
		}
	}
}

// lasts reports whether a job would still run when the reservation's job needs its slots.
func (r *round) lasts(j *job) bool {
	limit := j.work.spec.RunLimit
	return limit <= 0 || r.now.Add(limit).After(r.lateAt)
}

// roomsFor returns what a job may have of the hosts, and the slots of that.
func (r *round) roomsFor(j *job) (rooms []room, total int) {
	if r.late != nil && r.lasts(j) {
		return r.late, r.lateTotal
	}
	return r.rooms, r.total
}

// lasting returns what is left for a job without a run limit.
func (r *round) lasting() []room {
	if r.late != nil {
		return r.late
	}
	return r.rooms
}

// limit makes a room no larger than another one, and returns by how many slots.
func (room *room) limit(to *room) int {
	n := max(0, room.slots-to.slots)
	room.slots -= n
	room.memory, room.whole = min(room.memory, to.memory), room.whole && to.whole
	for i := range room.free {
		room.free[i] = min(room.free[i], to.free[i])
	}
	return n
}

// limitClass returns the same number for run limits that differ by a quarter at most, a higher
// one for longer ones. All that decides where a job fits is part of its shape, but each limit by
// itself would make too many shapes: of one shape the first job decides.
func limitClass(limit time.Duration) int {
	if limit <= 0 {
		return 0
	}
	seconds := uint64((limit + time.Second - 1) / time.Second)
	order := bits.Len64(seconds)
	if order <= 3 {
		return int(seconds)
	}
	return 4*order + int(seconds>>(order-3)&3)
}
