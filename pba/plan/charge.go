package plan

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// pool is an allocation in force with what is charged to it.
type pool struct {
	Allocation
	room    int    // slots that nothing is charged to and nobody holds
	members []*job // running jobs charged to it, and pending ones that hold room
	head    *job   // waits for more than the room, and keeps that (R12)
	waiting int    // slots of entitled jobs that wait beyond the room
	beyond  int    // slots that its jobs run without a charge
}

func (v *view) seePools() {
	for _, a := range v.policy.Allocations {
		if a.SLA == Throughput {
			a.Guarantee = v.throughput(a)
		}
		v.pools = append(v.pools, &pool{Allocation: a, room: max(a.Guarantee, 0)})
	}
	slices.SortFunc(v.pools, func(a, b *pool) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range v.pools {
		v.projectPools[p.Project] = append(v.projectPools[p.Project], p)
		v.guaranteed[p.Project] += p.Guarantee
		v.allGuaranteed += p.Guarantee
	}
}

// charge is R9 and R12's first half: who has a place in a pool. In order:
//
//  1. running jobs that had a charge, by start (a resumed job: of its resume), then ID
//  2. pending jobs that entered the allocation, by when they did, then FIFO
//  3. running jobs without a charge and heads, by start and by when they became
//     head: what starts after a head is charged after it; each into what room is left
//  4. the other pending jobs, by priority, then FIFO, as far as there is room
func (v *view) charge() {
	var charged, entered, later, rest []*job
	for _, j := range v.jobs {
		if !j.entitled || j.leaving {
			continue
		}
		switch {
		case j.State == backends.Running && j.mem.Pool != 0:
			charged = append(charged, j)
		case j.State == backends.Running:
			later = append(later, j)
		case !j.waiting():
		case j.mem.Pool != 0 && j.mem.Kept > 0 && v.keep(j):
			later = append(later, j)
		case j.mem.Pool != 0 && j.mem.Kept == 0:
			entered = append(entered, j)
		default:
			rest = append(rest, j)
		}
	}
	slices.SortFunc(charged, byStart)
	slices.SortFunc(entered, byEntry)
	slices.SortFunc(later, func(a, b *job) int {
		if c := since(a).Compare(since(b)); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	})

	for _, j := range charged {
		v.place(j)
	}
	for _, j := range entered {
		if !v.place(j) {
			rest = append(rest, j) // its pool shrank
		}
	}
	for _, j := range later {
		if j.State == backends.Running {
			v.place(j)
		} else if !v.placeHead(j) {
			rest = append(rest, j)
		}
	}
	slices.SortFunc(rest, byQueueOrder)
	v.countBeyond()
	v.findVictims()
	v.placeRest(rest)
}

// byStart orders running jobs by their start, then ID.
func byStart(a, b *job) int {
	if c := a.Started.Compare(b.Started); c != 0 {
		return c
	}
	return a.ID.Compare(b.ID)
}

// byEntry orders jobs that hold room by when they entered, then FIFO.
func byEntry(a, b *job) int {
	if c := a.mem.Entered.Compare(b.mem.Entered); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// byQueueOrder orders pending jobs by priority, highest first, then FIFO.
func byQueueOrder(a, b *job) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

func since(j *job) time.Time {
	if j.State == backends.Running {
		return j.Started
	}
	return j.mem.Entered
}

// keep sets a remembered head's room aside, if its pool is still one of its own.
func (v *view) keep(j *job) bool {
	for _, p := range j.pools {
		if p.ID == j.mem.Pool && p.head == nil {
			p.head = j
			j.mem.Kept = min(j.mem.Kept, p.Guarantee)
			return true
		}
	}
	j.mem.Pool, j.mem.Kept = 0, 0
	return false
}

// placeHead gives a head its place if there is room by now; else it keeps what
// there is. Where nothing is left to keep it is a head no more.
func (v *view) placeHead(j *job) bool {
	p := v.poolOf(j)
	p.head = nil
	if v.place(j) {
		return true
	}
	if p.room <= 0 {
		j.mem.Pool, j.mem.Kept, j.mem.Entered = 0, 0, time.Time{}
		return false
	}
	p.head = j
	j.pool, j.mem.Kept = p, p.room
	p.room = 0
	return true
}

func (v *view) poolOf(j *job) *pool {
	for _, p := range j.pools {
		if p.ID == j.mem.Pool {
			return p
		}
	}
	return nil
}

// place charges a job to the most specific of its pools that has room, or makes
// room by moving charges to other pools they match: one path, one job moved per
// pool. It reports whether the job has a place now.
func (v *view) place(j *job) bool {
	for _, p := range j.pools {
		if p.free(j) >= j.Slots {
			p.admit(j)
			return true
		}
	}
	return len(j.pools) > 0 && v.makeRoom(j)
}

// free is the pool's room for one job: a head's kept room is for the head alone.
func (p *pool) free(j *job) int {
	if p.head != nil && p.head != j && p.head.pool == nil {
		return p.room - p.head.mem.Kept
	}
	return p.room
}

func (p *pool) admit(j *job) {
	j.pool, j.mem.Kept = p, 0
	p.room -= j.Slots
	p.members = append(p.members, j)
}

func (p *pool) dismiss(j *job) {
	p.room += j.Slots
	p.members = slices.DeleteFunc(p.members, func(m *job) bool { return m == j })
}

// step is one edge of makeRoom's search: moved leaves the pool that from leads
// to, for pool.
type step struct {
	pool  *pool
	need  int
	moved *job
	from  *step
}

// makeRoom looks for a chain of moves, each of one job to another pool that it
// matches, after which one of j's pools has room for it; breadth first from each
// of them in turn, and it carries out the first that it finds.
func (v *view) makeRoom(j *job) bool {
	if !v.roomFor(j) {
		return false
	}
	for _, p := range j.pools {
		if last := findMoves(p, j); last != nil {
			v.move(last, j)
			return true
		}
	}
	return false
}

// findMoves returns the last step of the shortest chain that makes room for j in
// a pool, or nil.
func findMoves(start *pool, j *job) *step {
	seen := map[*pool]bool{start: true}
	queue := []*step{{pool: start, need: j.Slots}}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, m := range bySize(at.pool.members) {
			if at.pool.free(j)+m.Slots < at.need {
				continue
			}
			for _, to := range m.pools {
				if seen[to] {
					continue
				}
				seen[to] = true
				next := &step{pool: to, need: m.Slots, moved: m, from: at}
				if to.free(m) >= m.Slots {
					return next
				}
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// bySize orders jobs by slots, then ID: the smallest that will do moves.
func bySize(members []*job) []*job {
	return slices.SortedFunc(slices.Values(members), func(a, b *job) int {
		if c := cmp.Compare(a.Slots, b.Slots); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	})
}

// roomFor is a cheap necessary condition of makeRoom: some pool of the job's
// project has room at all.
func (v *view) roomFor(j *job) bool {
	return slices.ContainsFunc(v.projectPools[j.Project], func(p *pool) bool { return p.room > 0 })
}

func (v *view) move(last *step, j *job) {
	for at := last; at.from != nil; at = at.from {
		at.from.pool.dismiss(at.moved)
		at.pool.admit(at.moved)
	}
	first := last
	for first.from != nil {
		first = first.from
	}
	first.pool.admit(j)
}

// placeRest gives the other pending jobs room in their order; the first of a
// pool that needs more than its room becomes its head and keeps it (R12). What
// is left is next in line as far as the pool's headroom goes.
func (v *view) placeRest(rest []*job) {
	headroom := map[*pool]int{}
	for _, p := range v.pools {
		headroom[p] = v.headroom(p) - p.beyond
	}
	for _, j := range rest {
		if v.placeable(j) && v.place(j) {
			continue
		}
		v.becomeHead(j)
		for _, p := range j.pools {
			if headroom[p] > 0 && j.pool == nil && j.State == backends.Pending {
				headroom[p] -= j.Slots
				j.next = true
				break
			}
		}
		j.pools[0].waiting += j.Slots
	}
}

func (v *view) becomeHead(j *job) {
	if j.State != backends.Pending {
		return
	}
	for _, p := range j.pools {
		if p.head == nil && p.room > 0 {
			p.head, j.pool = j, p
			if j.mem.Pool != p.ID || j.mem.Entered.IsZero() {
				j.mem.Entered = v.now
			}
			j.mem.Kept, p.room = p.room, 0
			return
		}
	}
}

// placeable tells whether it is of use to give a job room now. A suspended job
// can run on its own hosts only: it takes room when they can serve it (R20).
func (v *view) placeable(j *job) bool {
	if j.State != backends.Suspended {
		return true
	}
	for _, p := range j.Hosts {
		h := v.byName[p.Host]
		if h == nil {
			return false
		}
		could := h.free
		for _, victim := range h.victims {
			could += victim.gain
		}
		if could < p.Slots {
			return false
		}
	}
	return true
}

// headroom is R12's ceil(1.5 × pool × cycle / mean run time), in slots; 0 before
// the pool's first job ended.
func (v *view) headroom(p *pool) int {
	ends := v.state.Memory.RunTimes[p.Key()]
	if len(ends) == 0 || v.policy.Headroom <= 0 {
		return 0
	}
	var sum time.Duration
	for _, e := range ends {
		sum += e.Ran
	}
	mean := max(sum/time.Duration(len(ends)), time.Second/10)
	want := v.policy.Headroom * float64(p.Guarantee) * float64(v.policy.Cycle) / float64(mean)
	return int(math.Ceil(min(want, float64(v.slots))))
}

// countBeyond adds up over-subscription, and what each pool's jobs run beyond it.
func (v *view) countBeyond() {
	for _, j := range v.running {
		if j.pool != nil || !j.managed || j.lightFor != (backends.ID{}) {
			continue
		}
		v.over[j.party()] += j.Slots
		if len(j.pools) > 0 {
			j.pools[0].beyond += j.Slots
		}
	}
}

func slotsOn(j *job, name string) int {
	n := 0
	for _, p := range j.Hosts {
		if p.Host == name {
			n += p.Slots
		}
	}
	return n
}
