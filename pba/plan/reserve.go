package plan

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// reserve keeps what comes free on a beneficiary's best hosts from lower-ranked jobs,
// as no job can be preempted for it now (R15): else short jobs under min_runtime keep
// a wide one out for ever.
func (s *serving) reserve(b *job, hosts []string) {
	if len(hosts) == 0 {
		return
	}
	s.setAside(b, hosts)
	s.reserveOn(b, hosts, "no job can be preempted for it now: slots that come free there are reserved for it")
}

// outbid withdraws what was nominated or set aside, on hosts that a job is about to
// reserve, for jobs that rank below it: the queue would not start them there. It
// reports whether there was anything.
func (s *serving) outbid(b *job, hosts []string) (some bool) {
	if len(hosts) == 0 {
		return false
	}
	for _, w := range s.resting {
		switch {
		case w == b, w.nominated == nil && w.aside == nil:
			continue
		case beforeInQueue(w, b) < 0, !onAny(w.nominated, hosts) && !onAny(w.aside, hosts):
			continue
		}
		some = true
		s.releaseAside(w)
		s.withdrawFrom(w)
		s.waiting.stale = true
		if w.nominated != nil && w.turn && !slices.Contains(s.outbids, w) {
			s.outbids = append(s.outbids, w)
		}
		w.nominated = nil
	}
	return some
}

// reserveOn reserves hosts for a beneficiary, unless it does so already: what it needs
// does not come free at one instant, and a queue passes over what does not fit.
func (s *serving) reserveOn(b *job, hosts []string, why string) {
	if !s.reserves(b) {
		return
	}
	b.reserving = true
	if slices.Equal(hosts, b.mem.Reserved) && b.mem.ReservedUntil.Sub(s.now) > s.policy.HoldLimit/2 {
		return
	}
	b.mem.Reserved, b.mem.ReservedUntil = hosts, s.now.Add(s.policy.HoldLimit)
	s.acts.add(stageReserve, Action{Verb: Reserve, Job: b.ID, For: b.ID, Hosts: hosts, Until: b.mem.ReservedUntil, Reason: why})
}

// reserves reports whether a reservation would have an effect for a beneficiary.
func (s *serving) reserves(b *job) bool {
	return s.state.Abilities.Reserve != nil && b.State != backends.Suspended && !s.small(b)
}

// small reports whether a job fits any slot that comes free: no job that ranks below
// it can keep it out, so it needs no reservation.
func (s *serving) small(b *job) bool {
	c := s.choicesFor(b)
	return b.Slots <= 1 && b.Memory <= c.share && c.plain()
}

// setAside nominates for a job what is free on hosts that are reserved for it, so that no
// lower-ranked job counts on it. Before the job's turn, an earlier beneficiary may have it
// (see yield); after it, no slots are preempted there for another job (see contested).
func (s *serving) setAside(b *job, hosts []string) {
	left := b.Slots
	for _, name := range hosts {
		h := s.byName[name]
		if h == nil {
			continue
		}
		n := min(left, max(h.free, 0))
		if b.Exclusive {
			n = max(h.free, 0)
		}
		if n > 0 {
			b.aside = append(b.aside, backends.Placement{Host: name, Slots: n})
			left -= n
		}
	}
	for _, p := range b.aside {
		h := s.byName[p.Host]
		h.assign(b, p, p.Slots)
		s.recordChange(h)
	}
	s.countAside(b, 1)
	if !b.turn && len(b.aside) > 0 {
		s.soft = append(s.soft, b)
	}
}

func (s *serving) countAside(b *job, sign int) {
	for _, p := range b.aside {
		h := s.byName[p.Host]
		if b.turn {
			h.aside += sign * p.Slots
			continue
		}
		h.soft += sign * p.Slots
		h.softMem += int64(sign) * b.memoryFor(p)
		if b.State != backends.Suspended {
			h.addNeeds(h.softHas, b, sign)
		}
	}
}

// yield releases what is set aside on hosts for jobs whose turn has not come: an earlier
// beneficiary needs it.
func (s *serving) yield(hosts []backends.Placement) {
	for _, p := range hosts {
		for s.byName[p.Host].soft > 0 {
			i := slices.IndexFunc(s.soft, func(w *job) bool {
				return slices.ContainsFunc(w.aside, func(q backends.Placement) bool { return q.Host == p.Host })
			})
			s.releaseAside(s.soft[i])
		}
	}
}

// releaseAside undoes setAside.
func (s *serving) releaseAside(b *job) {
	if len(b.aside) == 0 {
		return
	}
	s.countAside(b, -1)
	for _, p := range b.aside {
		h := s.byName[p.Host]
		h.unassign(b, p, p.Slots)
		s.recordFreed(h)
	}
	s.waiting.stale = true
	if !b.turn {
		s.soft = slices.DeleteFunc(s.soft, func(w *job) bool { return w == b })
	}
	b.aside = nil
}

// reservable returns the hosts that a beneficiary should wait for: those that it
// reserves already, then those that lack least, then by name. Memory that suspended
// jobs hold does not count: the jobs could wait for each other for ever.
func (s *serving) reservable(b *job) []string {
	if !s.reserves(b) {
		return nil
	}
	var hosts []*host
	for _, h := range s.suitable(b) {
		if n := h.couldOffer(b); (n >= b.Slots || n > 0 && !b.oneHost()) && b.affords(h) {
			hosts = append(hosts, h)
		}
	}
	slices.SortStableFunc(hosts, func(x, y *host) int {
		if xr, yr := slices.Contains(b.mem.Reserved, x.Name), slices.Contains(b.mem.Reserved, y.Name); xr != yr {
			if xr {
				return -1
			}
			return 1
		}
		return y.free - x.free
	})
	if s.choicesFor(b).spreads() {
		return names(b.lay(hosts, func(h *host) int { return h.couldOffer(b) }))
	}
	left := b.Slots
	var chosen []string
	for _, h := range hosts {
		chosen = append(chosen, h.Name)
		if left -= h.couldOffer(b); left <= 0 {
			return chosen
		}
	}
	return nil
}

// lower writes the lower ranks of jobs that reserved hosts, unless slots are preempted
// for them anew.
func (s *serving) lower() {
	for _, j := range s.lowered {
		if j.reclaim == nil {
			s.acts.add(stageRelease, Action{Verb: Rank, Job: j.ID, Priority: j.computed, Reason: j.lowered})
			s.write(j, j.computed, j.lowered)
		}
	}
}

// moveReservations keeps, until all else is done, the hosts that a job's reservation leaves where
// another job reserves them later in this plan: between the two acts the queue would start lower jobs
// there.
func (f *farm) moveReservations() {
	var all []*Action
	last := map[string]int{} // the last one that names a host
	for _, parts := range f.acts {
		for _, part := range parts {
			for i := range part {
				if a := &part[i]; a.Verb == Reserve {
					for _, h := range a.Hosts {
						last[h] = len(all)
					}
					all = append(all, a)
				}
			}
		}
	}
	for n, a := range all {
		old := f.state.Memory.Jobs[a.Job]
		if !f.now.Before(old.ReservedUntil) {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(old.Reserved), func(h string) bool { return last[h] <= n || slices.Contains(a.Hosts, h) })
		if len(left) > 0 {
			f.acts.add(stageLast, *a)
			a.Hosts, a.Reason = slices.Concat(a.Hosts, left), "its reservation moves: where it was, another job's follows"
		}
	}
}

// unreserve removes the reservations that are not needed any more.
func (f *farm) unreserve() {
	for _, j := range f.jobs {
		if len(j.mem.Reserved) == 0 || j.reserving || j.reclaim != nil {
			continue
		}
		if j.State == backends.Pending && f.state.Abilities.Reserve != nil && f.now.Before(j.mem.ReservedUntil) {
			f.acts.add(stageLast, Action{Verb: Unreserve, Job: j.ID, Hosts: j.mem.Reserved, Reason: "it does not need its reservation any more"})
		}
		j.mem.Reserved, j.mem.ReservedUntil = nil, time.Time{}
	}
}
