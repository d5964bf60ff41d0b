package farm

import (
	"context"
	"errors"
	"os"
	"time"
)

var errOrphaned = errors.New("the parent process has ended")

// WithParent returns a context that also ends when the parent process does: `go run`
// passes on only the signal of Ctrl-C, and this process must clean up.
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
