package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// Make decides one cycle. It is a pure function: the same state, policy and time
// give the same plan, and its arguments are not changed.
func Make(state State, policy Policy, now time.Time) Plan {
	return decide(state, policy, now).plan
}

// decide makes all decisions of a cycle. Each phase takes what the phase before
// returned.
func decide(state State, policy Policy, now time.Time) *serving {
	c := newCycle(state, policy, now)
	farm := observe(c)                 // hosts, jobs, pools; what became of earlier acts
	books := charge(farm)              // which jobs have a place in a pool, and which may be preempted
	books.standby()                    // which slots that are kept for pools' next jobs stay so
	books.shareOut()                   // which jobs that can't be preempted may start
	books.clock()                      // how long PBA jobs have waited
	books.advance()                    // the open reclaims
	books.holdTooWide()                // which jobs wait as pools may have their slots at any time
	lowered := books.rank()            // the order in the queue
	served := serveDue(books, lowered) // what is free, then the new reclaims
	served.keep()                      // the standby of the pools
	served.relieve()                   // hosts that lack memory
	served.enlarge()
	served.lower()   // jobs that reserved hosts and rank lower now
	books.handOver() // beneficiaries, into slots that were freed
	books.unpin()    // what ended reclaims leave
	books.release()
	books.moveReservations()
	books.unreserve()
	c.plan.Actions = served.withDummies(c.acts.all())
	served.spareNeedless() // of the victims of open reclaims
	books.status()
	books.sendGuaranteed() // what the queue keeps for no normal job
	books.remember()
	return served
}

// cycle is what one call of Make was given, which no phase changes, and what it has
// decided so far. To all phases a heavy job and its dummies are one job: state is as the
// rules of dummy jobs left it.
type cycle struct {
	state   State
	policy  Policy
	now     time.Time
	dummies *dummy.Result // heavy jobs, and what their dummies need
	stuck   []backends.ID // see Stuck

	holdsFixed bool // see Policy.HoldsFixed

	acts agenda
	plan Plan // but for its actions until the end
}

func newCycle(state State, policy Policy, now time.Time) *cycle {
	c := &cycle{
		state: state, policy: policy, now: now, plan: Plan{At: now, Memory: state.Memory},
		stuck: Stuck(state.Farm, policy.HoldLimit, now), dummies: planDummies(state, policy, now),
		holdsFixed: policy.HoldsFixed(state.Abilities),
	}
	c.state.Farm = c.dummies.Farm
	c.plan.Memory.Reclaims = slices.Clone(state.Memory.Reclaims)
	return c
}

func (c *cycle) warn(format string, args ...any) {
	c.plan.Warnings = append(c.plan.Warnings, fmt.Sprintf(format, args...))
}

func (c *cycle) skip(id backends.ID, reason string) {
	c.plan.Skipped = append(c.plan.Skipped, Skipped{Job: id, Reason: reason})
}

// stage is when, within a cycle, an act is done. Reservations are made before others are
// released, or the queue would start the next job in its order there.
type stage int

const (
	stageFirst   stage = iota // free slots that new reclaims count on, and jobs that rank higher now could start in
	stageRank                 // the order in the queue
	stageReserve              // reservations of what others release
	stageRelease              // what ended reclaims leave
	stagePreempt              // reclaims, one after the other
	stageLast                 // reservations that are not needed any more
	stages
)

// agenda holds a plan's actions by stage, in parts: a long slice that grows is copied
// again and again.
type agenda [stages][][]Action

func (g *agenda) add(at stage, a Action) {
	parts := g[at]
	if n := len(parts); n == 0 || len(parts[n-1]) == cap(parts[n-1]) {
		parts = append(parts, make([]Action, 0, 32))
	}
	last := &parts[len(parts)-1]
	*last = append(*last, a)
	g[at] = parts
}

// drop removes the actions of a stage with this verb for a job.
func (g *agenda) drop(at stage, verb Verb, job backends.ID) {
	for i, part := range g[at] {
		g[at][i] = slices.DeleteFunc(part, func(a Action) bool { return a.Verb == verb && a.Job == job })
	}
}

// all returns the actions in the order in which they are done.
func (g *agenda) all() []Action { return slices.Concat(slices.Concat(g[:]...)...) }
