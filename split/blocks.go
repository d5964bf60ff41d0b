package split

import (
	"github.com/allotment-hpc/allotment/metrics"
)

// MaxBlocks bounds the blocks of a resident job.
const MaxBlocks = 10_000

// Blocks is what a core keeps of a resident job (R55). A period is a round whose items are the blocks: the
// item of a period at a place is the block that stands there in the hosts' lists, one after the other. What
// a host returns within a period is executed in further rounds of the same period.
type Blocks struct {
	First, Last int64
	Period      int64 // the last one that began, from 1
	Written     int64 // the last one whose results were written
	Round       int   // with which Period began
	Held        []metrics.Held
}

// count returns the number of blocks.
func (b *Blocks) count() int64 { return b.Last - b.First + 1 }

// items returns the number of items up to the end of a period.
func (b *Blocks) items(period int64) int64 { return period * b.count() }

// order returns the blocks in the order of the current period's items.
func (b *Blocks) order() []int64 {
	var all []int64
	for _, h := range b.Held {
		all = append(all, h.Blocks...)
	}
	return all
}

// measure notes how long the hosts took for their own blocks, if a round was a period's first.
func (b *Blocks) measure(round int, replies []metrics.Response) {
	if round != b.Round {
		return
	}
	for i, h := range b.Held {
		b.Held[i].Took = 0
		for _, r := range replies {
			if r.Host == h.Host && r.Items == len(h.Blocks) {
				b.Held[i].Took = r.Took
			}
		}
	}
}

// BeginPeriod begins the next period once all of the last one has ended, and returns its tasks and which
// blocks moved. It returns no tasks before that, or without hosts.
func (c *Core) BeginPeriod() ([]*Task, []metrics.Move) {
	b := c.Blocks
	if c.Closed < c.Round || !c.Finished(b.items(b.Period)) {
		return nil, nil
	}
	held, moved := c.Balance.Divide(b.Held, b.First, b.Last)
	if len(held) == 0 {
		return nil, nil
	}
	b.Held, b.Round = held, c.Round+1
	b.Period++
	var sizes []metrics.Task
	for _, h := range held {
		if len(h.Blocks) > 0 {
			sizes = append(sizes, metrics.Task{Host: h.Host, Items: len(h.Blocks)})
		}
	}
	return c.assign(sizes, b.items(b.Period), nil, nil), moved
}
