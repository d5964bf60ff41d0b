package main

import (
	"context"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// submitThroughFilter hands one job in, by way of the submit filter, and says in
// which queue it landed.
func submitThroughFilter(ctx context.Context, queue backends.Backend, spec backends.Spec, stderr io.Writer) (submission, error) {
	watched := &watchedQueue{Backend: queue}
	result := submit.Submit(ctx, watched, []backends.Spec{spec}, submit.Options{Stderr: stderr})[0]
	if result.Err != nil {
		return submission{}, result.Err
	}
	accepted := submission{ID: result.ID, Queue: watched.spec.Queue}
	if accepted.Queue == "" {
		accepted.Queue, accepted.ByDefault = defaultQueue(ctx, queue, result.ID, watched.spec.Array), true
	}
	return accepted, nil
}

// watchedQueue keeps the job as the filter left it.
type watchedQueue struct {
	backends.Backend
	spec backends.Spec
}

func (w *watchedQueue) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	w.spec = specs[0]
	return w.Backend.Submit(ctx, specs)
}

// defaultQueue is the queue that a job landed in which named none. The job is
// safe by now: whatever goes wrong here is no failure.
func defaultQueue(ctx context.Context, queue backends.Backend, id backends.ID, array *backends.Array) string {
	if array != nil {
		id.Index = array.Indices[0]
	}
	jobs, err := queue.Jobs(ctx, []backends.ID{id})
	if err != nil || len(jobs) == 0 {
		return "default"
	}
	return jobs[0].Queue
}
