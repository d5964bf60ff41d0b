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
// there are cycles between two beats; see Follow. Run returns cycle's error when it asks
// to stop, else the last one.
func (s Schedule) Run(ctx context.Context, start time.Time, cycle func(ctx context.Context) (Then, error)) error {
	if s.For > 0 {
		timed, cancel := context.WithDeadline(ctx, start.Add(s.For))
		defer cancel()
		ctx = timed
	}
	var marked Follow
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
			marked.Again(now)
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
func (s Schedule) wait(ctx context.Context, next time.Time, marked *Follow) bool {
	marks := s.marks()
	for {
		now := time.Now()
		if !now.Before(next) || marked.Due(now) {
			return true
		}
		wake, heard := next, marks
		if at := marked.Next(); !at.IsZero() && at.Before(wake) {
			wake = at
		}
		if now.Before(marked.deaf) {
			heard = nil
			if marked.deaf.Before(wake) {
				wake = marked.deaf
			}
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-timer.C:
		case <-heard:
			marked.Mark(time.Now())
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

// Follow is the cycles that marks ask for between two beats.
type Follow struct {
	at     []time.Time // ascending
	deaf   time.Time   // no other mark is heard before
	missed bool        // one came before that
	more   int         // how many cycles may still be added
}

// Mark hears a mark, or remembers it until one may be heard.
func (f *Follow) Mark(now time.Time) {
	if f.missed = now.Before(f.deaf); f.missed {
		return
	}
	f.at = []time.Time{now.Add(firstAfter), now.Add(secondAfter)}
	f.deaf, f.more = now.Add(markEvery), mostMore
}

// Again adds a cycle, if no other follows and it may.
func (f *Follow) Again(now time.Time) {
	if len(f.at) == 0 && f.more > 0 {
		f.more--
		f.at = append(f.at, now.Add(moreAfter))
	}
}

// Next returns when the next cycle is due; zero: none is.
func (f *Follow) Next() time.Time {
	var next time.Time
	if f.missed {
		next = f.deaf.Add(firstAfter)
	}
	if len(f.at) > 0 && (next.IsZero() || f.at[0].Before(next)) {
		next = f.at[0]
	}
	return next
}

// Due drops the cycles whose time has come, and reports whether there are some.
func (f *Follow) Due(now time.Time) bool {
	if f.missed && !now.Before(f.deaf) {
		f.Mark(f.deaf)
	}
	n := len(f.at)
	for len(f.at) > 0 && !now.Before(f.at[0]) {
		f.at = f.at[1:]
	}
	return len(f.at) < n
}
