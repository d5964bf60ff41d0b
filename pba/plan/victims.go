package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// findVictims applies R16 to every running job: what may be taken back now, and
// of the rest, why not.
func (v *view) findVictims() {
	exempt := exemption{users: set(v.policy.NeverVictims.Users), projects: set(v.policy.NeverVictims.Projects), queues: set(v.policy.NeverVictims.Queues)}
	v.countLost()
	immune, lowered := v.immune(), v.spareLowered()
	for _, j := range v.running {
		v.appraise(j)
		j.spared = v.whySpared(j, exempt)
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
			if h := v.byName[p.Host]; len(h.victims) == 0 || h.victims[len(h.victims)-1].job != j {
				h.victims = append(h.victims, v.itemOn(h, j))
			}
		}
		v.losers[j.party()] = append(v.losers[j.party()], j)
	}
	for _, h := range v.hosts {
		slices.SortFunc(h.victims, func(a, b item) int { return leastValued(a.job, b.job) })
	}
}

// itemOn is what taking a job back would free on one host.
func (v *view) itemOn(h *host, j *job) item {
	it := item{job: j, slots: j.Slots, gain: slotsOn(j, h.Name), lost: j.lost}
	if j.preempt != backends.PreemptSuspend {
		it.memory = j.perSlot * int64(it.gain)
	}
	return it
}

type exemption struct{ users, projects, queues map[string]bool }

func (v *view) whySpared(j *job, exempt exemption) string {
	ran := v.now.Sub(j.Started)
	switch {
	case !j.managed:
		return "its queue is not managed"
	case v.offManaged(j):
		return "it runs on a host that is not managed"
	case j.leaving:
		return "it is being taken back already"
	case j.pba():
		return fmt.Sprintf("it is charged to %s", describe(j.pool.Allocation))
	case j.lightFor != (backends.ID{}):
		return fmt.Sprintf("it has the place of a dummy of %s", j.lightFor)
	case j.Interactive:
		return "it is interactive"
	case j.Exclusive:
		return "it has its hosts for itself"
	case j.preempt == backends.PreemptRequeue && j.NoRequeue:
		return "its owner forbids to requeue it"
	case j.preempt == backends.PreemptSuspend && !v.state.Abilities.SuspendFrees:
		return "its owner chose suspend, which frees nothing on this queue"
	case ran < v.policy.MinRuntime && !startedAhead(j.Job, v.now):
		return fmt.Sprintf("it has run for less than min_runtime (%s)", v.policy.MinRuntime)
	case j.RunLimit > 0 && j.RunLimit-j.ran(v.now) < v.policy.GracePeriod+v.policy.Cycle:
		return "its run limit ends it sooner than a reclaim would"
	case j.Ending:
		return "it was told to end already"
	case exempt.users[j.User], exempt.queues[j.Queue], exempt.projects[j.Project] && j.entitled:
		return "never_victims names it"
	}
	return v.cappedByParty(j)
}

// cappedByParty holds the jobs that one project loses within an hour to R22's cap.
func (v *view) cappedByParty(j *job) string {
	if lost := v.lost[j.party()]; lost >= v.hourlyCap(j.party()) {
		return fmt.Sprintf("%s lost %d jobs within an hour (max_victims_per_project)", j.party(), lost)
	}
	return ""
}

// hourlyCap is how many jobs one party may lose within an hour: at least as many as
// the others are guaranteed slots, so that all of these can be taken back from it.
func (v *view) hourlyCap(p party) int {
	return max(v.policy.MaxVictimsPerProject, v.allGuaranteed-v.guaranteed[p.project])
}

func (p party) String() string {
	if p.project != "" {
		return "project " + p.project
	}
	return "user " + p.user
}

// countLost counts the jobs that each party lost within the last hour.
func (v *view) countLost() {
	for i := range v.state.Memory.Reclaims {
		r := &v.state.Memory.Reclaims[i]
		if v.now.Sub(r.Planned) >= time.Hour {
			continue
		}
		for _, victim := range r.Victims {
			if victim.Fate == Taken || victim.Fate == Lost || victim.Fate == Intended && r.Phase.Open() {
				v.lost[victim.party()]++
			}
		}
	}
}

func (v Victim) party() party {
	if v.Project != "" {
		return party{project: v.Project}
	}
	return party{user: v.User}
}

func (v *view) offManaged(j *job) bool {
	return len(j.Hosts) == 0 || slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return v.byName[p.Host] == nil })
}

// immune are the jobs that were taken back max_requeues times already, the
// longest-running first, as long as together they hold no more than
// unpreemptable.max_share of the farm (R16).
func (v *view) immune() map[backends.ID]bool {
	var often []*job
	for _, j := range v.running {
		if j.mem.Requeues >= v.policy.MaxRequeues && !j.pba() && j.managed && !j.leaving && !j.Ending {
			often = append(often, j)
		}
	}
	slices.SortFunc(often, byStart)
	immune := map[backends.ID]bool{}
	held := 0
	for _, j := range often {
		if float64(held+j.Slots) > v.policy.UnpreemptableShare*float64(v.slots) {
			break
		}
		held += j.Slots
		immune[j.ID] = true
	}
	return immune
}

// leastValued is the order in which jobs are taken back from, least valued first
// (R17): the policy's criteria in turn, then the highest job ID.
func leastValued(a, b *job) int {
	for i := range a.worth {
		if c := cmp.Compare(a.worth[i], b.worth[i]); c != 0 {
			return c
		}
	}
	return b.ID.Compare(a.ID)
}

// appraise puts a job's place by each criterion into numbers, once a plan.
func (v *view) appraise(j *job) {
	j.lost = workLost(j, v.now)
	for i, criterion := range v.policy.VictimOrder[:min(len(v.policy.VictimOrder), len(j.worth))] {
		switch criterion {
		case ByStart:
			j.worth[i] = v.bucket(j)
		case ByOverSubscribed:
			j.worth[i] = -int64(v.over[j.party()])
		case ByPending:
			j.worth[i] = -int64(v.pending[j.party()])
		}
	}
}

// bucket counts start_bucket intervals back from now, so that jobs that started
// at about the same time are equal.
func (v *view) bucket(j *job) int64 {
	return int64(v.now.Sub(j.Started) / max(v.policy.StartBucket, 1))
}
