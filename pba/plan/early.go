package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// earlyShare is how many times its guarantee a pool may have preempted for it within an
// hour, and still be served before the site's threshold (R14).
const earlyShare = 2

// threshold returns how long a job of a pool must have waited before slots are preempted
// for it (R14): the time that the site has set for its project, if any. One that is
// shorter than the site's holds as long as the pool has not had twice its slots preempted
// within an hour; after that, the site's does.
func (f *farm) threshold(j *job) time.Duration {
	own, ok := f.ownThreshold(j)
	if !ok || own < f.policy.PendingThreshold && j.pool != nil && f.earlyLeft(j.pool) <= 0 {
		return f.policy.PendingThreshold
	}
	return own
}

// Marks reports whether the submit filter marks the jobs of a project: its slots are
// to be there in seconds, so that a waiting engine does not wait for its next cycle.
func (p *Policy) Marks(project string) bool {
	own, ok := p.Thresholds[project]
	return ok && own == 0
}

// ownThreshold returns the time that the site has set for a job's project.
func (f *farm) ownThreshold(j *job) (time.Duration, bool) {
	if len(f.policy.Thresholds) == 0 { // so that the job's project need not be fetched
		return 0, false
	}
	own, ok := f.policy.Thresholds[j.Project]
	return own, ok
}

// early reports whether a job that is served now is served before the site's threshold.
func (f *farm) early(j *job) bool {
	if j.standby {
		return true
	}
	own, ok := f.ownThreshold(j)
	return ok && own < f.policy.PendingThreshold && j.mem.Clock+f.policy.Cycle/20 < f.policy.PendingThreshold
}

// looked reports whether the queue has decided that a job can't start now: where it says
// when it considered a job, that it did; else the reason that makes it eligible.
func (f *farm) looked(j *job) bool {
	return j.State != backends.Pending || !f.state.Abilities.Considers || !j.Considered.IsZero()
}

// countTaken counts the slots that were preempted for each pool within the last hour, by
// the reclaims on record.
func (f *farm) countTaken() {
	f.taken = map[int64]int{}
	if len(f.policy.Thresholds) == 0 {
		return
	}
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		if r.Pool == 0 || f.now.Sub(r.Planned) >= time.Hour {
			continue
		}
		for _, v := range r.Victims {
			if v.counts(r) {
				f.taken[r.Pool] += v.Slots
			}
		}
	}
}

// earlyLeft returns how many slots may still be preempted for a pool before the site's
// threshold.
func (f *farm) earlyLeft(p *pool) int { return earlyShare*p.Guarantee - f.taken[p.ID] }

// whyNotEarly returns why a set of victims may not be preempted for a beneficiary before
// the site's threshold; "" if it may, or the beneficiary has waited for that long.
func (s *serving) whyNotEarly(b *job, set *candidate) string {
	if !s.early(b) {
		return ""
	}
	slots := 0
	for _, j := range set.victims {
		slots += j.Slots
	}
	if slots <= s.earlyLeft(b.pool) {
		return ""
	}
	return s.whyLate(b.pool)
}

// looks reports whether a job that may be served before the site's threshold waits for the
// queue to consider it, or to consider it where slots could be preempted for it.
func (s *serving) looks() bool {
	if len(s.policy.Thresholds) == 0 {
		return false
	}
	return slices.ContainsFunc(s.waiting.jobs, func(j *job) bool {
		return s.early(j) && s.threshold(j) < s.policy.PendingThreshold && (j.trying || j.nominated == nil && !s.looked(j))
	})
}

// whyLate returns why the site's threshold holds for a pool.
func (f *farm) whyLate(p *pool) string {
	return fmt.Sprintf("%s were taken back for %s within an hour, and more than %s may be only after the site's pending_threshold (%s)",
		slotCount(f.taken[p.ID]), describe(p.Allocation), slotCount(earlyShare*p.Guarantee), f.policy.PendingThreshold)
}
