package plan

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// host is a managed host that is up, with what is free on it for jobs that
// nothing is promised to yet.
type host struct {
	backends.Host
	at      int   // its place among the view's hosts
	free    int   // slots
	freeMem int64 // bytes; only meaningful if Memory > 0
	stuck   int64 // of Memory: held by suspended jobs, which no reclaim frees
	aside   int   // free slots that jobs which reserve this host wait in, not part of free
	soft    int   // the same of jobs whose turn has not come: who stands before them may have them
	softMem int64 // that goes with soft, not part of freeMem
	changed int   // from 1 on; grows with every change of what could be taken back here
	running []*job
	victims []item // of running: those that may be taken back now, least valued first
}

// job is a job as this plan sees it. What every pass over all jobs asks for comes
// first, and once more what it asks of the Job: on a large farm the time goes into
// reaching them, one by one.
type job struct {
	*backends.Job
	pool     *pool    // that it is charged to, or holds room in
	reclaim  *Reclaim // the open one that it is the beneficiary of
	seq      int      // place in the queue's FIFO
	computed backends.Priority
	choices  *choices // see choicesFor

	Priority  backends.Priority // the Job's, as far as it was earned; see believe
	claimed   backends.Priority // the Job's, where that is more
	State     backends.State    // the Job's
	waits     bool              // see waiting
	managed   bool
	entitled  bool
	next      bool // next in line (R12)
	leaving   bool // a victim that was told to go and is not gone yet
	reserving bool // goes on reserving hosts
	turn      bool // has come, among the beneficiaries

	Slots    int                  // the Job's
	perSlot  int64                // memory that goes with each of them
	preempt  backends.Mode        // as its tag says
	Ending   bool                 // the Job's
	promised []backends.Placement // slots that this plan expects it to start in
	aside    []backends.Placement // free slots on hosts that it reserves
	mem      JobMemory
	pools    []*pool // those that it matches and fits, most specific first

	lightFor backends.ID // a light job: whose dummy's place it has
	spared   string      // why it is no victim; "": it may be taken back
	worth    [3]int64    // by the policy's criteria, least valued lowest; see appraise
	lost     float64     // slot-seconds that a requeue throws away; see appraise
	verdict  *verdict    // whether it is entitled, and the pools that it matches, whether it fits or not
	lowered  string      // why it will rank lower, with what it reserves
}

// whyNot is why a job is not entitled.
func (j *job) whyNot() string {
	switch {
	case !j.verdict.entitled:
		return j.verdict.whyNot
	case !j.managed:
		return "its queue is not managed"
	}
	return "it needs more slots than any pool that it matches has"
}

// ownQueue is the queue that the filter took a job from, if it did.
func (j *job) ownQueue() string {
	tag, _, _ := backends.ParseTag(j.Tag)
	return tag.Queue
}

// matches tells whether a pool is for such jobs, whether this one fits it or not.
func (j *job) matches(p *pool) bool { return j.managed && slices.Contains(j.verdict.pools, p) }

func (j *job) pba() bool { return j.pool != nil && j.mem.Kept == 0 }

// waiting tells whether the job could be a PBA job that is not running yet: a
// pending one, or one that waits to be resumed (R20).
func (j *job) waiting() bool { return j.waits }

func waits(j *backends.Job) bool {
	return j.Eligible() || j.State == backends.Suspended && j.Resuming
}

// party is whom a job's use counts under: its project where it is entitled, else
// its user (section 2, over-subscription).
func (j *job) party() party {
	if j.entitled {
		return party{project: j.Project}
	}
	return party{user: j.User}
}

type party struct{ project, user string }

// ran is how much of a job's work a requeue would lose.
func (j *job) ran(now time.Time) time.Duration {
	if j.State == backends.Suspended || j.Started.IsZero() {
		return j.RanFor
	}
	return max(0, j.RanFor+now.Sub(j.Started))
}

// perSlot is the memory that goes with each slot of a job, rounded up.
func perSlot(j *backends.Job) int64 {
	if j.Slots <= 0 {
		return 0
	}
	return (j.Memory + int64(j.Slots) - 1) / int64(j.Slots)
}

// countsFor is the memory that goes with each slot of a job. Where the queue gives out
// slots and looks at no memory, a slot stands for no more than its share; what a
// suspended job holds there is in nobody's way but the memory's.
func (v *view) countsFor(j *backends.Job) int64 {
	if v.state.Abilities.ManagesMemory || j.State == backends.Suspended {
		return perSlot(j)
	}
	return min(perSlot(j), v.leastShare)
}

// memory is what a job takes of one host that it runs on whole.
func (j *job) memory() int64 { return j.perSlot * int64(j.Slots) }

// couldOffer is how many of a job's slots a host would have if nobody ran there.
func (h *host) couldOffer(j *job) int {
	n := h.Slots
	if m := j.perSlot; m > 0 && h.Memory > 0 {
		n = min(n, int(max(h.Memory-h.stuck, 0)/m))
	}
	return n
}

// view is one cycle's picture, from which the decisions are taken.
type view struct {
	state  State
	policy Policy
	now    time.Time

	hosts         []*host // managed and up, by name
	byName        map[string]*host
	pools         []*pool // by allocation ID
	projectPools  map[string][]*pool
	jobs          []*job               // those that any rule may speak of, in FIFO order
	running       []*job               // of jobs
	resting       []*job               // of jobs: the others
	byID          map[backends.ID]*job // those that a reclaim names
	leastShare    int64                // bytes that go with a slot of a host, at least
	slots         int                  // of managed hosts that are up
	down          int                  // slots of managed hosts that are not
	pending       map[party]int
	over          map[party]int  // over-subscription in slots
	lost          map[party]int  // jobs taken back within the last hour
	guaranteed    map[string]int // by project
	allGuaranteed int
	losers        map[party][]*job // who could be taken back now
	choices       map[shape]*choices
	freed         int               // grows where slots come free that somebody else may have
	outbids       []*job            // who lost what was promised to them, after their turn
	soft          []*job            // those whose turn has not come, and for which slots are set aside
	moved         int               // grows where somebody loses what was promised
	given         []*host           // where something came free, in the order in which it did
	changes       []*host           // in the order in which they happened; the first is none
	reasons       map[string]string // why nobody can be taken back, by asked hosts

	throughputs map[int64]ThroughputMemory
	dummies     *dummy.Result

	lowered []*job             // those with one
	acts    [stages][][]Action // in parts: a long list that grows is copied again and again
	plan    Plan
}

func newView(state State, policy Policy, dummies *dummy.Result, now time.Time) *view {
	v := &view{
		state: state, policy: policy, dummies: dummies, now: now,
		byName: map[string]*host{}, byID: map[backends.ID]*job{},
		projectPools: map[string][]*pool{},
		over:         map[party]int{}, lost: map[party]int{},
		guaranteed: map[string]int{}, losers: map[party][]*job{}, choices: map[shape]*choices{}, changes: []*host{nil}, reasons: map[string]string{},
		throughputs: map[int64]ThroughputMemory{},
	}
	v.leastShare = math.MaxInt64
	v.seeHosts()
	v.seePools()
	v.seeJobs()
	return v
}

func (v *view) seeHosts() {
	managed := set(v.policy.Hosts)
	for _, h := range v.state.Farm.Hosts {
		if len(managed) > 0 && !managed[h.Name] {
			continue
		}
		if h.State != backends.HostUp {
			v.down += h.Slots
			continue
		}
		if v.byName[h.Name] != nil {
			continue
		}
		mine := &host{Host: h, free: h.Slots, freeMem: h.Memory, changed: 1}
		if h.Memory > 0 && h.Slots > 0 {
			v.leastShare = min(v.leastShare, h.Memory/int64(h.Slots))
		}
		v.slots += h.Slots
		v.hosts = append(v.hosts, mine)
		v.byName[h.Name] = mine
	}
	slices.SortFunc(v.hosts, func(a, b *host) int { return strings.Compare(a.Name, b.Name) })
	for i, h := range v.hosts {
		h.at = i
	}
}

// seeJobs keeps the jobs that a rule may act upon: running and suspended ones,
// entitled ones, and whatever was touched before. Other pending jobs are counted.
func (v *view) seeJobs() {
	queues := set(v.policy.Queues)
	entitle := newEntitler(v)
	inReclaim := v.reclaimJobs()
	touched := v.touched(inReclaim)
	var batch []job // made many at a time
	for i := range v.state.Farm.Jobs {
		bj := &v.state.Farm.Jobs[i]
		if bj.State.Ended() {
			continue
		}
		verdict := entitle.verdict(bj)
		managed := len(queues) == 0 || queues[bj.Queue] || v.policy.LowQueue != "" && bj.Queue == v.policy.LowQueue
		if managed && bj.State == backends.Pending {
			entitle.count(bj, verdict.entitled)
		}
		mayBeTouched := touched.mayHave(bj.ID)
		if bj.State == backends.Pending && !verdict.entitled && v.untouched(bj) && !(mayBeTouched && (inReclaim[bj.ID] || v.remembers(bj.ID))) && v.dummies.Unit(bj.ID) == nil {
			continue
		}
		if len(batch) == 0 {
			batch = make([]job, 128)
		}
		j := &batch[0]
		batch = batch[1:]
		j.Job, j.seq, j.computed = bj, i, bj.Priority
		j.Priority, j.State, j.Slots, j.waits, j.managed = bj.Priority, bj.State, bj.Slots, waits(bj), managed
		j.entitled, j.perSlot = managed && verdict.entitled, v.countsFor(bj)
		if mayBeTouched {
			if mem, remembered := v.state.Memory.Jobs[bj.ID]; remembered {
				j.mem = mem
			}
			if inReclaim[bj.ID] {
				v.byID[bj.ID] = j
			}
		}
		j.verdict = verdict
		tag, _, _ := backends.ParseTag(bj.Tag)
		j.preempt, j.Ending = tag.Preempt, bj.Ending
		if place, light := v.dummies.Lights[bj.ID]; light {
			j.entitled, j.lightFor = false, place // it is charged to nobody (R16)
		}
		if j.entitled {
			j.pools = fitting(verdict.pools, bj.Slots)
			j.entitled = len(j.pools) > 0
		}
		if j.entitled && j.waits {
			v.choicesFor(j) // while what it asks for is at hand
		}
		v.jobs = append(v.jobs, j)
		if bj.State == backends.Running {
			v.running = append(v.running, j)
		} else {
			v.resting = append(v.resting, j)
		}
		v.occupy(j)
	}
	v.pending = entitle.counted()
}

func (v *view) remembers(id backends.ID) bool {
	_, ok := v.state.Memory.Jobs[id]
	return ok
}

// untouched tells whether a pending job of no pool stands no higher than the filter or
// its queue put it, so that there is nothing to decide about it.
func (v *view) untouched(j *backends.Job) bool {
	if j.Priority.Level() > backends.LevelNormal || len(j.Pinned) > 0 || !j.HeldUntil.IsZero() {
		return false
	}
	if more := j.Priority.Value() - backends.DefaultValue; more > 0 {
		_, most := v.aged(j.Submitted)
		return more <= most
	}
	return true
}

// occupy takes a job's slots and memory off its hosts. Suspension frees slots
// where the queue says so, and never memory.
func (v *view) occupy(j *job) {
	slotsToo := j.State == backends.Running || j.State == backends.Suspended && !v.state.Abilities.SuspendFrees
	if !slotsToo && j.State != backends.Suspended {
		return
	}
	for _, p := range j.Hosts {
		h := v.byName[p.Host]
		if h == nil {
			continue
		}
		if slotsToo {
			h.free -= p.Slots
		}
		if j.State == backends.Running {
			h.running = append(h.running, j)
			if j.Exclusive {
				h.free = min(h.free, 0)
			}
		}
		h.freeMem -= j.perSlot * int64(p.Slots)
		if j.State == backends.Suspended {
			h.stuck += j.perSlot * int64(p.Slots)
		}
	}
}

func (v *view) reclaimJobs() map[backends.ID]bool {
	ids := map[backends.ID]bool{}
	for i := range v.state.Memory.Reclaims {
		r := &v.state.Memory.Reclaims[i]
		ids[r.Beneficiary] = true
		for _, victim := range r.Victims {
			ids[victim.ID] = true
		}
	}
	return ids
}

// touched are the jobs that are remembered or named by a reclaim.
func (v *view) touched(inReclaim map[backends.ID]bool) sieve {
	s := newSieve(len(v.state.Memory.Jobs) + len(inReclaim))
	for id := range v.state.Memory.Jobs {
		s.add(id)
	}
	for id := range inReclaim {
		s.add(id)
	}
	return s
}

// sieve says of most jobs that they are not in a set, at one glance: the maps that
// know it are too large to be at hand for every job of a large farm.
type sieve []uint64

func newSieve(jobs int) sieve { return make(sieve, jobs/4+1) }

func (s sieve) at(id backends.ID) (word, bit uint64) {
	place := (uint64(id.Job) + 31*uint64(id.Index)) % (64 * uint64(len(s)))
	return place / 64, 1 << (place % 64)
}

func (s sieve) add(id backends.ID) {
	word, bit := s.at(id)
	s[word] |= bit
}

func (s sieve) mayHave(id backends.ID) bool {
	word, bit := s.at(id)
	return s[word]&bit != 0
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}
