package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Pace is how often a queue is asked for something that it does not announce: pauses
// double from First to Most, and no pause ends later than Limit after the beginning.
type Pace struct{ First, Most, Limit time.Duration }

// Poll calls done until it is true. It is false if that takes too long, or ctx ends.
func (p Pace) Poll(ctx context.Context, done func() bool) bool {
	began := time.Now()
	for pause := p.First; ; pause = min(2*pause, p.Most) {
		if done() {
			return true
		}
		if p.Limit > 0 && time.Since(began)+pause > p.Limit {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// Wait waits until jobs have ended; it lists them less and less often.
func Wait(ctx context.Context, ids []backends.ID, list func(context.Context, []backends.ID) ([]backends.Job, error)) (jobs []backends.Job, err error) {
	over := Pace{First: 100 * time.Millisecond, Most: 5 * time.Second}.Poll(ctx, func() bool {
		if jobs, err = list(ctx, ids); err != nil {
			return true
		}
		for i := range jobs {
			if !jobs[i].State.Ended() {
				return false
			}
		}
		return true
	})
	switch {
	case !over:
		return nil, fmt.Errorf("wait for jobs: %w", context.Cause(ctx))
	case err != nil:
		return nil, err
	}
	return jobs, nil
}

// Latest is the snapshot of all jobs that Reconcile took, for a Snapshot that comes right after.
type Latest[P any] struct {
	mu       sync.Mutex
	commands uint64
	snapshot *P
	taken    time.Time
}

// freshness is how long such a snapshot serves.
const freshness = 2 * time.Second

// Invalidate drops the snapshot. It is called for each command: the command's effect or its
// answer may be newer.
func (l *Latest[P]) Invalidate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commands++
	l.snapshot = nil
}

// Commands returns how many commands were run.
func (l *Latest[P]) Commands() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.commands
}

// Store stores a snapshot if asked is still the number of commands that were run.
func (l *Latest[P]) Store(snapshot *P, taken time.Time, commands uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commands == commands {
		l.snapshot, l.taken = snapshot, taken
	}
}

// Pop returns the snapshot, once; nil: there is no fresh one.
func (l *Latest[P]) Pop() *P {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.snapshot
	if l.snapshot = nil; time.Since(l.taken) > freshness {
		return nil
	}
	return p
}

// Classify wraps a command's error in one that callers branch on. meaning returns the
// error that the queue's text on stderr stands for.
func Classify(err error, meaning func(stderr string) error) error {
	var failed *command.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist),
		errors.Is(err, exec.ErrWaitDelay): // on a machine too busy to give all of its output in time
		return fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	case !errors.As(err, &failed):
		return err
	}
	kind := meaning(failed.Stderr)
	for _, sentinel := range []error{backends.ErrUnreachable, backends.ErrDenied, backends.ErrUnknownJob, backends.ErrWrongState, backends.ErrUnable} {
		if errors.Is(kind, sentinel) {
			return fmt.Errorf("%w: %w", sentinel, err)
		}
	}
	return err
}

// ExitFailure reports whether a command ran and failed by its exit status; said is its
// stderr.
func ExitFailure(err error) (stderr string, ok bool) {
	var failed *command.Error
	if !errors.As(err, &failed) || failed.Status < 1 || failed.Killed {
		return "", false
	}
	return failed.Stderr, true
}
