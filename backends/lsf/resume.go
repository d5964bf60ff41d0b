package lsf

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Resume lets suspended jobs go on: at once where what runs on their hosts leaves room,
// else when it does. A suspended job's slots are counted as taken by LSF, so that nobody
// gets in there but by Start. Dying leaves a job that is noted as resuming: Tend resumes
// it.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *job) error {
		if j.State != backends.Suspended && (j.State != backends.Running || j.Ending) {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	todo := slices.Clone(errs)
	for i, j := range jobs {
		if errs[i] == nil && (j.State == backends.Running || j.Resuming) {
			todo[i] = errNothing
		}
	}
	c.note(jobs, todo, func(_ int, j *job, e *entry) {
		if !j.sameRun() {
			e.Run, e.Acted, e.Resumed, e.Ran = j.listed.Started, time.Now(), time.Time{}, j.RanFor
		}
		e.Suspended, e.Resuming, e.Until = true, true, time.Time{}
	})
	waits := false
	for i, j := range jobs {
		if !errors.Is(todo[i], errNothing) {
			errs[i] = todo[i]
		}
		waits = waits || errs[i] == nil && j.State == backends.Suspended
	}
	if !waits {
		return errs
	}
	all, err := c.lookAtAll(ctx)
	if err == nil {
		err = c.goOn(ctx, all)
	}
	for i := range errs {
		if errs[i] == nil && jobs[i].State == backends.Suspended {
			errs[i] = err
		}
	}
	return errs
}

// rooms is how many slots of each host nobody runs on.
func (p *picture) rooms() map[string]int {
	free := map[string]int{}
	for _, h := range p.hosts {
		free[h.Name] = h.Slots
	}
	for _, j := range p.jobs {
		if j.State == backends.Running {
			for _, at := range j.Hosts {
				free[at.Host] -= at.Slots
			}
		}
	}
	return free
}

// fits tells whether there is room for a job on its hosts, and takes it.
func (j *job) fits(free map[string]int) bool {
	for _, at := range j.Hosts {
		if free[at.Host] < at.Slots {
			return false
		}
	}
	for _, at := range j.Hosts {
		free[at.Host] -= at.Slots
	}
	return true
}

// goOn resumes the jobs of a picture of all that are to go on, and fit.
func (c *Client) goOn(ctx context.Context, p *picture) error {
	free := p.rooms()
	var jobs []*job
	for _, j := range p.jobs {
		if j.State == backends.Suspended && j.Resuming && j.fits(free) {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	errs := make(backends.Errors, len(jobs))
	c.order(ctx, jobs, errs, "bresume")
	c.until(ctx, idsOf(jobs, func(j *job) backends.ID { return j.ID }), errs, showing, func(_ int, j *job) error {
		if j.listed.State == backends.Suspended {
			return errNot(j)
		}
		return nil
	})
	c.note(jobs, errs, wentOn)
	return errs.First()
}

// wentOn notes that a job runs again.
func wentOn(_ int, _ *job, e *entry) {
	e.Suspended, e.Resuming, e.Until, e.Resumed = false, false, time.Time{}, time.Now().UTC()
}
