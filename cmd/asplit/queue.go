package main

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/joined"
	"github.com/allotment-hpc/allotment/cmd/internal/follow"
	"github.com/allotment-hpc/allotment/cmd/internal/submit"
	"github.com/allotment-hpc/allotment/split"
)

// filtered is a queue to which jobs go through the submit filter.
type filtered struct {
	backends.Backend
	stderr io.Writer
}

func withFilter(b backends.Backend, stderr io.Writer) filtered { return filtered{b, stderr} }

// Submit runs the submit filter for each job.
func (f filtered) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	all := make([]backends.Submitted, len(specs))
	for i, r := range submit.Submit(ctx, f.Backend, specs, submit.Options{Stderr: f.stderr, ByQueue: f.Abilities().Filters}) {
		all[i] = r.Submitted
	}
	return all
}

// jobsQueue is the queue of a split.
type jobsQueue interface {
	split.Queue
	Close() error
}

// openQueue opens the queue of a split: the configured one, the machines that joined, or slots of asplit serve.
func (p process) openQueue(ctx context.Context, d *split.Definition, s *screen) (jobsQueue, error) {
	if d.Leased > 0 {
		return openLeased(d.Leased)
	}
	if d.Joined != "" {
		return joined.Open(d.Joined, s.Log)
	}
	return p.openFiltered(ctx, s)
}

// openFiltered opens the configured queue. What the filter says of its jobs is printed once.
func (p process) openFiltered(ctx context.Context, stderr io.Writer) (queue filtered, err error) {
	config, err := p.load()
	if err != nil {
		return queue, err
	}
	backend, err := p.open(ctx, config)
	if err != nil {
		return queue, err
	}
	return withFilter(backend, &dedupWriter{to: stderr, seen: map[string]bool{}}), nil
}

// Changes returns a function that waits until the queue may have changed.
func (f filtered) Changes() func(context.Context) error { return follow.Changes(f.Backend) }

// dedupWriter writes each line once: the filter prints the same lines for each job. Jobs are
// submitted concurrently where hosts are measured.
type dedupWriter struct {
	to   io.Writer
	mu   sync.Mutex
	seen map[string]bool
}

func (o *dedupWriter) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range bytes.Lines(p) {
		const most = 1000
		if o.seen[string(line)] || len(o.seen) >= most {
			continue
		}
		o.seen[string(line)] = true
		if _, err := o.to.Write(line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
