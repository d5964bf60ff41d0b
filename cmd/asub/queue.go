package main

import (
	"context"
	"io"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
)

// submitThroughFilter hands jobs in, by way of the submit filter, and says in
// which queue each landed.
func submitThroughFilter(ctx context.Context, queue backends.Backend, specs []backends.Spec, stderr io.Writer) []submission {
	accepted := make([]submission, len(specs))
	name := ""
	for i, result := range submit.Submit(ctx, queue, specs, submit.Options{Stderr: stderr}) {
		accepted[i] = submission{ID: result.ID, Queue: result.Queue, Err: result.Err}
		if result.Err != nil || result.Queue != "" {
			continue
		}
		if name == "" {
			name = result.Submitted.Queue
		}
		if name == "" { // the queue did not say so with its answer
			name = defaultQueue(ctx, queue, result.ID, specs[i].Array)
		}
		accepted[i].Queue, accepted[i].ByDefault = name, true
	}
	return accepted
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
