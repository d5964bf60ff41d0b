package laws

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// The law of slots on standby (R36), on farms of their own. The tests of four other laws run on
// these farms, too: see obeyedOnOthers.

// The slots that are kept free for a project's next jobs are no more than the site says, and
// no more than its pools have left of their guarantees; what is preempted for them frees no
// more than they lack, and nothing while a job of their pool waits; they are kept from no
// job of a pool that is due.
func TestLawStandbyTakesWhatIsLeft(t *testing.T) {
	obeyedBy(t, allStandby(), standbyFarms(), lawStandby)
}

// TestLawsOfStandbyFarmsWerePutToTheTest checks that enough farms could have broken the laws.
func TestLawsOfStandbyFarmsWerePutToTheTest(t *testing.T) {
	checkShares(t, allStandby(), map[share]float64{keptFree: 30, keptByPreempting: 10, tookKept: 20})
}

// standbyFarms draws farms as they are drawn for the other laws, with projects that have slots
// on standby.
func standbyFarms() *rapid.Generator[farm] {
	base := farms()
	return rapid.Custom(func(t *rapid.T) farm {
		f := base.Draw(t, "farm")
		f.Forms = false
		f.Own, f.Standby = nil, []int{}
		for range f.Members {
			k := rapid.IntRange(0, 4).Draw(t, "standby")
			f.Standby = append(f.Standby, k)
			f.Own = append(f.Own, []int{-1, 0}[min(k, 1)])
		}
		return f
	})
}

// judgeStandby adds up, from the queue's own jobs, what is kept free and what the plan does
// about it.
func (d *drive) judgeStandby(state *plan.State, policy *plan.Policy, p *plan.Plan) {
	jobs, ends := map[backends.ID]*backends.Job{}, map[backends.ID]bool{}
	slots, runs := map[string]int{}, map[string]int{} // by project, after this plan
	for i := range state.Farm.Jobs {
		jobs[state.Farm.Jobs[i].ID] = &state.Farm.Jobs[i]
	}
	for _, a := range p.Actions {
		switch a.Verb {
		case plan.Drop:
			for _, id := range a.Dummies {
				ends[id] = true
			}
		case plan.Place:
			slots[a.Project] += a.Slots[0]
		}
	}
	left, waits := map[string]int{}, map[int64]bool{}
	for _, a := range policy.Allocations {
		left[a.Project] += a.Guarantee
	}
	d.met[tookKept] = d.met[tookKept] || len(ends) > 0
	for id, m := range p.Memory.Jobs {
		j := jobs[id]
		if j == nil || j.IsStandby() || m.Pool == 0 {
			continue
		}
		if j.State == backends.Running {
			left[j.Project] -= j.Slots
		} else {
			waits[m.Pool] = true
		}
	}
	for _, j := range jobs {
		if !j.IsStandby() || ends[j.ID] || j.Ending {
			continue
		}
		if slots[j.Project]++; j.State == backends.Running {
			runs[j.Project]++
			d.met[keptFree] = true
		}
	}
	for project, n := range slots {
		if most := min(policy.Standby[project], left[project]); n > max(0, most) {
			d.breach(lawStandby, "%d slots are, or are to be, kept free for %s, of %d on standby and %d left of its guarantees", n, project, policy.Standby[project], left[project])
		}
	}
	d.judgeReclaimsOfStandbyJobs(state, policy, p, jobs, runs, waits)
	d.judgeStarved(state, policy, p, jobs, ends)
}

func (d *drive) judgeReclaimsOfStandbyJobs(state *plan.State, policy *plan.Policy, p *plan.Plan, jobs map[backends.ID]*backends.Job, runs map[string]int, waits map[int64]bool) {
	takes := map[string]int{}
	for i := range p.Memory.Reclaims {
		r := &p.Memory.Reclaims[i]
		b := jobs[r.Beneficiary]
		if b == nil || !b.IsStandby() || !r.Phase.Open() || b.State == backends.Running {
			continue
		}
		fresh := !slices.ContainsFunc(state.Memory.Reclaims, func(old plan.Reclaim) bool { return old.ID == r.ID })
		if fresh && waits[r.Pool] {
			d.breach(lawStandby, "reclaim %d keeps a slot free, and a job of pool %d waits", r.ID, r.Pool)
		}
		if !fresh {
			continue
		}
		d.met[keptByPreempting] = true
		for _, v := range r.Victims {
			takes[b.Project] += v.Slots
		}
	}
	for project, n := range takes {
		if lacks := policy.Standby[project] - runs[project]; n > lacks {
			d.breach(lawStandby, "%d slots are preempted to keep %d more free for %s", n, lacks, project)
		}
	}
}

// judgeStarved: once a plan has given a job of a pool that is due no slots although it could
// run in any, no slot stays kept where it could run. Plans do not show what is nominated:
// so farms count on which nothing is free, and nothing is about to be.
func (d *drive) judgeStarved(state *plan.State, policy *plan.Policy, p *plan.Plan, jobs map[backends.ID]*backends.Job, ends map[backends.ID]bool) {
	if d.Considers != considersNever || len(policy.HostSets) > 0 {
		return
	}
	free := 0
	for _, h := range state.Farm.Hosts {
		if h.State == backends.HostUp {
			free += h.Slots
		}
	}
	for _, j := range jobs {
		if j.State == backends.Running {
			free -= j.Slots
		}
		if j.Ending || j.State == backends.Suspended {
			return
		}
	}
	if free > 0 || slices.ContainsFunc(p.Memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase.Open() }) {
		return
	}
	for id, m := range p.Memory.Jobs {
		j := jobs[id]
		if j == nil || j.IsStandby() || j.State != backends.Pending || m.Pool == 0 || m.Kept > 0 || m.Clock < policy.PendingThreshold ||
			j.Slots > 1 || len(j.Asked) > 0 || j.Suits != nil || len(j.Needs) > 0 || j.Exclusive || !j.Eligible() {
			continue
		}
		for _, k := range jobs {
			if k.IsStandby() && k.State == backends.Running && !ends[k.ID] {
				d.breach(lawStandby, "job %v has waited for %v and got no slot, and %v keeps one free", id, m.Clock, k.ID)
			}
		}
	}
}
