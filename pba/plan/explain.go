package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Explanation is all that the rules say of one job at one moment (R27).
type Explanation struct {
	Job        backends.Job
	Tests      []Test
	Class      string            // pba, normal, or "" of an ended job
	Pool       string            // that it is charged to or holds room in
	Place      string            // in a sentence
	Priority   backends.Priority // computed
	History    []Point
	Clock      time.Duration
	Threshold  time.Duration
	Requeues   int       // reclaims that it was a victim of
	Lost       float64   // slot-seconds of its work that these threw away
	Stake      string    // of a job that may be preempted: what it would lose, and how to lose nothing, in a sentence
	Reclaims   []Reclaim // that it is the beneficiary or a victim of, oldest first
	Skipped    []string  // why nothing was done for it
	Spared     string    // of a running job: why it can't be preempted; "": it can
	Considered []Considered
	Dummies    string // what follows "it": gathers 3 slots on h3: 2 held; "": it has no dummies and needs none
}

// Test is one condition of R1 or of an entitled job (docs/design.md, Words), with its outcome.
type Test struct {
	Name   string
	Passed bool
	Detail string
}

// Considered is a running job that a reclaim for the explained one could preempt,
// or why it can't.
type Considered struct {
	ID     backends.ID
	Host   string
	Slots  int
	Spared string

	Protected bool // it lost more than max_lost: it goes only where no others will do (R35)
}

// Decision answers questions about single jobs from one decision.
type Decision struct {
	f     *serving
	given *backends.Snapshot
	now   time.Time
}

// Decide decides as Make does.
func Decide(state State, policy Policy, now time.Time) Decision {
	return Decision{decide(state, policy, now), state.Farm, now}
}

// Explain decides as Make does and returns what concerns one job. It reports false
// where the snapshot does not hold the job.
func Explain(state State, policy Policy, now time.Time, id backends.ID) (Explanation, bool) {
	return Decide(state, policy, now).Explain(id)
}

// Explain returns what concerns one job. It reports false where the snapshot does not hold
// the job.
func (d Decision) Explain(id backends.ID) (Explanation, bool) {
	e, ok := d.f.explanation(d.given, id)
	if e.Class == "pba" && e.Job.State != backends.Running {
		d.f.consider(d.f.jobs[d.f.placeOf(id)], &e)
	}
	return e, ok
}

// ExplainAll is Explain for several jobs at once, in their order, without what could be
// preempted for them. Jobs that the snapshot does not hold are left out.
func ExplainAll(state State, policy Policy, now time.Time, ids []backends.ID) []Explanation {
	f := decide(state, policy, now)
	var all []Explanation
	for _, id := range ids {
		if e, ok := f.explanation(state.Farm, id); ok {
			all = append(all, e)
		}
	}
	return all
}

func (f *farm) placeOf(id backends.ID) int {
	return slices.IndexFunc(f.jobs, func(j *job) bool { return j.ID == id })
}

// explanation is of a job of a snapshot as the queue gave it.
func (f *farm) explanation(given *backends.Snapshot, id backends.ID) (Explanation, bool) {
	e := Explanation{Threshold: f.policy.PendingThreshold}
	for i := range f.plan.Memory.Reclaims {
		if r := &f.plan.Memory.Reclaims[i]; r.concerns(id) {
			e.Reclaims = append(e.Reclaims, *r)
		}
	}
	for _, s := range f.plan.Skipped {
		if s.Job == id {
			e.Skipped = append(e.Skipped, s.Reason)
		}
	}
	found := slices.IndexFunc(given.Jobs, func(j backends.Job) bool { return j.ID == id })
	if found < 0 {
		if j := f.endedJob(id); j != nil {
			e.Job = *j
			e.Tests = f.tests(j)
			return e, true
		}
		return e, false
	}
	e.Job = given.Jobs[found]
	e.Tests = f.tests(&e.Job)
	e.Class, e.Priority, e.Place = "normal", e.Job.Priority, "it is a normal job"
	if e.Job.IsStandby() {
		e.Class, e.Place = "dummy", "it keeps a slot free for the next jobs of "+e.Job.Project
		return e, true
	}
	if heavy := e.Job.DummyFor; heavy != (backends.ID{}) {
		e.Class, e.Place = "dummy", fmt.Sprintf("it holds a slot for job %v, so that the memory that goes with it is left to that job", heavy)
		return e, true
	}
	e.Dummies = f.explainDummies(id)
	if at := f.placeOf(id); at >= 0 {
		f.explain(f.jobs[at], &e)
	}
	return e, true
}

func (r *Reclaim) concerns(id backends.ID) bool {
	return r.Beneficiary == id || slices.ContainsFunc(r.Victims, func(victim Victim) bool { return victim.ID == id })
}

func (f *farm) explain(j *job, e *Explanation) {
	e.Priority, e.History, e.Clock, e.Requeues, e.Lost = j.computed, j.mem.History, j.mem.Clock, j.mem.Requeues, j.mem.Lost
	if j.pba() {
		e.Threshold = f.threshold(j)
		if own, ok := f.ownThreshold(j); ok && own < e.Threshold && j.waiting() {
			e.Skipped = append(e.Skipped, f.whyLate(j.pool))
		}
	}
	if j.State == backends.Running {
		e.Spared = j.spared
	}
	if !j.pba() && j.managed && !j.Interactive && !(j.NoRequeue && j.preempt == backends.PreemptRequeue) {
		e.Stake = f.stake(j)
		if j.spent {
			e.Stake = "it lost too much already: it is preempted only if no other jobs will do (max_lost); " + e.Stake
		}
	}
	if fits := len(fittingPools(j.verdict.pools, j.Slots)) > 0; fits && f.rest != nil && (j.State == backends.Running || understood(j.Job)) {
		e.Tests = append(e.Tests, Test{Name: "a pool that it fits has hosts where it runs, or may run", Passed: len(j.pools) > 0})
	}
	switch {
	case j.fixedWhy != "":
		e.Place = j.whyFixed()
	case j.wide != nil:
		e.Place = j.wide.Why()
	case j.pba() && j.State == backends.Running:
		e.Class, e.Pool = "pba", describe(j.pool.Allocation)
		e.Place = "it is charged to " + e.Pool
	case j.pba():
		e.Class, e.Pool = "pba", describe(j.pool.Allocation)
		e.Place = "it holds room in " + e.Pool
	case j.pool != nil:
		e.Pool = describe(j.pool.Allocation)
		e.Place = fmt.Sprintf("it waits at the head of %s, which has room for %d of its %d slots and keeps that for it", e.Pool, j.mem.Kept, j.Slots)
	case j.next:
		e.Place = "its pool is full; it is next in line for it"
	case j.entitled && len(j.pools) == 0:
		e.Place = "it runs on hosts that are not those of a pool that it matches: there it is a normal job"
	case j.entitled && j.State == backends.Running:
		e.Place = "its pool is full: it runs beyond the guarantee"
	case j.entitled && j.State == backends.Held:
		e.Place = "it is entitled, but held"
	case j.entitled && !j.waiting():
		e.Place = "it is entitled, but does not wait for slots"
	case j.entitled:
		e.Place = "its pool is full"
	default:
		e.Place = "it is a normal job: " + j.whyNot()
	}
}

// consider lists what could be preempted for a job, host by host.
func (f *farm) consider(j *job, e *Explanation) {
	for _, h := range f.suitable(j) {
		running := slices.Clone(h.running)
		slices.SortFunc(running, leastValued)
		for _, victim := range running {
			e.Considered = append(e.Considered, Considered{ID: victim.ID, Host: h.Name, Slots: slotsOn(victim, h.Name), Spared: victim.spared, Protected: victim.spent})
		}
	}
}

// tests repeats the questions of the entitler one by one, up to the first that
// fails.
func (f *farm) tests(j *backends.Job) []Test {
	var tests []Test
	ask := func(name string, passed bool, detail string) bool {
		tests = append(tests, Test{Name: name, Passed: passed, Detail: detail})
		return passed
	}
	at := slices.IndexFunc(f.policy.Projects, func(p Project) bool { return p.Name == j.Project })
	if !ask("names a project", j.Project != "", j.Project) || !ask("the project is known", at >= 0, j.Project) {
		return tests
	}
	group := f.policy.Projects[at].Group
	if !ask("its user is in the project's group", slices.Contains(f.state.Groups[j.User], group), j.User+", "+group) {
		return tests
	}
	answer := newEntitler(f).verdict(j)
	if !ask("an allocation in force matches it", answer.entitled, answer.whyNot) {
		return tests
	}
	pools := fittingPools(answer.pools, j.Slots)
	largest := 0
	for _, p := range answer.pools {
		largest = max(largest, p.Guarantee)
	}
	ask("it fits a pool", len(pools) > 0, fmt.Sprintf("%s of at most %d", slotCount(j.Slots), largest))
	return tests
}

// Priorities returns the computed priority of each job that does not run and that a
// rule may act upon; every other one keeps what its queue gives it.
func Priorities(state State, policy Policy, now time.Time) map[backends.ID]backends.Priority {
	f := decide(state, policy, now)
	all := make(map[backends.ID]backends.Priority)
	for _, j := range f.resting {
		all[j.ID] = j.computed
	}
	return all
}
