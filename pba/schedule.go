package pba

import (
	"context"
	"time"
)

// Schedule says when a process starts cycles (R6). Without Every there is one;
// without For they go on until the context ends.
type Schedule struct {
	Every time.Duration
	For   time.Duration
}

// Run calls cycle at the start and then every Every, counted from start, so that
// the cycles of processes that cron starts one after another keep their beat. A
// cycle that takes longer makes it skip beats. Under For the last cycle starts
// no later than For − Every, and its context ends with the process's time. Run
// returns cycle's error when it asks to stop, else the last one.
func (s Schedule) Run(ctx context.Context, start time.Time, cycle func(ctx context.Context) (goOn bool, err error)) error {
	if s.For > 0 {
		timed, cancel := context.WithDeadline(ctx, start.Add(s.For))
		defer cancel()
		ctx = timed
	}
	for {
		goOn, err := cycle(ctx)
		if !goOn || s.Every <= 0 {
			return err
		}
		next := s.beat(start, time.Now())
		if s.For > 0 && next.Sub(start) > s.For-s.Every {
			return err
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// beat is the next time at which a cycle is due.
func (s Schedule) beat(start, now time.Time) time.Time {
	return start.Add((now.Sub(start)/s.Every + 1) * s.Every)
}
