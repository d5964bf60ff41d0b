package plan

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// waiting are the PBA jobs that wait and that no reclaim is open for. Free slots are
// given out among them in the order in which the queue will have them once this plan's
// ranks are written.
type waiting struct {
	v     *view
	jobs  []*job  // in that order
	lines []*line // nil: to be formed anew
	freed int     // of the view, when free slots were last given out
	moved int
}

// line is those of one shape: where the first one finds no free slots, no later one
// does. Who reserves hosts stands in a line of his own.
type line []*job

func (v *view) unserved() *waiting {
	w := &waiting{v: v}
	for _, j := range v.resting {
		if j.pba() && j.waiting() && j.reclaim == nil {
			w.jobs = append(w.jobs, j)
		}
	}
	slices.SortFunc(w.jobs, beforeInQueue)
	return w
}

// beneficiaries are those whose clock has passed the threshold: longest clock first,
// then priority, then FIFO.
func (w *waiting) beneficiaries() []*job {
	type turn struct {
		clock time.Duration
		place int // in the queue
	}
	var turns []turn
	for i, j := range w.jobs {
		if w.v.due(j) {
			turns = append(turns, turn{j.mem.Clock, i})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		if c := cmp.Compare(b.clock, a.clock); c != 0 {
			return c
		}
		return cmp.Compare(a.place, b.place)
	})
	due := make([]*job, len(turns))
	for i, t := range turns {
		due[i] = w.jobs[t.place]
	}
	return due
}

// beforeInQueue orders jobs as the queue will: by computed priority, then FIFO.
func beforeInQueue(a, b *job) int {
	if c := cmp.Compare(b.computed, a.computed); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

// promiseFree gives free slots to those that have none yet: to the one that the queue
// will start in them. Who reserves hosts keeps what is free there.
func (w *waiting) promiseFree() {
	v := w.v
	switch {
	case w.lines == nil || w.moved != v.moved:
		w.form()
	case w.freed == v.freed:
		return
	}
	w.freed, w.moved = v.freed, v.moved
	var heads heads
	for _, l := range w.lines {
		if l.next() != nil {
			heads = append(heads, l)
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		j := heads[0].next()
		if j == nil {
			heap.Pop(&heads)
			continue
		}
		if j.promised = v.room(j); j.promised != nil {
			v.promise(j, j.promised)
			heap.Fix(&heads, 0)
			continue
		}
		v.setAside(j, v.keeping(j))
		heap.Pop(&heads)
	}
}

// form puts those that nothing is promised to in line.
func (w *waiting) form() {
	byShape := map[*choices]*line{}
	w.lines = []*line{}
	for _, j := range w.jobs {
		if j.promised != nil || j.aside != nil {
			continue
		}
		if w.v.keeping(j) != nil {
			w.lines = append(w.lines, &line{j})
			continue
		}
		shape := w.v.choicesFor(j)
		if byShape[shape] == nil {
			byShape[shape] = new(line)
			w.lines = append(w.lines, byShape[shape])
		}
		*byShape[shape] = append(*byShape[shape], j)
	}
}

// keeping are the hosts where what is free is kept for a job: by its reservation, or
// by the queue itself for one that waits too long.
func (v *view) keeping(j *job) []string {
	if v.now.Before(j.mem.ReservedUntil) {
		return j.mem.Reserved
	}
	return j.Keeps
}

// next is the first one that nothing is promised to, or nil.
func (l *line) next() *job {
	for len(*l) > 0 && ((*l)[0].promised != nil || (*l)[0].aside != nil) {
		*l = (*l)[1:]
	}
	if len(*l) == 0 {
		return nil
	}
	return (*l)[0]
}

// heads is a heap of lines, the one that holds the first in the queue on top.
type heads []*line

func (h heads) Len() int { return len(h) }

func (h heads) Less(i, k int) bool {
	a, b := h[i].next(), h[k].next()
	if a == nil || b == nil {
		return a == nil && b != nil
	}
	return beforeInQueue(a, b) < 0
}

func (h heads) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*line)) }
func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
