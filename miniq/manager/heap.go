package manager

import "github.com/allotment-hpc/allotment/internal/heap"

// jobHeap is a heap of jobs, each of which knows its place in it: any can be removed.
// A job may be in several heaps of different pos.
type jobHeap struct {
	*heap.Heap[*job]
	pos int
}

func newHeap(pos int, less func(a, b *job) bool) *jobHeap {
	return &jobHeap{heap.New(less, func(j *job, i int) { j.pos[pos] = i }), pos}
}

func (h *jobHeap) has(j *job) bool {
	i := j.pos[h.pos]
	return i < h.Len() && h.Items()[i] == j
}

func (h *jobHeap) remove(j *job) { h.Remove(j.pos[h.pos]) }
