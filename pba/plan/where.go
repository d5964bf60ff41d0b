package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// understood reports whether the plan knows where a pending job may run and what it needs
// there (R32). Another one is no PBA job and holds no room: slots preempted for it could
// stay unused, again in each cycle.
func understood(j *backends.Job) bool { return j.Unserved == "" && !j.Component }

// whyUnserved returns what of a job's request is not understood.
func whyUnserved(j *backends.Job) string {
	if j.Component {
		return "it is a part of a job that starts on several kinds of hosts at once, and is served whole or not at all: no job is preempted for it"
	}
	return "no job is preempted for it, as a part of its request is not understood: " + j.Unserved
}

// suitable lists the managed hosts that a job may run on at all, by name. A
// suspended job may run on its own hosts only; one that holds room in a pool is served only
// on the pool's hosts.
func (o *occupancy) suitable(j *job) []*host {
	on := j.Asked
	if j.State == backends.Suspended {
		on = names(j.Hosts)
	}
	var hosts []*host
	switch {
	case len(on) > 0:
		for _, name := range on {
			if h := o.byName[name]; h != nil && j.Suits.Contains(name) && j.mayUse(h) {
				hosts = append(hosts, h)
			}
		}
	case j.Suits != nil:
		for _, name := range j.Suits.Hosts {
			if h := o.byName[name]; h != nil && j.mayUse(h) {
				hosts = append(hosts, h)
			}
		}
	case j.within() != nil:
		return j.within().hosts
	default:
		return o.hosts
	}
	slices.SortFunc(hosts, func(a, b *host) int { return a.at - b.at })
	return slices.Compact(hosts)
}
