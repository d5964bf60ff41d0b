package main

import (
	"context"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// submitThroughFilter submits jobs by way of the submit filter, and returns in which
// queue each landed. Where the queue's answer does not say, the queue is not asked
// again: asub waits for one answer.
func submitThroughFilter(ctx context.Context, queue backends.Backend, specs []backends.Spec, stderr io.Writer) []submit.Result {
	able := queue.Abilities().ForWrappers
	return submit.Submit(ctx, queue, specs, submit.Options{Stderr: stderr, ByQueue: able.Filters, Unlimited: able.SharesState})
}
