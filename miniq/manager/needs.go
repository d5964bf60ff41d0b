package manager

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Hosts have countable resources, of which a job takes some of each of its hosts as long as
// it has a run, stopped or not, and features, which any number of jobs may ask for. A feature
// may have a value: rack=r1.

// Bounds of what one job may need, and one host may have.
const (
	maxNeeds = 64
	maxUnits = 1 << 20
)

// units is what a host has of its resources, and what of them is taken.
type units struct {
	has      []backends.Amount // by name
	features []string          // by name
	taken    []int             // of each of has, by running and suspended jobs
	byRuns   []int             // by running ones alone
}

// at returns the place of a resource in has; -1: the host has none.
func (u *units) at(name string) int {
	i, found := slices.BinarySearchFunc(u.has, name, func(a backends.Amount, name string) int { return strings.Compare(a.Name, name) })
	if !found {
		return -1
	}
	return i
}

// set replaces what the host has; nothing of it is taken.
func (u *units) set(has []backends.Amount, features []string) {
	u.has, u.features = has, features
	u.taken, u.byRuns = make([]int, len(has)), make([]int, len(has))
}

// add adds to what is taken. A host may have lost a resource that a run on it took.
func (u *units) add(to []int, needs []backends.Amount, sign int) {
	for _, a := range needs {
		if i := u.at(a.Name); i >= 0 {
			to[i] += sign * a.Count
		}
	}
}

// serve reports whether the host could serve a job, were it empty. What is counted is
// a feature as well.
func (u *units) serve(needs []backends.Amount, features []string) bool {
	for _, a := range needs {
		if i := u.at(a.Name); i < 0 || u.has[i].Count < a.Count {
			return false
		}
	}
	for _, name := range features {
		if _, found := slices.BinarySearch(u.features, name); !found && u.at(name) < 0 && !u.valued(name) {
			return false
		}
	}
	return true
}

// valued reports whether the host has a feature of this name with a value.
func (u *units) valued(name string) bool {
	i, _ := slices.BinarySearch(u.features, name+"=")
	return i < len(u.features) && strings.HasPrefix(u.features[i], name+"=")
}

// left is what a host has left of its resources in one round.
type left struct {
	*units
	free []int // of each of has
}

// left returns what is left besides what is taken; nil: nothing is.
func (u *units) left(taken []int) left {
	if len(u.has) == 0 {
		return left{units: u}
	}
	l := left{u, make([]int, len(u.has))}
	for i := range l.free {
		if l.free[i] = u.has[i].Count; taken != nil {
			l.free[i] -= taken[i]
		}
	}
	return l
}

// suspended returns what suspended jobs take.
func (u *units) suspended() []int {
	all := slices.Clone(u.taken)
	for i, n := range u.byRuns {
		all[i] -= n
	}
	return all
}

// enough reports whether there is enough left.
func (l *left) enough(needs []backends.Amount) bool {
	for _, a := range needs {
		if i := l.at(a.Name); i < 0 || l.free[i] < a.Count {
			return false
		}
	}
	return true
}

// cloneRooms copies rooms to be changed.
func cloneRooms(rooms []room) []room {
	rooms = slices.Clone(rooms)
	for i := range rooms {
		rooms[i].left.free = slices.Clone(rooms[i].left.free)
	}
	return rooms
}

// asksForHosts reports whether a job asks for more of its hosts than slots and memory.
func asksForHosts(s *backends.Spec) bool {
	return len(s.Needs)+len(s.Features)+len(s.Same) > 0 || s.Select != ""
}

// wantsOf writes resources, features and conditions as one text, the same for the same ones;
// "": none.
func wantsOf(s *backends.Spec) string {
	if !asksForHosts(s) {
		return ""
	}
	var b strings.Builder
	for _, a := range s.Needs {
		b.WriteString(a.Name + "=" + strconv.Itoa(a.Count) + "\x00")
	}
	for _, name := range s.Features {
		b.WriteString(name + "\x00")
	}
	if s.Select != "" || len(s.Same) > 0 {
		b.WriteString("\x00" + s.Select + "\x00" + strings.Join(s.Same, "\x00"))
	}
	return b.String()
}

// serving returns those of some hosts (nil: of all) that could serve a job.
func (m *Manager) serving(allowed []*host, w *work) []*host {
	if allowed == nil {
		allowed = m.hosts
	}
	some := []*host{}
	for _, h := range allowed {
		if h.serve(w.spec.Needs, w.spec.Features) && w.selects.holds(h) {
			some = append(some, h)
		}
	}
	return some
}

// suits returns the hosts that a work's resources, features and condition leave to it; nil: all.
func (m *Manager) suits(w *work) *backends.HostSet {
	if w.wants == "" {
		return nil
	}
	if set, known := m.sets[w.wants]; known {
		return set
	}
	const most = 10_000 // users choose the keys
	if len(m.sets) >= most {
		clear(m.sets)
	}
	var set *backends.HostSet
	if some := m.serving(nil, w); len(some) < len(m.hosts) {
		set = m.sameSet(some)
	}
	m.sets[w.wants] = set
	return set
}

// sameSet returns the set of these hosts, the one that there is if there is one.
func (m *Manager) sameSet(hosts []*host) *backends.HostSet {
	set := &backends.HostSet{}
	for _, h := range hosts {
		set.Hosts = append(set.Hosts, h.name)
	}
	for _, other := range m.sets { // in any order: at most one is the same
		if other != nil && slices.Equal(other.Hosts, set.Hosts) {
			return other
		}
	}
	return set
}

// checkNeeds returns an error for resources, features and conditions that can't be meant, and
// puts them in order.
func checkNeeds(s *backends.Spec) error {
	if !asksForHosts(s) {
		return nil
	}
	if len(s.Needs)+len(s.Features)+len(s.Same) > maxNeeds {
		return fmt.Errorf("more than %d resources and features", maxNeeds)
	}
	s.Needs, s.Features = slices.Clone(s.Needs), unique(s.Features)
	if err := checkAmounts(s.Needs); err != nil {
		return err
	}
	slices.Sort(s.Features)
	for _, name := range s.Features {
		if !backends.IsResourceName(name) {
			return fmt.Errorf("feature %q: no host can have one of that name", name)
		}
	}
	return checkConditions(s)
}

// checkAmounts sorts a list, and returns an error for one that can't be meant.
func checkAmounts(list []backends.Amount) error {
	slices.SortFunc(list, func(a, b backends.Amount) int { return strings.Compare(a.Name, b.Name) })
	for i, a := range list {
		switch {
		case !backends.IsResourceName(a.Name):
			return fmt.Errorf("resource %q: no host can have one of that name", a.Name)
		case a.Count < 1 || a.Count > maxUnits:
			return fmt.Errorf("resource %s: %d units: ask for 1 or more", a.Name, a.Count)
		case i > 0 && list[i-1].Name == a.Name:
			return fmt.Errorf("resource %s is named twice", a.Name)
		}
	}
	return nil
}

// whyNone says why none of some hosts could serve a job.
func whyNone(hosts []*host, w *work) error {
	s := w.spec
	for _, a := range s.Needs {
		most := 0
		for _, h := range hosts {
			if i := h.at(a.Name); i >= 0 {
				most = max(most, h.has[i].Count)
			}
		}
		if most == 0 {
			return fmt.Errorf("no host has the resource %s: %s", a.Name, offered(hosts))
		}
		if most < a.Count {
			return fmt.Errorf("%s=%d: the host with most has %d: ask for less", a.Name, a.Count, most)
		}
	}
	for _, name := range s.Features {
		if !slices.ContainsFunc(hosts, func(h *host) bool { return h.serve(nil, []string{name}) }) {
			return fmt.Errorf("no host has the feature %s: %s", name, offered(hosts))
		}
	}
	all := strings.TrimSpace(backends.FormatAmounts(s.Needs) + " " + strings.Join(s.Features, " "))
	switch {
	case s.Select == "":
		return errors.New("no host has all of " + all)
	case all == "":
		return fmt.Errorf("select[%s] holds on no host: ahosts -w lists what each has", s.Select)
	}
	return fmt.Errorf("no host has all of %s where select[%s] holds: ahosts -w lists what each has", all, s.Select)
}

// offered lists what hosts have, for an error.
func offered(hosts []*host) string {
	var names []string
	for _, h := range hosts {
		for _, a := range h.has {
			names = append(names, a.Name)
		}
		for _, feature := range h.features {
			name, _, _ := strings.Cut(feature, "=")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(names) == 0:
		return "they have none"
	case len(names) > 10:
		names = append(names[:10], "…")
	}
	return "choose from: " + strings.Join(names, " ")
}
