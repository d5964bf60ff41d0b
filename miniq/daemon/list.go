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

// snapshotQueue holds the clients that wait for a snapshot of the queue: all that asked
// before it is made get the same one. So the loop makes one at a time however many ask,
// and what is in memory is bounded by room and not by slow readers.
type snapshotQueue struct {
	room *room

	mu      sync.Mutex
	waiting []*snapshotReader
	asking  bool  // makeSnapshots is running
	last    int64 // jobs of the last snapshot
}

// snapshotReader is a client that lists the queue.
type snapshotReader struct {
	c     *connection
	since time.Time // of the ended jobs that it wants
	got   chan *sharedSnapshot
}

// sharedSnapshot is a snapshot of the queue. Its content does not change.
type sharedSnapshot struct {
	queue   *backends.Snapshot
	changes uint64
	holder  *holder

	mu      sync.Mutex
	readers map[*snapshotReader]bool
}

// awaitSnapshot waits for a snapshot that is made after the call; nil: the loop has ended.
func (d *daemon) awaitSnapshot(v *snapshotReader) *sharedSnapshot {
	g := &d.snapshots
	v.got = make(chan *sharedSnapshot, 1)
	g.mu.Lock()
	g.waiting = append(g.waiting, v)
	first := !g.asking
	g.asking = true
	g.mu.Unlock()
	if first {
		go d.makeSnapshots()
	}
	select {
	case p := <-v.got:
		return p
	case <-d.conns.closed():
		return nil
	}
}

// makeSnapshots makes snapshots until no client waits for one.
func (d *daemon) makeSnapshots() {
	g := &d.snapshots
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.asking = false
			g.mu.Unlock()
			return
		}
		p := &sharedSnapshot{readers: map[*snapshotReader]bool{}}
		p.holder = &holder{uid: d.uid, n: g.last, cutLate: p.cutLate}
		g.mu.Unlock()
		if !g.room.acquire(p.holder, d.conns.closed()) || !d.inLoop(func() { d.makeSnapshot(p) }) {
			return
		}
		p.mu.Lock()
		readers := make([]*snapshotReader, 0, len(p.readers))
		for v := range p.readers {
			v.c.pace.start()
			readers = append(readers, v)
		}
		p.mu.Unlock()
		for _, v := range readers {
			v.got <- p
		}
	}
}

// makeSnapshot makes the snapshot for all clients that wait now.
func (d *daemon) makeSnapshot(p *sharedSnapshot) {
	g := &d.snapshots
	g.mu.Lock()
	defer g.mu.Unlock()
	since := g.waiting[0].since
	for _, v := range g.waiting {
		p.readers[v] = true
		if v.since.Before(since) {
			since = v.since
		}
	}
	g.waiting = nil
	p.queue, p.changes = d.m.Snapshot(time.Now(), since), d.changes
	g.last = int64(len(p.queue.Jobs) + len(p.queue.Ended))
}

func (p *sharedSnapshot) cutLate(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for v := range p.readers {
		if v.c.pace.late(now) {
			_ = v.c.conn.Close()
		}
	}
}

// releaseSnapshot removes a reader from a snapshot, whose room is released after the last one.
func (d *daemon) releaseSnapshot(p *sharedSnapshot, v *snapshotReader) {
	v.c.pace.stop()
	p.mu.Lock()
	delete(p.readers, v)
	last := len(p.readers) == 0
	p.mu.Unlock()
	if last {
		d.snapshots.room.release(p.holder)
	}
}

func (d *daemon) listQueue(c *connection, req *miniq.Request) error {
	v := &snapshotReader{c: c, since: req.EndedSince}
	p := d.awaitSnapshot(v)
	if p == nil {
		return c.answerStopping()
	}
	defer d.releaseSnapshot(p, v)
	all := p.queue
	from := sort.Search(len(all.Ended), func(i int) bool { return !all.Ended[i].Ended.Before(v.since) })
	resp := miniq.Response{Snapshot: &miniq.SnapshotHead{At: unixtime.Of(all.At), Hosts: all.Hosts, Guaranteed: all.Guaranteed}, Changes: p.changes}
	jobs, ended := all.Jobs, all.Ended[from:]
	var sets miniq.SetList
	for {
		resp.Jobs, jobs = popPart(jobs, &sets)
		if len(resp.Jobs) == 0 {
			resp.Ended, ended = popPart(ended, &sets)
		}
		resp.Sets = sets.Pop()
		resp.More = len(jobs)+len(ended) > 0
		if err := c.answer(resp); err != nil || !resp.More {
			return err
		}
		resp = miniq.Response{}
	}
}

func popPart(jobs []backends.Job, sets *miniq.SetList) ([]backends.CompactJob, []backends.Job) {
	n := min(len(jobs), perPart)
	if n == 0 {
		return nil, nil
	}
	out := make([]backends.CompactJob, n)
	for i := range out {
		out[i] = jobs[i].Compact()
		out[i].Set = sets.Number(jobs[i].Suits)
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
	query := func(limit int) bool {
		return d.inLoop(func() {
			if many = d.m.Count(ids); many <= limit {
				also()
				jobs, changes, past = d.m.Jobs(time.Now(), ids), d.changes, d.past(ids)
			}
		})
	}
	if !query(perPart) {
		return c.answerStopping()
	}
	if many > perPart {
		h := &holder{uid: c.uid, n: int64(many), cutLate: c.cutLate}
		if !d.listed.acquire(h, d.conns.closed()) {
			return c.answerStopping()
		}
		defer d.listed.release(h)
		c.pace.start()
		defer c.pace.stop()
		if !query(math.MaxInt) {
			return c.answerStopping()
		}
	}
	d.awaitObjects(past)
	var sets miniq.SetList
	for {
		resp := miniq.Response{Changes: changes}
		if resp.Jobs, jobs = popPart(jobs, &sets); len(resp.Jobs) == 0 {
			part := past[:min(len(past), perPart)]
			resp.Jobs, past = d.readFinals(part), past[len(part):]
		}
		resp.Sets = sets.Pop()
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
