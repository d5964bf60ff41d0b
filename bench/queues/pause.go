package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/quantile"
)

// Shortening the journal of a full queue.
const (
	pausePending = 100_000
	pauseBudget  = 50 * time.Millisecond
	pauseRounds  = 3
)

// measurePauses measures the time until a small request is answered while the journal is
// shortened: one that only reads, so that the disk plays no part, and one that is written
// to the journal.
func (b *bench) measurePauses(ctx context.Context) (err error) {
	q, err := startMiniq(ctx, &b.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	if err := q.block(ctx); err != nil {
		return err
	}
	if err := q.submitPacked(ctx, clientsAtOnce, pausePending, 100); err != nil {
		return err
	}
	if err := q.awaitIdle(ctx); err != nil {
		return err
	}
	if err := b.measureMemory(ctx, q); err != nil {
		return err
	}
	ids := []backends.ID{q.anyJob}
	b.printf("\nthe longest of all answers to a small request, ms, with %d pending jobs", pausePending)
	b.printf("  %-18s %14s %34s", "request", "undisturbed", "while the journal is shortened")
	for _, request := range []struct {
		name string
		send func() error
	}{
		{"a job is listed", func() error { _, err := q.client.Jobs(ctx, ids); return err }},
		{"a priority is set", func() error {
			return q.client.SetPriority(ctx, []backends.PriorityChange{{ID: ids[0], Priority: backends.At(backends.LevelNormal, 10)}}).First()
		}},
	} {
		var undisturbed, during []time.Duration
		for range pauseRounds {
			longest, err := longestAnswer(request.send, func() error { time.Sleep(time.Second); return nil })
			undisturbed = append(undisturbed, longest)
			if err != nil {
				return err
			}
			longest, err = longestAnswer(request.send, func() error {
				c := q.openFor(10 * time.Minute) // all state objects are written before
				_, err := c.Compact(ctx, nil)
				return errors.Join(err, c.Close())
			})
			during = append(during, longest)
			if err != nil {
				return err
			}
		}
		b.printf("  %-18s %14s %34s", request.name, milliseconds(undisturbed), milliseconds(during))
		if b.pause == nil {
			b.pause = during
		}
	}
	return nil
}

// longestAnswer calls ask again and again while do runs, and returns its longest time.
func longestAnswer(send, do func() error) (time.Duration, error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	var longest time.Duration
	for {
		began := time.Now()
		if err := send(); err != nil {
			return longest, errors.Join(err, <-done)
		}
		longest = max(longest, time.Since(began))
		select {
		case err := <-done:
			return longest, err
		default:
		}
	}
}

func milliseconds(all []time.Duration) string {
	text := ""
	for _, d := range slices.Sorted(slices.Values(all)) {
		text += fmt.Sprintf(" %.1f", d.Seconds()*1e3)
	}
	return text
}

// judgePause prints the verdict on the median of the longest answers.
func (b *bench) judgePause() bool {
	if b.pause == nil {
		b.printf("  not judged  the longest answer while the journal is shortened: not measured")
		return true
	}
	longest := quantile.Median(b.pause)
	met := longest <= pauseBudget
	verdict := "met"
	if !met {
		verdict = "missed"
	}
	b.printf("  %-10s  the longest answer while the journal is shortened ≤ %v: it is %v", verdict, pauseBudget, longest.Round(100*time.Microsecond))
	return met
}
