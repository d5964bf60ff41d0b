package laws

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// rating is what a set of victims is compared by, the less the better.
type rating struct {
	spent  int        // jobs that lost too much already
	excess int        // slots beyond the need
	worst  [4]float64 // of its most valued job, see ratingOf
	count  int
	lost   float64 // slot-seconds
}

func (a rating) compare(b rating) int {
	return cmp.Or(cmp.Compare(a.spent, b.spent), cmp.Compare(a.excess, b.excess), slices.Compare(a.worst[:], b.worst[:]), cmp.Compare(a.count, b.count), cmp.Compare(a.lost, b.lost))
}

// stake is a job that may be preempted, as this law sees it.
type stake struct {
	job     *backends.Job
	account string
	lost    float64
	value   [4]float64 // over-subscription, work lost, start, ID: the least goes first
	suspend bool
	spent   bool
}

// lawLeast: where one beneficiary that asks for slots and memory alone is served, no set of
// victims is better than the chosen one (R34), nor has fewer jobs that lost too much already (lawProtected, R35).
// All sets are tried, on each host, or over the farm for one that may span hosts. Where R22's
// cap bars a better one it is not judged: the plan leaves out that set's first member that is too many.
func (g *judge) lawLeast() {
	if len(g.fresh) != 1 || len(g.served) != 1 || g.hypothetical || g.d.Considers != considersNever {
		return
	}
	r := g.fresh[0]
	b := g.jobs[r.Beneficiary]
	if b == nil || b.State != backends.Pending || len(b.Pinned) > 0 || len(b.Needs) > 0 || b.Exclusive || formed(b) || g.othersWait(b.ID) || len(r.Hosts) == 0 {
		return
	}
	stakes := g.stakes()
	free := g.offers()
	var hosts []string
	for name := range free {
		if suits(b, name) && setOf(g.policy, name) == setOf(g.policy, r.Hosts[0].Host) {
			hosts = append(hosts, name)
		}
	}
	groups := [][]string{hosts}
	if b.OneHost || b.Slots == 1 {
		groups = nil
		for _, h := range hosts {
			groups = append(groups, []string{h})
		}
	} else if b.Memory > 0 {
		return
	}
	var chosen []stake
	for _, s := range stakes {
		if g.gone[s.job.ID] {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) != len(r.Victims) {
		return // lawSpared judges that
	}
	got := rate(chosen, r.Need)
	best, better, where := got, []stake(nil), []string(nil)
	sets := 0
	for _, on := range groups {
		have, memory, counts := 0, int64(0), false
		for _, h := range on {
			have += max(free[h].slots, 0)
			memory, counts = free[h].memory, free[h].counts && len(on) == 1
			if free[h].slots < 0 {
				return
			}
		}
		var here []stake
		for _, s := range stakes {
			if slices.ContainsFunc(s.job.Hosts, func(p backends.Placement) bool { return slices.Contains(on, p.Host) }) {
				here = append(here, s)
			}
		}
		if len(here) > 12 {
			return
		}
		for mask := 1; mask < 1<<len(here); mask++ {
			var set []stake
			gain, freed := have, memory
			for i, s := range here {
				if mask>>i&1 == 0 {
					continue
				}
				set = append(set, s)
				for _, p := range s.job.Hosts {
					if !slices.Contains(on, p.Host) {
						continue
					}
					gain += p.Slots
					if !s.suspend {
						freed += perSlot(s.job) * int64(p.Slots)
					}
				}
			}
			if gain < b.Slots || counts && freed < perSlot(b)*int64(b.Slots) {
				continue
			}
			sets++
			other := rate(set, max(b.Slots-have, 0))
			switch {
			case other.compare(got) >= 0:
			case !g.withinHour(set):
				return
			case other.compare(best) < 0:
				best, better, where = other, set, on
			}
		}
	}
	if better != nil {
		broken := lawLeast
		if best.spent < got.spent {
			broken = lawProtected
		}
		g.d.breach(broken, "reclaim %d preempts %v for job %v: %+v; better on %v: %+v, %v", r.ID, slices.Sorted(idsOf(g.gone)), b.ID, got, where, best, names(better))
	}
	g.d.met[compared] = g.d.met[compared] || sets > 1
}

func names(set []stake) (ids []string) {
	for _, s := range set {
		ids = append(ids, s.job.ID.String())
	}
	return ids
}

func rate(set []stake, need int) rating {
	r := rating{excess: -need, count: len(set)}
	for i, s := range set {
		r.excess += s.job.Slots
		r.lost += s.lost
		if s.spent {
			r.spent++
		}
		if i == 0 || slices.Compare(s.value[:], r.worst[:]) > 0 {
			r.worst = s.value
		}
	}
	return r
}

// stakes returns the jobs that may be preempted.
func (g *judge) stakes() (all []stake) {
	now := g.state.Farm.At
	over, scattered, planned := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, a := range g.policy.Allocations {
		planned[a.Project] = true
	}
	up := g.offers()
	slots := 0
	for _, o := range up {
		slots += o.whole
	}
	var often []*backends.Job
	running := map[*backends.Job]bool{}
	for i := range g.state.Farm.Jobs {
		j := &g.state.Farm.Jobs[i]
		if m := g.p.Memory.Jobs[j.ID]; j.State != backends.Running || m.Pool != 0 && m.Kept == 0 {
			continue
		}
		over[g.books.account(j)] += j.Slots
		if g.books.proven(j) && !planned[j.Project] {
			scattered[j.User] += j.Slots
		}
		if leaving(j, &g.state.Memory) || j.Ending {
			continue
		}
		running[j] = true
		if g.state.Memory.Jobs[j.ID].Requeues >= g.policy.MaxRequeues {
			often = append(often, j)
		}
	}
	spent := g.protected(running, slots)
	slices.SortFunc(often, func(x, y *backends.Job) int { return cmp.Or(x.Started.Compare(y.Started), x.ID.Compare(y.ID)) })
	held := 0
	for _, j := range often {
		if float64(held+j.Slots) <= g.policy.UnpreemptableShare*float64(slots) {
			held += j.Slots
			delete(running, j)
		}
	}
	for j := range running {
		tag, _, _ := backends.ParseTag(j.Tag)
		s := stake{job: j, account: g.books.account(j), suspend: tag.Preempt == backends.PreemptSuspend, spent: spent[j]}
		ran := j.RanFor + now.Sub(j.Started)
		away := slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return up[p.Host] == nil })
		grace, save := g.policy.GracePeriod, g.d.mustSave(j)
		switch {
		case s.suspend:
			grace, save = 0, 0
		case save > 0:
			grace = save
		}
		ends := j.RunLimit > 0 && j.RunLimit-ran < grace+g.policy.Cycle
		if away || ends || j.Interactive || j.Exclusive || j.Component || j.NoRequeue && !s.suspend || now.Sub(j.Started) < g.policy.MinRuntime {
			continue
		}
		n := over[s.account]
		if g.books.proven(j) && !planned[j.Project] {
			n = max(n, scattered[j.User])
		}
		if every := tag.Checkpoint.Every; every > 0 {
			ran %= every
		}
		if !s.suspend && save == 0 {
			s.lost = float64(j.Slots) * ran.Seconds()
		}
		started := float64(now.Sub(j.Started) / g.policy.StartBucket)
		s.value = [4]float64{-float64(bits.Len(uint(n))), float64(int64(s.lost)), started, -float64(j.ID.Job<<16) - float64(j.ID.Index)}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y stake) int { return x.job.ID.Compare(y.job.ID) })
	return all
}

// protected returns the jobs that lost too much already, within their share (R35).
func (g *judge) protected(running map[*backends.Job]bool, slots int) map[*backends.Job]bool {
	var all []*backends.Job
	for j := range running {
		if g.p.Memory.Jobs[j.ID].Lost > float64(j.Slots)*g.policy.MaxLost.Seconds() {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(x, y *backends.Job) int { return cmp.Or(x.Started.Compare(y.Started), x.ID.Compare(y.ID)) })
	protected, held := map[*backends.Job]bool{}, 0
	for _, j := range all {
		if float64(held+j.Slots) <= g.policy.UnpreemptableShare*float64(slots) {
			held += j.Slots
			protected[j] = true
		}
	}
	g.d.met[protectedOnes] = g.d.met[protectedOnes] || held > 0
	return protected
}

// withinHour reports whether a set stays within what accounts may lose in an hour (R22).
func (g *judge) withinHour(set []stake) bool {
	lost := map[string]int{}
	for i := range g.state.Memory.Reclaims {
		r := &g.state.Memory.Reclaims[i]
		for k := range r.Victims {
			if g.p.At.Sub(r.Planned) < time.Hour {
				lost[loser(&r.Victims[k])]++
			}
		}
	}
	for _, s := range set {
		if lost[s.account]++; lost[s.account] > g.policy.MaxVictimsPerProject {
			return false
		}
	}
	return true
}
