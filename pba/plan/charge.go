package plan

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// pool is an allocation in force with what is charged to it. Once all
// jobs are charged, its members' slots, what the head keeps and room add up to the
// guarantee, and room is never negative.
type pool struct {
	Allocation
	part    *part  // its hosts; nil: any
	room    int    // slots that are neither charged nor held
	members []*job // running jobs charged to it, and pending ones that hold room
	head    *job   // needs more than the room, and keeps that (R12): Kept slots; nil: none
	waiting int    // slots of entitled jobs that wait beyond the room
	beyond  int    // slots that its jobs run without a charge
}

func (f *farm) readPools() {
	var lost []string // pools with slots on a set that the config does not have
	for _, a := range f.policy.Allocations {
		if a.SLA == Throughput {
			a.Guarantee = f.throughput(a)
		}
		hosts, known := f.partNamed(a.Hosts)
		if !known && a.Guarantee > 0 {
			lost = append(lost, describe(a))
			a.Guarantee = 0
		}
		f.pools = append(f.pools, &pool{Allocation: a, part: hosts, room: max(a.Guarantee, 0)})
	}
	slices.SortFunc(f.pools, func(a, b *pool) int { return cmp.Compare(a.ID, b.ID) })
	if slices.Sort(lost); len(lost) > 0 {
		f.warn("pba.host_sets in the config does not have the hosts of %s: no job is charged to such a pool, and it serves none", strings.Join(lost, ", "))
	}
	for _, p := range f.pools {
		f.projectPools[p.Project] = append(f.projectPools[p.Project], p)
		f.guaranteed[p.Project] += p.Guarantee
		f.allGuaranteed += p.Guarantee
	}
}

// books are the running jobs by account: how many slots each runs beyond its pools, and
// which jobs may be preempted.
type books struct {
	*farm
	beyond    []Beyond       // slots that run without a charge, for reports
	scattered map[string]int // slots in projects without an allocation, by user
	ending    []*job         // findVictims: running jobs that end within two cycles by their run limits
	cut       int            // sets of victims that were not compared with the chosen ones
}

// charge decides which jobs have a place in a pool (R9, and R12's first half). In order:
//
//  1. running jobs that had a charge, by start (a resumed job: of its resume), then ID; a head
//     that started, and a job that started elsewhere than on its pool's hosts, had none
//  2. pending jobs that entered the allocation, by when they did, then FIFO
//  3. running jobs without a charge and heads, by start and by when they became
//     head: what starts after a head is charged after it; each into what room is left
//  4. the other pending jobs, by priority, then FIFO, as far as there is room
func charge(f *farm) *books {
	var charged, entered, later, rest []*job
	for _, j := range f.jobs {
		if !j.entitled || j.leaving {
			continue
		}
		switch {
		case j.State == backends.Running && j.mem.Pool != 0 && j.mem.Kept == 0 && !f.strayed(j):
			charged = append(charged, j)
		case j.State == backends.Running:
			later = append(later, j)
		case !j.waiting():
		case j.mem.Pool != 0 && j.mem.Kept > 0 && f.restoreHead(j):
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
		return cmp.Or(since(a).Compare(since(b)), a.ID.Compare(b.ID))
	})

	for _, j := range charged {
		f.assignPool(j)
	}
	for _, j := range entered {
		if f.shutOut(j) || !f.assignPool(j) {
			rest = append(rest, j) // its pool shrank, or others of it can use the room before
		}
	}
	for _, j := range later {
		if j.State == backends.Running {
			f.assignPool(j)
		} else if !f.assignHead(j) {
			rest = append(rest, j)
		}
	}
	slices.SortFunc(rest, byQueueOrder)
	b := &books{farm: f, scattered: map[string]int{}}
	f.countLost()
	b.countBeyond()
	b.findVictims() // the hosts of a suspended job may come free by them: see canUseRoom
	f.assignRest(rest)
	return b
}

// strayed reports whether a job held room in a pool, and started on hosts that are not the
// pool's: the queue is not bound to these. It must not take the room of others elsewhere.
func (f *farm) strayed(j *job) bool {
	if f.rest == nil {
		return false
	}
	at := slices.IndexFunc(f.pools, func(p *pool) bool { return p.ID == j.mem.Pool })
	return at >= 0 && !f.on(f.pools[at], j.Hosts)
}

// byStart orders running jobs by their start, then ID.
func byStart(a, b *job) int {
	return cmp.Or(a.Started.Compare(b.Started), a.ID.Compare(b.ID))
}

// byEntry orders jobs that hold room by when they entered, then FIFO.
func byEntry(a, b *job) int {
	return cmp.Or(a.mem.Entered.Compare(b.mem.Entered), cmp.Compare(a.seq, b.seq))
}

// byQueueOrder orders pending jobs by priority, highest first, then FIFO.
func byQueueOrder(a, b *job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.seq, b.seq))
}

func since(j *job) time.Time {
	if j.State == backends.Running {
		return j.Started
	}
	return j.mem.Entered
}

// restoreHead sets a remembered head's room aside, if the job still matches the pool and the
// pool has no other head. It reports whether it did.
func (f *farm) restoreHead(j *job) bool {
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

// assignHead charges a head to its pool if there is room by now; else the head reserves
// the room that there is. It reports false if there is none: the job is no head any more.
func (f *farm) assignHead(j *job) bool {
	p := f.poolOf(j)
	p.head = nil
	if f.assignPool(j) {
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

func (f *farm) poolOf(j *job) *pool {
	for _, p := range j.pools {
		if p.ID == j.mem.Pool {
			return p
		}
	}
	return nil
}

// assignPool charges a job to the most specific of its pools that has room, or makes
// room by moving charges to other pools they match: one path, one job moved per
// pool. It reports whether the job has a place now.
func (f *farm) assignPool(j *job) bool {
	for _, p := range j.pools {
		if p.free(j) >= j.Slots {
			p.admit(j)
			return true
		}
	}
	return len(j.pools) > 0 && f.makeRoom(j)
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

// makeRoom searches a chain of moves, each of one job to another pool that it
// matches, after which one of j's pools has room for it; breadth first from each
// of them in turn, and it carries out the first that it finds.
func (f *farm) makeRoom(j *job) bool {
	if !f.roomFor(j) {
		return false
	}
	for _, p := range j.pools {
		if last := findMoves(p, j); last != nil {
			f.move(last, j)
			return true
		}
	}
	return f.moveBack(j)
}

// moveBack keeps a job in the pool that it was in, if the pool's other members that were in
// pools of their own fit there again: each cycle charges anew, and jobs with more than one
// pool may come into its room. What is in their way there goes back, too. It reports whether
// it did.
func (f *farm) moveBack(j *job) bool {
	home := f.poolOf(j)
	if home == nil || j.mem.Kept > 0 {
		return false
	}
	var back []*job
	gains := map[*pool]int{home: j.Slots} // of each pool that all strangers leave
	for queue := []*pool{home}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, m := range at.members {
			to := f.poolOf(m)
			if to == nil || to == at {
				continue
			}
			if _, seen := gains[to]; !seen {
				queue = append(queue, to)
			}
			gains[at] -= m.Slots
			gains[to] += m.Slots
			back = append(back, m)
		}
	}
	for p, gain := range gains {
		if gain > p.free(j) {
			return false
		}
	}
	for _, m := range back {
		m.pool.dismiss(m)
		f.poolOf(m).admit(m)
	}
	home.admit(j)
	return true
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
				next := &step{pool: to, need: m.Slots, moved: m, from: at}
				if to.free(m) >= m.Slots && !at.passes(to) {
					return next
				}
				if !seen[to] { // with the need of the first job that would move there
					seen[to] = true
					queue = append(queue, next)
				}
			}
		}
	}
	return nil
}

// passes reports whether a chain up to a step has a job leave a pool.
func (s *step) passes(p *pool) bool {
	for ; s != nil; s = s.from {
		if s.pool == p {
			return true
		}
	}
	return false
}

// bySize orders jobs by slots, then ID: the smallest that will do moves.
func bySize(members []*job) []*job {
	return slices.SortedFunc(slices.Values(members), func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Slots, b.Slots), a.ID.Compare(b.ID))
	})
}

// roomFor is a cheap necessary condition of makeRoom: some pool of the job's
// project has room at all.
func (f *farm) roomFor(j *job) bool {
	return slices.ContainsFunc(f.projectPools[j.Project], func(p *pool) bool { return p.room > 0 })
}

func (f *farm) move(last *step, j *job) {
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

// assignRest assigns room to the other pending jobs in their order; the first of a
// pool that needs more than its room becomes its head and keeps it (R12). What
// is left is next in line as far as the pool's headroom goes. Suspended jobs that can run
// come first: they had their slots before. Those whose hosts are full of PBA jobs come last,
// so that no room waits with them that another could use; then their clocks run (R20).
func (f *farm) assignRest(rest []*job) {
	headroom := map[*pool]int{}
	for _, p := range f.pools {
		headroom[p] = f.headroom(p) - p.beyond
	}
	for _, j := range rest {
		if j.State == backends.Suspended && f.canUseRoom(j) {
			f.assignPool(j)
		}
	}
	for _, j := range rest {
		if j.State == backends.Suspended || f.assignPool(j) {
			continue
		}
		f.becomeHead(j)
		for _, p := range j.pools {
			if headroom[p] > 0 && j.pool == nil {
				headroom[p] -= j.Slots
				j.next = true
				break
			}
		}
		j.pools[0].waiting += j.Slots
	}
	for _, j := range rest {
		if j.State == backends.Suspended && j.pool == nil && !f.assignPool(j) {
			j.pools[0].waiting += j.Slots
		}
	}
}

// shutOut reports whether a suspended job can't run before a PBA job ends: its hosts are the
// only ones where it can. Running jobs that had no charge until now count as none.
func (f *farm) shutOut(j *job) bool {
	if j.State != backends.Suspended {
		return false
	}
	for _, p := range j.Hosts {
		h := f.byName[p.Host]
		if h == nil {
			return true
		}
		could := h.free
		for _, other := range h.running {
			if other.pool == nil {
				could += slotsOn(other, p.Host)
			}
		}
		if could < p.Slots {
			return true
		}
	}
	return false
}

func (f *farm) becomeHead(j *job) {
	for _, p := range j.pools {
		if p.head == nil && p.room > 0 {
			p.head, j.pool = j, p
			if j.mem.Pool != p.ID || j.mem.Entered.IsZero() {
				j.mem.Entered = f.now
			}
			j.mem.Kept, p.room = p.room, 0
			return
		}
	}
}

// canUseRoom reports whether a suspended job could use room now: it can run on its own hosts
// only (R20).
func (f *farm) canUseRoom(j *job) bool {
	for _, p := range j.Hosts {
		h := f.byName[p.Host]
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
func (f *farm) headroom(p *pool) int {
	return f.policy.InLine(&f.state.Memory, &p.Allocation, f.slots)
}

// InLine returns the slots of a pool's jobs that may be next in line on a farm of so many (R12).
func (p *Policy) InLine(m *Memory, a *Allocation, slots int) int {
	ends := m.RunTimes[a.Key()]
	if len(ends) == 0 || p.Headroom <= 0 {
		return 0
	}
	var sum time.Duration
	for _, e := range ends {
		sum += e.Ran
	}
	mean := max(sum/time.Duration(len(ends)), time.Second/10)
	want := p.Headroom * float64(a.Guarantee) * float64(p.Cycle) / float64(mean)
	return int(math.Ceil(min(want, float64(slots))))
}

// maxStepsShown bounds the steps of a project without an allocation whose use is told apart:
// where it has no flow, its users name any.
const maxStepsShown = 20

// countBeyond adds up over-subscription, and what each pool's jobs run beyond it.
func (b *books) countBeyond() {
	use := map[Beyond]int{} // of projects without an allocation, without its slots
	steps := map[string]int{}
	for _, j := range b.running {
		if j.pool != nil || !j.managed || j.lightFor != (backends.ID{}) {
			continue
		}
		if b.unplanned(j) {
			b.scattered[j.User] += j.Slots
			key := Beyond{Project: j.Project, Step: j.Step}
			if use[key] == 0 {
				steps[j.Project]++
			}
			if use[key] == 0 && steps[j.Project] > maxStepsShown {
				key.Step = ""
			}
			use[key] += j.Slots
		}
		j.of.over += j.Slots
		if len(j.pools) > 0 {
			j.pools[0].beyond += j.Slots
		}
	}
	for _, of := range b.tallies { // in any order: they are sorted below
		if planned := of.project == "" || len(b.projectPools[of.project]) > 0; planned && of.over > 0 {
			b.beyond = append(b.beyond, Beyond{Project: of.project, User: of.user, Slots: of.over})
		}
	}
	for key, slots := range use {
		key.Slots = slots
		b.beyond = append(b.beyond, key)
	}
	slices.SortFunc(b.beyond, func(x, y Beyond) int {
		return cmp.Or(cmp.Compare(x.Project, y.Project), cmp.Compare(x.User, y.User), cmp.Compare(x.Step, y.Step))
	})
}

func slotsOn(j *job, name string) int { return backends.SlotsOn(j.Hosts, name) }

// clock counts the time that PBA jobs waited (R14): from the first cycle that saw them so.
// Of a time without cycles it counts one cycle: where each cycle takes longer than two should,
// the clock is slow, but jobs become due.
func (b *books) clock() {
	for _, j := range b.jobs {
		if !j.pba() || j.State == backends.Running || !j.waiting() || j.onItsWay {
			if !j.mem.ClockSeen.IsZero() {
				j.mem.ClockSeen = time.Time{}
			}
			if j.mem.Clock != 0 && (j.State == backends.Running || !j.entitled) {
				j.mem.Clock = 0
			}
			continue
		}
		if gap := b.now.Sub(j.mem.ClockSeen); !j.mem.ClockSeen.IsZero() && gap > 0 {
			if gap > 2*b.policy.Cycle {
				gap = b.policy.Cycle
			}
			j.mem.Clock += gap
		}
		j.mem.ClockSeen = b.now
	}
}
