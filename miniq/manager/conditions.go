package manager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// selection is a job's condition on each of its hosts.
type selection struct {
	*backends.Selection       // nil: there is none, or it can't be read
	wrong               error // it can't be read: it holds on no host
}

// selectionOf reads a job's condition, which was checked when the job was submitted.
func selectionOf(s *backends.Spec) selection {
	if s.Select == "" {
		return selection{}
	}
	read, err := backends.ParseSelection(s.Select)
	return selection{read, err}
}

func (s selection) holds(h *host) bool {
	if s.wrong != nil || s.Selection == nil {
		return s.wrong == nil
	}
	return s.Holds(h.facts())
}

// facts returns what conditions are about.
func (h *host) facts() *backends.Host {
	return &backends.Host{Name: h.name, Slots: h.slots, Memory: h.memory, Has: h.has, Features: h.features}
}

// maxSame bounds the names that all hosts of a job have the same of.
const maxSame = 8

// checkConditions returns an error for conditions that can't be read.
func checkConditions(s *backends.Spec) error {
	if err := selectionOf(s).wrong; err != nil {
		return fmt.Errorf("select[%s]: %w", s.Select, err)
	}
	if s.Same = unique(s.Same); len(s.Same) > maxSame {
		return fmt.Errorf("same[]: more than %d names", maxSame)
	}
	slices.Sort(s.Same)
	for _, name := range s.Same {
		if !backends.IsResourceName(name) {
			return fmt.Errorf("same[%q]: no host can have a feature of that name", name)
		}
	}
	return nil
}

// checkNames returns an error for a condition with a name that no host has: it is mistyped.
func (m *Manager) checkNames(w *work) error {
	known := func(name string) bool {
		return slices.ContainsFunc(m.hosts, func(h *host) bool { return h.facts().HasFeature(name) })
	}
	if w.selects.Selection != nil {
		for _, name := range w.selects.Names() {
			if !known(name) {
				return fmt.Errorf("select[%s]: no host has %s: %s", w.spec.Select, name, offered(m.hosts))
			}
		}
	}
	for _, name := range w.spec.Same {
		if !backends.IsHostFact(name) && !known(name) {
			return fmt.Errorf("same[%s]: no host has %s: %s", strings.Join(w.spec.Same, ":"), name, offered(m.hosts))
		}
	}
	return nil
}

// alike parts hosts (nil: all) into those that have the same of what a job names with same[], in
// an order that is always the same. Where some have a value under a name, those without one are
// left out.
func (m *Manager) alike(hosts []*host, w *work) [][]*host {
	if hosts == nil {
		hosts = m.hosts
	}
	if len(w.spec.Same) == 0 || w.oneHost() {
		return [][]*host{hosts}
	}
	valued := make([]bool, len(w.spec.Same))
	for i, name := range w.spec.Same {
		valued[i] = slices.ContainsFunc(m.hosts, func(h *host) bool { return h.facts().Value(name) != "" })
	}
	groups := map[string][]*host{}
	for _, h := range hosts {
		facts, key := h.facts(), ""
		out := false
		for i, name := range w.spec.Same {
			value := facts.Value(name)
			out = out || valued[i] && value == ""
			key += fmt.Sprintf("%q %t ", value, facts.HasFeature(name))
		}
		if !out {
			groups[key] = append(groups[key], h)
		}
	}
	all := [][]*host{}
	for _, group := range groups {
		all = append(all, group)
	}
	slices.SortFunc(all, func(a, b []*host) int { return cmp.Compare(a[0].name, b[0].name) })
	return all
}

// unserved names what the engine does not understand of a job (R32): which of several groups of
// hosts that are alike it will run on.
func (m *Manager) unserved(w *work, asked []string) string {
	if len(w.spec.Same) == 0 || w.oneHost() {
		return ""
	}
	hosts := m.serving(m.named(asked), w)
	if groups := m.alike(hosts, w); len(groups) > 1 || len(groups) == 1 && len(groups[0]) < len(hosts) {
		return "same[" + strings.Join(w.spec.Same, ":") + "] over several hosts, which are not all alike"
	}
	return ""
}

// named returns the hosts of a list that there are; nil for an empty list: all.
func (m *Manager) named(list []string) []*host {
	if len(list) == 0 {
		return nil
	}
	hosts := []*host{}
	for _, name := range list {
		if h := m.byName[name]; h != nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
