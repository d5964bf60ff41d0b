//go:build !cgo

package gpu

import (
	"context"
	"io"
	"time"
)

// Serve says that NVML can't be called.
func Serve(_ context.Context, _ time.Duration, _ io.Reader, out io.Writer) error {
	return write(out, &line{None: true, Why: "this ahostd is built without cgo"})
}
