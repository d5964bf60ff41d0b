package lsf

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Resume resumes suspended jobs: at once where the jobs that run on their hosts leave
// room, else as soon as they do. LSF counts a suspended job's slots as taken, so that no
// other job gets in there but by Start. A crash leaves a job that is noted as resuming:
// Reconcile resumes it.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, func(it *item) error {
		if j := it.Job; j.State != backends.Suspended && (j.State != backends.Running || j.Ending) {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	// The owner of a job that runs though it is noted as stopped resumed it: Reconcile
	// looks whether it fits.
	c.updateEntries(b.Where(func(it *item) bool {
		return it.Job.State == backends.Running && it.Job.entry.Suspended && it.Job.sameRun()
	}), func(_ *item, e *entry) { e.Resuming, e.Until = true, time.Time{} })
	suspended := b.Where(func(it *item) bool { return it.Job.State == backends.Suspended })
	c.updateEntries(suspended.Where(func(it *item) bool { return !it.Job.Resuming }), func(it *item, e *entry) {
		if !it.Job.sameRun() {
			e.Run, e.Acted, e.Resumed, e.Ran = it.Job.listed.Started, time.Now(), time.Time{}, it.Job.RanFor
		}
		e.Suspended, e.Resuming, e.Until = true, true, time.Time{}
	})
	if suspended = suspended.Open(); len(suspended) == 0 {
		return b.Errors()
	}
	all, err := c.readAll(ctx)
	if err == nil {
		err = c.resumeFitting(ctx, all)
	}
	if err != nil {
		suspended.Fail(err)
	}
	return b.Errors()
}

// freeSlots returns how many slots of each host no job runs in.
func (p *snapshot) freeSlots() map[string]int {
	free := map[string]int{}
	for _, h := range p.hosts {
		free[h.Name] = h.Slots
	}
	for _, j := range p.jobs {
		if j.State == backends.Running {
			for host, slots := range j.slots() {
				free[host] -= slots
			}
		}
	}
	return free
}

// slots returns how many slots a job has on each host.
func (j *job) slots() map[string]int {
	on := map[string]int{}
	for _, at := range j.Hosts {
		on[at.Host] += at.Slots
	}
	return on
}

// resumeFitting resumes the jobs of a snapshot of all that are noted as resuming and fit.
func (c *Client) resumeFitting(ctx context.Context, p *snapshot) error {
	free := p.freeSlots()
	b := reconcile.Of(p.jobs).Where(func(it *item) bool {
		return it.Job.State == backends.Suspended && it.Job.Resuming && reconcile.Fits(it.Job.slots(), free)
	})
	c.runBatch(ctx, b, "bresume")
	c.awaitEffect(ctx, b, func(_ *item, now *job) error {
		if now.listed.State == backends.Suspended {
			return reconcile.WrongState(&now.Job)
		}
		return nil
	})
	c.updateEntries(b, recordResumed)
	return b.Errors().First()
}

// recordResumed notes that a job was resumed.
func recordResumed(_ *item, e *entry) {
	e.Suspended, e.Resuming, e.Until, e.Resumed = false, false, time.Time{}, time.Now().UTC()
}
