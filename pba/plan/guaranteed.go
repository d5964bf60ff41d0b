package plan

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// guaranteedFor is how long guarantees count in the queue after a cycle saw jobs of their
// pools. Where none comes for so long, normal jobs may have all slots kept for them.
const guaranteedFor = 24 * time.Hour

// sendGuaranteed decides what the queue is sent of the guarantees: it keeps no such slots for
// normal jobs that wait too long (R37): all slots of the pools on each part of the farm, as long as
// jobs of one of them came within a day. It is renewed when half of that is over, and
// the queue forgets it if the engine is gone.
func (b *books) sendGuaranteed() {
	if b.state.Abilities.Guarantee == nil {
		return
	}
	now := b.state.Farm.Guaranteed
	var want []backends.Guaranteed
	for _, p := range b.partsOfFarm() {
		if p != nil && len(p.all) == 0 {
			continue
		}
		slots, lively := 0, false
		for _, pool := range b.pools {
			if pool.part == p {
				slots += max(pool.Guarantee, 0)
				lively = lively || pool.sends()
			}
		}
		g := backends.Guaranteed{Slots: slots, Hosts: b.namesOf(p)}
		if i := slices.IndexFunc(now, func(old backends.Guaranteed) bool { return slices.Equal(old.Hosts, g.Hosts) }); i >= 0 {
			g.Until = now[i].Until
		}
		if lively && g.Until.Sub(b.now) <= guaranteedFor/2 {
			g.Until = b.now.Add(guaranteedFor)
		}
		if slots > 0 && g.Until.After(b.now) {
			want = append(want, g)
		}
	}
	if !slices.EqualFunc(want, now, sameGuaranteed) {
		b.plan.Guaranteed, b.plan.SendGuaranteed = want, true
	}
}

// sends reports whether a pool has jobs that run or wait.
func (p *pool) sends() bool {
	return p.Guarantee > 0 && (len(p.members) > 0 || p.head != nil || p.waiting > 0)
}

func sameGuaranteed(x, y backends.Guaranteed) bool {
	return x.Slots == y.Slots && slices.Equal(x.Hosts, y.Hosts) && x.Until.Equal(y.Until)
}

// RenewGuaranteed returns when a plan may send the queue guarantees anew although nothing
// happened since a snapshot; zero: never.
func RenewGuaranteed(all []backends.Guaranteed, now time.Time) time.Time {
	var next time.Time
	for _, g := range all {
		if at := g.Until.Add(-guaranteedFor / 2); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// partsOfFarm lists the hosts in no set, which are all hosts if there are no sets (nil), and
// those of each set.
func (f *farm) partsOfFarm() []*part {
	all := []*part{f.rest}
	if f.rest != nil {
		for _, set := range f.policy.HostSets {
			all = append(all, f.parts[set.Name])
		}
	}
	return all
}

// namesOf lists the hosts of a part, up or not, by name; nil: all that the queue has.
func (f *farm) namesOf(p *part) []string {
	if p == nil {
		return slices.Sorted(slices.Values(f.policy.Hosts))
	}
	var all []string
	for _, h := range p.all {
		all = append(all, h.Name)
	}
	slices.Sort(all)
	return all
}
