package lsf

import (
	"context"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// A begin time can't be cleared everywhere: lava's `bmod -bn` sets it to the greatest
// number that it can hold (volclava 2.2: DELETE_NUMBER, 2³²−2, is stored in 64 bits and
// taken for a time), so that the job never starts. There a job is released by a begin
// time shortly ahead. lava gets no -bn at all: a crash between it and the next bmod would
// leave a job that starts in 2106.

// never is the begin time that such a -bn leaves.
var never = time.Unix(1<<32-2, 0).UTC()

// neverBegins reports whether a begin time is never. lava shows it without its year, but
// with its seconds, which no -b can set. LSF 10.1 shows only minutes: there the year must
// be shown, or a begin time have been set by the engine (ours), and it must not be the
// owner's.
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

// start is when a waiting job may start, as far as the engine and its owner decide.
type start struct {
	at    time.Time
	hold  bool // it is the engine's hold, not the owner's begin time
	freed bool // neither: it ends a hold of the engine's
	set   bool // LSF has it already, or the job does not wait
}

// desiredStart returns the begin time that a job should have: the end of the engine's hold,
// or what its owner wants, if that is later. Without either it is one shortly ahead.
func (j *job) desiredStart(now time.Time) start {
	owners, listed := after(j.BeginTime, now), j.listed.BeginTime
	s := start{at: roundBegin(owners, now)}
	if until := roundBegin(j.entry.Until, now); until.After(owners) {
		s.at, s.hold = until, true
	}
	if s.at.IsZero() {
		s.freed, s.at = true, roundBegin(now.Add(1), now)
		if listed.After(now) && listed.Before(s.at) {
			s.at = listed
		}
		s.set = !listed.After(now) || j.entry.Freed && listed.Equal(j.entry.Ours)
	} else {
		s.set = listed.Equal(s.at)
	}
	s.set = s.set || !j.waits()
	return s
}

// setBeginTimes gives waiting jobs the begin time that they should have, and reads it back. It
// first notes which of the begin times that LSF shows, now and afterwards, are the
// engine's.
func (c *Client) setBeginTimes(ctx context.Context, p *snapshot, b batch) {
	now := time.Now()
	desired := map[*item]start{}
	b = b.Where(func(it *item) bool {
		desired[it] = it.Job.desiredStart(now)
		return !desired[it].set
	})
	c.updateEntries(b, func(it *item, e *entry) {
		switch listed := it.Job.listed.BeginTime; {
		case listed.Equal(e.Ours):
			e.Was = e.Ours
		case !listed.Equal(e.Was):
			e.Was = time.Time{}
		}
		e.Begin, e.Ours, e.Freed = after(it.Job.BeginTime, now), desired[it].at, !desired[it].hold
	})
	if p.flavour == lsf10 {
		b = c.clearBeginTimes(ctx, b, func(it *item) bool { return desired[it].freed })
	}
	b.Each(func(it *item) error {
		switch at := desired[it].at; {
		case it.Job.listed.BeginTime.Equal(at):
			return nil
		case time.Until(at) < minimumLead/2:
			return fmt.Errorf("job %v: %v is too near for bmod -b: LSF would take it for next year's", it.ID, at)
		default:
			return c.bmod(ctx, it.ID, "-b", formatBegin(at))
		}
	})
	c.awaitEffect(ctx, b, func(it *item, now *job) error {
		s := desired[it]
		if now.waits() && !now.listed.BeginTime.Equal(s.at) && !(s.freed && !now.listed.BeginTime.After(s.at)) {
			return fmt.Errorf("job %v: it begins at %v after bmod -b %v", it.ID, now.listed.BeginTime, s.at)
		}
		return nil
	})
}

// clearBeginTimes clears begin times by bmod -bn, which LSF 10.1 documents. It returns the jobs
// that still need another begin time. What LSF does with -bn is found out once.
func (c *Client) clearBeginTimes(ctx context.Context, b batch, freed func(*item) bool) (left batch) {
	if c.keepsBegin.Load() {
		return b
	}
	tried := reconcile.Of(b.Where(freed).Jobs())
	tried.Each(func(it *item) error { return c.bmod(ctx, it.ID, "-bn") })
	gone := map[*job]bool{}
	c.awaitEffect(ctx, tried, func(it *item, now *job) error {
		switch listed := now.listed.BeginTime; {
		case now.waits() && now.neverBegins(lsf10, true):
			c.keepsBegin.Store(true)
		case now.waits() && listed.After(time.Now()):
			return fmt.Errorf("job %v: it begins at %v after bmod -bn", it.ID, listed)
		default:
			gone[it.Job] = true
		}
		return nil
	})
	return b.Where(func(it *item) bool { return !gone[it.Job] })
}
