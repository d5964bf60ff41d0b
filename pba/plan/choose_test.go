package plan

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// TestChooseIsAsGoodAsBruteForce compares choose with all subsets of up to nine
// jobs, memory and jobs over two hosts included (R17).
func TestChooseIsAsGoodAsBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []item
		for i := range rapid.IntRange(0, 9).Draw(t, "jobs") {
			gain := rapid.IntRange(1, 4).Draw(t, "gain")
			elsewhere := rapid.IntRange(0, 2).Draw(t, "elsewhere")
			j := &job{Slots: gain + elsewhere, Job: &backends.Job{ID: backends.ID{Job: int64(100 - i)}, Started: noon.Add(-time.Duration(i) * time.Minute)}, worth: [5]int64{int64(i)}, spent: rapid.IntRange(0, 3).Draw(t, "lost too much") == 0}
			items = append(items, item{job: j, slots: j.Slots, gain: gain, memory: int64(rapid.IntRange(0, 4).Draw(t, "memory")), lost: float64(rapid.IntRange(0, 3).Draw(t, "lost"))})
		}
		w := want{slots: rapid.IntRange(1, 9).Draw(t, "need"), memory: int64(rapid.IntRange(0, 6).Draw(t, "need memory"))}
		got, cut := choose(items, w)
		best := (*candidate)(nil)
		if cut > 0 {
			t.Skip("not all sets were compared")
		}
		for mask := range 1 << len(items) {
			c, gain, memory := &candidate{excess: -w.slots}, 0, int64(0)
			for i := range items {
				if mask>>i&1 == 1 {
					c.victims = append(c.victims, items[i].job)
					c.excess += items[i].job.Slots
					c.lost += items[i].lost
					if items[i].job.spent {
						c.spent++
					}
					gain, memory = gain+items[i].gain, memory+items[i].memory
				}
			}
			if gain >= w.slots && memory >= w.memory && (best == nil || better(c, best) < 0) {
				best = c
			}
		}
		if (got == nil) != (best == nil) {
			t.Fatalf("choose found %v, brute force %v", got, best)
		}
		if best == nil {
			return
		}
		c := &candidate{victims: got, excess: -w.slots}
		for _, j := range got {
			c.excess += j.Slots
			if j.spent {
				c.spent++
			}
			for _, it := range items {
				if it.job == j {
					c.lost += it.lost
				}
			}
		}
		best.hosts = nil
		if c.spent != best.spent || c.excess != best.excess || compareMostValued(c.victims, best.victims) != 0 || len(c.victims) != len(best.victims) || c.lost != best.lost {
			t.Fatalf("choose selected %s, brute force %s", show(c), show(best))
		}
	})
}

func show(c *candidate) string {
	s := fmt.Sprintf("excess %d lost %v:", c.excess, c.lost)
	for _, j := range c.victims {
		s += " " + j.ID.String()
	}
	return s
}
