package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// HostSet is a named set of hosts. Pools may be limited to one: jobs are charged to such a
// pool only on these hosts (R9).
type HostSet struct {
	Name  string
	Hosts []string
}

// part is the hosts of one host set, or those that are in none. A farm without host sets
// has no parts.
type part struct {
	hosts []*host         // that are up, by name
	all   []backends.Host // managed ones, up or not
}

// divide divides the managed hosts into parts. Sets are disjoint.
func (f *farm) divide() {
	if len(f.policy.HostSets) == 0 {
		return
	}
	f.rest, f.parts, f.partOf = new(part), map[string]*part{}, map[string]*part{}
	for _, set := range f.policy.HostSets {
		p := new(part)
		f.parts[set.Name] = p
		for _, name := range set.Hosts {
			f.partOf[name] = p
		}
	}
	managed := set(f.policy.Hosts)
	for _, h := range f.state.Farm.Hosts {
		if managed == nil || managed[h.Name] {
			p := f.partWith(h.Name)
			p.all = append(p.all, h)
		}
	}
	for _, h := range f.hosts {
		h.part = f.partWith(h.Name)
		h.part.hosts = append(h.part.hosts, h)
	}
}

// partWith returns the part that a host is in; nil on a farm without host sets.
func (f *farm) partWith(host string) *part {
	if p := f.partOf[host]; p != nil {
		return p
	}
	return f.rest
}

// partNamed returns the part of a host set, or of the hosts in none if there is no name, and
// whether the config has such a set.
func (f *farm) partNamed(set string) (p *part, known bool) {
	if set == "" {
		return f.rest, true
	}
	p, known = f.parts[set]
	return p, known
}

// on reports whether all of these hosts are the pool's.
func (f *farm) on(p *pool, hosts []backends.Placement) bool {
	return p.part == nil || !slices.ContainsFunc(hosts, func(at backends.Placement) bool { return f.partWith(at.Host) != p.part })
}

// limitPools leaves a job the pools that it may be charged to where it runs, or where it may
// run. A job that runs elsewhere is a normal one of its project.
func (f *farm) limitPools(j *job) {
	usable := func(p *pool) bool { return f.on(p, j.Hosts) }
	if j.State != backends.Running && j.State != backends.Suspended {
		parts := f.choicesFor(j).parts
		unit := f.dummies.Unit(j.ID)
		usable = func(p *pool) bool {
			// While it gathers, its dummies move to the pool's hosts in the next cycle.
			return slices.Contains(parts, p.part) && (unit == nil || unit.Stage != dummy.Ready || f.partWith(unit.Host) == p.part)
		}
	}
	j.pools = keep(j.pools, usable)
	j.entitled = len(j.pools) > 0 || j.State == backends.Running
}

// limitBeneficiaries leaves the beneficiaries of open reclaims the pools on whose hosts they
// are being served.
func (f *farm) limitBeneficiaries() {
	if f.rest == nil {
		return
	}
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		b := f.byID[r.Beneficiary]
		if !r.Phase.Open() || b == nil || b.State == backends.Running {
			continue
		}
		b.pools = keep(b.pools, func(p *pool) bool { return f.on(p, r.Hosts) })
		b.entitled = b.entitled && len(b.pools) > 0
	}
}

// keep returns the pools or jobs that pass a test: its argument if all do. It does not change that.
func keep[T any](all []T, passes func(T) bool) []T {
	if !slices.ContainsFunc(all, func(x T) bool { return !passes(x) }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !passes(x) })
}

// partsFor lists the parts with a host that could run a job, or a part of one that may span
// hosts, if no other job ran there. A host that is down counts: it comes back.
func (f *farm) partsFor(j *job) []*part {
	var parts []*part
	add := func(p *part) {
		if slices.ContainsFunc(p.all, func(h backends.Host) bool { return couldRun(&h, j) }) && f.couldLieOn(p, j) {
			parts = append(parts, p)
		}
	}
	if f.rest == nil {
		return nil
	}
	add(f.rest)
	for _, set := range f.policy.HostSets {
		add(f.parts[set.Name])
	}
	return parts
}

// couldRun reports whether an empty host could run a job, or a part of one that may span
// hosts.
func couldRun(h *backends.Host, j *job) bool {
	slots := 1
	if j.oneHost() {
		slots = j.Slots
	}
	switch {
	case len(j.Asked) > 0 && !slices.Contains(j.Asked, h.Name), !j.Suits.Contains(h.Name):
		return false
	case h.Slots < slots, h.Memory > 0 && h.Memory < j.perSlot*int64(slots):
		return false
	}
	return !slices.ContainsFunc(j.Needs, func(need backends.Amount) bool {
		return !slices.ContainsFunc(h.Has, func(has backends.Amount) bool { return has.Name == need.Name && has.Count >= need.Count })
	})
}

// within returns the part that a job is charged in or holds room in; nil: any host.
func (j *job) within() *part {
	if j.pool == nil {
		return nil
	}
	return j.pool.part
}

// mayUse reports whether a host is one of the job's pool.
func (j *job) mayUse(h *host) bool {
	p := j.within()
	return p == nil || h.part == p
}
