package plan

import (
	"cmp"
	"slices"
	"sort"
)

// Bounds of the search for victims of a job whose slots lie on its hosts in a given form.
const (
	maxSpreadHosts = 64      // hosts that are searched exactly, if it needs no more than half of them
	maxSpreadSteps = 4 << 20 // of one search
)

// spread is a search for the victims of a beneficiary whose slots lie on several hosts in
// a given form, or that needs more there than slots and memory.
type spread struct {
	b    *job
	form form
	// Victims on several hosts count for each of them: in full, or with their slots there.
	// Neither is exact, so both are tried.
	byHost bool
	limit  *job // no victim is more valued; nil: any
	cut    *int // sets that were not compared

	without bool // jobs that lost too much already
}

// cost orders victims by slots, number and work lost.
type cost struct {
	slots, count int
	lost         float64
}

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.slots, d.slots), cmp.Compare(c.count, d.count), cmp.Compare(c.lost, d.lost))
}

// way is one use of one host: at most these slots, once these victims are gone.
type way struct {
	cost
	slots   int
	victims []*job
}

// chooseSpread finds victims for a beneficiary of some form: as few slots as possible,
// then by better's order (R17). It is exact for victims on one host and up to
// maxSpreadHosts; where victims lie on several hosts a set may free more than another one,
// but none of its members is superfluous.
func (f *farm) chooseSpread(b *job, hosts []*host) *candidate {
	hosts = slices.DeleteFunc(hosts, func(h *host) bool { return h.couldOffer(b) == 0 || !b.affords(h) })
	var all []*job
	wide := false
	for _, h := range hosts {
		for _, it := range h.victims {
			if b.mayTake(it.job) {
				all, wide = append(all, it.job), wide || len(it.job.Hosts) > 1
			}
		}
	}
	slices.SortFunc(all, leastValued)
	all = slices.Compact(all)
	enough := func(set []*job) bool { return f.fitSpan(b, hosts, set) != nil }
	rest := slices.DeleteFunc(slices.Clone(all), func(j *job) bool { return j.spent })
	without := len(rest) < len(all) && enough(rest) // so no job that lost too much already is needed (R35)
	if without {
		all = rest
	}
	var found *candidate
	consider := func(set []*job, ok bool) {
		if !ok {
			return
		}
		set = dropUnneeded(set, enough)
		at := f.fitSpan(b, hosts, set)
		if at == nil || b.Exclusive && f.wholeSlots(at) > b.budget {
			return // without hosts, its victims would leave for nothing
		}
		s := newCandidate(set, f.lacking(b, at), at)
		s.excess += s.need
		if found == nil || better(s, found) < 0 {
			found = s
		}
	}
	if !enough(all) {
		return nil
	}
	few, cut := f.promising(b, hosts), 0
	consider(spread{b: b, form: b.form(), cut: &cut, without: without}.least(few, all))
	if wide {
		consider(spread{b: b, form: b.form(), cut: &cut, without: without, byHost: true}.least(few, all))
	}
	if found == nil || wide {
		consider(shortest(all, enough))
	}
	if found != nil {
		found.cut = cut
	}
	return found
}

// least returns the victims of a cheapest placement whose most valued member is least, and
// whether there is one.
func (s spread) least(hosts []*host, all []*job) ([]*job, bool) {
	best := s.search(hosts)
	if best == nil {
		return nil, false
	}
	total := best.slots
	prefix := sort.Search(len(all), func(n int) bool {
		s.limit = all[n]
		found := s.search(hosts)
		return found != nil && found.slots == total
	})
	if prefix < len(all) {
		s.limit = all[prefix]
		best = s.search(hosts)
	}
	var set []*job
	for ; best != nil; best = best.rest {
		set = append(set, best.way.victims...)
	}
	slices.SortFunc(set, leastValued)
	return slices.Compact(set), true
}

// chain is a partial placement: a way on one host, and those of rest.
type chain struct {
	cost
	way  *way
	rest *chain
}

// search returns the cheapest placement, as its ways, or nil. Hosts come one after the other;
// of all the placements with as many hosts and slots so far, the cheapest is kept.
func (s spread) search(hosts []*host) *chain {
	m := s.form
	units, most := m.slots/m.unit, min(m.most, m.slots/m.unit, len(hosts))
	if m.most > units {
		most = min(most, m.least) // more hosts than that need not be told apart
	}
	table := make([]*chain, (most+1)*(units+1))
	table[0] = &chain{way: &way{}}
	saturates := m.most > units
	steps := 0
	for _, h := range hosts {
		ways := s.ways(h)
		if steps += len(ways) * len(table); steps > maxSpreadSteps {
			return nil
		}
		for at := len(table) - 1; at >= 0; at-- {
			from := table[at]
			if from == nil || at%(units+1) == units && saturates && at/(units+1) == most {
				continue
			}
			for i := range ways {
				w := &ways[i]
				k := at/(units+1) + 1
				if k > most && !saturates {
					break
				}
				to := min(k, most)*(units+1) + min(at%(units+1)+w.slots/m.unit, units)
				next := cost{from.slots + w.cost.slots, from.count + w.count, from.lost + w.lost}
				if to != at && (table[to] == nil || next.compare(table[to].cost) < 0) {
					table[to] = &chain{cost: next, way: w, rest: from}
				}
			}
		}
	}
	var best *chain
	for k := m.least; k <= most; k++ {
		if c := table[k*(units+1)+units]; c != nil && (best == nil || c.compare(best.cost) < 0) {
			best = c
		}
	}
	return best
}

// ways lists the uses of a host: of those that cost the same, the one with most slots.
func (s spread) ways(h *host) []way {
	top := s.form.portion(h.couldOffer(s.b))
	amounts := []int{top}
	switch {
	case s.b.Exclusive:
	case s.form.perHost > 0:
		amounts = []int{s.form.smallest(), top}
	default:
		amounts = amounts[:0]
		for n := s.form.unit; n <= top; n += s.form.unit {
			amounts = append(amounts, n)
		}
	}
	var t *table
	var ways []way
	for i, n := range amounts {
		if n <= 0 || n > top || i > 0 && n == amounts[i-1] {
			continue
		}
		w := wantOn(h, s.b, n)
		var victims []*job
		if !w.nothing() {
			if t == nil {
				t = s.tableFor(h, top)
			}
			var ok bool
			if victims, ok = t.bestOf(w); !ok {
				victims = jobsOf(greedySet(t.items, w))
			}
			if len(victims) == 0 {
				break
			}
		}
		next := way{slots: n, victims: victims}
		for _, j := range victims {
			next.cost.slots += s.slotsOf(j, h)
			next.count++
			next.lost += j.lost
		}
		if last := len(ways) - 1; last >= 0 && ways[last].compare(next.cost) == 0 {
			ways[last] = next
		} else {
			ways = append(ways, next)
		}
	}
	return ways
}

// tableFor returns the sets of a host's jobs that could free some of so many slots.
func (s spread) tableFor(h *host, slots int) *table {
	w := wantOn(h, s.b, slots)
	items := s.items(h, &w)
	most := bound(items, w)
	if enough := greedySet(items, w); enough != nil {
		most = totalOf(enough) // that is enough for fewer slots, too
	}
	t := newTable(items, w, most)
	t.detailed, t.spent = true, len(items)
	for i := range items {
		t.include(&items[i])
	}
	*s.cut += t.cut
	return t
}

func (s spread) slotsOf(j *job, h *host) int {
	if s.byHost {
		return slotsOn(j, h.Name)
	}
	return j.Slots
}

func (s spread) items(h *host, w *want) []item {
	items := itemsFor(h, s.b, w)
	if s.limit != nil {
		items = slices.DeleteFunc(slices.Clone(items), func(it item) bool { return leastValued(it.job, s.limit) > 0 })
	}
	if s.without {
		items = slices.DeleteFunc(slices.Clone(items), func(it item) bool { return it.job.spent })
	}
	if s.byHost {
		items = slices.Clone(items)
		for i := range items {
			items[i].slots = items[i].gain
		}
	}
	return items
}

// promising returns the hosts that are searched: all, or where victims are many those
// where the least or the most that the job can take there costs least.
func (f *farm) promising(b *job, hosts []*host) []*host {
	m := b.form()
	enough := max(maxSpreadHosts, 2*min(m.least, len(hosts)))
	if len(hosts) <= enough {
		return hosts
	}
	keep := map[*host]bool{}
	for _, least := range []bool{true, false} {
		type priced struct {
			host *host
			lack int
			last *job
		}
		var all []priced
		for _, h := range hosts {
			n := m.portion(h.couldOffer(b))
			if least && !b.Exclusive {
				n = min(n, m.smallest())
			}
			w := wantOn(h, b, n)
			if last, ok := lastNeeded(itemsFor(h, b, &w), w); ok {
				all = append(all, priced{h, max(w.slots, 0), last})
			}
		}
		slices.SortStableFunc(all, func(x, y priced) int {
			c := cmp.Compare(x.lack, y.lack)
			if c == 0 && x.last != nil && y.last != nil {
				c = leastValued(x.last, y.last)
			}
			return c
		})
		for _, p := range all[:min(len(all), enough)] {
			keep[p.host] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool { return !keep[h] })
}

// lastNeeded returns the most valued job of the least valued ones that together free what
// is wanted, nil if nothing is, and whether they are enough.
func lastNeeded(items []item, w want) (*job, bool) {
	var last *job
	s := partial{needs: make([]int, len(w.needs))}
	for i := 0; !s.gives(w); i++ {
		if i == len(items) {
			return nil, false
		}
		it := &items[i]
		last = it.job
		s.gain += it.gain
		s.memory += it.memory
		for k, n := range it.frees {
			s.needs[k] += n
		}
	}
	return last, true
}
