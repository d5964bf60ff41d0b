package try

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// Share is the part of the items, 1 / Share, that a trial uses at most, if that is leastBlocks of each
	// variant at least.
	Share = 10
	// maxItems bounds the items of a trial.
	maxItems = 4096
	// leastBlocks is the number of blocks without which nothing is said.
	leastBlocks = 3
	// goodBlocks is the number of blocks below which none of them is larger than it must be.
	goodBlocks = 8
	// maxBlocks bounds the blocks of a trial.
	maxBlocks = 256
	// Level is the probability of an error up to which a variant is eliminated, and the trial ends.
	Level = 0.05
)

// Cell says which variant an item has, and where its time counts.
type Cell struct {
	Block   int `json:"b"` // from 1; 0: it is not measured
	Variant int `json:"v"` // from 0
}

// Sum is what a variant's items of a block took.
type Sum struct {
	N   int     `json:"n"`   // items that were measured
	Log float64 `json:"log"` // the sum of the logarithms of the seconds that each took
}

// Trial is a trial. Its items come in blocks, each of which has each variant that is left, in random order:
// a block is executed by one host, one item after the other. So neither a slow host nor a slow hour
// makes a variant look slow. The trial is judged after 3 blocks, and each time that there are
// twice as many, and at its end. As JSON it loses nothing.
type Trial struct {
	Variants int       `json:"variants"`
	Seed     uint64    `json:"seed"`
	Leader   int       `json:"leader"`          // the variant with which items run that are not tried
	Sure     float64   `json:"sure"`            // the probability, at least, that no other variant is better
	Over     bool      `json:"over,omitempty"`  // Leader goes on
	Used     int64     `json:"used"`            // items
	Ran      []int64   `json:"ran"`             // items of each variant that were executed
	Failed   []int64   `json:"failed"`          // those that failed
	Ratio    []float64 `json:"ratio"`           // each one's time in that of the leader; 0: not known
	Slots    int       `json:"slots,omitempty"` // of a host: so many items run side by side

	Out    []float64 `json:"out"`              // the share of the look at which a variant was eliminated; 0: it is not
	Target int       `json:"target,omitempty"` // blocks at which the next look is
	Judged int       `json:"judged,omitempty"` // blocks at the last one
	Spent  float64   `json:"spent,omitempty"`  // shares of the looks so far, of 1
	Group  int       `json:"group,omitempty"`  // items of a variant in each block
	Rest   []Cell    `json:"rest,omitempty"`   // of the last block, which no item has
	Sums   [][]Sum   `json:"sums,omitempty"`   // of each block, by variant
}

// New returns a trial of so many variants, 1 to MaxVariants. Its first variant leads.
func New(variants int, seed uint64) *Trial {
	return &Trial{
		Variants: variants, Seed: seed, Sure: 1 / float64(variants), Over: variants < 2,
		Ran: make([]int64, variants), Failed: make([]int64, variants), Out: make([]float64, variants), Ratio: make([]float64, variants),
	}
}

// Alive returns the variants that are left.
func (t *Trial) Alive() (all []int) {
	for v, out := range t.Out {
		if out == 0 {
			all = append(all, v)
		}
	}
	return all
}

// unit is the number of cells of a block that begins now.
func (t *Trial) unit() int { return len(t.Alive()) * max(t.Group, 1) }

// Next decides how a trial goes on (R49): it returns the number of items to try next, and how many of them
// should be on one host; 0: none. No item of the trial runs. items is the number of items so far, and more reports whether
// others may follow. So many hosts take part.
func (t *Trial) Next(items int64, more bool, hosts int) (cells, unit int) {
	if t.Over {
		return 0, 0
	}
	if n := t.dealable(); n > 0 {
		return n, t.unit()
	}
	most := t.most(items)
	if len(t.Sums) > t.Judged {
		t.look(most, more)
		if most = t.most(items); len(t.Alive()) == 1 || t.Spent >= 1 {
			t.end()
			return 0, 0
		}
	}
	if len(t.Sums) >= most { // others may follow, and make room for more blocks
		if !more {
			t.end()
		}
		return 0, 0
	}
	t.Group = max(min(t.Slots, int(t.budget(items))/t.Variants/goodBlocks), 1)
	most = t.most(items)
	next := max(2*len(t.Sums), leastBlocks, min(hosts, most/4))
	if 2*next > most {
		next = most
	}
	t.Target = next
	return t.dealable(), t.unit()
}

// End judges the trial as all items have ended.
func (t *Trial) End() {
	if t.Over {
		return
	}
	if len(t.Sums) > t.Judged {
		t.look(len(t.Sums), false)
	}
	t.end()
}

// end ends the trial. What was measured is not needed any more.
func (t *Trial) end() { t.Over, t.Sums, t.Rest, t.Target = true, nil, nil, 0 }

// budget is the number of items that may be tried.
func (t *Trial) budget(items int64) int64 {
	return min(max(items/Share, int64(leastBlocks*t.Variants)), maxItems)
}

// most is the number of blocks that there may be in all.
func (t *Trial) most(items int64) int {
	left := t.budget(items) - t.Used
	return min(len(t.Sums)+int(max(left, 0))/t.unit(), maxBlocks)
}

// dealable is the number of cells that there are until the next look.
func (t *Trial) dealable() int { return len(t.Rest) + max(t.Target-len(t.Sums), 0)*t.unit() }

// Deal returns the cells of the next items of a host, n at most.
func (t *Trial) Deal(n int) (cells []Cell) {
	for len(cells) < n && t.dealable() > 0 {
		if len(t.Rest) == 0 {
			t.Sums = append(t.Sums, make([]Sum, t.Variants))
			alive := t.Alive()
			rng := rand.New(rand.NewPCG(t.Seed, uint64(len(t.Sums))))
			for _, i := range rng.Perm(len(alive)) {
				for range max(t.Group, 1) {
					t.Rest = append(t.Rest, Cell{Block: len(t.Sums), Variant: alive[i]})
				}
			}
		}
		k := min(n-len(cells), len(t.Rest))
		cells = append(cells, t.Rest[:k]...)
		t.Rest = slices.Clone(t.Rest[k:])
	}
	t.Used += int64(len(cells))
	return cells
}

// Spare returns the variant of an item that is not measured. One at which tasks were killed gets another
// variant each time.
func (t *Trial) Spare(kills int) int {
	alive := t.Alive()
	return alive[(max(slices.Index(alive, t.Leader), 0)+max(kills-1, 0))%len(alive)]
}

// Record records an item that was executed once: how long it took, or that it failed.
func (t *Trial) Record(c Cell, took time.Duration, failed bool) {
	if t.Over || c.Variant < 0 || c.Variant >= t.Variants {
		return
	}
	t.Ran[c.Variant]++
	if failed {
		t.Failed[c.Variant]++
		return
	}
	if c.Block < 1 || c.Block > len(t.Sums) {
		return
	}
	s := &t.Sums[c.Block-1][c.Variant]
	s.N++
	s.Log += math.Log(max(took, time.Microsecond).Seconds())
}
