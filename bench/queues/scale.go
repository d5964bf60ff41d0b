package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// measureScale shows what a job costs the bundled queue with more and more of them
// pending: to submit it, to list it, and to decide on it.
func (b *bench) measureScale(ctx context.Context) error {
	b.printf("\nwhat a job costs miniq, µs (processor time of its daemon in brackets)")
	b.printf("  %8s  %18s %18s %22s", "pending", "submitted", "listed", "one ends, one starts")
	for _, pending := range []int{1000, 10_000, 100_000} {
		if err := b.measureScaleAt(ctx, pending); err != nil {
			return fmt.Errorf("%d pending jobs: %w", pending, err)
		}
	}
	return nil
}

func (b *bench) measureScaleAt(ctx context.Context, pending int) (err error) {
	q, err := startMiniq(ctx, &b.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	if err := q.block(ctx); err != nil {
		return err
	}
	measure := func(jobs int, do func() error) (string, error) {
		before, began := q.usage(ctx), time.Now()
		err := do()
		took := time.Since(began) / time.Duration(jobs)
		return fmt.Sprintf("%.1f (%d)", took.Seconds()*1e6, q.usage(ctx).since(before, jobs).daemon.Microseconds()), err
	}
	submitted, err := measure(pending, func() error { return q.submitPacked(ctx, clientsAtOnce, pending, 100) })
	if err != nil {
		return err
	}
	if err := q.awaitIdle(ctx); err != nil {
		return err
	}
	listed, err := measure(pending, func() error {
		farm, err := q.client.Snapshot(ctx, time.Now())
		if err == nil && len(farm.Jobs) != pending+slots {
			err = fmt.Errorf("%d jobs are listed", len(farm.Jobs))
		}
		return err
	})
	if err != nil {
		return err
	}
	dispatched, err := q.measureDispatch(ctx, measure)
	if err != nil {
		return err
	}
	b.printf("  %8d  %18s %18s %22s", pending, submitted, listed, dispatched)
	return nil
}

// decisions is the number of jobs that end and are followed by others.
const decisions = 500

// measureDispatch has the first of the pending jobs run, and measures that.
func (q *miniqQueue) measureDispatch(ctx context.Context, measure func(int, func() error) (string, error)) (string, error) {
	farm, err := q.client.Snapshot(ctx, time.Now())
	if err != nil {
		return "", err
	}
	var blocking, first []backends.ID
	for i := range farm.Jobs {
		switch id := farm.Jobs[i].ID; {
		case id.Index > 0:
			blocking = append(blocking, id)
		case len(first) < decisions:
			first = append(first, id)
		}
	}
	return measure(decisions, func() error {
		if err := q.client.Kill(ctx, blocking).First(); err != nil {
			return err
		}
		_, err := q.client.WaitEnded(ctx, first)
		return err
	})
}
