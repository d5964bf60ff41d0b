package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// findVictims applies R16 to every running job: which may be preempted now, and why
// the others may not.
func (b *books) findVictims() {
	exempt := b.exemption()
	immune, lowered := b.immune(), b.spareLowered()
	b.protect()
	for _, j := range b.running {
		b.appraise(j)
		if j.RunLimit > 0 && j.left(b.now) <= 2*b.policy.Cycle { // no due job waits longer for one
			b.ending = append(b.ending, j)
		}
		j.spared = b.whySpared(j, exempt)
		if j.spared == "" {
			j.spared = lowered[j.ID]
		}
		if j.spared == "" && immune[j.ID] {
			j.spared = fmt.Sprintf("it was taken back %d times already", j.mem.Requeues)
		}
		if j.spared != "" {
			continue
		}
		for _, p := range j.Hosts {
			h := b.byName[p.Host]
			if h.victims == nil {
				h.victims = make([]item, 0, len(h.running))
			}
			if len(h.victims) == 0 || h.victims[len(h.victims)-1].job != j {
				h.victims = append(h.victims, b.itemOn(h, j))
			}
		}
		j.of.losers = append(j.of.losers, j)
	}
}

// leastFirst returns a host's victims, least valued first. Most plans need no host's.
func (h *host) leastFirst() []item {
	if !h.sorted {
		slices.SortFunc(h.victims, func(x, y item) int { return leastValued(x.job, y.job) })
		h.sorted = true
	}
	return h.victims
}

// itemOn returns what preempting a job would free on one host.
func (b *books) itemOn(h *host, j *job) item {
	it := item{job: j, slots: j.Slots, gain: slotsOn(j, h.Name), lost: j.lost}
	if j.preempt != backends.PreemptSuspend {
		it.memory = j.perSlot * int64(it.gain)
	}
	return it
}

// exemption is whose jobs are never victims.
type exemption struct{ users, projects, queues map[string]bool }

func (b *books) exemption() exemption {
	never := &b.policy.NeverVictims
	return exemption{users: set(never.Users), projects: set(never.Projects), queues: set(never.Queues)}
}

func (e *exemption) has(j *job) bool {
	return e.users[j.User] || e.queues[j.Queue] || e.projects[j.Project] && j.entitled
}

// Why a job is spared, where that is said in several places.
const (
	exempted    = "never_victims names it"
	notRequeued = "its owner forbids to requeue it"
)

// whyForeign returns why a running job is not the engine's to end; "": it is.
func (b *books) whyForeign(j *job) string {
	switch {
	case j.standby:
		return "it keeps a slot free for " + j.Project
	case !j.managed:
		return "its queue is not managed"
	case b.offManaged(j):
		return "it runs on a host that is not managed"
	}
	return ""
}

// whyProtected returns what protects a running job, whatever its end is for; "": nothing does.
func whyProtected(j *job) string {
	switch {
	case j.pba():
		return fmt.Sprintf("it is charged to %s", describe(j.pool.Allocation))
	case j.lightFor != (backends.ID{}):
		return fmt.Sprintf("it has the place of a dummy of %s", j.lightFor)
	case j.Interactive:
		return "it is interactive"
	case j.Component:
		return "it is a part of a job that runs as a whole"
	}
	return ""
}

func (b *books) whySpared(j *job, exempt exemption) string {
	if why := b.whyForeign(j); why != "" {
		return why
	}
	if j.leaving {
		return takenBack
	}
	if why := whyProtected(j); why != "" {
		return why
	}
	ran := b.now.Sub(j.Started)
	switch {
	case j.Exclusive:
		return "it has its hosts for itself"
	case j.preempt == backends.PreemptRequeue && j.NoRequeue:
		return notRequeued
	case j.preempt == backends.PreemptSuspend && !b.state.Abilities.SuspendFrees:
		return "its owner chose suspend, which frees nothing on this queue"
	case ran < b.policy.MinRuntime && !startedAhead(j.Job, b.now):
		return fmt.Sprintf("it has run for less than min_runtime (%s)", b.policy.MinRuntime)
	case j.RunLimit > 0 && j.RunLimit-j.ran(b.now) < b.grace(j)+b.policy.Cycle:
		return "its run limit ends it sooner than a reclaim would"
	case j.Ending:
		return "it is ending already"
	case exempt.has(j):
		return exempted
	}
	return b.hourlyCapReason(j)
}

// hourlyCapReason returns why R22's cap of an hour spares a job; "" if it does not.
func (b *books) hourlyCapReason(j *job) string {
	if of := j.of; of.lost >= b.hourlyCap(of) {
		return fmt.Sprintf("%s lost %d jobs within an hour (max_victims_per_project)", of.account, of.lost)
	}
	return ""
}

// hourlyCap returns how many jobs one account may lose within an hour: at least as many
// as the others are guaranteed slots, so that it can lose all of these.
func (b *books) hourlyCap(of *tally) int {
	return max(b.policy.MaxVictimsPerProject, b.allGuaranteed-of.guaranteed)
}

func (p account) String() string {
	if p.project != "" {
		return "project " + p.project
	}
	return "user " + p.user
}

// countLost counts the jobs that each account lost within the last hour.
func (f *farm) countLost() {
	for i := range f.state.Memory.Reclaims {
		r := &f.state.Memory.Reclaims[i]
		if f.now.Sub(r.Planned) >= time.Hour {
			continue
		}
		for _, victim := range r.Victims {
			if victim.counts(r) {
				f.tallyOf(victim.account()).lost++
			}
		}
	}
}

// counts reports whether a victim lost its slots to a reclaim, or is about to.
func (v *Victim) counts(r *Reclaim) bool {
	return v.Fate == Taken || v.Fate == Lost || v.Fate == Intended && r.Phase.Open()
}

func (v Victim) account() account {
	if v.Project != "" {
		return account{project: v.Project}
	}
	return account{user: v.User}
}

func (b *books) offManaged(j *job) bool {
	return len(j.Hosts) == 0 || slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return b.byName[p.Host] == nil })
}

// immune returns the jobs that were preempted max_requeues times already, the
// longest-running first, as long as together they hold no more than
// unpreemptable.max_share of the farm (R16).
func (b *books) immune() map[backends.ID]bool {
	var often []*job
	for _, j := range b.running {
		if j.mem.Requeues >= b.policy.MaxRequeues && !j.pba() && j.managed && !j.leaving && !j.Ending {
			often = append(often, j)
		}
	}
	slices.SortFunc(often, byStart)
	immune := map[backends.ID]bool{}
	held := 0
	for _, j := range often {
		if float64(held+j.Slots) <= b.policy.UnpreemptableShare*float64(b.slots) { // narrower ones may fit
			held += j.Slots
			immune[j.ID] = true
		}
	}
	return immune
}

// defaultMaxLost is what a job without a run limit may lose, for each of its slots.
const defaultMaxLost = 4 * time.Hour

// maxLost returns the slot-seconds of work that a job may lose to reclaims before it is
// protected (R35).
func (b *books) maxLost(j *job) float64 {
	most := b.policy.MaxLost
	switch {
	case most > 0:
	case j.RunLimit > 0:
		most = j.RunLimit
	default:
		most = defaultMaxLost
	}
	return float64(j.Slots) * most.Seconds()
}

// lostTooMuch reports whether reclaims threw away more of a job's work than it may lose (R35).
func (b *books) lostTooMuch(j *job) bool { return j.mem.Lost > 0 && j.mem.Lost > b.maxLost(j) }

// protect marks the jobs that lost too much already, the longest-running first, as long as
// together they hold no more than unpreemptable.max_share of the farm (R35).
func (b *books) protect() {
	var spent []*job
	for _, j := range b.running {
		if b.lostTooMuch(j) && !j.pba() && j.managed && !j.leaving && !j.Ending {
			spent = append(spent, j)
		}
	}
	slices.SortFunc(spent, byStart)
	held := 0
	for _, j := range spent {
		if float64(held+j.Slots) <= b.policy.UnpreemptableShare*float64(b.slots) {
			held += j.Slots
			j.spent = true
		}
	}
}

// leastValued orders jobs as they are preempted, least valued first (R17): those that failed
// a test of the filter, then by the policy's criteria in turn, then the highest job ID.
func leastValued(a, b *job) int {
	for i := range a.worth {
		if c := cmp.Compare(a.worth[i], b.worth[i]); c != 0 {
			return c
		}
	}
	return b.ID.Compare(a.ID)
}

// appraise puts a job's place by each criterion into numbers, once a plan (R34).
func (b *books) appraise(j *job) {
	j.lost = workLost(j, b.now)
	if !j.low {
		j.worth[0] = 1
	}
	worth := j.worth[1:]
	for i, criterion := range b.policy.VictimOrder[:min(len(b.policy.VictimOrder), len(worth))] {
		switch criterion {
		case ByStart:
			worth[i] = b.bucket(j)
		case ByOverSubscribed:
			worth[i] = -int64(bits.Len(uint(b.overOf(j))))
		case ByLost:
			worth[i] = int64(j.lost)
		case ByPending:
			worth[i] = -int64(j.of.pending)
		}
	}
}

// overOf returns the over-subscription that a job counts for: its account's. Where its project
// has no allocation, it is that of its user in all such projects, if that is more: spreading
// jobs over projects hides nobody.
func (b *books) overOf(j *job) int {
	over := j.of.over
	if b.unplanned(j) {
		over = max(over, b.scattered[j.User])
	}
	return over
}

// unplanned reports whether a job counts under a project without an allocation.
func (f *farm) unplanned(j *job) bool {
	return j.verdict.member && len(f.projectPools[j.Project]) == 0
}

// bucket counts start_bucket intervals back from now, so that jobs that started
// at about the same time are equal.
func (b *books) bucket(j *job) int64 {
	return int64(b.now.Sub(j.Started) / max(b.policy.StartBucket, 1))
}
