package lsf

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// mending is for how long a job that a requeue of ours has ended is put back from its
// end, each time that it is tended; it shows as on its way meanwhile. Beyond that it is
// lost.
const mending = time.Minute

// mend puts jobs back that our own requeue ended. LSF ends a job whose host dies in the
// midst of it (volclava 2.2: after 11 s, `Termination request issued; but unable to reach
// the execution host`); one that nobody touched lives through the outage. `brequeue -e`
// puts such a job back where LSF does it, with the same ID. A job that ended while its
// host was seen all the time was ended by somebody.
func (c *Client) mend(ctx context.Context, p *picture) error {
	down := map[string]bool{}
	for _, h := range p.hosts {
		down[h.Name] = h.State == backends.HostDown
	}
	var seen, ended []*job
	for _, j := range p.jobs {
		if !j.entry.Requeuing || !j.sameRun() {
			continue
		}
		if onAny(j, down) {
			seen = append(seen, j)
		}
		if j.listed.State == backends.Exited && (onAny(j, down) || !j.entry.Down.IsZero()) && j.mendable(p.at) {
			ended = append(ended, j)
		}
	}
	b := reconcile.Of(seen)
	c.note(b, func(_ *item, e *entry) { e.Down = p.at })
	if err := b.Errors().First(); err != nil {
		return err
	}
	c.brequeue(ctx, reconcile.Of(ended), "-e") // Tend looks what came of it
	return nil
}

func onAny(j *job, hosts map[string]bool) bool {
	for _, at := range j.listed.Hosts {
		if hosts[at.Host] {
			return true
		}
	}
	return false
}

// mendable tells whether a job that has ended may still be put back.
func (j *job) mendable(at time.Time) bool { return at.Sub(j.listed.Ended) < mending }

// left is when a job that has ended stopped being on its way back.
func (j *job) left() time.Time {
	e := &j.entry
	switch {
	case !e.Requeuing || !j.sameRun():
		return j.Ended
	case !e.Down.IsZero():
		return j.listed.Ended.Add(mending)
	}
	return latest(e.Acted.Add(gap), j.listed.Ended.Add(gap))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
