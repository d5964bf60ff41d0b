package plan

import (
	"cmp"
	"math"
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
	spent   int                  // victims that lost too much already (R35)
	cut     int                  // sets that were not compared with it; see table
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

// better orders candidate sets (R17): members that lost too much already (R35); slots beyond the need; their most valued
// member; number of jobs; slot-seconds lost; IDs. Negative: a before b.
func better(a, b *candidate) int {
	if c := cmp.Or(cmp.Compare(a.spent, b.spent), cmp.Compare(a.excess, b.excess)); c != 0 {
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

// Bounds of a table: the sets that free the same number of slots, and after so many comparisons
// of sets. What is beyond is not looked at, and is reported.
const (
	maxSets     = 24
	maxCompared = 1 << 16
	fewSets     = 2
)

// choose finds the best set among items, which stand least valued first: the
// fewest jobs that lost too much already (R35), the fewest slots freed in all that free what is wanted, then the order of better.
// It returns nil if all of them together are not enough, or nothing is wanted, and how many
// sets it did not compare.
//
// It is a subset sum over the slots freed; where memory or jobs over several
// hosts matter, each sum keeps the sets that no other one beats in everything, up to a bound.
func choose(items []item, w want) (set []*job, cut int) {
	spent := 0
	for i := range items {
		if items[i].job.spent {
			spent++
		}
	}
	if spent == 0 {
		return chooseWith(items, w, 0)
	}
	rest := slices.DeleteFunc(slices.Clone(items), func(it item) bool { return it.job.spent })
	if set, cut = chooseWith(rest, w, 0); set != nil || greedySet(items, w) == nil {
		return set, cut
	}
	for most := 1; set == nil && most <= spent; most++ {
		set, cut = chooseWith(items, w, most)
	}
	return set, cut
}

// chooseWith is choose with no more than so many jobs that lost too much already.
func chooseWith(items []item, w want, spent int) (set []*job, cut int) {
	greedy := greedySet(items, w)
	if greedy == nil {
		return nil, 0
	}
	if it := single(items, w); it != nil && !it.job.spent {
		return []*job{it.job}, 0
	}
	total := totalOf(greedy)
	if spent > 0 {
		greedy, total = nil, math.MaxInt // it may have more of them
	}
	// The shortest prefix that still reaches the least total keeps the value of the most
	// valued member least.
	t := newTable(items, w, total)
	t.spent = spent
	few := 0
	for i := range items {
		if t.include(&items[i]) {
			few = i + 1
		}
	}
	if t.best == nil {
		return jobsOf(greedy), t.cut
	}
	exact := newTable(items[:few], w, t.least)
	exact.spent = spent
	exact.detailed = true
	for i := range items[:few] {
		exact.include(&items[i])
	}
	cut = t.cut + exact.cut
	if set, ok := exact.bestOf(w); ok {
		return set, cut
	}
	return t.best.jobs(items), cut
}

// single returns the least valued item of one slot that by itself frees what is wanted, for a job
// that lacks one slot at most: no set is better. It returns nil if there is none, or nothing
// is wanted.
func single(items []item, w want) *item {
	if w.slots > 1 || w.nothing() {
		return nil
	}
	for i := range items {
		it := &items[i]
		if it.slots == 1 && it.gain >= w.slots && it.memory >= w.memory && reaches(it.frees, w.needs) {
			return it
		}
	}
	return nil
}

// greedySet returns a set that frees what is wanted and has no superfluous member, or nil if
// all items together don't: of the least valued ones, or if that frees fewer slots of those
// with much memory for their slots.
func greedySet(items []item, w want) []*item {
	inOrder := make([]*item, len(items))
	for i := range items {
		inOrder[i] = &items[i]
	}
	best := firstEnough(inOrder, w)
	if best == nil || w.memory <= 0 {
		return best
	}
	slices.SortStableFunc(inOrder, func(a, b *item) int {
		return cmp.Compare(float64(b.memory)/float64(b.slots), float64(a.memory)/float64(a.slots))
	})
	if other := firstEnough(inOrder, w); totalOf(other) < totalOf(best) {
		return other
	}
	return best
}

// firstEnough takes items in order until they free what is wanted, then drops those that
// are not needed, the last first. It returns nil if all are not enough.
func firstEnough(items []*item, w want) []*item {
	sum := partial{needs: make([]int, len(w.needs))}
	var taken []*item
	for _, it := range items {
		if sum.gives(w) {
			break
		}
		sum.count(it, 1)
		taken = append(taken, it)
	}
	if !sum.gives(w) {
		return nil
	}
	for i := len(taken) - 1; i >= 0; i-- {
		sum.count(taken[i], -1)
		if sum.gives(w) {
			taken = slices.Delete(taken, i, i+1)
			continue
		}
		sum.count(taken[i], 1)
	}
	return taken
}

func totalOf(items []*item) (slots int) {
	for _, it := range items {
		slots += it.slots
	}
	return slots
}

// jobsOf returns the jobs of items, least valued first.
func jobsOf(items []*item) []*job {
	if items == nil {
		return nil
	}
	jobs := make([]*job, len(items))
	for i, it := range items {
		jobs[i] = it.job
	}
	slices.SortFunc(jobs, leastValued)
	return jobs
}

// partial is a set of victims: last, and those of rest. Of one total of freed slots
// only the sets are kept that no other one covers.
type partial struct {
	gain   int
	memory int64
	needs  []int // nil if want.needs is
	jobsIn int
	spent  int // of them lost too much already
	lost   float64
	last   *item
	rest   *partial
}

// count adds what an item frees, or takes it off.
func (s *partial) count(it *item, sign int) {
	s.gain += sign * it.gain
	s.memory += int64(sign) * it.memory
	for k, n := range it.frees {
		s.needs[k] += sign * n
	}
}

// gives reports whether a set frees what is wanted.
func (s *partial) gives(w want) bool {
	return s.gain >= w.slots && s.memory >= w.memory && reaches(s.needs, w.needs)
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

// table holds partial sets by the slots that they free in all, up to where a set must hold a
// job that it does not need.
type table struct {
	items    []item
	want     want
	sets     [][]*partial
	detailed bool // sets are told apart by the number of jobs and the work lost, too
	spent    int  // jobs that lost too much already that a set may have
	most     int  // sets of one total
	compared int  // sets
	cut      int  // those that were left out

	best  *partial // of least slots that gives what is wanted; nil: none
	least int      // slots that it frees
}

// newTable returns a table of sets that free no more slots than most.
func newTable(items []item, w want, most int) *table {
	t := &table{items: items, want: w, most: maxSets, sets: make([][]*partial, min(most, bound(items, w))+1)}
	t.sets[0] = []*partial{{}}
	return t
}

// include adds the sets with one more item. It reports whether one of them is better than
// the best so far.
func (t *table) include(it *item) (better bool) {
	if t.compared > maxCompared && t.most > fewSets {
		t.narrow()
	}
	for total := len(t.sets) - 1 - it.slots; total >= 0; total-- {
		to := total + it.slots
		for _, s := range t.sets[total] {
			next := partial{
				gain:   min(s.gain+it.gain, max(t.want.slots, 0)),
				memory: min(s.memory+it.memory, max(t.want.memory, 0)),
				jobsIn: s.jobsIn + 1,
				spent:  s.spent,
				lost:   s.lost + it.lost,
				last:   it,
				rest:   s,
			}
			if it.job.spent {
				if next.spent++; next.spent > t.spent {
					continue
				}
			}
			if t.want.needs != nil {
				next.needs = addUpTo(s.needs, it.frees, t.want.needs)
			}
			if t.add(to, &next) && next.gives(t.want) && (t.best == nil || to < t.least) {
				t.best, t.least, better = t.sets[to][len(t.sets[to])-1], to, true
			}
		}
	}
	return better
}

// narrow leaves few sets of each total: the search has become long.
func (t *table) narrow() {
	t.most = fewSets
	for total, sets := range t.sets {
		if beyond := len(sets) - t.most; beyond > 0 {
			slices.SortStableFunc(sets, t.compare)
			t.sets[total] = sets[:t.most]
			t.cut += beyond
		}
	}
}

// add keeps only the sets of one total that no other one covers, and of too many
// those that lack least. It reports whether it kept the new one, as the last.
func (t *table) add(total int, next *partial) bool {
	sets := t.sets[total]
	t.compared += len(sets)
	for _, s := range sets {
		if s.covers(next, t.detailed) {
			return false
		}
	}
	kept := slices.DeleteFunc(sets, func(s *partial) bool { return next.covers(s, t.detailed) })
	if len(kept) >= t.most {
		t.cut++
		last := 0
		for i := range kept {
			if t.compare(kept[i], kept[last]) > 0 {
				last = i
			}
		}
		if t.compare(next, kept[last]) >= 0 {
			t.sets[total] = kept
			return false
		}
		kept = slices.Delete(kept, last, last+1)
	}
	own := *next
	t.sets[total] = append(kept, &own)
	return true
}

// compare orders sets by how much of what is wanted they lack, then by jobs and work lost.
func (t *table) compare(a, b *partial) int {
	return cmp.Or(cmp.Compare(t.lacks(a), t.lacks(b)), cmp.Compare(a.jobsIn, b.jobsIn), cmp.Compare(a.lost, b.lost))
}

// lacks returns the part of what is wanted that a set does not free, from 0 to 1 of each kind.
func (t *table) lacks(s *partial) float64 {
	w := &t.want
	sum := 0.0
	if w.slots > s.gain {
		sum += float64(w.slots-s.gain) / float64(w.slots)
	}
	if w.memory > s.memory {
		sum += float64(w.memory-s.memory) / float64(w.memory)
	}
	for i, n := range w.needs {
		has := 0
		if i < len(s.needs) {
			has = s.needs[i]
		}
		if n > has {
			sum += float64(n-has) / float64(n)
		}
	}
	return sum
}

// covers reports whether a partial set does all that another does, at no more cost.
func (s *partial) covers(b *partial, detailed bool) bool {
	return s.gain >= b.gain && s.memory >= b.memory && s.spent <= b.spent && reaches(s.needs, b.needs) &&
		(!detailed || s.jobsIn < b.jobsIn || s.jobsIn == b.jobsIn && s.lost <= b.lost)
}

// bestOf returns the set of the least total that gives what is wanted, no more than the table's,
// with the fewest jobs, then the least work lost, then the highest IDs. It reports whether
// there is one.
func (t *table) bestOf(w want) ([]*job, bool) {
	total := slices.IndexFunc(t.sets, func(sets []*partial) bool {
		return slices.ContainsFunc(sets, func(s *partial) bool { return s.gives(w) })
	})
	if total < 0 {
		return nil, false
	}
	var winner *partial
	var jobs []*job
	for _, s := range t.sets[total] {
		if !s.gives(w) {
			continue
		}
		if winner != nil {
			c := cmp.Or(cmp.Compare(s.jobsIn, winner.jobsIn), cmp.Compare(s.lost, winner.lost))
			if c == 0 {
				c = slices.CompareFunc(s.jobs(t.items), jobs, func(x, y *job) int { return y.ID.Compare(x.ID) })
			}
			if c >= 0 {
				continue
			}
		}
		winner, jobs = s, s.jobs(t.items)
	}
	return jobs, true
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

// workLost returns the slot-seconds of work that preempting a job would lose (R34): since its
// start or its last known checkpoint. A suspension loses nothing, nor does a job that saves
// itself when it is asked to.
func workLost(j *job, now time.Time) float64 {
	if j.preempt == backends.PreemptSuspend || j.saves.OnDemand() {
		return 0
	}
	return float64(j.Slots) * j.unsaved(now).Seconds()
}
