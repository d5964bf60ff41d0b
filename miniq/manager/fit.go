package manager

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// host is what a node offers and what of it is taken.
type host struct {
	name   string
	index  int // in Manager.hosts, which is sorted by name
	slots  int
	memory int64
	closed bool      // its node takes no new jobs
	shut   *shutHost // an administrator closed it; nil: it is open
	down   bool

	used      int   // slots of running jobs, and of those that have not stopped yet
	usedMem   int64 // of running and suspended jobs
	runMem    int64 // of running ones alone
	runs      int   // live ones
	exclusive int   // running exclusive jobs
	units
}

// shutHost says which administrator closed a host, when and why.
type shutHost struct {
	By     string
	At     time.Time
	Reason string `json:",omitempty"`
}

// takes reports whether new jobs may start on a host.
func (h *host) takes() bool { return !h.down && !h.closed && h.shut == nil }

// room is what a host has left for a job in one round.
type room struct {
	slots  int
	memory int64 // math.MaxInt64: not managed
	open   bool  // takes new jobs
	whole  bool  // nothing runs there, nothing is kept for others
	left
}

func (m *Manager) room(h *host) room {
	r := room{open: h.takes(), whole: h.used == 0, memory: math.MaxInt64, left: h.left(h.taken)}
	if m.managed(h) {
		r.memory = max(0, h.memory-h.usedMem)
	}
	if !h.down && h.exclusive == 0 {
		r.slots = max(0, h.slots-h.used)
	}
	return r
}

func (m *Manager) managed(h *host) bool { return !m.cfg.SlotsOnly && h.memory > 0 }

// capacity returns how many slots of a host a job of this shape could have by slots and
// memory.
func (k *shapeKey) capacity(r *room) int {
	if !r.open || r.slots <= 0 || k.exclusive && !r.whole {
		return 0
	}
	if k.perSlot > 0 && r.memory != math.MaxInt64 {
		return int(min(int64(r.slots), r.memory/k.perSlot))
	}
	return r.slots
}

// capacity returns how many slots of a host a job of this shape could have.
func (s *shape) capacity(r *room) int {
	if s.needs != nil && !r.enough(s.needs) {
		return 0
	}
	return s.key.capacity(r)
}

// emptyRoom returns what a host would offer if nothing were there.
func (m *Manager) emptyRoom(h *host) room {
	r := room{slots: h.slots, open: true, whole: true, memory: math.MaxInt64, left: h.left(nil)}
	if m.managed(h) {
		r.memory = h.memory
	}
	return r
}

// roomWithoutRuns returns what a host would offer if all that runs there were gone. What is
// suspended there keeps its memory, and may be waiting for the very slots that a job
// reserves.
func (m *Manager) roomWithoutRuns(h *host) room {
	r := m.emptyRoom(h)
	if m.managed(h) {
		r.memory = max(0, r.memory-(h.usedMem-h.runMem))
	}
	if len(h.has) > 0 {
		r.left = h.left(h.suspended())
	}
	return r
}

// couldHold reports whether the hosts that pass could hold a shape, were they empty.
func (m *Manager) couldHold(w *work, k shapeKey, allowed []*host, pass func(*host) bool) bool {
	if allowed == nil {
		allowed = m.hosts
	}
	capacity := func(h *host) int {
		if !pass(h) {
			return 0
		}
		r := m.emptyRoom(h)
		return k.capacity(&r)
	}
	if k.perHost == 0 && slices.ContainsFunc(allowed, func(h *host) bool { return capacity(h) >= k.slots }) {
		return true
	}
	return !k.oneHost && slices.ContainsFunc(m.alike(allowed, w), func(group []*host) bool { return k.lay(group, capacity) != nil })
}

// lay places a shape on the first of some hosts, given how many slots each one offers; nil: they
// offer too few.
func (k *shapeKey) lay(hosts []*host, offers func(*host) int) []backends.Placement {
	if k.perHost == 0 {
		placed, left := k.fill(hosts, offers)
		if left > 0 {
			return nil
		}
		return placed
	}
	var placed []backends.Placement
	need, rest := k.slots, k.slots%k.perHost
	var last *host // it has the rest
	for _, h := range hosts {
		switch n := offers(h); {
		case need >= k.perHost && n >= k.perHost:
			placed = append(placed, backends.Placement{Host: h.name, Slots: k.perHost})
			need -= k.perHost
		case rest > 0 && last == nil && n >= rest:
			last = h
		}
	}
	switch {
	case need >= k.perHost || rest > 0 && last == nil:
		return nil
	case rest > 0:
		placed = append(placed, backends.Placement{Host: last.name, Slots: rest})
	}
	return placed
}

// fill takes of some hosts what they offer, as it comes, and returns the slots that are missing.
func (k *shapeKey) fill(hosts []*host, offers func(*host) int) (placed []backends.Placement, left int) {
	left = k.slots
	for _, h := range hosts {
		if n := min(left, offers(h)); n > 0 {
			placed = append(placed, backends.Placement{Host: h.name, Slots: n})
			left -= n
		}
	}
	return placed, left
}

// fewest returns the fewest slots that a shape takes of a host.
func (k *shapeKey) fewest() int {
	switch {
	case k.oneHost:
		return k.slots
	case k.perHost > 0 && k.slots%k.perHost > 0:
		return k.slots % k.perHost
	}
	return max(k.perHost, 1)
}

// fit finds slots for a shape, nil if there are not enough. A job goes to one
// host where one can hold it: to the one that has the fewest free slots then,
// so that wide jobs find theirs, and to one with resources if it needs some or there is no
// other. Else, if it may, it takes the hosts that can
// give it most, or those with the fewest free slots where it has a number of slots on each host;
// of hosts that must be alike, the fewest. The name decides ties.
func (m *Manager) fit(s *shape, rooms []room) []backends.Placement {
	allowed := s.allowed
	if allowed == nil {
		allowed = m.hosts
	}
	if s.shares != nil {
		return s.fitShares(rooms)
	}
	var best *host
	sum := 0
	for _, h := range allowed {
		c := s.capacity(&rooms[h.index])
		sum += c
		if s.key.perHost == 0 && c >= s.key.slots && (best == nil || s.betterOn(h, best, rooms)) {
			best = h
		}
	}
	if best != nil {
		return []backends.Placement{{Host: best.name, Slots: s.key.slots}}
	}
	if s.key.oneHost || sum < s.key.slots {
		return nil
	}
	if s.groups == nil {
		return s.spread(allowed, rooms)
	}
	var placed []backends.Placement
	for _, group := range s.groups {
		if other := s.spread(group, rooms); other != nil && (placed == nil || len(other) < len(placed)) {
			placed = other
		}
	}
	return placed
}

// fitShares finds a pin's shares, all of them or none.
func (s *shape) fitShares(rooms []room) []backends.Placement {
	if len(s.shares) != len(s.allowed) || !s.alike() {
		return nil
	}
	placed := make([]backends.Placement, len(s.shares))
	for i, h := range s.allowed {
		if s.capacity(&rooms[h.index]) < s.shares[i] {
			return nil
		}
		placed[i] = backends.Placement{Host: h.name, Slots: s.shares[i]}
	}
	return placed
}

// betterOn reports whether a job goes to a rather than to b: one that needs no resources
// leaves the hosts that have some to others.
func (s *shape) betterOn(a, b *host, rooms []room) bool {
	if x, y := len(a.has) > 0, len(b.has) > 0; s.needs == nil && x != y {
		return y
	}
	return tighter(a, b, rooms)
}

func tighter(a, b *host, rooms []room) bool {
	x, y := rooms[a.index].slots, rooms[b.index].slots
	return x < y || x == y && a.name < b.name
}

// spread places a shape on several hosts: those that can give most first, or with a number of
// slots on each those that have the fewest free.
func (s *shape) spread(allowed []*host, rooms []room) []backends.Placement {
	hosts := slices.Clone(allowed)
	capacity := func(h *host) int { return s.capacity(&rooms[h.index]) }
	slices.SortFunc(hosts, func(a, b *host) int {
		switch {
		case s.key.perHost == 0:
			return cmp.Or(cmp.Compare(capacity(b), capacity(a)), cmp.Compare(a.name, b.name))
		case a == b:
			return 0
		case s.betterOn(a, b, rooms):
			return -1
		}
		return 1
	})
	return s.key.lay(hosts, capacity)
}

// occupy books a job's slots on its hosts.
func (m *Manager) occupy(j *job) {
	for _, p := range j.hosts {
		h := m.byName[p.Host]
		h.used += p.Slots
		h.runMem += j.work.perSlot * int64(p.Slots)
		h.add(h.byRuns, j.work.spec.Needs, 1)
		if j.work.spec.Exclusive {
			h.exclusive++
		}
	}
	m.addEarly(j)
}

// vacate is the inverse of occupy.
func (m *Manager) vacate(j *job) {
	for _, p := range j.hosts {
		h := m.byName[p.Host]
		h.used -= p.Slots
		h.runMem -= j.work.perSlot * int64(p.Slots)
		h.add(h.byRuns, j.work.spec.Needs, -1)
		if j.work.spec.Exclusive {
			h.exclusive--
		}
	}
	m.dropEarly(j)
	m.retry = true
}

// bookRun books what a run holds from its start to its end, stopped or not.
func (m *Manager) bookRun(j *job, sign int) {
	for _, p := range j.hosts {
		h := m.byName[p.Host]
		h.usedMem += int64(sign) * j.work.perSlot * int64(p.Slots)
		h.runs += sign
		h.add(h.taken, j.work.spec.Needs, sign)
	}
	if j.array != nil {
		j.array.active += sign
	}
}
