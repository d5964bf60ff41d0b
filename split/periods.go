package split

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// periods are the items of a resident job: each period, its blocks again. The runner begins periods; the
// delivery reads the current one's blocks.
type periods struct {
	first, blocks int64
	most          int64 // periods; 0: no end

	mu     sync.Mutex
	period int64   // that began last
	order  []int64 // its blocks, in the order of its items
}

// begin begins a period with its blocks in this order.
func (p *periods) begin(period int64, order []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.period, p.order = period, order
}

// block returns the block that an item of the current period is.
func (p *periods) block(item int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := item - (p.period-1)*p.blocks
	if at < 0 || at >= int64(len(p.order)) {
		return 0, fmt.Errorf("item %d is none of period %d", item, p.period)
	}
	return p.order[at], nil
}

func (p *periods) count() (int64, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.period * p.blocks, p.most > 0 && p.period >= p.most, nil
}

func (p *periods) copy(to io.Writer, first, count int64) error {
	for i := range count {
		block, err := p.block(first + i)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(to, block); err != nil {
			return err
		}
	}
	return nil
}

func (p *periods) text(item int64) string {
	block, err := p.block(item)
	if err != nil {
		return ""
	}
	return fmt.Sprint(block)
}

func (*periods) changed() <-chan struct{} { return nil }
func (*periods) sync() error              { return nil }
func (*periods) close() error             { return nil }
func (*periods) separator() byte          { return '\n' }

// beat says when periods begin: at its start, and then every so often.
type beat struct {
	every time.Duration
	start time.Time // of the first period; zero: none has begun
	next  time.Time // when the next one is due
}

// begin notes that a period begins. The next one is due at the first beat behind now: what was missed
// is not made up for.
func (b *beat) begin(now time.Time) {
	if b.start.IsZero() {
		b.start = now
	}
	b.next = b.start.Add((now.Sub(b.start)/b.every + 1) * b.every)
}

// trickle lets so many lines through at once, and then one a minute: a resident job may run for weeks.
type trickle struct {
	lines   int       // that may still come at once
	at      time.Time // when lines was right
	skipped int64     // lines since the last one that came through
}

// The bounds of a trickle.
const (
	trickleLines = 20
	trickleEvery = time.Minute
)

// pass returns what becomes of a line; "" if it is left out.
func (t *trickle) pass(line string, now time.Time) string {
	if t.at.IsZero() {
		t.lines, t.at = trickleLines, now
	}
	if more := now.Sub(t.at) / trickleEvery; more > 0 {
		t.lines = int(min(int64(t.lines)+int64(more), trickleLines))
		t.at = t.at.Add(more * trickleEvery)
	}
	if t.lines <= 0 {
		t.skipped++
		return ""
	}
	t.lines--
	if t.skipped > 0 {
		line += fmt.Sprintf(" (lines left out before this one: %d)", t.skipped)
		t.skipped = 0
	}
	return line
}
