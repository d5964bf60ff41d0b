package lsf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// A begin time can't be taken back everywhere: lava's `bmod -bn` sets it to the
// greatest number that it can hold (volclava 2.2: DELETE_NUMBER, 2³²−2, is stored in 64
// bits and taken for a time), so that the job never starts. Where that is so a job is
// released by a begin time shortly ahead. lava gets no -bn at all: whoever dies between
// it and the next bmod would leave a job that starts in 2106.

// never is the begin time that a job has after such a -bn.
var never = time.Unix(1<<32-2, 0).UTC()

// neverBegins tells whether a begin time is never. lava shows it without its year, but
// with its seconds, which no -b can set; LSF 10.1 shows minutes alone, so that there it
// must be a job whose begin time we set, and not the one that its owner wants.
func (j *job) neverBegins(f flavour, ours bool) bool {
	shown := j.listed.BeginTime
	same := func(layout string) bool { return shown.Format(layout) == never.Format(layout) }
	switch {
	case shown.IsZero():
		return false
	case f == lava:
		return same("01-02 15:04:05")
	}
	return same("01-02 15:04") && !shown.Equal(j.entry.Begin) && (ours || shown.Year() == never.Year())
}

// starting is the begin time that a job that waits should have: the end of the
// engine's hold, or what its owner wants, if that is later; zero: none.
func (j *job) starting(now time.Time) (at time.Time, hold bool) {
	owners := after(j.BeginTime, now)
	if until := beginAt(j.entry.Until, now); until.After(owners) {
		return until, true
	}
	return beginAt(owners, now), false
}

// begin gives jobs that wait the begin time that they should have, and reads it back.
// What is noted before tells whose the one is that LSF shows: the one that it shows
// now, and the one that it will show.
func (c *Client) begin(ctx context.Context, p *picture, jobs []*job, errs backends.Errors) {
	now := time.Now()
	want, holds, freed := make([]time.Time, len(jobs)), make([]bool, len(jobs)), make([]bool, len(jobs))
	todo := slices.Clone(errs)
	for i, j := range jobs {
		if errs[i] != nil {
			continue
		}
		if want[i], holds[i] = j.starting(now); want[i].IsZero() {
			freed[i], want[i] = true, beginAt(now.Add(1), now)
			if listed := j.listed.BeginTime; listed.After(now) && listed.Before(want[i]) {
				want[i] = listed
			}
		}
		switch listed := j.listed.BeginTime; {
		case !j.waits(), freed[i] && !listed.After(now), !freed[i] && listed.Equal(want[i]), freed[i] && j.entry.Freed && listed.Equal(j.entry.Ours):
			todo[i] = errNothing
		}
	}
	c.note(jobs, todo, func(i int, j *job, e *entry) {
		switch listed := j.listed.BeginTime; {
		case listed.Equal(e.Ours):
			e.Was = e.Ours
		case !listed.Equal(e.Was):
			e.Was = time.Time{}
		}
		e.Begin, e.Ours, e.Freed = after(j.BeginTime, now), want[i], !holds[i]
	})
	if p.flavour == lsf10 {
		c.clear(ctx, jobs, freed, want, todo)
	}
	ids := make([]backends.ID, len(jobs))
	for i, j := range jobs {
		if todo[i] != nil {
			continue
		}
		ids[i] = j.ID
		switch {
		case j.listed.BeginTime.Equal(want[i]):
		case time.Until(want[i]) < soon/2:
			todo[i] = fmt.Errorf("job %v: %v is too near for bmod -b: LSF would take it for next year's", j.ID, want[i])
		default:
			todo[i] = c.bmod(ctx, j.ID, "-b", clock(want[i]))
		}
	}
	c.until(ctx, ids, todo, showing, func(i int, j *job) error {
		if j.waits() && !j.listed.BeginTime.Equal(want[i]) && !(freed[i] && !j.listed.BeginTime.After(want[i])) {
			return fmt.Errorf("job %v: it begins at %v after bmod -b %v", j.ID, j.listed.BeginTime, want[i])
		}
		return nil
	})
	for i := range errs {
		if !errors.Is(todo[i], errNothing) {
			errs[i] = todo[i]
		}
	}
}

// clear takes begin times back by bmod -bn, which LSF 10.1 documents. It is done with
// those whose time is gone when it is read back; the others get another one. What LSF
// does with -bn is found out once.
func (c *Client) clear(ctx context.Context, jobs []*job, freed []bool, want []time.Time, todo backends.Errors) {
	if c.keepsBegin.Load() {
		return
	}
	tried, ids := make(backends.Errors, len(jobs)), make([]backends.ID, len(jobs))
	for i, j := range jobs {
		if tried[i] = errNothing; todo[i] == nil && freed[i] {
			ids[i], tried[i] = j.ID, c.bmod(ctx, j.ID, "-bn")
		}
	}
	c.until(ctx, ids, tried, showing, func(i int, j *job) error {
		switch listed := j.listed.BeginTime; {
		case j.waits() && j.neverBegins(lsf10, true):
			c.keepsBegin.Store(true)
		case j.waits() && listed.After(time.Now()):
			return fmt.Errorf("job %v: it begins at %v after bmod -bn", j.ID, listed)
		default:
			todo[i] = errNothing
		}
		return nil
	})
}
