package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// R22: normal jobs that can't be preempted once they run hold at most their share of the
// farm. Where the queue does not count their slots, the submit filter holds them, and each
// cycle releases as many as the share allows.

// FixedShare returns the slots that normal jobs that can't be preempted may hold of a farm
// with so many: at least one.
func (p *Policy) FixedShare(slots int) int {
	return max(1, int(p.UnpreemptableShare*float64(slots)))
}

// HoldsFixed reports whether jobs that can't be preempted are held until their share has
// room for them: the site wants that, and the queue does not count them by itself.
func (p *Policy) HoldsFixed(able backends.ForEngine) bool {
	return p.HoldFixed && able.HoldUntil != nil && !able.CountsFixed
}

// cantPreempt reports whether a job can't be preempted once it runs, as its owner submitted
// it. mode is its preempt mode.
func (c *cycle) cantPreempt(j *backends.Job, mode backends.Mode) bool {
	return j.Interactive || j.Exclusive || j.NoRequeue && mode == backends.PreemptRequeue ||
		mode == backends.PreemptSuspend && !c.state.Abilities.SuspendFrees
}

// maybeFixed is a cheap necessary condition: whether a pending job of no pool must be looked
// at, as it might be one that can't be preempted.
func (c *cycle) maybeFixed(j *backends.Job) bool {
	return c.holdsFixed && (j.NoRequeue || j.Interactive || j.Exclusive || j.Tag != "" && !c.state.Abilities.SuspendFrees)
}

// readHold notes whether a job can't be preempted, and whether it is held for that reason.
// While only such a hold keeps it from starting, it counts as waiting: a pool may have room
// for it. named: a reclaim or a trial names the job.
func (f *farm) readHold(j *job, tag backends.Tag, named bool) {
	j.fixed = j.managed && f.cantPreempt(j.Job, j.preempt)
	pending := j.State == backends.Pending || j.State == backends.Held
	j.onItsWay = j.fixed && f.holdsFixed && j.State == backends.Pending && j.mem.Pool != 0 && j.mem.Kept == 0 &&
		j.HeldUntil.IsZero() && j.Wait == backends.WaitTime && !j.BeginTime.After(f.now)
	if j.onItsWay {
		j.waits = true // LSF releases a job by a begin time shortly ahead: its room in the pool stays until then
		return
	}
	if !pending || j.HeldUntil.IsZero() || !tag.Fixed && !(j.fixed && f.holdsFixed) || f.dummies.Unit(j.ID) != nil || named && f.heldAsVictim(j.ID) {
		return
	}
	j.gated = true
	if j.State == backends.Pending && j.Wait == backends.WaitTime && !j.BeginTime.After(f.now) {
		j.waits = true
	}
}

// heldAsVictim reports whether a reclaim holds a job: one that named it and came to nothing does not.
func (f *farm) heldAsVictim(id backends.ID) bool {
	for i := range f.plan.Memory.Reclaims {
		for _, v := range f.plan.Memory.Reclaims[i].Victims {
			if v.ID == id && !v.Released && (v.Fate == Intended || v.Fate == Taken) {
				return true
			}
		}
	}
	return false
}

// gate is the share of jobs that can't be preempted while it is given to them, in slots.
type gate struct {
	share int
	used  int            // by those that run, and those that may start at any moment
	by    map[string]int // the same by user; each may hold half of the share
	of    map[int64]int  // elements of an array with a limit, by array
	full  bool           // the oldest job that waits does not fit: a younger one does not pass it
}

// take gives a job its slots.
func (g *gate) take(j *job, slots int) {
	g.used += slots
	g.by[j.User] += slots
	if j.ArrayLimit > 0 {
		g.of[j.ID.Job]++
	}
}

// why returns why a job does not fit now; "" if it does. One that is wider than its user's
// half, or than the share of a farm that has shrunk, fits when it would be the only one.
func (g *gate) why(j *job) string {
	own, others := g.by[j.User], g.used-g.by[j.User]
	half := max(1, g.share/2)
	switch {
	case j.ArrayLimit > 0 && g.of[j.ID.Job] >= j.ArrayLimit:
		return fmt.Sprintf("%d elements of its array may run at a time", j.ArrayLimit)
	case own > 0 && own+j.Slots > half:
		return fmt.Sprintf("of the %s that such jobs may hold, one user may hold %d, and %s holds %d", slotCount(g.share), half, j.User, own)
	case g.used > 0 && others+own+j.Slots > g.share:
		g.full = true
		return fmt.Sprintf("such jobs may hold %s of the farm, and hold %d", slotCount(g.share), g.used)
	case g.full:
		return "older ones wait before it for the slots that such jobs may hold"
	}
	return ""
}

// shareOut releases jobs that can't be preempted as far as their share allows, oldest
// first, and at once those that have room in a pool. It holds the others: what is pending
// beyond the share came past the filter, or its owner lifted the hold (R22).
func (b *books) shareOut() {
	var free, gated []*job
	g := gate{share: b.policy.FixedShare(b.slots), by: map[string]int{}, of: map[int64]int{}}
	for _, j := range b.jobs {
		switch {
		case j.gated:
			gated = append(gated, j)
		case !b.holdsFixed || !j.fixed || j.pba() || j.leaving || j.State.Ended():
		case j.State == backends.Running || j.State == backends.Suspended:
			g.take(j, b.slotsWithin(j))
		case b.dummies.Unit(j.ID) != nil:
		case j.reclaim != nil || len(j.Pinned) > 0 || j.mem.Pool != 0 && j.mem.Kept == 0:
			g.take(j, j.Slots) // it has just lost its pool, and may start at any moment; some queues say for a moment that it does not wait
		default:
			free = append(free, j)
		}
	}
	oldest := func(x, y *job) int { return cmp.Or(x.Submitted.Compare(y.Submitted), x.ID.Compare(y.ID)) }
	slices.SortFunc(free, oldest)
	slices.SortFunc(gated, oldest)
	for _, j := range free {
		why := b.notYet(j)
		if why == "" {
			why = g.why(j)
		}
		if why == "" {
			g.take(j, j.Slots) // it was released, and may start at any moment
			continue
		}
		b.holdFixed(j, why, stageRank)
	}
	g.full = false
	for _, j := range gated {
		switch {
		case j.pba():
			b.releaseFixed(j, "its pool has room for it")
			continue
		case !b.holdsFixed || !j.fixed:
			b.releaseFixed(j, "its kind of job is not held any more")
			continue
		}
		why := b.notYet(j)
		if why == "" {
			why = g.why(j)
		}
		if why == "" {
			g.take(j, j.Slots)
			b.releaseFixed(j, "the share of jobs that can't be preempted has room for it")
			continue
		}
		b.holdFixed(j, why, stageLast)
	}
	b.plan.Farm.FixedShare = g.share
}

// notYet returns why a job could not start even if it was released, so that it takes none
// of the share; "" if it could.
func (b *books) notYet(j *job) string {
	switch {
	case j.State == backends.Held:
		return "its owner holds it"
	case j.Wait == backends.WaitDependency:
		return "it waits for another job"
	case j.BeginTime.Sub(b.now) > 2*b.policy.Cycle:
		return "its begin time has not come"
	}
	return ""
}

// releaseFixed ends the hold of a job that can't be preempted.
func (b *books) releaseFixed(j *job, why string) {
	b.acts.add(stageRelease, Action{Verb: Release, Job: j.ID, Reason: why})
}

// holdFixed holds a job that can't be preempted, or renews its hold when half of it is over.
// It does not wait for its slots then, as the other rules see it. A hold that its owner's
// begin time exceeds ends with that.
func (b *books) holdFixed(j *job, why string, at stage) {
	j.fixedWhy = why
	b.keepHeld(j, at, "it can't be preempted: "+why)
}

// keepHeld is what holdFixed says, for any job and reason.
func (b *books) keepHeld(j *job, at stage, reason string) {
	j.waits, j.next = false, false
	until := b.now.Add(b.policy.HoldLimit)
	if j.BeginTime.After(until) {
		until = j.BeginTime
	}
	left := j.HeldUntil.Sub(b.now)
	tooLong := j.HeldUntil.Sub(until) > b.policy.HoldLimit // it was set while the clock was ahead
	if left >= b.policy.HoldLimit/2 && !tooLong {
		return
	}
	j.holdUntil = until
	b.acts.add(at, Action{Verb: Hold, Job: j.ID, Until: until, Reason: reason})
}

// heldUntil returns until when a job is held once the plan is done, if the plan does not release it.
func (j *job) heldUntil() time.Time {
	if !j.holdUntil.IsZero() {
		return j.holdUntil
	}
	return j.HeldUntil
}

// whyFixed says why a job that can't be preempted waits, and until when it is held.
func (j *job) whyFixed() string {
	return fmt.Sprintf("it can't be preempted, and waits: %s; it is held until %s, and longer while it waits", j.fixedWhy, j.heldUntil().UTC().Format(time.RFC3339))
}

// slotsWithin returns a running job's slots on managed hosts, also those that are closed, as a
// job that has its host for itself closes it on LSF.
func (b *books) slotsWithin(j *job) int {
	if len(b.policy.Hosts) == 0 {
		return j.Slots
	}
	within := 0
	for _, p := range j.Hosts {
		if slices.Contains(b.policy.Hosts, p.Host) {
			within += p.Slots
		}
	}
	return within
}

// managedSlots returns a running job's slots on managed hosts that are up.
func (b *books) managedSlots(j *job) int {
	on := 0
	for _, p := range j.Hosts {
		if b.byName[p.Host] != nil {
			on += p.Slots
		}
	}
	return on
}
