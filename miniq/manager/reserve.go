package manager

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// overdueReservation is the one job that reserves by reserve_after: the
// highest-ranked one of those shapes that have a job which waited so long.
// (What a job of the same shape takes it would have been given as well.)
type overdueReservation struct {
	job      *job
	placed   []backends.Placement
	at       time.Time // by when runs leave the slots, by their run limits: they are being ended if that is over; zero: not known
	searched time.Time // when the slots were last searched for

	early []held         // on each host of placed; see countEarly
	place map[string]int // of a host in placed
}

func (k *overdueReservation) hosts() []string {
	var names []string
	for _, p := range k.placed {
		names = append(names, p.Host)
	}
	return names
}

// sooner reports whether the job will have these slots sooner than those of another
// reservation.
func (k *overdueReservation) sooner(other *overdueReservation) bool {
	return !k.at.IsZero() && (other.at.IsZero() || k.at.Before(other.at))
}

// searchEvery is how long a reservation stays as it is: a better one costs a look at all runs.
const searchEvery = 10 * time.Second

// reserveForOverdue (R37) gives the one reservation to a job that did not fit. The same job
// keeps the same hosts as long as they could hold it, unless it will have others sooner.
func (r *round) reserveForOverdue(e entry) {
	was := r.overdueJob
	good := was != nil && was.job == e.job && r.stillGood(e)
	if !good || r.now.Sub(was.searched) >= searchEvery {
		found := r.search(e)
		switch {
		case good && (found == nil || !found.sooner(was)):
			was.searched = r.now
		case found == nil:
			if was != nil && was.job == e.job {
				r.overdueJob, r.retry = nil, r.retry || !r.whole
			}
			return
		default:
			r.retry = r.retry || was != nil && !r.whole // what was kept until now is free for all
			r.overdueJob = found
			r.countEarly()
		}
	}
	r.reserved = true
	r.deductReservation()
}

// search returns the slots that can be kept for a job; nil: none can. In one round no more are
// searched for in vain than for a few jobs.
func (r *round) search(e entry) *overdueReservation {
	const tries = 8
	if r.tries >= tries || e.priority.Level() < backends.LevelPBA && e.shape.key.slots > r.spares().all {
		return nil
	}
	placed, at := r.firstFree(e)
	if placed == nil {
		r.tries++
		return nil
	}
	return &overdueReservation{job: e.job, placed: placed, at: at, searched: r.now}
}

func (r *round) stillGood(e entry) bool {
	if at := r.overdueJob.at; !at.IsZero() && !at.After(r.now) || !r.fitsBeside(e, r.overdueJob.placed) {
		return false
	}
	s, allowed := e.shape, []*host{}
	for _, p := range r.overdueJob.placed {
		h := r.byName[p.Host]
		if h == nil || !h.takes() {
			return false
		}
		empty := r.roomWithoutRuns(h)
		if s.capacity(&empty) < p.Slots {
			return false
		}
		allowed = append(allowed, h)
	}
	return len(allowed) > 0
}

// keepReservation stands for the reservation in rounds that may not reach its job.
func (r *round) keepReservation() {
	if !r.reserved && r.overdueJob != nil {
		r.reserved = true
		r.deductReservation()
	}
}

// deductReservation keeps the slots from the jobs below; where they will be needed only later,
// only from those that run for longer.
func (r *round) deductReservation() {
	if r.overdueJob.at.After(r.now) {
		r.keepForLate()
		return
	}
	for _, p := range r.overdueJob.placed {
		r.deduct(p, &r.overdueJob.job.shape.key, r.overdueJob.job.shape.needs, true)
	}
}

// firstFree finds the slots that a shape will have first if every run takes its
// limit, and when; without such, those of the hosts with most free now. nil: none can be kept for it.
func (r *round) firstFree(e entry) (placed []backends.Placement, at time.Time) {
	rooms := cloneRooms(r.rooms)
	for _, run := range r.endingRuns() {
		r.addFreed(rooms, run)
		if placed := r.fitAmong(e.shape, rooms, run); placed != nil && r.fitsBeside(e, placed) {
			return placed, run.limitAt()
		}
	}
	return r.mostFree(e), time.Time{}
}

// endingRuns are those that have a limit, the one that ends first before the others.
func (m *Manager) endingRuns() []*job {
	runs := slices.Clone(m.limited.Items())
	slices.SortFunc(runs, func(a, b *job) int {
		return cmp.Or(a.limitAt().Compare(b.limitAt()), cmp.Compare(a.seq, b.seq))
	})
	return runs
}

// addFreed adds what a run holds to rooms.
func (r *round) addFreed(rooms []room, j *job) {
	for _, p := range j.hosts {
		h := r.byName[p.Host]
		room := &rooms[h.index]
		if h.down {
			continue
		}
		if j.work.spec.Exclusive {
			room.slots = h.slots
		} else {
			room.slots += p.Slots
		}
		if r.managed(h) {
			room.memory += j.work.perSlot * int64(p.Slots)
		}
		room.add(room.free, j.work.spec.Needs, 1)
		room.whole = room.slots == h.slots
	}
}

// fitAmong is fit after a run ended: a job on one host can only fit there.
func (r *round) fitAmong(s *shape, rooms []room, run *job) []backends.Placement {
	if !s.key.oneHost {
		return r.fit(s, rooms)
	}
	for _, p := range run.hosts {
		h := r.byName[p.Host]
		if s.allowed != nil && !slices.Contains(s.allowed, h) {
			continue
		}
		if s.capacity(&rooms[h.index]) >= s.key.slots {
			return []backends.Placement{{Host: h.name, Slots: s.key.slots}}
		}
	}
	return nil
}

// mostFree takes the hosts with most free slots now that could hold the shape.
func (r *round) mostFree(e entry) []backends.Placement {
	s, allowed := e.shape, e.shape.allowed
	if allowed == nil {
		allowed = r.hosts
	}
	offers := func(h *host) int {
		if !h.takes() {
			return 0
		}
		empty := r.roomWithoutRuns(h)
		return s.capacity(&empty)
	}
	hosts := slices.Clone(allowed)
	slices.SortFunc(hosts, func(a, b *host) int {
		return cmp.Or(cmp.Compare(r.rooms[b.index].slots, r.rooms[a.index].slots), cmp.Compare(a.name, b.name))
	})
	for _, h := range hosts {
		if s.key.perHost > 0 {
			break
		}
		if whole := []backends.Placement{{Host: h.name, Slots: s.key.slots}}; offers(h) >= s.key.slots && r.fitsBeside(e, whole) {
			return whole
		}
	}
	if s.key.oneHost {
		return nil
	}
	placed := s.layFirst(hosts, offers)
	if !r.fitsBeside(e, placed) {
		return nil
	}
	return placed
}

// layFirst places a shape on the first of some hosts that could hold it. One that asks for no
// more than slots may get fewer here: suspended jobs keep memory.
func (s *shape) layFirst(hosts []*host, offers func(*host) int) []backends.Placement {
	if s.groups == nil && s.key.perHost == 0 {
		placed, _ := s.key.fill(hosts, offers)
		return placed
	}
	if s.groups == nil {
		return s.key.lay(hosts, offers)
	}
	var placed []backends.Placement
	for _, group := range s.groups {
		among := slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool { return !slices.Contains(group, h) })
		if other := s.key.lay(among, offers); other != nil && (placed == nil || len(other) < len(placed)) {
			placed = other
		}
	}
	return placed
}

// nextOverdue returns the next instant at which a shape gets the right to reserve, or a
// reservation should have come true; zero: none will.
func (m *Manager) nextOverdue() time.Time {
	var next time.Time
	if m.cfg.ReserveAfter <= 0 {
		return next
	}
	if k := m.overdueJob; k != nil && k.at.After(m.now) {
		next = k.at
	}
	for _, s := range m.shapes {
		at := m.overdueAt(s)
		if !at.After(m.now) {
			at = m.nextGuaranteeEnd()
		}
		if s.able && at.After(m.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// nextOvertaking returns the next tick at which a waiting job could by ageing come to
// rank above one that keeps something from it: as long as that one gains too it keeps
// its lead.
func (m *Manager) nextOvertaking() time.Time {
	var next time.Time
	for _, k := range m.reservingJobs() {
		at := m.tick(m.now) + 1
		switch {
		case k.ageing && m.gained(k, m.now) < m.mayGain(k):
			at = k.ageFrom + m.mayGain(k)
		case !m.anyAges(k.base.Level()):
			continue
		}
		if t := m.timeOf(at); next.IsZero() || t.Before(next) {
			next = t
		}
	}
	return next
}

// reservingJobs returns the jobs that keep something from lower-ranked ones, but for claims
// that can't be overtaken by ageing.
func (m *Manager) reservingJobs() []*job {
	var all []*job
	for _, j := range m.reservers {
		if j.waitList == inShape {
			all = append(all, j)
		}
	}
	if m.overdueJob != nil {
		all = append(all, m.overdueJob.job)
	}
	for _, j := range m.resuming {
		if j.base.Level() >= backends.LevelPBA {
			all = append(all, j)
		}
	}
	return all
}

// anyAges reports whether a job of a level or a higher one still gains.
func (m *Manager) anyAges(level backends.Level) bool {
	for _, s := range m.shapes {
		m.head(s) // moves what has grown by now out of growing
		if j := s.growing.Top(); j != nil && j.base.Level() >= level {
			return true
		}
	}
	return false
}
