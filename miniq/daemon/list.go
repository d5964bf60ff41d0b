package daemon

import (
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/miniq"
)

// perPart is how many jobs go into one part of an answer.
const perPart = 500

// gallery gives clients that list the queue a snapshot of it: the same one to all
// that have asked before it is taken. So the loop takes one at a time however many
// ask, and what is in memory is bounded by room and not by slow readers.
type gallery struct {
	room *room

	mu      sync.Mutex
	waiting []*viewer
	asking  bool  // show is running
	last    int64 // jobs of the last snapshot
}

// viewer is a client that lists the queue.
type viewer struct {
	c     *connection
	since time.Time // of the ended jobs that it wants
	got   chan *picture
}

// picture is a snapshot of the queue. Its farm is not changed.
type picture struct {
	farm    *backends.Snapshot
	changes uint64
	holder  *holder

	mu      sync.Mutex
	viewers map[*viewer]bool
}

// look waits for a snapshot that is taken after the call; nil: the loop has ended.
func (d *daemon) look(v *viewer) *picture {
	g := &d.gallery
	v.got = make(chan *picture, 1)
	g.mu.Lock()
	g.waiting = append(g.waiting, v)
	first := !g.asking
	g.asking = true
	g.mu.Unlock()
	if first {
		go d.show()
	}
	select {
	case p := <-v.got:
		return p
	case <-d.conns.closed():
		return nil
	}
}

// show takes snapshots until no client waits for one.
func (d *daemon) show() {
	g := &d.gallery
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.asking = false
			g.mu.Unlock()
			return
		}
		p := &picture{viewers: map[*viewer]bool{}}
		p.holder = &holder{uid: d.uid, n: g.last, cutLate: p.cutLate}
		g.mu.Unlock()
		if !g.room.take(p.holder, d.conns.closed()) || !d.inLoop(func() { d.take(p) }) {
			return
		}
		p.mu.Lock()
		viewers := make([]*viewer, 0, len(p.viewers))
		for v := range p.viewers {
			v.c.pace.start()
			viewers = append(viewers, v)
		}
		p.mu.Unlock()
		for _, v := range viewers {
			v.got <- p
		}
	}
}

// take takes the snapshot for all clients that wait now.
func (d *daemon) take(p *picture) {
	g := &d.gallery
	g.mu.Lock()
	defer g.mu.Unlock()
	since := g.waiting[0].since
	for _, v := range g.waiting {
		p.viewers[v] = true
		if v.since.Before(since) {
			since = v.since
		}
	}
	g.waiting = nil
	p.farm, p.changes = d.m.Snapshot(time.Now(), since), d.changes
	g.last = int64(len(p.farm.Jobs) + len(p.farm.Ended))
}

func (p *picture) cutLate(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for v := range p.viewers {
		if v.c.pace.late(now) {
			_ = v.c.conn.Close()
		}
	}
}

// seen removes a viewer from a picture, and gives back its room after the last one.
func (d *daemon) seen(p *picture, v *viewer) {
	v.c.pace.stop()
	p.mu.Lock()
	delete(p.viewers, v)
	last := len(p.viewers) == 0
	p.mu.Unlock()
	if last {
		d.gallery.room.give(p.holder)
	}
}

func (d *daemon) farm(c *connection, req *miniq.Request) error {
	v := &viewer{c: c, since: req.EndedSince}
	p := d.look(v)
	if p == nil {
		return c.over()
	}
	defer d.seen(p, v)
	all := p.farm
	from := sort.Search(len(all.Ended), func(i int) bool { return !all.Ended[i].Ended.Before(v.since) })
	resp := miniq.Response{Farm: &miniq.FarmHead{At: unixtime.Of(all.At), Hosts: all.Hosts}, Changes: p.changes}
	jobs, ended := all.Jobs, all.Ended[from:]
	for {
		resp.Jobs, jobs = take(jobs)
		if len(resp.Jobs) == 0 {
			resp.Ended, ended = take(ended)
		}
		resp.More = len(jobs)+len(ended) > 0
		if err := c.answer(resp); err != nil || !resp.More {
			return err
		}
		resp = miniq.Response{}
	}
}

func take(jobs []backends.Job) ([]backends.CompactJob, []backends.Job) {
	n := min(len(jobs), perPart)
	if n == 0 {
		return nil, nil
	}
	out := make([]backends.CompactJob, n)
	for i := range out {
		out[i] = jobs[i].Compact()
	}
	return out, jobs[n:]
}

func (d *daemon) jobs(c *connection, req *miniq.Request) error {
	return d.sendJobs(c, req.IDs, func() {})
}

// sendJobs answers with some jobs, and with how often the state has changed; also
// is done in the same turn of the loop. Many of them need room first.
func (d *daemon) sendJobs(c *connection, ids []backends.ID, also func()) error {
	ids = distinct(ids)
	var jobs []backends.Job
	var changes uint64
	var past []backends.ID
	var many int
	look := func(limit int) bool {
		return d.inLoop(func() {
			if many = d.m.Count(ids); many <= limit {
				also()
				jobs, changes, past = d.m.Jobs(time.Now(), ids), d.changes, d.past(ids)
			}
		})
	}
	if !look(perPart) {
		return c.over()
	}
	if many > perPart {
		h := &holder{uid: c.uid, n: int64(many), cutLate: c.cutLate}
		if !d.listed.take(h, d.conns.closed()) {
			return c.over()
		}
		defer d.listed.give(h)
		c.pace.start()
		defer c.pace.stop()
		if !look(math.MaxInt) {
			return c.over()
		}
	}
	d.settled(past)
	for {
		resp := miniq.Response{Changes: changes}
		if resp.Jobs, jobs = take(jobs); len(resp.Jobs) == 0 {
			part := past[:min(len(past), perPart)]
			resp.Jobs, past = d.finals(part), past[len(part):]
		}
		resp.More = len(jobs)+len(past) > 0
		if err := c.answer(resp); err != nil || !resp.More {
			return err
		}
	}
}

func (c *connection) cutLate(now time.Time) {
	if c.pace.late(now) {
		_ = c.conn.Close()
	}
}

// distinct returns each ID once, in the order in which they came.
func distinct(ids []backends.ID) []backends.ID {
	seen := make(map[backends.ID]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id backends.ID) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}
