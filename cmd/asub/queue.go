package main

import (
	"context"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// submitThroughFilter hands jobs in, by way of the submit filter, and says in
// which queue each landed. Of a queue that does not tell with its answer nothing
// more is asked: who waits for asub waits for one answer.
func submitThroughFilter(ctx context.Context, queue backends.Backend, specs []backends.Spec, stderr io.Writer) []submit.Result {
	return submit.Submit(ctx, queue, specs, submit.Options{Stderr: stderr, ByQueue: queue.Abilities().Filters})
}
