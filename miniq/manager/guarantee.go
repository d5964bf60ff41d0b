package manager

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// maxGuarantees bounds the list of one Guarantee: there is one for each set of hosts.
const maxGuarantees = 10_000

// guarantee is what is guaranteed of some hosts.
type guarantee struct {
	backends.Guaranteed
	on map[string]bool // by host; nil: all
}

func (g *guarantee) covers(host string) bool { return g.on == nil || g.on[host] }

func (m *Manager) guarantee(e Guarantee) error {
	switch {
	case !e.By.Admin:
		return fmt.Errorf("guarantee slots: %w: only an administrator can", backends.ErrDenied)
	case len(e.Guaranteed) > maxGuarantees:
		return fmt.Errorf("guarantee slots: more than %d sets of hosts", maxGuarantees)
	}
	for _, g := range e.Guaranteed {
		if g.Slots < 0 {
			return fmt.Errorf("guarantee slots: %d slots", g.Slots)
		}
	}
	m.setGuaranteed(e.Guaranteed)
	m.dropGuarantees()
	m.retry = true
	return nil
}

func (m *Manager) setGuaranteed(all []backends.Guaranteed) {
	m.guaranteed = nil
	for _, one := range all {
		one.Hosts, one.Until = slices.Clone(one.Hosts), jsonTime(one.Until)
		g := guarantee{Guaranteed: one}
		if len(one.Hosts) > 0 {
			g.on = make(map[string]bool, len(one.Hosts))
			for _, name := range one.Hosts {
				g.on[name] = true
			}
		}
		m.guaranteed = append(m.guaranteed, g)
	}
}

// dropGuarantees drops what no longer counts.
func (m *Manager) dropGuarantees() {
	before := len(m.guaranteed)
	m.guaranteed = slices.DeleteFunc(m.guaranteed, func(g guarantee) bool { return !g.Until.After(m.now) })
	m.retry = m.retry || len(m.guaranteed) < before
}

func (m *Manager) nextGuaranteeEnd() time.Time {
	var next time.Time
	for _, g := range m.guaranteed {
		if next.IsZero() || g.Until.Before(next) {
			next = g.Until
		}
	}
	return next
}

// Guaranteed returns what is guaranteed.
func (m *Manager) Guaranteed(now time.Time) []backends.Guaranteed {
	var all []backends.Guaranteed
	for _, g := range m.guaranteed {
		if g.Until.After(now) {
			all = append(all, g.Guaranteed)
		}
	}
	return all
}

// spares are how many slots are left to jobs of no pool beside what is guaranteed.
type spares struct {
	of  []int // the hosts of each guarantee
	all int   // the farm
}

// spares finds them once a round.
func (r *round) spares() *spares {
	if r.spare != nil {
		return r.spare
	}
	r.spare = &spares{of: make([]int, len(r.guaranteed))}
	for _, h := range r.hosts {
		if !h.takes() {
			continue
		}
		r.spare.all += h.slots
		for i := range r.guaranteed {
			if r.guaranteed[i].covers(h.name) {
				r.spare.of[i] += h.slots
			}
		}
	}
	for i, g := range r.guaranteed {
		r.spare.all -= min(g.Slots, r.spare.of[i])
		r.spare.of[i] -= g.Slots
	}
	return r.spare
}

// fitsBeside reports whether a job may keep these slots: one below LevelPBA only beside what
// is guaranteed on their hosts, since jobs of pools, which go before it, may have that at any
// time, and a reservation that can't come true lets hosts stand idle (R37).
func (r *round) fitsBeside(e entry, placed []backends.Placement) bool {
	if e.priority.Level() >= backends.LevelPBA {
		return true
	}
	for i := range r.guaranteed {
		n := 0
		for _, p := range placed {
			if !r.guaranteed[i].covers(p.Host) {
				continue
			}
			if h := r.byName[p.Host]; h != nil && e.shape.key.exclusive {
				n += h.slots
			} else {
				n += p.Slots
			}
		}
		if n > 0 && n > r.spares().of[i] {
			return false
		}
	}
	return true
}
