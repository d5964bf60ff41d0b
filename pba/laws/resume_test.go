package laws

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// A suspended job within its guarantee waits no longer than a pending one (R20).
func TestLawSuspendedJobsWithinGuaranteesAreServed(t *testing.T) {
	obeyed(t, lawResume)
	obeyedBy(t, allResume(), resumeFarms(), lawResume)
}

// TestLawsOfResumeFarmsWerePutToTheTest checks that enough farms could have broken the law.
func TestLawsOfResumeFarmsWerePutToTheTest(t *testing.T) {
	checkShares(t, allResume(), map[share]float64{suspended: 30, metResume: 5})
}

// resumeFarms draws farms as they are drawn for the other laws, where projects have one pool each, and
// run more than that at first, beside jobs of no project. They can be suspended, and some end soon: then
// others, which were suspended meanwhile, have room.
func resumeFarms() *rapid.Generator[farm] {
	base := farms()
	return rapid.Custom(func(t *rapid.T) farm {
		f := base.Draw(t, "farm")
		pick := func(what string, n ...int) int { return rapid.SampledFrom(n).Draw(t, what) }
		f.Forms, f.Sets, f.Outages, f.Considers, f.EngineDies, f.MaxPerProject = false, nil, nil, considersNever, false, 100
		total := 0
		for _, h := range f.Hosts {
			total += h.Slots
		}
		f.Pools = nil
		for p := range f.Members {
			f.Pools = append(f.Pools, poolCase{Project: p, User: -1, Guarantee: 1 + total*pick("percent of the farm", 10, 20, 30)/100})
		}
		later := f.Jobs[len(f.Jobs)*3/5:]
		f.Jobs = nil
		for range total * 3 / 2 {
			j := jobCase{At: pick("first at", 0, 0, 1, 5), Slots: 1, Host: -1, OneHost: true, User: pick("first user", 0, 1, 2, 3), Project: pick("first project", -1, -1, 0, 0, 1)}
			if j.Takes = 1200; j.Project >= 0 {
				j.Takes, j.Suspend = pick("first takes", 80, 150, 600), true
			}
			f.Jobs = append(f.Jobs, j)
		}
		for i := range later {
			if j := &later[i]; j.Project > 0 {
				j.Step, j.Takes = "", 600
			}
		}
		f.Jobs = append(f.Jobs, later...)
		return f
	})
}

// lawResume: a job that waits to be resumed within its guarantee waits no longer than one that is
// pending (R20): no pending job takes the room that it could use, it has what room others leave, its
// clock runs, and once it is due jobs are preempted for it. Projects with several pools are left out,
// where jobs that move from pool to pool make room.
func (g *judge) lawResume() {
	if !slices.ContainsFunc(g.state.Farm.Jobs, func(j backends.Job) bool { return j.State == backends.Suspended && j.Resuming }) {
		return
	}
	g.jobs = byID(g.state.Farm)
	g.books = charge(g.state, g.policy, nil)
	for i := range g.state.Farm.Jobs {
		j := &g.state.Farm.Jobs[i]
		if j.State != backends.Suspended || !j.Resuming {
			continue
		}
		if p := g.onlyPool(j); p != nil {
			g.judgeRoom(j, p)
			g.judgeWait(j)
		}
	}
}

// onlyPool returns the pool that a job matches, if its project has no other; else nil.
func (g *judge) onlyPool(j *backends.Job) *plan.Allocation {
	pools := g.books.pools(j)
	if len(pools) != 1 {
		return nil
	}
	p := &g.policy.Allocations[pools[0]]
	if slices.ContainsFunc(g.policy.Allocations, func(a plan.Allocation) bool { return a.Project == p.Project && a.ID != p.ID }) {
		return nil
	}
	return p
}

// judgeRoom checks that a job has room in its pool, unless others had it before.
func (g *judge) judgeRoom(j *backends.Job, p *plan.Allocation) {
	if g.p.Memory.Jobs[j.ID].Pool != 0 {
		return
	}
	left := p.Guarantee
	for id, m := range g.p.Memory.Jobs {
		b := g.jobs[id]
		if b == nil || m.Pool != p.ID {
			continue
		}
		if m.Kept > 0 {
			left -= m.Kept
			continue
		}
		left -= b.Slots
		if b.State == backends.Pending && g.state.Memory.Jobs[id].Pool == 0 && b.Slots >= j.Slots && g.couldResume(j) {
			g.d.breach(lawResume, "job %v has room in pool %d now, and job %v, which could be resumed in it, has none", id, p.ID, j.ID)
		}
	}
	if left >= j.Slots {
		g.d.breach(lawResume, "pool %d has %d slots left, and job %v of %d, which waits to be resumed, has no room in it", p.ID, left, j.ID, j.Slots)
	}
}

// couldResume reports whether the hosts of a suspended job have its slots, once all jobs that may be
// preempted there are gone.
func (g *judge) couldResume(j *backends.Job) bool {
	could, all := map[string]int{}, map[string]int{}
	for _, h := range g.state.Farm.Hosts {
		if h.State == backends.HostUp {
			could[h.Name], all[h.Name] = h.Slots, h.Slots
		}
	}
	take := func(b *backends.Job, sign int) {
		for _, p := range b.Hosts {
			switch _, up := could[p.Host]; {
			case up && b.Exclusive:
				could[p.Host] += sign * all[p.Host]
			case up:
				could[p.Host] += sign * p.Slots
			}
		}
	}
	for _, b := range g.jobs {
		if b.State == backends.Running {
			take(b, -1)
		}
	}
	for _, s := range g.stakes() {
		if g.withinHour([]stake{s}) {
			take(s.job, 1)
		}
	}
	return !slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return could[p.Host] < p.Slots })
}

// judgeWait checks that the clock of a job that has room runs, and that it is served once it is due,
// if no other job of a pool waits and nothing is on its way.
func (g *judge) judgeWait(j *backends.Job) {
	was, is := g.state.Memory.Jobs[j.ID], g.p.Memory.Jobs[j.ID]
	if was.Pool == 0 || is.Pool == 0 {
		return
	}
	gap := g.p.At.Sub(g.state.Memory.LastCycle)
	if !was.ClockSeen.IsZero() && gap <= 2*cycle && is.Clock < was.Clock+gap {
		g.d.breach(lawResume, "the clock of job %v, which waits to be resumed, went from %v to %v in %v", j.ID, was.Clock, is.Clock, gap)
	}
	served := slices.ContainsFunc(g.p.Memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase.Open() && r.Beneficiary == j.ID })
	if served {
		g.d.met[metResume] = true
		return
	}
	if is.Clock < g.policy.PendingThreshold || is.Expired > 0 || g.d.Considers != considersNever || g.othersWait(j.ID) || skipped(g.p, "max_victims") ||
		slices.ContainsFunc(g.p.Memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase.Open() }) {
		return
	}
	for _, b := range g.jobs {
		if b.Ending || leaving(b, &g.state.Memory) {
			return
		}
	}
	if len(j.Hosts) == 1 && !j.Exclusive && g.couldResume(j) { // on several hosts no job is preempted for it; an exclusive one needs room for whole hosts
		g.d.breach(lawResume, "job %v has waited %v to be resumed on %v, where enough jobs may be preempted, and none is", j.ID, is.Clock, j.Hosts)
	}
}
