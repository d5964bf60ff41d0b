package plan

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// waiting are the PBA jobs that wait and that no reclaim is open for. Free slots are
// nominated for them in the order that the queue will have once this plan's ranks are
// written.
type waiting struct {
	jobs   []*job      // in that order
	queues []*jobQueue // of those without a nomination
	stale  bool        // a nomination was withdrawn: the queues must be formed again
	more   bool        // slots came free that another job may have
}

// jobQueue holds the jobs of one shape: where the first one finds no free slots, no later
// one does. Each job with a reservation has a queue of its own.
type jobQueue []*job

func (f *farm) unserved() *waiting {
	w := &waiting{stale: true}
	for _, j := range f.resting {
		if j.pba() && j.waiting() && j.reclaim == nil {
			w.jobs = append(w.jobs, j)
		}
	}
	slices.SortFunc(w.jobs, beforeInQueue)
	return w
}

// beneficiaries returns the jobs whose clock has passed the threshold, and those whose
// trial begins as it passes the threshold in the next cycle: longest clock first, then priority, then FIFO.
func (s *serving) beneficiaries() []*job {
	type turn struct {
		clock    time.Duration
		position int // in the queue
		last     int // 1: a standby job, which comes after all others
	}
	var turns []turn
	for i, j := range s.waiting.jobs {
		if s.due(j) || s.dueSoon(j) {
			t := turn{clock: j.mem.Clock, position: i}
			if j.standby {
				t.last = 1
			}
			turns = append(turns, t)
		}
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(b.clock, a.clock), cmp.Compare(a.position, b.position))
	})
	due := make([]*job, len(turns))
	for i, t := range turns {
		due[i] = s.waiting.jobs[t.position]
	}
	return due
}

// beforeInQueue orders jobs as the queue will: by computed priority, then FIFO.
func beforeInQueue(a, b *job) int {
	return cmp.Or(cmp.Compare(b.computed, a.computed), cmp.Compare(a.seq, b.seq))
}

// nominateFree nominates free slots for the jobs that have none yet, each for the one that
// the queue will start in them. A job that reserves hosts keeps what is free there.
func (s *serving) nominateFree() {
	w := s.waiting
	switch {
	case w.stale:
		s.formQueues()
	case !w.more:
		return
	}
	w.stale, w.more = false, false
	var heads heads
	for _, l := range w.queues {
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
		if j.nominated = s.findFree(j); j.nominated != nil {
			s.nominate(j, j.nominated)
			heap.Fix(&heads, 0)
			continue
		}
		s.setAside(j, s.reservedHosts(j))
		heap.Pop(&heads)
	}
}

// formQueues sorts the jobs without a nomination into one queue a shape.
func (s *serving) formQueues() {
	w := s.waiting
	byShape := map[*choices]*jobQueue{}
	w.queues = []*jobQueue{}
	for _, j := range w.jobs {
		if j.nominated != nil || j.aside != nil {
			continue
		}
		if s.reservedHosts(j) != nil {
			w.queues = append(w.queues, &jobQueue{j})
			continue
		}
		shape := s.choicesFor(j)
		if byShape[shape] == nil {
			byShape[shape] = new(jobQueue)
			w.queues = append(w.queues, byShape[shape])
		}
		*byShape[shape] = append(*byShape[shape], j)
	}
}

// reservedHosts returns the hosts where what is free is kept for a job: by its reservation, or
// by the queue itself if the job waits too long.
func (f *farm) reservedHosts(j *job) []string {
	if f.now.Before(j.mem.ReservedUntil) {
		return j.mem.Reserved
	}
	return j.Keeps
}

// next returns the first job without a nomination, or nil.
func (l *jobQueue) next() *job {
	for len(*l) > 0 && ((*l)[0].nominated != nil || (*l)[0].aside != nil) {
		*l = (*l)[1:]
	}
	if len(*l) == 0 {
		return nil
	}
	return (*l)[0]
}

// heads is a heap of job queues, the one whose first job ranks highest on top.
type heads []*jobQueue

func (h heads) Len() int { return len(h) }

func (h heads) Less(i, k int) bool {
	a, b := h[i].next(), h[k].next()
	if a == nil || b == nil {
		return a == nil && b != nil
	}
	return beforeInQueue(a, b) < 0
}

func (h heads) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*jobQueue)) }
func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
