package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// WrongState says what a job is instead of what an act needs.
func WrongState(j *backends.Job) error {
	if j.Ending {
		return fmt.Errorf("job %v: %w: it is ending", j.ID, backends.ErrWrongState)
	}
	return fmt.Errorf("job %v: %w: it is %v", j.ID, backends.ErrWrongState, j.State)
}

// Waits reports whether a job has not started.
func Waits(j *backends.Job) bool {
	return (j.State == backends.Pending || j.State == backends.Held) && !j.Ending
}

// Waiting is a check: the job has not started.
func Waiting[J Job](it *Item[J]) error {
	if j := it.Job.Shown(); !Waits(j) {
		return WrongState(j)
	}
	return nil
}

// Changeable is a check: the job is in a state in which it can be changed in this way.
func Changeable[J Job](c *backends.Change) func(*Item[J]) error {
	if c.LimitOnly() {
		return func(it *Item[J]) error {
			if j := it.Job.Shown(); j.State.Ended() || j.Ending {
				return WrongState(j)
			}
			return nil
		}
	}
	return Waiting[J]
}

// Held is a check: the job is held.
func Held[J Job](it *Item[J]) error {
	if j := it.Job.Shown(); j.State != backends.Held {
		return WrongState(j)
	}
	return nil
}

// NotEnded is a check: the job has not ended.
func NotEnded[J Job](it *Item[J]) error {
	if j := it.Job.Shown(); j.State.Ended() {
		return WrongState(j)
	}
	return nil
}

// Ended is a check: the job has ended.
func Ended[J Job](it *Item[J]) error {
	if j := it.Job.Shown(); !j.State.Ended() {
		return WrongState(j)
	}
	return nil
}

// InRun is a check: the job is in the run that an act means.
func InRun[J Job](acts []backends.Act) func(*Item[J]) error {
	return func(it *Item[J]) error {
		j, act := it.Job.Shown(), &acts[it.Index]
		if j.State != backends.Running || j.Ending {
			return WrongState(j)
		}
		if !act.Started.IsZero() && !j.Started.Equal(act.Started) {
			return fmt.Errorf("job %v: %w: it started anew at %v", j.ID, backends.ErrWrongState, j.Started)
		}
		return nil
	}
}

// Requeueable is a check: the job is in the run that an act means, and may be requeued.
func Requeueable[J Job](acts []backends.Act) func(*Item[J]) error {
	return func(it *Item[J]) error {
		if it.Job.Shown().NoRequeue {
			return fmt.Errorf("job %v: %w: it can't be requeued", it.ID, backends.ErrWrongState)
		}
		return InRun[J](acts)(it)
	}
}

// Due reports whether a suspended job is to be resumed: the hold that was noted for it
// is over.
func Due(j *backends.Job, until, at time.Time) bool {
	return j.State == backends.Suspended && !j.Resuming && !until.IsZero() && !until.After(at)
}

// Fits reports whether a suspended job that is to be resumed can be resumed now (R20):
// all that it needs of each place is free. If so, Fits subtracts it from free. A place
// is a host with its slots, or a core.
func Fits[K comparable](needs, free map[K]int) bool {
	for resource, n := range needs {
		if free[resource] < n {
			return false
		}
	}
	for resource, n := range needs {
		free[resource] -= n
	}
	return true
}

// ErrorTexts are texts in what a queue's commands say, each with the error that it stands for.
type ErrorTexts []struct {
	Text string
	Err  error
}

// Meaning is the error that a text stands for: that of the first Text in it; or nil.
func (all ErrorTexts) Meaning(text string) error {
	for _, w := range all {
		if strings.Contains(text, w.Text) {
			return w.Err
		}
	}
	return nil
}

// SubmitEach submits n jobs one after the other. Once the queue can't be reached the rest is
// not tried.
func SubmitEach(n int, submit func(i int) backends.Submitted) []backends.Submitted {
	results := make([]backends.Submitted, n)
	var unreachable error
	for i := range results {
		if results[i].Err = unreachable; unreachable == nil {
			results[i] = submit(i)
		}
		if err := results[i].Err; errors.Is(err, backends.ErrUnreachable) {
			unreachable = err
		}
	}
	return results
}
