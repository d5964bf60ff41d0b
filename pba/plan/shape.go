package plan

import (
	"container/heap"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// shape is what two jobs must have in common for the same hosts to suit them
// alike. Work is done once per shape and host, not once per job and host.
type shape struct {
	slots   int
	memory  int64
	oneHost bool
	alone   bool // exclusive
	asked   string
	only    backends.ID // of a suspended job: no other one is like it
}

// choices are the hosts that suit a shape, and the best set of victims on each.
type choices struct {
	hosts []*host
	from  int  // no free slots for it on the hosts before
	full  bool // no free slots for it anywhere
	heap  offers
	mine  map[*host]bool // the hosts as a set; nil: all hosts suit
	read  int            // so many of the view's changes are in the offers
	seen  map[*host]int  // the state of a host that its newest offer was made in
}

// offer is the best set of one host at one moment; stale once the host changed.
type offer struct {
	*candidate
	host    *host
	changed int
}

func (v *view) choicesFor(j *job) *choices {
	if j.choices != nil {
		return j.choices
	}
	s := shape{slots: j.Slots, memory: j.Memory, oneHost: j.oneHost(), alone: j.Exclusive, asked: strings.Join(j.Asked, "\x00")}
	if j.State == backends.Suspended {
		s.only = j.ID
	}
	c := v.choices[s]
	if c == nil {
		c = &choices{hosts: v.suitable(j), seen: map[*host]int{}}
		if len(c.hosts) < len(v.hosts) {
			c.mine = map[*host]bool{}
			for _, h := range c.hosts {
				c.mine[h] = true
			}
		}
		v.choices[s] = c
	}
	j.choices = c
	return c
}

// reopen forgets which shapes found no free slots: victims may leave more than
// one beneficiary needs.
func (v *view) reopen() {
	for _, c := range v.choices {
		c.full, c.from = false, 0
	}
}

// touch notes that something changed of what could be taken back on a host.
func (v *view) touch(h *host) {
	h.changed++
	v.changes = append(v.changes, h)
}

// best makes offers for the hosts that changed and returns the best of all, or
// nil.
func (c *choices) best(v *view, b *job) *candidate {
	changed := v.changes[c.read:]
	if c.read == 0 {
		changed = c.hosts
	}
	c.read = len(v.changes)
	for _, h := range changed {
		if at, ok := c.seen[h]; ok && at == h.changed || c.mine != nil && !c.mine[h] {
			continue
		}
		c.seen[h] = h.changed
		if set := v.chooseOn(h, b); set != nil {
			heap.Push(&c.heap, offer{candidate: set, host: h, changed: h.changed})
		}
	}
	for len(c.heap) > 0 {
		if top := c.heap[0]; top.changed == top.host.changed {
			return top.candidate
		}
		heap.Pop(&c.heap)
	}
	return nil
}

// offers is a heap of them, the best on top.
type offers []offer

func (o offers) Len() int           { return len(o) }
func (o offers) Less(i, k int) bool { return better(o[i].candidate, o[k].candidate) < 0 }
func (o offers) Swap(i, k int)      { o[i], o[k] = o[k], o[i] }
func (o *offers) Push(x any)        { *o = append(*o, x.(offer)) }
func (o *offers) Pop() any {
	old := *o
	last := old[len(old)-1]
	*o = old[:len(old)-1]
	return last
}
