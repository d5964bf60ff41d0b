package lsf

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// reconcile does what LSF can't finish by itself, and restores what owners undid. It puts
// back jobs that a requeue ended, or that have saved themselves, completes those that are back in the queue, sets lifted
// holds again, stops resumed jobs again, and resumes jobs whose hold is over or whose
// slots are free. It starts no new act.
func (c *Client) reconcile(ctx context.Context) error {
	p, err := c.readAll(ctx)
	if err != nil {
		return err
	}
	if err := c.repairRequeues(ctx, p); err != nil {
		return err
	}
	if err := c.advanceSaves(ctx, p); err != nil {
		return err
	}
	c.completeRequeues(ctx, p)
	held, err := c.restoreHolds(ctx, p)
	if err != nil {
		return err
	}
	stopped, err := c.restoreStops(ctx, p)
	if err != nil {
		return err
	}
	if held || stopped {
		if p, err = c.readAll(ctx); err != nil {
			return err
		}
	}
	if err := c.resumeFitting(ctx, p); unreachable(err) != nil {
		return err
	}
	if err := c.prune(p); err != nil {
		return err
	}
	c.latest.Store(p, p.at, p.commands)
	return nil
}

// unreachable returns err if it means that the queue can't be reached, else nil: any
// other error of a job shows again in the next cycle.
func unreachable(err error) error {
	if errors.Is(err, backends.ErrUnreachable) {
		return err
	}
	return nil
}

// mostFreed is how many stuck jobs one cycle frees: a bmod takes 8 ms.
const mostFreed = 500

// restoreHolds sets lifted holds again, ends those whose time is over, frees jobs whose
// begin time is never, and clears the note of a requeue that was never ordered.
func (c *Client) restoreHolds(ctx context.Context, p *snapshot) (changed bool, err error) {
	var lifted, stuck, over []*job
	for _, j := range p.jobs {
		e := &j.entry
		switch {
		case j.State.Ended() || j.Ending:
		case e.Requeuing && j.sameRun() && j.State == backends.Running, j.waits() && !e.Until.IsZero() && j.HeldUntil.IsZero():
			over = append(over, j)
		case j.waits() && j.stuck && !e.Requeuing:
			stuck = append(stuck, j)
		case j.waits() && !j.HeldUntil.IsZero() && !e.Requeuing && !j.listed.BeginTime.Equal(roundBegin(e.Until, p.at)) && j.listed.BeginTime.Before(e.Until):
			lifted = append(lifted, j)
		}
	}
	b := reconcile.Of(over)
	c.updateEntries(b, func(it *item, e *entry) {
		e.Until = time.Time{}
		if e.Requeuing && it.Job.State == backends.Running {
			e.Requeuing, e.Returns, e.Run, e.Mark = false, false, time.Time{}, ""
		}
	})
	if err := b.Errors().First(); err != nil {
		return false, err
	}
	b = reconcile.Of(append(lifted, stuck[:min(len(stuck), mostFreed)]...))
	c.setBeginTimes(ctx, p, b)
	return len(over)+len(b) > 0, unreachable(b.Errors().First())
}

// restoreStops stops jobs again that run though they are noted as stopped, unless their
// hold is over and they fit. It notes as resuming those whose hold is over.
func (c *Client) restoreStops(ctx context.Context, p *snapshot) (changed bool, err error) {
	free := p.freeSlots()
	var run, due, resumed []*job
	for _, j := range p.jobs {
		e := &j.entry
		if !e.Suspended || !j.sameRun() || j.Ending {
			continue
		}
		fits := !slices.ContainsFunc(j.Hosts, func(at backends.Placement) bool { return free[at.Host] < 0 })
		switch {
		case j.State == backends.Running && !e.Until.After(p.at) && fits:
			run = append(run, j)
		case j.State == backends.Running:
			resumed = append(resumed, j)
			for _, at := range j.Hosts {
				free[at.Host] += at.Slots
			}
		case reconcile.Due(&j.Job, e.Until, p.at):
			due = append(due, j)
		}
	}
	if len(run)+len(due)+len(resumed) == 0 {
		return false, nil
	}
	b := reconcile.Of(run)
	c.updateEntries(b, recordResumed)
	if err := b.Errors().First(); err != nil {
		return false, err
	}
	b = reconcile.Of(due)
	c.updateEntries(b, func(_ *item, e *entry) { e.Resuming, e.Until = true, time.Time{} })
	if err := b.Errors().First(); err != nil {
		return false, err
	}
	b = reconcile.Of(resumed)
	c.runBatch(ctx, b, "bstop")
	return true, unreachable(b.Errors().First())
}

// prune removes what is remembered of jobs that ended long ago. It writes only if there
// is something to remove, or if a job has ended or come back since.
func (c *Client) prune(p *snapshot) error {
	alive := func(id backends.ID, e entry) bool {
		j, err := reconcile.One(p.jobs, id)
		return err == nil && e.describes(j.listed) && !j.State.Ended()
	}
	remembered, err := c.record.read()
	if err != nil {
		return err
	}
	for id, e := range remembered {
		if alive(id, e) != e.Gone.IsZero() || !e.Gone.IsZero() && p.at.Sub(e.Gone) > goneLimit {
			return c.record.change(func(all entries) { all.prune(p.at, alive) })
		}
	}
	return nil
}
