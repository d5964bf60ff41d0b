// Package follow waits for changes of a queue.
package follow

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// Pauses of a program that follows a queue.
const (
	LookPause = 100 * time.Millisecond // at least, between two looks
	TryPause  = time.Second            // before a queue that can't be reached is asked again

	pollPause = 2 * time.Second // between two looks at a queue that does not report changes
)

// Changes returns a function that returns when the queue has changed since its
// last call, or may have.
func Changes(queue backends.Backend) func(context.Context) error {
	changed := queue.Abilities().Changed
	if changed == nil {
		return func(ctx context.Context) error { return clock.Sleep(ctx, pollPause-LookPause) }
	}
	var seen uint64
	return func(ctx context.Context) (err error) {
		now, err := changed(ctx, seen)
		if err == nil {
			seen = now
		} else {
			seen = 0 // a daemon that comes back counts anew
		}
		return err
	}
}
