package metrics

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Half is the rule of resident jobs alone: if the slowest host of a period takes at least twice as long
// as the fastest, half of its blocks go there.
const Half Rule = "half"

// ParseBlockRule reads the name of a rule by which blocks move.
func ParseBlockRule(text string) (Rule, error) {
	switch r := Rule(text); r {
	case Half, Rate:
		return r, nil
	case Step, Equal:
	}
	return "", fmt.Errorf("no rule %q: there are half, rate", text)
}

// halfFactor is how many times the fastest host's time the slowest one takes at least before half of its
// blocks move.
const halfFactor = 2

// Held is the blocks that a host computes in each period, in the order in which it got them.
type Held struct {
	Host   string
	Blocks []int64
	Took   time.Duration // for all of them, in the last period; 0: not known
}

// Move is blocks that another host computes from now on.
type Move struct {
	Blocks   []int64
	From, To string
}

// Divide returns the hosts that are there, with the blocks first to last, each of them once, and what moved
// (R55). Blocks stay where they were, but for those whose host is gone, those that a host gets which
// is new, and those that move by the rule. As few move as are needed. Without hosts it returns nil.
func (b *Balance) Divide(held []Held, first, last int64) ([]Held, []Move) {
	hosts := b.present()
	if len(hosts) == 0 {
		return nil, nil
	}
	d := &division{hosts: hosts, weights: b.weights(hosts), held: make([]Held, len(hosts))}
	if !slices.ContainsFunc(d.weights, func(w float64) bool { return w > 0 }) {
		for n := range d.weights {
			d.weights[n] = 1
		}
	}
	owner, joined := map[int64]string{}, false
	for n, h := range hosts {
		d.held[n].Host = h.Name
		i := slices.IndexFunc(held, func(old Held) bool { return old.Host == h.Name })
		if i < 0 {
			joined = true
			continue
		}
		d.held[n].Took = held[i].Took
		for _, block := range held[i].Blocks {
			if _, known := owner[block]; !known && block >= first && block <= last {
				owner[block] = h.Name
				d.held[n].Blocks = append(d.held[n].Blocks, block)
			}
		}
	}
	left := d.adopt(owner, first, last)
	switch {
	case joined || b.options.Rule == Rate:
		d.even(b.options.Threshold)
	case b.options.Rule == Half && !left:
		d.halve()
	}
	if b.options.Rule == Rate {
		d.revisit()
	}
	return d.held, moves(held, d.held)
}

// division is blocks that are being divided over hosts.
type division struct {
	hosts   []*host
	weights []float64
	held    []Held
}

// time returns how long a host takes for so many blocks, in units of its weight.
func (d *division) time(n, blocks int) float64 {
	switch {
	case blocks <= 0:
		return 0
	case d.weights[n] <= 0:
		return math.Inf(1)
	}
	return float64(passes(blocks, d.hosts[n].Slots)) / d.weights[n]
}

// passes returns the number of blocks, rounded up to whole passes over the slots: others wait for the last.
func passes(blocks, slots int) int { return (blocks + slots - 1) / slots * slots }

// Full returns the items that a host would have done in the time that it took for so many, with all of its
// slots busy.
func (b *Balance) Full(name string, items int) int {
	if h := b.find(name); h != nil {
		return passes(items, h.Slots)
	}
	return items
}

// soonest returns the host that would be the first to end with one more block, of equals the one with
// fewest blocks, then the first; without is left out.
func (d *division) soonest(counts []int, without int) int {
	best := -1
	for n := range d.hosts {
		if n == without {
			continue
		}
		if best < 0 {
			best = n
			continue
		}
		mine, its := d.time(n, counts[n]+1), d.time(best, counts[best]+1)
		if mine < its || mine == its && counts[n] < counts[best] {
			best = n
		}
	}
	return best
}

func (d *division) counts() []int {
	counts := make([]int, len(d.held))
	for n, h := range d.held {
		counts[n] = len(h.Blocks)
	}
	return counts
}

// adopt divides the blocks that no host has, and reports whether there were any. Neighbours stay together.
func (d *division) adopt(owner map[int64]string, first, last int64) bool {
	var free []int64
	for block := first; block <= last; block++ {
		if _, ok := owner[block]; !ok {
			free = append(free, block)
		}
	}
	counts, more := d.counts(), make([]int, len(d.held))
	for range free {
		n := d.soonest(counts, -1)
		counts[n]++
		more[n]++
	}
	left := len(free) > 0
	for n := range d.held {
		d.held[n].Blocks = append(d.held[n].Blocks, free[:more[n]]...)
		free = free[more[n]:]
	}
	return left
}

// even moves blocks from the host that would take longest to the one that would be first to end with one
// more, as long as that is sooner by more than the threshold. So as few move as make the period short.
func (d *division) even(threshold float64) {
	for counts := d.counts(); len(d.held) > 1; {
		last := 0
		for n := range d.held {
			if d.time(n, counts[n]) > d.time(last, counts[last]) {
				last = n
			}
		}
		to := d.soonest(counts, last)
		if !(d.time(to, counts[to]+1) < (1-threshold)*d.time(last, counts[last])) {
			return
		}
		d.move(last, to, 1)
		counts[last]--
		counts[to]++
	}
}

// halve moves half of the slowest host's blocks to the fastest.
func (d *division) halve() {
	first, last := -1, -1
	for n, h := range d.held {
		if h.Took <= 0 || len(h.Blocks) == 0 {
			continue
		}
		if first < 0 || h.Took < d.held[first].Took {
			first = n
		}
		if last < 0 || h.Took > d.held[last].Took {
			last = n
		}
	}
	if first != last && d.held[last].Took >= halfFactor*d.held[first].Took {
		d.move(last, first, len(d.held[last].Blocks)/2)
	}
}

// revisit gives a block to a host that has none since it was slow: else it would never be measured again.
// That costs little: see revisitIdle.
func (d *division) revisit() {
	for n, h := range d.hosts {
		if len(d.held[n].Blocks) > 0 || h.Idle*h.Rate < 20 {
			continue
		}
		counts := d.counts()
		if most := slices.Max(counts); most > 1 {
			d.move(slices.Index(counts, most), n, 1)
		}
	}
}

// move moves the first blocks of a host.
func (d *division) move(from, to, blocks int) {
	d.held[to].Blocks = append(d.held[to].Blocks, d.held[from].Blocks[:blocks]...)
	d.held[from].Blocks = slices.Clone(d.held[from].Blocks[blocks:])
}

// moves returns what differs between two assignments, but for what no host had.
func moves(before, after []Held) (all []Move) {
	owner := map[int64]string{}
	for _, h := range before {
		for _, block := range h.Blocks {
			owner[block] = h.Host
		}
	}
	for _, h := range after {
		at := map[string]int{}
		for _, block := range h.Blocks {
			from, had := owner[block]
			if !had || from == h.Host {
				continue
			}
			if _, ok := at[from]; !ok {
				at[from] = len(all)
				all = append(all, Move{From: from, To: h.Host})
			}
			all[at[from]].Blocks = append(all[at[from]].Blocks, block)
		}
	}
	return all
}
