package plan

import (
	"slices"
	"sort"

	"github.com/allotment-hpc/allotment/backends"
)

// chooseSpan finds victims for a beneficiary whose slots may lie on several of these
// hosts: over all of them, a victim's slots counted on every host that it
// frees (R17).
func (f *farm) chooseSpan(b *job, on []*host) *candidate {
	hosts := slices.DeleteFunc(slices.Clone(on), (*host).contested)
	if f.choicesFor(b).spreads() {
		return f.chooseSpread(b, hosts)
	}
	usable := map[string]bool{}
	have := 0
	var jobs []*job
	for _, h := range hosts {
		usable[h.Name] = true
		have += h.yielding().fits(b)
		for _, it := range h.victims {
			j := it.job
			if j.Hosts[0].Host == h.Name || !usable[j.Hosts[0].Host] && !slices.Contains(jobs, j) {
				jobs = append(jobs, j)
			}
		}
	}
	slices.SortFunc(jobs, leastValued)
	jobs = slices.Compact(jobs)
	need := b.Slots - have
	items := make([]item, 0, len(jobs))
	for _, j := range jobs {
		it := item{job: j, slots: j.Slots, lost: j.lost}
		for _, p := range j.Hosts {
			if usable[p.Host] {
				it.gain += p.Slots
			}
		}
		items = append(items, it)
	}
	set, cut := choose(leastOfEachSize(items, need), want{slots: need})
	if placements := f.fitSpan(b, hosts, set); set != nil && placements != nil {
		found := newCandidate(set, max(need, 0), placements)
		found.cut = cut
		return found
	}
	if b.perSlot == 0 {
		return nil
	}
	return f.spanByMemory(b, hosts, jobs, need)
}

// leastOfEachSize keeps, of the jobs that free alike, only as many as a set could
// use: the least valued ones. A better set never needs another.
func leastOfEachSize(items []item, need int) []item {
	type size struct {
		slots, gain int
		spent       bool
	}
	seen := map[size]int{}
	var kept []item
	for _, it := range items {
		s := size{it.slots, it.gain, it.job.spent}
		if it.gain == 0 || seen[s] > (max(need, 0)/it.gain+1)*2 {
			continue
		}
		seen[s]++
		kept = append(kept, it)
	}
	return kept
}

// fitSpan returns the hosts on which a job would run once the victims are gone; nil
// if it would not fit. Freed hosts come first, so that what is free elsewhere stays
// free for others.
func (f *farm) fitSpan(b *job, hosts []*host, victims []*job) []backends.Placement {
	freed := map[*host]int{}
	after := map[*host]*host{}
	for _, j := range victims {
		for _, p := range j.Hosts {
			h := f.byName[p.Host]
			if after[h] == nil {
				left := *h.yielding()
				left.freeHas = slices.Clone(left.freeHas)
				after[h] = &left
			}
			freed[h] += p.Slots
			after[h].leave(j, p, j.preempt != backends.PreemptSuspend)
		}
	}
	ordered := slices.Clone(hosts)
	slices.SortStableFunc(ordered, func(x, y *host) int { return freed[y] - freed[x] })
	offers := func(h *host) int {
		if left := after[h]; left != nil {
			return left.fits(b)
		}
		return h.yielding().fits(b)
	}
	if f.choicesFor(b).spreads() {
		return b.lay(ordered, offers)
	}
	left := b.Slots
	var placements []backends.Placement
	for _, h := range ordered {
		n := min(left, offers(h))
		if n <= 0 {
			continue
		}
		placements = append(placements, backends.Placement{Host: h.Name, Slots: n})
		if left -= n; left == 0 {
			return placements
		}
	}
	return nil
}

// spanByMemory is for the rare case that memory, not slots, decides on some host.
func (f *farm) spanByMemory(b *job, hosts []*host, jobs []*job, need int) *candidate {
	set, ok := shortest(jobs, func(set []*job) bool { return f.fitSpan(b, hosts, set) != nil })
	if !ok {
		return nil
	}
	return newCandidate(set, max(need, 0), f.fitSpan(b, hosts, set))
}

// shortest takes the shortest prefix of the least valued jobs that is enough, then drops
// every job that is not needed, the most valued first. It reports false if all jobs are not
// enough.
func shortest(jobs []*job, enough func([]*job) bool) ([]*job, bool) {
	n := sort.Search(len(jobs)+1, func(n int) bool { return enough(jobs[:n]) })
	if n > len(jobs) {
		return nil, false
	}
	return dropUnneeded(slices.Clone(jobs[:n]), enough), true
}

// dropUnneeded drops every job of a set that is not needed, the most valued first.
func dropUnneeded(set []*job, enough func([]*job) bool) []*job {
	for i := len(set) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(set), i, i+1)
		if enough(without) {
			set = without
		}
	}
	return set
}
