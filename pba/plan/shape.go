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
	alone   bool   // exclusive
	special string // what else it asks for of hosts, see specialOf; "": nothing
	suits   *backends.HostSet
	asked   string
	barred  string      // hosts that are left out, joined by zero bytes
	part    *part       // the hosts of its pool; nil: any
	only    backends.ID // of a suspended job: no other one is like it
}

// choices are the hosts that suit a shape, and what is known of them by now: where free
// slots for it may be, and the best set of victims on each.
type choices struct {
	shape
	hosts []*host // by name
	parts []*part // of a job without a pool yet: see partsFor
	share int64   // the least memory that goes with a slot on any of them
	never string  // why no managed hosts could ever hold it; "": some could
	whole int     // slots of the hosts that it has for itself at least, if it is exclusive

	// No victims were found when the occupancy had recorded so many changes, and there were
	// so many slots for whole hosts.
	noneAt, noneOf int

	// Free slots, see room. There are none for it on hosts[:from], except on those of again,
	// nor anywhere if full is set; true as of freed[:opened] of the occupancy.
	from   int
	again  []int // indices of hosts before from, in order, where something came free since
	full   bool
	opened int

	// Offers, see best. Each host's newest was made at its version seen; true as of
	// changed[:read] of the occupancy.
	heap offers
	seen []int // by index of hosts; nil: no offer was made yet
	read int
}

// offer is the best set of one host at one moment; stale once the host changed.
type offer struct {
	*candidate
	host    *host
	version int
}

func (f *farm) choicesFor(j *job) *choices {
	if j.choices != nil && j.choices.part == j.within() && j.choices.barred == j.barred {
		return j.choices
	}
	of := shape{slots: j.Slots, memory: j.Memory, oneHost: j.oneHost(), alone: j.Exclusive, special: specialOf(j), suits: j.Suits, asked: strings.Join(j.Asked, "\x00"), barred: j.barred, part: j.within()}
	if j.State == backends.Suspended {
		of.only = j.ID
	}
	c := f.shapes[of]
	if c == nil {
		c = &choices{shape: of, hosts: f.suitable(j), share: math.MaxInt64, opened: len(f.freed), noneAt: -1}
		if of.barred != "" {
			barred := strings.Split(of.barred, "\x00")
			c.hosts = slices.DeleteFunc(slices.Clone(c.hosts), func(h *host) bool { return slices.Contains(barred, h.Name) })
		}
		for _, h := range c.hosts {
			if h.Memory > 0 && h.Slots > 0 {
				c.share = min(c.share, h.Memory/int64(h.Slots))
			}
		}
		if of.part == nil {
			c.parts = f.partsFor(j)
			f.checkEver(c, j)
		}
		f.shapes[of] = c
	}
	j.choices = c
	return c
}

// indexIn returns a host's index among those that suit, and whether it does.
func (o *occupancy) indexIn(c *choices, h *host) (int, bool) {
	if len(c.hosts) == len(o.hosts) {
		return h.at, true
	}
	return slices.BinarySearchFunc(c.hosts, h.at, func(mine *host, at int) int { return mine.at - at })
}

// reopen makes a shape's search start again at the hosts where something came free since:
// victims may leave more than one beneficiary needs.
func (o *occupancy) reopen(c *choices) {
	for _, h := range o.freed[c.opened:] {
		index, mine := o.indexIn(c, h)
		if !mine {
			continue
		}
		c.full = false
		if i, there := slices.BinarySearch(c.again, index); index < c.from && !there {
			c.again = slices.Insert(c.again, i, index)
		}
	}
	c.opened = len(o.freed)
}

// plain reports whether all that matters of a host are its slots and its memory.
func (c *choices) plain() bool { return !c.alone && c.special == "" }

// spreads reports whether a job's slots must, or may, lie on several hosts in a given way.
func (c *choices) spreads() bool { return !c.plain() && !c.oneHost }

// findFree finds free slots for a job on the first of its hosts that have some, nil if
// there are not enough.
func (f *farm) findFree(j *job) []backends.Placement {
	c := f.choicesFor(j)
	f.reopen(c)
	if c.full {
		return nil
	}
	if c.spreads() {
		hosts := j.lay(c.hosts, func(h *host) int { return h.fits(j) })
		c.full = hosts == nil
		return hosts
	}
	left := c.slots
	var hosts []backends.Placement
	add := func(h *host) (some bool) {
		n := min(left, h.fits(j))
		if c.oneHost && n < c.slots || n <= 0 {
			return false
		}
		hosts = append(hosts, backends.Placement{Host: h.Name, Slots: n})
		left -= n
		return true
	}
	c.again = slices.DeleteFunc(c.again, func(index int) bool { return left > 0 && !add(c.hosts[index]) })
	for _, h := range c.hosts[c.from:] {
		if left == 0 && len(hosts) > 0 {
			break
		}
		if !add(h) && len(hosts) == 0 {
			c.from++ // free slots only get fewer: no job of this shape fits there later, unless something comes free
		}
	}
	if left > 0 || len(hosts) == 0 {
		c.full = true
		return nil
	}
	return hosts
}

// bestOffer makes offers for the hosts that changed and returns the best of all, or nil.
func (f *farm) bestOffer(c *choices, b *job) *candidate {
	changed := f.changed[c.read:]
	if c.seen == nil {
		changed, c.seen = c.hosts, make([]int, len(c.hosts))
	}
	c.read = len(f.changed)
	for _, h := range changed {
		index, mine := f.indexIn(c, h)
		if !mine || c.seen[index] == h.version {
			continue
		}
		c.seen[index] = h.version
		if set := chooseOn(h, b); set != nil {
			heap.Push(&c.heap, offer{candidate: set, host: h, version: h.version})
		}
	}
	for len(c.heap) > 0 {
		if top := c.heap[0]; top.version == top.host.version {
			return top.candidate
		}
		heap.Pop(&c.heap)
	}
	return nil
}

// offers is a heap with the best offer on top.
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
