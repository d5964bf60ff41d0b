package plan

import (
	"container/heap"
	"math"
	"slices"
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
	shape
	hosts []*host
	share int64 // the least memory that goes with a slot on any of them
	from  int   // no free slots for it on the hosts before, but for those of again
	again []int // places of hosts before, in order, where something came free since
	full  bool  // no free slots for it anywhere
	given int   // so many of the view's given are in again
	heap  offers
	read  int   // so many of the view's changes are in the offers
	seen  []int // by place: the state of a host that its newest offer was made in; 0: none
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
		c = &choices{shape: s, hosts: v.suitable(j), share: math.MaxInt64, given: len(v.given)}
		for _, h := range c.hosts {
			if h.Memory > 0 && h.Slots > 0 {
				c.share = min(c.share, h.Memory/int64(h.Slots))
			}
		}
		v.choices[s] = c
	}
	j.choices = c
	return c
}

// place is where a host stands among those that suit.
func (c *choices) place(v *view, h *host) (int, bool) {
	if len(c.hosts) == len(v.hosts) {
		return h.at, true
	}
	return slices.BinarySearchFunc(c.hosts, h.at, func(mine *host, at int) int { return mine.at - at })
}

// reopen looks again at the hosts where something came free since: victims may leave
// more than one beneficiary needs.
func (c *choices) reopen(v *view) {
	for _, h := range v.given[c.given:] {
		place, mine := c.place(v, h)
		if !mine {
			continue
		}
		c.full = false
		if i, there := slices.BinarySearch(c.again, place); place < c.from && !there {
			c.again = slices.Insert(c.again, i, place)
		}
	}
	c.given = len(v.given)
}

// room finds free slots for a job on the first of its hosts that have some, nil if
// there are not enough.
func (v *view) room(j *job) []backends.Placement {
	c := v.choicesFor(j)
	c.reopen(v)
	if c.full {
		return nil
	}
	left := c.slots
	var hosts []backends.Placement
	take := func(h *host) (some bool) {
		n := min(left, h.fits(j))
		if c.oneHost && n < c.slots || n <= 0 {
			return false
		}
		hosts = append(hosts, backends.Placement{Host: h.Name, Slots: n})
		left -= n
		return true
	}
	c.again = slices.DeleteFunc(c.again, func(place int) bool { return left > 0 && !take(c.hosts[place]) })
	for _, h := range c.hosts[c.from:] {
		if left == 0 && len(hosts) > 0 {
			break
		}
		if !take(h) && len(hosts) == 0 {
			c.from++ // free slots only get fewer but where something comes free: nobody of this shape fits there later
		}
	}
	if left > 0 || len(hosts) == 0 {
		c.full = true
		return nil
	}
	return hosts
}

// touch notes that something changed of what could be taken back on a host.
func (v *view) touch(h *host) {
	h.changed++
	v.changes = append(v.changes, h)
}

// give notes that something came free on a host.
func (v *view) give(h *host) {
	v.given = append(v.given, h)
	v.touch(h)
}

// best makes offers for the hosts that changed and returns the best of all, or
// nil.
func (c *choices) best(v *view, b *job) *candidate {
	changed := v.changes[c.read:]
	if c.read == 0 {
		changed = c.hosts
		c.seen = make([]int, len(changed))
	}
	c.read = len(v.changes)
	for _, h := range changed {
		place, mine := c.place(v, h)
		if !mine || c.seen[place] == h.changed {
			continue
		}
		c.seen[place] = h.changed
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
