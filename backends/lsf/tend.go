package lsf

import (
	"context"
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// tend does what LSF can't finish by itself, and what its owner undid: jobs that a requeue
// ended are put back, those that are back in the queue are let go, holds that somebody lifted are set again, jobs
// that somebody resumed are stopped again, and those go on whose time or whose room has
// come. It begins nothing.
func (c *Client) tend(ctx context.Context) error {
	p, err := c.lookAtAll(ctx)
	if err != nil {
		return err
	}
	if err := c.mend(ctx, p); err != nil {
		return err
	}
	c.comeBack(ctx, p)
	held, err := c.keepHolds(ctx, p)
	if err != nil {
		return err
	}
	stopped, err := c.keepStopped(ctx, p)
	if err != nil {
		return err
	}
	if held || stopped {
		if p, err = c.lookAtAll(ctx); err != nil {
			return err
		}
	}
	if err := c.goOn(ctx, p); unreachable(err) != nil {
		return err
	}
	if err := c.prune(p); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fresh = nil; p.asked == c.asked.Load() {
		c.fresh = p
	}
	return nil
}

// unreachable is err if it is that the queue can't be reached: any other one of a job
// is found again in the next cycle.
func unreachable(err error) error {
	if errors.Is(err, backends.ErrUnreachable) {
		return err
	}
	return nil
}

// mostFreed is how many jobs that would never start a cycle frees: a bmod takes 8 ms.
const mostFreed = 500

// keepHolds sets holds again that somebody lifted, ends those whose time is over, frees
// jobs whose begin time is never, and takes back the note of a requeue that never was
// told.
func (c *Client) keepHolds(ctx context.Context, p *picture) (changed bool, err error) {
	var lifted, stuck, over []*job
	for _, j := range p.jobs {
		e := &j.entry
		switch {
		case j.State.Ended() || j.Ending:
		case e.Requeuing && j.sameRun() && j.State == backends.Running, j.waits() && !e.Until.IsZero() && j.HeldUntil.IsZero():
			over = append(over, j)
		case j.waits() && j.stuck && !e.Requeuing:
			stuck = append(stuck, j)
		case j.waits() && !j.HeldUntil.IsZero() && !e.Requeuing && !j.listed.BeginTime.Equal(beginAt(e.Until, p.at)) && j.listed.BeginTime.Before(e.Until):
			lifted = append(lifted, j)
		}
	}
	errs := make(backends.Errors, len(over))
	c.note(over, errs, func(_ int, j *job, e *entry) {
		e.Until = time.Time{}
		if e.Requeuing && j.State == backends.Running {
			e.Requeuing, e.Returns, e.Run, e.Mark = false, false, time.Time{}, ""
		}
	})
	if err := errs.First(); err != nil {
		return false, err
	}
	lifted = append(lifted, stuck[:min(len(stuck), mostFreed)]...)
	errs = make(backends.Errors, len(lifted))
	c.begin(ctx, p, lifted, errs)
	return len(over)+len(lifted) > 0, unreachable(errs.First())
}

// keepStopped stops jobs again that run though they are noted as stopped, unless their
// hold is over and they fit, and lets those go on whose hold is over.
func (c *Client) keepStopped(ctx context.Context, p *picture) (changed bool, err error) {
	free := p.rooms()
	var run, due, again []*job
	for _, j := range p.jobs {
		e := &j.entry
		if !e.Suspended || !j.sameRun() || j.Ending {
			continue
		}
		fits := true
		for _, at := range j.Hosts {
			fits = fits && free[at.Host] >= 0
		}
		switch {
		case j.State == backends.Running && !e.Until.After(p.at) && fits:
			run = append(run, j)
		case j.State == backends.Running:
			again = append(again, j)
			for _, at := range j.Hosts {
				free[at.Host] += at.Slots
			}
		case j.State == backends.Suspended && !e.Resuming && !e.Until.IsZero() && !e.Until.After(p.at):
			due = append(due, j)
		}
	}
	if len(run)+len(due)+len(again) == 0 {
		return false, nil
	}
	errs := make(backends.Errors, len(run))
	c.note(run, errs, wentOn)
	if err := errs.First(); err != nil {
		return false, err
	}
	errs = make(backends.Errors, len(due))
	c.note(due, errs, func(_ int, _ *job, e *entry) { e.Resuming, e.Until = true, time.Time{} })
	if err := errs.First(); err != nil {
		return false, err
	}
	errs = make(backends.Errors, len(again))
	c.order(ctx, again, errs, "bstop")
	return true, unreachable(errs.First())
}

// prune forgets what was remembered of jobs that have ended long ago. It writes only
// where there is something to be forgotten, or a job has ended since.
func (c *Client) prune(p *picture) error {
	alive := func(id backends.ID, e entry) bool {
		j, err := p.one(id)
		return err == nil && e.about(j.listed) && !j.State.Ended()
	}
	remembered, err := c.record.read()
	if err != nil {
		return err
	}
	for id, e := range remembered {
		if alive(id, e) != e.Gone.IsZero() || !e.Gone.IsZero() && p.at.Sub(e.Gone) > keepGone {
			return c.record.change(func(all entries) { all.prune(p.at, alive) })
		}
	}
	return nil
}
