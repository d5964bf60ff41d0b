package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R35: a job that is wider than what no pool is guaranteed can run only in slots that pools
// may have at any time. One that lost too much already, and loses all with each preemption,
// would lose it again and again: it waits while pools send jobs.

// TooWide is a job that waits as it is wider than what no pool is guaranteed.
type TooWide struct {
	Job     backends.ID
	Project string
	User    string
	Slots   int
	Beside  int       // slots that no pool is guaranteed
	Lost    float64   // slot-seconds of its work that reclaims threw away
	Until   time.Time // it is held until then, and longer while pools send jobs
}

// mostTooWide bounds Plan.TooWide.
const mostTooWide = 20

// Renew returns when a plan may hold the job anew although nothing happened since.
func (w *TooWide) Renew(holdLimit time.Duration) time.Time { return w.Until.Add(1 - holdLimit/2) }

// holdTooWide holds the jobs that are too wide, and releases those that are not any more. The
// hold of a reclaim that is open goes before.
func (b *books) holdTooWide() {
	if slices.ContainsFunc(b.pools, (*pool).sends) {
		b.plan.Memory.PoolsSent = b.now
	}
	beside := b.besideGuarantees()
	var ids []backends.ID
	for _, j := range b.resting {
		switch {
		case j.State != backends.Pending && j.State != backends.Held || j.mem.Lost <= 0 || j.gated || j.leaving || b.dummies.Unit(j.ID) != nil:
		case b.tooWide(j, beside):
			b.keepHeld(j, stageRank, fmt.Sprintf("it needs %s, more than the %d that are guaranteed to no pool (on_too_wide)", slotCount(j.Slots), beside))
			ids = append(ids, j.ID)
			w := TooWide{Job: j.ID, Project: j.Project, User: j.User, Slots: j.Slots, Beside: beside, Lost: j.mem.Lost, Until: j.heldUntil()}
			j.wide = &w
			if len(b.plan.TooWide) < mostTooWide {
				b.plan.TooWide = append(b.plan.TooWide, w)
			}
		case j.State == backends.Pending && !j.HeldUntil.IsZero() && !b.heldAsVictim(j.ID):
			b.acts.add(stageRelease, Action{Verb: Release, Job: j.ID, Reason: "it is not too wide any more to run beside what pools may have (on_too_wide)"})
		}
	}
	if len(ids) > 0 {
		b.warn("%s: wider than the %s that no pool is guaranteed, and lost more than max_lost to preemptions: waits until pools sent no jobs for a day, or have less (on_too_wide)", Some(ids), slotCount(beside))
	}
}

// besideGuarantees returns the slots of the farm that no pool is guaranteed.
func (f *farm) besideGuarantees() int {
	beside := f.slots
	for _, p := range f.pools {
		beside -= max(p.Guarantee, 0)
	}
	return max(beside, 0)
}

// tooWide reports whether a job that waits is held as too wide (R35).
func (b *books) tooWide(j *job, beside int) bool {
	able := &b.state.Abilities
	return b.policy.HoldTooWide && able.HoldUntil != nil && j.managed && !j.entitled && j.pool == nil && !j.fixed &&
		j.Slots > beside && b.lostTooMuch(j) && !j.givesWay(able) && b.now.Sub(b.plan.Memory.PoolsSent) < guaranteedFor
}

// givesWay reports whether a preemption costs a job little: it saves itself, on demand or by
// itself, or is suspended.
func (j *job) givesWay(able *backends.ForEngine) bool {
	return j.saves.OnDemand() || j.every > 0 || j.preempt == backends.PreemptSuspend && able.SuspendFrees
}

// Why says why the job waits, in a sentence.
func (w *TooWide) Why() string {
	return fmt.Sprintf("it waits: it needs %s, more than the %d that are guaranteed to no pool; preemptions have cost it %s already (max_lost), and would again; it is held until %s, and longer until pools sent no jobs for a day, or have less (on_too_wide)",
		slotCount(w.Slots), w.Beside, workText(w.Lost), w.Until.UTC().Format(time.RFC3339))
}
