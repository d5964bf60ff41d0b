package laws

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// drawSets puts hosts into sets on some farms, and limits pools to them.
func (f *farm) drawSets(t *rapid.T, d dice) {
	if d.percent.Draw(t, "host sets") >= 30 {
		return
	}
	for range f.Hosts {
		f.Sets = append(f.Sets, d.percent.Draw(t, "host set")*3/100)
	}
	for i := range f.Pools {
		f.Pools[i].Set = d.percent.Draw(t, "pool's host set") * 3 / 100
	}
}

// setName is the name of a host set; "" for 0, the hosts in none.
func (f *farm) setName(n int) string {
	if n == 0 || f.Sets == nil {
		return ""
	}
	return fmt.Sprint("s", n)
}

func (f *farm) hostSets() []plan.HostSet {
	if f.Sets == nil {
		return nil
	}
	sets := []plan.HostSet{{Name: f.setName(1)}, {Name: f.setName(2)}}
	for i, n := range f.Sets {
		if n > 0 {
			sets[n-1].Hosts = append(sets[n-1].Hosts, hostName(i))
		}
	}
	return sets
}

// setOf returns the host set of a host.
func setOf(policy *plan.Policy, host string) string {
	for _, s := range policy.HostSets {
		if slices.Contains(s.Hosts, host) {
			return s.Name
		}
	}
	return ""
}

// placed reports whether a job runs, is being served, or may run on hosts of an allocation.
func (b *books) placed(j *backends.Job, a *plan.Allocation) bool {
	if len(b.policy.HostSets) == 0 {
		return true
	}
	at := j.Hosts
	if j.State != backends.Running && j.State != backends.Suspended {
		at = b.serving[j.ID]
		var could []backends.Host
		for _, h := range b.hosts {
			if setOf(b.policy, h.Name) == a.Hosts && couldRun(h, j) {
				could = append(could, h)
			}
		}
		if len(could) == 0 || (formed(j) || len(j.Needs) > 0) && !couldLie(could, j) {
			return false
		}
	}
	return !slices.ContainsFunc(at, func(p backends.Placement) bool { return setOf(b.policy, p.Host) != a.Hosts })
}

// couldRun reports whether an empty host could run a job, or a slot of one that may span hosts.
func couldRun(h backends.Host, j *backends.Job) bool {
	slots := 1
	if j.OneHost {
		slots = j.Slots
	}
	fits := h.Slots >= slots && (h.Memory == 0 || h.Memory >= perSlot(j)*int64(slots))
	return fits && suits(j, h.Name) && hasEnough(h, j)
}

// couldLie reports whether these hosts, each of which could run a slot of a job, could hold it
// in its form if they were empty.
func couldLie(hosts []backends.Host, j *backends.Job) bool {
	unit, most, every := max(j.Unit, 1), j.MaxHosts, j.PerHost
	if j.OneHost || j.Slots == 1 {
		unit, most, every = 1, 1, 0
	}
	var sizes []int // slots that a host has for it, largest first
	for _, h := range hosts {
		n := h.Slots
		if m := perSlot(j); h.Memory > 0 && m > 0 {
			n = min(n, int(h.Memory/m))
		}
		sizes = append(sizes, n/unit*unit)
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	sum := 0
	for i, n := range sizes {
		if n == 0 { // it has room for no whole unit, and neither have those that follow
			return false
		}
		if k := i + 1; every > 0 {
			n = min(n, every)
			if full := j.Slots / every; k <= full && n < every || k > full && n < j.Slots%every {
				return false
			}
		} else if most > 0 && k > most || k*unit > j.Slots {
			return false
		}
		if sum += n; sum >= j.Slots && i+1 >= j.MinHosts {
			return true
		}
	}
	return false
}

// serving returns where the beneficiaries of open reclaims shall run.
func serving(memory *plan.Memory) map[backends.ID][]backends.Placement {
	at := map[backends.ID][]backends.Placement{}
	for i := range memory.Reclaims {
		if r := &memory.Reclaims[i]; r.Phase.Open() {
			at[r.Beneficiary] = r.Hosts
		}
	}
	return at
}

// lawHosts: what is charged to a pool lies on the pool's hosts, and so do the slots that
// come free for its jobs.
func (g *judge) lawHosts() {
	if len(g.policy.HostSets) == 0 {
		return
	}
	check := func(id backends.ID, at []backends.Placement, what string) {
		m := g.p.Memory.Jobs[id]
		i := slices.IndexFunc(g.policy.Allocations, func(a plan.Allocation) bool { return a.ID == m.Pool })
		if i < 0 {
			return
		}
		a := &g.policy.Allocations[i]
		g.d.met[limited] = g.d.met[limited] || a.Hosts != "" && len(at) > 0
		for _, p := range at {
			if setOf(g.policy, p.Host) != a.Hosts {
				g.d.breach(lawHosts, "job %v of pool %d %s on %s, and the pool has the hosts of set %q", id, a.ID, what, p.Host, a.Hosts)
			}
		}
	}
	for i := range g.state.Farm.Jobs {
		if j := &g.state.Farm.Jobs[i]; j.State == backends.Running {
			check(j.ID, j.Hosts, "is charged")
		}
	}
	for id, at := range serving(&g.p.Memory) {
		check(id, at, "is served")
	}
}
