package manager

// heap is a binary heap of jobs that knows where each of them is, so that any
// can be taken out. A job may be in several heaps of different pos.
type heap struct {
	jobs []*job
	pos  int
	less func(a, b *job) bool
}

func newHeap(pos int, less func(a, b *job) bool) *heap { return &heap{pos: pos, less: less} }

func (h *heap) len() int { return len(h.jobs) }

// top is the first job, nil if there is none.
func (h *heap) top() *job {
	if len(h.jobs) == 0 {
		return nil
	}
	return h.jobs[0]
}

func (h *heap) has(j *job) bool {
	i := j.pos[h.pos]
	return i < len(h.jobs) && h.jobs[i] == j
}

func (h *heap) push(j *job) {
	h.jobs = append(h.jobs, j)
	h.up(len(h.jobs)-1, j)
}

func (h *heap) remove(j *job) {
	i, last := j.pos[h.pos], len(h.jobs)-1
	moved := h.jobs[last]
	h.jobs[last] = nil
	h.jobs = h.jobs[:last]
	if i == last {
		return
	}
	if h.up(i, moved) == i {
		h.down(i, moved)
	}
}

func (h *heap) put(i int, j *job) {
	h.jobs[i] = j
	j.pos[h.pos] = i
}

func (h *heap) up(i int, j *job) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(j, h.jobs[parent]) {
			break
		}
		h.put(i, h.jobs[parent])
		i = parent
	}
	h.put(i, j)
	return i
}

func (h *heap) down(i int, j *job) {
	for {
		child := 2*i + 1
		if child >= len(h.jobs) {
			break
		}
		if child+1 < len(h.jobs) && h.less(h.jobs[child+1], h.jobs[child]) {
			child++
		}
		if !h.less(h.jobs[child], j) {
			break
		}
		h.put(i, h.jobs[child])
		i = child
	}
	h.put(i, j)
}
