package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// candidate is a set of victims that would serve a beneficiary.
type candidate struct {
	hosts   []backends.Placement // where the beneficiary would run
	victims []*job               // least valued first
	need    int                  // slots that the beneficiary lacks
	excess  int                  // slots freed beyond the need; in all for a job that is not plain: what it lacks is not the same everywhere
	lost    float64              // slot-seconds of work
}

// want is what must be freed: slots, memory in bytes, and units of each of the resources
// that the beneficiary names (0 or less: enough).
type want struct {
	slots  int
	memory int64
	needs  []int // nil: enough of each
}

// nothing reports whether there is enough of all.
func (w *want) nothing() bool { return w.slots <= 0 && w.memory <= 0 && w.needs == nil }

// item is one job that may be preempted, with what that would free.
type item struct {
	job    *job
	slots  int   // in all
	gain   int   // slots where the beneficiary can use them
	memory int64 // bytes there; a suspended job keeps its memory
	frees  []int // units there of what want.needs is about; nil: none
	lost   float64
}

// better orders candidate sets (R17): slots beyond the need; their most valued
// member; number of jobs; slot-seconds lost; IDs. Negative: a before b.
func better(a, b *candidate) int {
	if c := cmp.Compare(a.excess, b.excess); c != 0 {
		return c
	}
	if c := compareMostValued(a.victims, b.victims); c != 0 {
		return c
	}
	if c := cmp.Compare(len(a.victims), len(b.victims)); c != 0 {
		return c
	}
	if c := cmp.Compare(a.lost, b.lost); c != 0 {
		return c
	}
	if c := slices.CompareFunc(a.victims, b.victims, func(x, y *job) int { return y.ID.Compare(x.ID) }); c != 0 {
		return c
	}
	return slices.CompareFunc(a.hosts, b.hosts, func(x, y backends.Placement) int { return strings.Compare(x.Host, y.Host) })
}

func compareMostValued(a, b []*job) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(a), len(b))
	}
	return leastValued(a[len(a)-1], b[len(b)-1])
}

// choose finds the best set among items, which stand least valued first: the
// fewest slots freed in all that free what is wanted, then the order of better.
// It returns nil if all of them together are not enough.
//
// It is a subset sum over the slots freed; where memory or jobs over several
// hosts matter, each sum keeps the sets that no other one beats in everything.
func choose(items []item, w want) []*job {
	total := smallest(items, w)
	if total < 0 || len(items) == 0 {
		return nil
	}
	// The shortest prefix that still reaches that total keeps the value of the most
	// valued member least.
	few, many := 1, len(items)
	for few < many {
		middle := (few + many) / 2
		if got := smallest(items[:middle], w); got == total {
			many = middle
		} else {
			few = middle + 1
		}
	}
	return best(items[:few], w, total)
}

// partial is a set of victims: last, and those of rest. Of one total of freed slots
// only the sets are kept that no other one covers.
type partial struct {
	gain   int
	memory int64
	needs  []int // nil if want.needs is
	count  int
	lost   float64
	last   *item
	rest   *partial
}

// smallest returns the least number of slots whose freeing gives what is wanted, or −1.
func smallest(items []item, w want) int { return leastTotal(fill(items, w, false), w) }

// leastTotal returns the least total of a table with a set that gives what is wanted, or −1.
func leastTotal(table [][]*partial, w want) int {
	return slices.IndexFunc(table, func(sets []*partial) bool {
		return slices.ContainsFunc(sets, func(s *partial) bool { return s.gives(w) })
	})
}

// gives reports whether a set frees what is wanted.
func (s *partial) gives(w want) bool {
	return s.gain >= w.slots && s.memory >= w.memory && reaches(s.needs, w.needs)
}

// best returns the set of that total with the fewest jobs, then the least work
// lost, then the highest IDs.
func best(items []item, w want, total int) []*job {
	return bestOf(fill(items, w, true)[total], items, w)
}

// bestOf is best among sets of one total.
func bestOf(sets []*partial, items []item, w want) []*job {
	var winner *partial
	var jobs []*job
	for _, s := range sets {
		if !s.gives(w) {
			continue
		}
		if winner != nil {
			c := cmp.Compare(s.count, winner.count)
			if c == 0 {
				c = cmp.Compare(s.lost, winner.lost)
			}
			if c == 0 {
				c = slices.CompareFunc(s.jobs(items), jobs, func(x, y *job) int { return y.ID.Compare(x.ID) })
			}
			if c >= 0 {
				continue
			}
		}
		winner, jobs = s, s.jobs(items)
	}
	return jobs
}

// jobs lists a partial set in the order of items.
func (s *partial) jobs(items []item) []*job {
	chosen := map[*item]bool{}
	for ; s != nil && s.last != nil; s = s.rest {
		chosen[s.last] = true
	}
	var jobs []*job
	for i := range items {
		if chosen[&items[i]] {
			jobs = append(jobs, items[i].job)
		}
	}
	return jobs
}

// fill builds the table of partial sets by the slots that they free in all. The
// table ends where a set must hold a job that it does not need.
func fill(items []item, w want, detailed bool) [][]*partial {
	limit := bound(items, w)
	table := make([][]*partial, limit+1)
	table[0] = []*partial{{}}
	for i := range items {
		it := &items[i]
		for total := limit - it.slots; total >= 0; total-- {
			for _, s := range table[total] {
				next := partial{
					gain:   min(s.gain+it.gain, max(w.slots, 0)),
					memory: min(s.memory+it.memory, max(w.memory, 0)),
					count:  s.count + 1,
					lost:   s.lost + it.lost,
					last:   it,
					rest:   s,
				}
				if w.needs != nil {
					next.needs = addUpTo(s.needs, it.frees, w.needs)
				}
				table[total+it.slots] = add(table[total+it.slots], &next, detailed)
			}
		}
	}
	return table
}

// bound returns a total that no set without a superfluous member exceeds.
func bound(items []item, w want) int {
	sum, largest := 0, 0
	plain := w.memory <= 0
	members := 0 // that a set may have for resources alone
	for _, n := range w.needs {
		members += max(n, 0)
	}
	for _, it := range items {
		sum += it.slots
		largest = max(largest, it.slots)
		plain = plain && it.gain == it.slots
	}
	if plain {
		return min(sum, max(w.slots, 0)+(1+members)*largest)
	}
	return sum
}

// covers reports whether a partial set does all that another does, at no more cost.
func (s *partial) covers(b *partial, detailed bool) bool {
	return s.gain >= b.gain && s.memory >= b.memory && reaches(s.needs, b.needs) &&
		(!detailed || s.count < b.count || s.count == b.count && s.lost <= b.lost)
}

// reaches reports whether none of these amounts is less than the other one.
func reaches(a, b []int) bool {
	for i, n := range b {
		if n > 0 && (i >= len(a) || a[i] < n) {
			return false
		}
	}
	return true
}

// addUpTo adds amounts, none beyond its limit.
func addUpTo(a, b, limits []int) []int {
	sum := make([]int, len(limits))
	for i, most := range limits {
		if i < len(a) {
			sum[i] = a[i]
		}
		if i < len(b) {
			sum[i] += b[i]
		}
		sum[i] = min(sum[i], max(most, 0))
	}
	return sum
}

// add keeps only the sets of one total that no other one covers.
func add(sets []*partial, next *partial, detailed bool) []*partial {
	for _, s := range sets {
		if s.covers(next, detailed) {
			return sets
		}
	}
	kept := slices.DeleteFunc(sets, func(s *partial) bool { return next.covers(s, detailed) })
	own := *next
	return append(kept, &own)
}

// workLost returns the slot-seconds that a requeue of a job would lose. A suspension
// loses nothing, but the preempt mode plays no part in the choice (R17): the same is
// counted for both.
func workLost(j *job, now time.Time) float64 {
	return float64(j.Slots) * j.ran(now).Seconds()
}
