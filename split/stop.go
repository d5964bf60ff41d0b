package split

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/printable"
)

// stopTime bounds the wait for killed jobs to end.
const stopTime = 30 * time.Second

// stop ends an interrupted split's jobs. Its error wraps ErrInterrupted.
func (r *runner) stop() error {
	err := r.endJobs()
	_ = r.delivery.finish(true)
	err = errors.Join(err, r.endPeriod())
	if err != nil {
		return fmt.Errorf("%w: %w; %s continues it", ErrInterrupted, err, r.resumeLine())
	}
	return fmt.Errorf("%w: its jobs have ended; %s continues it", ErrInterrupted, r.resumeLine())
}

// endJobs ends all jobs, within stopTime.
func (r *runner) endJobs() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopTime, fmt.Errorf("still running after %v", stopTime))
	defer cancel()
	if err := errors.Join(r.killAll(ctx), r.endLost(ctx)); err != nil {
		return fmt.Errorf("not all of its jobs could be ended (akill ends them): %w", err)
	}
	return nil
}

// killAll ends all jobs, and returns when none is left.
func (r *runner) killAll(ctx context.Context) error {
	if err := r.adoptUnsure(ctx); err != nil {
		return err
	}
	results, changed := watchDir(ctx, r.dir.Path), WatchQueue(ctx, r.Queue)
	for {
		var ids []backends.ID
		for _, t := range r.core.Open() {
			w := r.tasks[t.N]
			r.withdrawn[t.N] = true
			if w.Job == 0 { // it never had one
				r.end(w, Withdrawn, 0)
				if err := r.save(ctx, w); err != nil {
					return err
				}
				continue
			}
			ids = append(ids, backends.ID{Job: w.Job})
		}
		if len(ids) == 0 {
			return nil
		}
		for _, err := range r.Queue.Kill(ctx, ids) {
			if err != nil && !errors.Is(err, backends.ErrWrongState) && !errors.Is(err, backends.ErrUnknownJob) {
				return err
			}
		}
		r.queried = false
		if err := r.collect(ctx); err != nil {
			return err
		}
		if r.core.Idle() {
			return nil
		}
		select {
		case <-results:
		case <-changed:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// oneLine returns a text of several lines as one, printable.
func oneLine(text string) string {
	return printable.Text(strings.Join(strings.FieldsFunc(strings.TrimSpace(text), func(r rune) bool { return r == '\n' }), "; "))
}
