package plan

import (
	"github.com/allotment-hpc/allotment/backends"
)

// wantOn returns what a beneficiary lacks on a host for some of its slots.
func wantOn(h *host, b *job, slots int) want {
	w := want{slots: slots - h.free - h.soft}
	if b.Exclusive {
		w.slots = h.Slots - h.free - h.soft
	}
	if b.State == backends.Suspended {
		return w // it has its memory and resources
	}
	if h.Memory > 0 && b.Memory > 0 {
		w.memory = b.perSlot*int64(slots) - h.freeMem - h.softMem
	}
	if len(b.Needs) > 0 {
		w.needs = h.yielding().missing(b)
	}
	return w
}

// itemsFor lists the jobs that may be preempted on a host for a beneficiary, with what each
// frees of that it lacks, least valued first.
func itemsFor(h *host, b *job, w *want) []item {
	if w.needs == nil && !b.Exclusive {
		return h.leastFirst()
	}
	items := make([]item, 0, len(h.victims))
	for _, it := range h.leastFirst() {
		if !b.mayTake(it.job) {
			continue
		}
		if w.needs != nil && it.job.preempt != backends.PreemptSuspend { // which keeps its resources
			it.frees = it.job.has(b.Needs)
		}
		items = append(items, it)
	}
	return items
}

// mayTake reports whether a victim's slots are of use for a beneficiary: a suspended job
// stays on its host, which an exclusive one would not have for itself.
func (j *job) mayTake(victim *job) bool {
	return !j.Exclusive || victim.preempt != backends.PreemptSuspend
}

// affords reports whether a host is within what an exclusive beneficiary's pool has for it.
func (j *job) affords(h *host) bool { return !j.Exclusive || h.Slots <= j.budget }

// chooseSpecial finds victims for a beneficiary that asks for more of its hosts than slots
// and memory.
func (s *serving) chooseSpecial(c *choices, b *job) *candidate {
	if c.noneAt == len(s.changed) && c.noneOf >= b.budget {
		return nil
	}
	var best *candidate
	switch {
	case !c.oneHost:
		best = s.chooseSpan(b, c.hosts)
	case !c.alone:
		best = s.bestOffer(c, b)
	default:
		for _, h := range c.hosts {
			if found := chooseAllOn(h, b); found != nil && (best == nil || better(found, best) < 0) {
				best = found
			}
		}
	}
	if best == nil {
		c.noneAt, c.noneOf = len(s.changed), b.budget
	}
	return best
}

// chooseAllOn returns all jobs of a host as the victims of an exclusive beneficiary; nil if
// that would not give it the host, or its pool does not have as many slots.
func chooseAllOn(h *host, b *job) *candidate {
	if !b.affords(h) || h.contested() || h.couldOffer(b) < b.Slots {
		return nil
	}
	w := wantOn(h, b, b.Slots)
	var set []*job
	gain := 0
	for _, it := range itemsFor(h, b, &w) {
		set = append(set, it.job)
		gain += it.gain
	}
	if len(set) == 0 || gain < w.slots {
		return nil
	}
	c := newCandidate(set, w.slots, []backends.Placement{{Host: h.Name, Slots: b.Slots}})
	c.excess += w.slots
	return c
}

// slotsForWhole returns how many slots of whole hosts an exclusive job's pool has for it:
// the queue charges it for its own slots, or for all of its hosts, and the others of the
// pool must have theirs either way. The job moves to that of its pools which has most.
func (f *farm) slotsForWhole(b *job) int {
	if !b.Exclusive || b.pool == nil {
		return 0
	}
	best, most := b.pool, f.leftFor(b.pool, b)
	for _, p := range b.pools {
		if b.mem.Kept == 0 && p != b.pool && p.free(b) >= b.Slots {
			if left := f.leftFor(p, b); left > most {
				best, most = p, left
			}
		}
	}
	if best != b.pool {
		b.pool.dismiss(b)
		best.admit(b)
		if s := f.standings[best]; s != nil {
			s.busy = true
		}
	}
	return most
}

// leftFor returns what a pool's other jobs leave of its slots.
func (f *farm) leftFor(p *pool, b *job) int {
	left := p.Guarantee
	for _, m := range p.members {
		if m != b {
			left -= f.holds(m)
		}
	}
	if p.head != nil && p.head != b {
		left -= p.head.mem.Kept
	}
	return left
}

// holds returns the slots that a job of a pool keeps from others, or will. Exclusive jobs
// without hosts come after the one that asks.
func (f *farm) holds(j *job) int {
	at := j.Hosts
	if j.State != backends.Running {
		at = j.nominated
		if at == nil && j.reclaim != nil {
			at = j.reclaim.Hosts
		}
	}
	if !j.Exclusive {
		return j.Slots
	}
	return f.wholeSlots(at)
}

// wholeSlots returns all slots of some hosts.
func (f *farm) wholeSlots(at []backends.Placement) int {
	n := 0
	for _, p := range at {
		if h := f.byName[p.Host]; h != nil {
			n += h.Slots
		}
	}
	return n
}

// lacking returns how many slots a beneficiary lacks where it would run. Those of a host
// without what else it needs are of no use.
func (f *farm) lacking(b *job, at []backends.Placement) int {
	n := 0
	for _, p := range at {
		h := f.byName[p.Host].yielding()
		slots := h.slotsFor(b, p)
		if free := h.fits(b); free > 0 {
			slots = max(slots-free, 0)
		} else if b.Exclusive {
			slots -= max(h.free, 0)
		}
		n += slots
	}
	return n
}
