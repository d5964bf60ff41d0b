package lease

import (
	"cmp"
	"math"
	"slices"
)

// ranking finds the worker for a slot. It is a tree over the workers in order of their hosts' names
// and their own; each node has the maxima of its two halves. A search leaves out the halves in
// which nothing fits, or nothing is better: it takes a time proportional to the tree's height,
// unless many hosts have free cores without memory or memory without cores. A worker that comes or
// goes has the tree built anew.
type ranking struct {
	workers []*worker
	leaves  int // a power of two
	nodes   []fit
}

// fit is the most that a worker, or one of several, can take.
type fit struct {
	milli, memory       int64 // now
	capMilli, capMemory int64 // without leases
	score               int64 // free milli-cores of its host, as R51 counts
}

func none() fit { return fit{score: math.MinInt64} }

func (f fit) merge(g fit) fit {
	return fit{
		max(f.milli, g.milli), max(f.memory, g.memory),
		max(f.capMilli, g.capMilli), max(f.capMemory, g.capMemory),
		max(f.score, g.score),
	}
}

func byHostThenName(a, b *worker) int {
	return cmp.Or(cmp.Compare(a.host.name, b.host.name), cmp.Compare(a.name, b.name))
}

func (r *ranking) insert(w *worker) {
	i, _ := slices.BinarySearchFunc(r.workers, w, byHostThenName)
	r.workers = slices.Insert(r.workers, i, w)
	r.build()
}

func (r *ranking) remove(w *worker) {
	r.workers = slices.Delete(r.workers, w.at, w.at+1)
	r.build()
}

func (r *ranking) build() {
	r.leaves = 1
	for r.leaves < len(r.workers) {
		r.leaves *= 2
	}
	r.nodes = slices.Grow(r.nodes[:0], 2*r.leaves)[:2*r.leaves]
	for i := range r.leaves {
		r.nodes[r.leaves+i] = none()
		if i < len(r.workers) {
			r.workers[i].at = i
			r.nodes[r.leaves+i] = r.workers[i].fit()
		}
	}
	for i := r.leaves - 1; i > 0; i-- {
		r.nodes[i] = r.nodes[2*i].merge(r.nodes[2*i+1])
	}
}

// update notes that the workers of a host, which stand side by side, can take more or less.
func (r *ranking) update(h *host) {
	first, last := math.MaxInt, -1
	for _, w := range h.workers {
		r.nodes[r.leaves+w.at] = w.fit()
		first, last = min(first, r.leaves+w.at), max(last, r.leaves+w.at)
	}
	for first, last = first/2, last/2; first > 0; first, last = first/2, last/2 {
		for i := first; i <= last; i++ {
			r.nodes[i] = r.nodes[2*i].merge(r.nodes[2*i+1])
		}
	}
}

// best returns the worker that a slot is granted on (R51), nil if there is none: of those that have
// the milli-cores and the memory, one whose host has the most free cores, as host.score counts
// them; of several the first by the names of host and worker.
func (r *ranking) best(milli, memory int64) *worker {
	if len(r.workers) == 0 {
		return nil
	}
	s := search{ranking: r, milli: milli, memory: memory, found: -1}
	s.visit(1, 0, r.leaves)
	if s.found < 0 {
		return nil
	}
	return r.workers[s.found]
}

type search struct {
	*ranking
	milli, memory int64
	found         int
	score         int64
}

// visit searches the node of the leaves from first on, width of them.
func (s *search) visit(node, first, width int) {
	f := &s.nodes[node]
	if f.milli < s.milli || f.memory < s.memory || s.found >= 0 && (f.score < s.score || f.score == s.score && first > s.found) {
		return
	}
	if width == 1 {
		s.found, s.score = first, f.score
		return
	}
	half := width / 2
	if s.nodes[2*node].score >= s.nodes[2*node+1].score {
		s.visit(2*node, first, half)
		s.visit(2*node+1, first+half, half)
	} else {
		s.visit(2*node+1, first+half, half)
		s.visit(2*node, first, half)
	}
}

// could reports whether some worker could hold a slot if it had no leases.
func (r *ranking) could(milli, memory int64) bool {
	return len(r.workers) > 0 && r.couldBelow(1, milli, memory)
}

func (r *ranking) couldBelow(node int, milli, memory int64) bool {
	f := &r.nodes[node]
	if f.capMilli < milli || f.capMemory < memory {
		return false
	}
	return node >= r.leaves || r.couldBelow(2*node, milli, memory) || r.couldBelow(2*node+1, milli, memory)
}
