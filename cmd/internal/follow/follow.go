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
	ReadInterval = 100 * time.Millisecond // at least, between two reads
	RetryPause   = time.Second            // before an unreachable queue is tried again

	pollInterval = 2 * time.Second // between two reads of a queue that does not report changes
)

// Changes returns a function that returns when the queue has changed since its
// last call, or may have.
func Changes(queue backends.Backend) func(context.Context) error {
	changed := queue.Abilities().Changed
	if changed == nil {
		return func(ctx context.Context) error { return clock.Sleep(ctx, pollInterval-ReadInterval) }
	}
	var seen uint64
	return func(ctx context.Context) (err error) {
		current, err := changed(ctx, seen)
		if err == nil {
			seen = current
		} else {
			seen = 0 // a daemon that comes back counts anew
		}
		return err
	}
}
