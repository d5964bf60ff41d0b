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
	Marks func() <-chan struct{} // called before each wait: receives the submit filter's marks; nil: none is heard
}

// Then is what follows a cycle.
type Then int

// What follows a cycle.
const (
	Stop     Then = iota
	GoOn          // the next cycle, when it is due
	GoOnSoon      // the same, and after a mark sooner: the queue is about to decide about a job
)

// Run calls cycle at the start and then every Every, counted from start, so that
// the cycles of processes that cron starts one after another keep their beat. A
// cycle that takes longer makes it skip beats. Under For the last cycle starts
// no later than For − Every, and its context ends with the process's time. After a mark
// there are cycles between two beats; see follow. Run returns cycle's error when it asks
// to stop, else the last one.
func (s Schedule) Run(ctx context.Context, start time.Time, cycle func(ctx context.Context) (Then, error)) error {
	if s.For > 0 {
		timed, cancel := context.WithDeadline(ctx, start.Add(s.For))
		defer cancel()
		ctx = timed
	}
	var marked follow
	s.marks() // those of the first cycle's time, too
	for {
		then, err := cycle(ctx)
		if then == Stop || s.Every <= 0 {
			return err
		}
		now := time.Now()
		next := s.beat(start, now)
		if s.For > 0 && next.Sub(start) > s.For-s.Every {
			return err
		}
		if then == GoOnSoon {
			marked.again(now)
		}
		if !s.wait(ctx, next, &marked) {
			return err
		}
	}
}

// beat is the next time at which a cycle is due.
func (s Schedule) beat(start, now time.Time) time.Time {
	return start.Add((now.Sub(start)/s.Every + 1) * s.Every)
}

func (s Schedule) marks() <-chan struct{} {
	if s.Marks == nil {
		return nil
	}
	return s.Marks()
}

// wait waits for the next beat, or the next cycle that a mark asks for. It returns false if
// the context ended first.
func (s Schedule) wait(ctx context.Context, next time.Time, marked *follow) bool {
	marks := s.marks()
	for {
		now := time.Now()
		if !now.Before(next) || marked.due(now) {
			return true
		}
		wake, heard := marked.wake(now, next), marks
		if now.Before(marked.deaf) {
			heard = nil
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-timer.C:
		case <-heard:
			marked.hear(time.Now())
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// After a mark there is a cycle one and three seconds later: the mark is left before the
// queue has the job, and a job that is pinned by the first of them may be served by the
// second. As long as the queue has not decided about it yet, more follow, up to a bound.
// Any user may leave marks: at most one in five seconds is heard.
const (
	firstAfter  = time.Second
	secondAfter = 3 * time.Second
	moreAfter   = 2 * time.Second // each time
	mostMore    = 4
	markEvery   = 5 * time.Second
)

// follow are the cycles that a mark asks for between two beats.
type follow struct {
	at   []time.Time // ascending
	deaf time.Time   // no other mark is heard before
	more int         // how many may still be added
}

func (f *follow) hear(now time.Time) {
	f.at = []time.Time{now.Add(firstAfter), now.Add(secondAfter)}
	f.deaf, f.more = now.Add(markEvery), mostMore
}

// again adds a cycle, if no other follows and it may.
func (f *follow) again(now time.Time) {
	if len(f.at) == 0 && f.more > 0 {
		f.more--
		f.at = append(f.at, now.Add(moreAfter))
	}
}

// due drops the cycles whose time has come, and reports whether there are some.
func (f *follow) due(now time.Time) bool {
	n := len(f.at)
	for len(f.at) > 0 && !now.Before(f.at[0]) {
		f.at = f.at[1:]
	}
	return len(f.at) < n
}

// wake returns when the wait has something to do, if no mark comes before.
func (f *follow) wake(now, next time.Time) time.Time {
	if len(f.at) > 0 && f.at[0].Before(next) {
		next = f.at[0]
	}
	if f.deaf.After(now) && f.deaf.Before(next) {
		next = f.deaf
	}
	return next
}
