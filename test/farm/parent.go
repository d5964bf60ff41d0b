package farm

import (
	"context"
	"errors"
	"os"
	"time"
)

var errOrphaned = errors.New("whoever started this is gone")

// WithParent is a context that also ends when our parent does: `go run` passes
// no signal on but Ctrl-C's, and somebody must clean up.
func WithParent(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	parent := os.Getppid()
	go func() {
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		cancel(errOrphaned)
	}()
	return ctx
}
