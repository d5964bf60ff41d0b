package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// form is how a job's slots may lie on its hosts.
type form struct {
	slots       int
	least, most int // hosts
	unit        int // slots on a host are a multiple of it
	perHost     int // slots on each host, the last one may have fewer; 0: as they come
}

func (j *job) form() form {
	m := form{slots: j.Slots, least: max(j.MinHosts, 1), most: j.MaxHosts, unit: max(j.Unit, 1), perHost: j.PerHost}
	switch {
	case j.oneHost():
		m.most, m.unit, m.perHost = 1, max(j.Slots, 1), 0
	case m.most <= 0:
		m.most = math.MaxInt
	}
	if m.perHost > 0 {
		hosts := (m.slots + m.perHost - 1) / m.perHost
		m.least, m.most = max(m.least, hosts), min(m.most, hosts)
	}
	return m
}

// possible reports whether any hosts at all could meet it.
func (m *form) possible() bool {
	return m.least <= m.most && m.slots%m.unit == 0 && m.perHost%m.unit == 0 && m.least <= m.slots/m.unit
}

// last returns the slots of the last host where each one has a given number.
func (m *form) last() int { return m.slots - (m.least-1)*m.perHost }

// smallest returns the fewest slots that it may have on a host.
func (m *form) smallest() int {
	if m.perHost > 0 {
		return m.last()
	}
	return m.unit
}

// portion returns how many slots a job would take of a host that offers n.
func (m *form) portion(n int) int {
	switch {
	case m.perHost > 0 && n >= m.perHost:
		return m.perHost
	case m.perHost > 0 && n < m.last():
		return 0
	case m.perHost > 0:
		return m.last()
	}
	return min(n, m.slots-(m.least-1)*m.unit) / m.unit * m.unit
}

// offered is a host with the slots that a job may take there at most.
type offered struct {
	host  *host
	slots int
}

// lay places a job on the first of these hosts, given how many of its slots each one
// offers; if these are more hosts than it may have, on those that offer most. It returns
// nil if its slots can't lie on these hosts in its form.
func (j *job) lay(hosts []*host, offers func(*host) int) []backends.Placement {
	m := j.form()
	if !m.possible() {
		return nil
	}
	var parts []offered
	for _, h := range hosts {
		if n := m.portion(offers(h)); n > 0 {
			parts = append(parts, offered{h, n})
		}
	}
	most := func(a, b offered) int { return b.slots - a.slots }
	chosen := m.first(parts)
	if chosen == nil {
		slices.SortStableFunc(parts, most)
		if chosen = m.first(parts); chosen == nil {
			return nil
		}
	}
	if m.perHost > 0 {
		slices.SortStableFunc(chosen, most) // the last one may have fewer
	}
	left := m.slots
	var at []backends.Placement
	for i, p := range chosen {
		n := min(p.slots, left-m.unit*(len(chosen)-1-i))
		at = append(at, backends.Placement{Host: p.host.Name, Slots: n})
		left -= n
	}
	return at
}

// first returns as many of the first parts as it takes, or nil.
func (m *form) first(parts []offered) []offered {
	sum := 0
	for i, p := range parts {
		if i >= m.most {
			return nil
		}
		if sum += p.slots; sum >= m.slots && i+1 >= m.least {
			return slices.Clone(parts[:i+1])
		}
	}
	return nil
}

// specialOf returns what a job asks for of its hosts beside slots and memory, as a text
// that is the same for jobs that ask for the same; "": nothing.
func specialOf(j *job) string {
	if j.MinHosts <= 1 && len(j.Needs) == 0 && (j.oneHost() || j.MaxHosts <= 0 && j.PerHost <= 0 && j.Unit <= 1) {
		return ""
	}
	var text strings.Builder
	fmt.Fprint(&text, j.form())
	for _, need := range j.Needs {
		fmt.Fprintf(&text, " %d %s\x00", need.Count, need.Name)
	}
	return text.String()
}

// checkEver finds out whether the managed hosts could ever hold jobs of a shape, those
// that are not up included, and how many slots such a job takes if it is exclusive.
func (f *farm) checkEver(c *choices, j *job) {
	if c.plain() && j.Suits == nil || j.State == backends.Suspended {
		return
	}
	all := f.everyHost().suitable(j)
	if c.never = j.whyNever(all); c.never != "" || !c.alone {
		return
	}
	var whole []int
	for _, h := range all {
		if m := j.form(); m.portion(h.couldOffer(j)) > 0 {
			whole = append(whole, h.Slots)
		}
	}
	slices.Sort(whole)
	for _, n := range whole[:j.form().least] {
		c.whole += n
	}
}

// couldLieOn reports whether the hosts of a part could ever hold a job in its form.
func (f *farm) couldLieOn(p *part, j *job) bool {
	if specialOf(j) == "" {
		return true
	}
	hosts := slices.DeleteFunc(slices.Clone(f.everyHost().suitable(j)), func(h *host) bool { return f.partWith(h.Name) != p })
	return j.whyNever(hosts) == ""
}

// everyHost returns the managed hosts, whatever their state, as they are without jobs.
func (f *farm) everyHost() *occupancy {
	if f.empty == nil {
		all := backends.Snapshot{Hosts: slices.Clone(f.state.Farm.Hosts)}
		for i := range all.Hosts {
			all.Hosts[i].State = backends.HostUp
		}
		o := newOccupancy(&all, f.policy.Hosts)
		f.empty = &o
	}
	return f.empty
}

// whyNever returns why a job could not run on these hosts if they were empty; "" if it
// could.
func (j *job) whyNever(hosts []*host) string {
	if len(hosts) == 0 {
		return "no managed host suits it"
	}
	for _, need := range j.Needs {
		has := func(h *host) bool {
			return h.offers(h.freeHas, &job{Job: &backends.Job{Needs: []backends.Amount{need}}})
		}
		if !slices.ContainsFunc(hosts, has) {
			return fmt.Sprintf("it needs %d %s on a host, and no managed host that suits it has as many", need.Count, need.Name)
		}
	}
	if m := j.form(); m.least > len(hosts) {
		return fmt.Sprintf("it needs %d hosts, and only %d managed ones suit it", m.least, len(hosts))
	}
	if j.lay(hosts, func(h *host) int { return h.couldOffer(j) }) == nil {
		return "the managed hosts that suit it can't hold it in the form that it asks for, even if they were empty"
	}
	return ""
}

// fitEver leaves a waiting job out of its pools if no managed hosts could ever hold it, and
// out of those that have fewer slots than the hosts that it would have for itself.
func (f *farm) fitEver(j *job) {
	switch c := f.choicesFor(j); {
	case c.never != "":
		j.entitled, j.pools = false, nil
	case c.whole > j.Slots:
		j.pools = fittingPools(j.pools, c.whole)
		j.entitled = len(j.pools) > 0
	}
}
