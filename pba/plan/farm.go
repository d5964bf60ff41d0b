package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// job is a job as this plan sees it. Each field is written by one phase, which its
// comment names, and by observe where it names none. The order is for speed: the fields
// that every pass over all jobs reads come first, copies of the Job's among them, since on
// a large farm most time is spent fetching jobs from memory.
type job struct {
	*backends.Job
	pool     *pool             // charge: that it is charged to, or holds room in; a head's too, see pba
	reclaim  *Reclaim          // the open one that it is the beneficiary of; advance and serveDue end and open them
	seq      int               // place in the queue's FIFO
	computed backends.Priority // rank, serveDue: that it has in the queue once the plan is done
	choices  *choices          // see choicesFor

	Priority  backends.Priority // the Job's, as far as it was earned; see discountClaims
	claimed   backends.Priority // the Job's, where that is more
	State     backends.State    // the Job's
	waits     bool              // see waiting
	managed   bool              // its queue is
	entitled  bool              // and it fits a pool: pools is not empty
	next      bool              // charge: next in line (R12)
	fixed     bool              // it can't be preempted once it runs, as its owner submitted it
	gated     bool              // it is held for that reason (R22)
	low       bool              // it failed a test of the filter, which put it into the lowest queue
	onItsWay  bool              // such a job of a pool was released, and the queue does not consider it yet
	leaving   bool              // a victim that was requeued or suspended and still runs
	reserving bool              // serveDue: goes on reserving hosts
	turn      bool              // serveDue: it was served as a beneficiary, or had a nomination

	Slots     int                  // the Job's
	perSlot   int64                // bytes that go with each of them
	preempt   backends.Mode        // as its tag says
	Ending    bool                 // the Job's
	nominated []backends.Placement // serveDue: slots that it is expected to start in; none of them are free any more
	kept      []*portion           // serveDue: of a job that is tried, what is nominated; see holdFree
	aside     []backends.Placement // serveDue: slots set aside on hosts that it reserves; see setAside
	mem       JobMemory            // as remembered; each phase writes what it decides
	pools     []*pool              // those that it matches and fits, most specific first

	standby  bool        // it keeps a slot for a pool's next jobs
	trying   bool        // serveDue: its trial goes on (see Trial)
	barred   string      // serveDue: hosts where the queue refused a trial of it, as in shape
	lightFor backends.ID // of a light job: the heavy job whose dummy's place it has
	spent    bool        // findVictims: it lost too much already (R35)
	spared   string      // findVictims, serveDue: why it is no victim; "": it may be preempted
	worth    [5]int64    // findVictims: by R17's criteria, least valued lowest; see appraise
	lost     float64     // findVictims: slot-seconds that a requeue throws away; see appraise
	of       *tally      // its account's: see account
	verdict  *verdict    // whether it is entitled, and the pools that it matches, whether it fits or not
	budget   int         // serveDue: slots of whole hosts that its pool has for it, if it is exclusive
	lowered  string      // rank: why it will rank lower, with what it reserves

	every time.Duration       // it saves itself so often in a run; 0: it does not
	saves backends.Checkpoint // how it is asked to save itself before a requeue; zero: it is not asked. See savesHow

	fixedWhy  string    // shareOut: why it is held, if it can't be preempted
	wide      *TooWide  // holdTooWide: it is held as too wide (R35)
	holdUntil time.Time // shareOut, holdTooWide: until when, if this plan sets it
}

// whyNot returns why a job is not entitled.
func (j *job) whyNot() string {
	switch {
	case !j.verdict.entitled:
		return j.verdict.whyNot
	case !j.managed:
		return "its queue is not managed"
	case j.waits && !understood(j.Job):
		return whyUnserved(j.Job)
	case j.choices != nil && j.choices.never != "":
		return j.choices.never
	case j.choices != nil && j.choices.whole > j.Slots:
		return fmt.Sprintf("it has its hosts for itself, %s at least: it needs more than any pool that it matches has", slotCount(j.choices.whole))
	case len(fittingPools(j.verdict.pools, j.Slots)) > 0:
		return "it can't run on the hosts of a pool that it matches"
	}
	return "it needs more slots than any pool that it matches has"
}

// ownQueue is the queue that the filter took a job from, if it did.
func (j *job) ownQueue() string {
	tag, _, _ := backends.ParseTag(j.Tag)
	return tag.Queue
}

// matches reports whether a pool is for such jobs, whether this one fits it or not.
func (j *job) matches(p *pool) bool { return j.managed && slices.Contains(j.verdict.pools, p) }

func (j *job) pba() bool { return j.pool != nil && j.mem.Kept == 0 }

// waiting reports whether the job could be a PBA job that does not run yet: a
// pending one, or one that waits to be resumed (R20).
func (j *job) waiting() bool { return j.waits }

func waits(j *backends.Job) bool {
	return j.Eligible() || j.State == backends.Suspended && j.Resuming
}

// stranded reports whether a pending job is pinned to a host that went down. The queue can't
// start it there, and says so; elsewhere it could, and the pin is the engine's own.
func (f *farm) stranded(j *backends.Job) bool {
	return j.State == backends.Pending && j.Wait == backends.WaitOther && f.firstDown(j.Pinned) != ""
}

// account is what a job's use counts under: its project if that is known and its user is a
// member, else its user (docs/design.md, Words: over-subscription).
type account struct{ project, user string }

// tally is what counts under an account.
type tally struct {
	account
	guaranteed int    // slots of its pools
	pending    int    // jobs
	over       int    // over-subscription: slots that run without a charge
	lost       int    // jobs preempted within the last hour (R22), this plan's included
	losers     []*job // running jobs that could be preempted when this plan was begun
}

// tallyOf returns the tally of an account.
func (f *farm) tallyOf(a account) *tally {
	of := f.tallies[a]
	if of == nil {
		of = &tally{account: a, guaranteed: f.guaranteed[a.project]}
		f.tallies[a] = of
	}
	return of
}

// ran returns for how long a job has run since it was started.
func (j *job) ran(now time.Time) time.Duration {
	if j.State == backends.Suspended || j.Started.IsZero() {
		return j.RanFor
	}
	return max(0, j.RanFor+now.Sub(j.Started))
}

// unsaved returns for how long a job has run since its last known checkpoint: the time that a
// requeue would lose, unless the job saves itself before.
func (j *job) unsaved(now time.Time) time.Duration {
	if j.every <= 0 {
		return j.ran(now)
	}
	return j.ran(now) % j.every
}

// perSlot returns the memory, in bytes, that goes with each slot of a job, rounded up.
func perSlot(j *backends.Job) int64 {
	if j.Slots <= 0 {
		return 0
	}
	return (j.Memory + int64(j.Slots) - 1) / int64(j.Slots)
}

// countsFor returns the memory, in bytes, that each slot of a job counts for. Where the
// queue does not manage memory, this is at most a slot's share; a suspended job, which
// may hold memory and no slots, counts in full.
func (f *farm) countsFor(j *backends.Job) int64 {
	if f.state.Abilities.ManagesMemory || j.State == backends.Suspended {
		return perSlot(j)
	}
	return min(perSlot(j), f.leastShare)
}

// memory returns the bytes that a job takes of one host that it runs on whole.
func (j *job) memory() int64 { return j.perSlot * int64(j.Slots) }

// farm is what a cycle sees of its queue, in the terms of the rules. The phases after
// observe write down their decisions on its jobs, pools and hosts.
type farm struct {
	*cycle
	occupancy

	rest   *part            // managed hosts in no host set; nil: there are no sets
	parts  map[string]*part // of the host sets, by name
	partOf map[string]*part // by host, of those in a set

	pools         []*pool            // by allocation ID
	projectPools  map[string][]*pool // the same
	guaranteed    map[string]int     // slots of pools by project
	allGuaranteed int                // the sum of guaranteed
	throughputs   map[int64]ThroughputMemory
	undone        map[int64]int       // jobs of throughput pools that can't be done any more
	standings     map[*pool]*standing // of those with slots on standby; see standby
	taken         map[int64]int       // slots preempted for each pool within the last hour, this plan's included; see countTaken

	jobs     []*job               // those that any rule may speak of, in FIFO order
	running  []*job               // of jobs
	resting  []*job               // of jobs: the others
	standbys []*job               // of jobs
	byID     map[backends.ID]*job // of jobs: those that a reclaim or a trial names
	tallies  map[account]*tally   // of those that have jobs, or lost some
	reasons  map[string]int       // waiting jobs that would match a pool, but are not understood
	waiters  waiters              // every job that waits for what hosts have; see shortages
	spare    []spare              // by host: what was free when the cycle began
	shapes   map[shape]*choices   // of resting jobs that wait
	empty    *occupancy           // see everyHost
}

// observe returns the farm of a cycle: its hosts, pools and jobs, what became of the
// victims of earlier acts, and how much of their priorities jobs earned.
func observe(c *cycle) *farm {
	f := &farm{
		cycle: c, occupancy: newOccupancy(c.state.Farm, c.policy.Hosts),
		projectPools: map[string][]*pool{}, guaranteed: map[string]int{}, throughputs: map[int64]ThroughputMemory{}, undone: map[int64]int{},
		byID: map[backends.ID]*job{}, shapes: map[shape]*choices{}, tallies: map[account]*tally{}, reasons: map[string]int{},
	}
	f.divide()
	f.readPools()
	f.readJobs()
	f.noteSpare()
	f.updateFates()
	f.countTaken()
	f.limitBeneficiaries()
	f.discountClaims()
	return f
}

// readJobs keeps the jobs that a rule may act upon: running and suspended ones,
// entitled ones, and those that the engine acted on before. Other pending jobs are counted.
func (f *farm) readJobs() {
	queues := set(f.policy.Queues)
	entitle := newEntitler(f)
	inReclaim := f.reclaimJobs()
	known := f.known(inReclaim)
	var batch []job // made many at a time
	for i := range f.state.Farm.Jobs {
		bj := &f.state.Farm.Jobs[i]
		if bj.State.Ended() {
			continue
		}
		if bj.IsStandby() {
			f.readStandby(bj, i, inReclaim[bj.ID])
			continue
		}
		verdict := entitle.verdict(bj)
		managed := len(queues) == 0 || queues[bj.Queue] || f.policy.LowQueue != "" && bj.Queue == f.policy.LowQueue
		if managed && bj.State == backends.Pending {
			entitle.countPending(bj, verdict)
		}
		if managed && bj.State != backends.Running {
			f.countWaiter(bj)
		}
		mayBeTouched := known.mayHave(bj.ID)
		if bj.State == backends.Pending && !verdict.entitled && f.untouched(bj) && !(mayBeTouched && (inReclaim[bj.ID] || f.remembers(bj.ID))) && f.dummies.Unit(bj.ID) == nil && !(managed && f.maybeFixed(bj)) {
			continue
		}
		if len(batch) == 0 {
			batch = make([]job, 128)
		}
		j := &batch[0]
		batch = batch[1:]
		j.Job, j.seq, j.computed = bj, i, bj.Priority
		j.Priority, j.State, j.Slots, j.waits, j.managed = bj.Priority, bj.State, bj.Slots, waits(bj) || f.stranded(bj), managed
		j.entitled, j.perSlot = managed && verdict.entitled, f.countsFor(bj)
		if mayBeTouched {
			if mem, remembered := f.state.Memory.Jobs[bj.ID]; remembered {
				j.mem = mem
			}
			if inReclaim[bj.ID] {
				f.byID[bj.ID] = j
			}
		}
		j.verdict, j.of = verdict, entitle.tally(bj, verdict)
		tag, _, _ := backends.ParseTag(bj.Tag)
		j.preempt, j.Ending = tag.Preempt, bj.Ending
		j.every, j.saves = tag.Checkpoint.Every, f.savesHow(bj, &tag)
		failed := tag.Low || f.policy.LowQueue != "" && bj.Queue == f.policy.LowQueue && !verdict.member
		f.readHold(j, tag, mayBeTouched && inReclaim[bj.ID])
		if j.State == backends.Pending && !understood(bj) {
			f.countUnserved(j)
			j.entitled = false
		}
		if heavy, light := f.dummies.Lights[bj.ID]; light {
			j.entitled, j.lightFor = false, heavy // no pool is charged for it (R16)
		}
		if j.entitled {
			j.pools = fittingPools(verdict.pools, bj.Slots)
			j.entitled = len(j.pools) > 0
		}
		if j.entitled && j.waits {
			f.fitEver(j) // while what it asks for is in the processor's cache
		}
		if j.entitled && f.rest != nil {
			f.limitPools(j)
		}
		j.low = failed && !j.entitled
		f.jobs = append(f.jobs, j)
		if bj.State == backends.Running {
			f.running = append(f.running, j)
		} else {
			f.resting = append(f.resting, j)
		}
		f.occupy(j, f.state.Abilities.SuspendFrees)
	}
	for _, u := range f.state.Farm.Unlisted {
		entitle.countUnlisted(&u)
	}
}

func (f *farm) remembers(id backends.ID) bool {
	_, ok := f.state.Memory.Jobs[id]
	return ok
}

// untouched reports whether a pending job of no pool ranks no higher than the filter or
// its queue put it, so that there is nothing to decide about it.
func (f *farm) untouched(j *backends.Job) bool {
	if j.Priority.Level() > backends.LevelNormal || len(j.Pinned) > 0 || !j.HeldUntil.IsZero() {
		return false
	}
	if more := j.Priority.Value() - backends.DefaultValue; more > 0 {
		_, most := f.aged(j.Submitted)
		return more <= most
	}
	return true
}

func (f *farm) reclaimJobs() map[backends.ID]bool {
	ids := map[backends.ID]bool{}
	for i := range f.state.Memory.Reclaims {
		r := &f.state.Memory.Reclaims[i]
		ids[r.Beneficiary] = true
		for _, victim := range r.Victims {
			ids[victim.ID] = true
		}
	}
	for id := range f.state.Memory.Trials {
		ids[id] = true
	}
	return ids
}

// known returns a sieve of the jobs that are remembered or named by a reclaim.
func (f *farm) known(inReclaim map[backends.ID]bool) sieve {
	s := newSieve(len(f.state.Memory.Jobs) + len(inReclaim))
	for id := range f.state.Memory.Jobs {
		s.add(id)
	}
	for id := range inReclaim {
		s.add(id)
	}
	return s
}

// sieve is a Bloom filter with one hash function. The maps that hold the set are too
// large for the processor's cache to look up every job of a large farm there.
type sieve []uint64

func newSieve(jobs int) sieve { return make(sieve, jobs/4+1) }

func (s sieve) at(id backends.ID) (word, bit uint64) {
	position := (uint64(id.Job) + 31*uint64(id.Index)) % (64 * uint64(len(s)))
	return position / 64, 1 << (position % 64)
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
