package simulate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// Client is a World as one user's backends.Backend. It may be used concurrently.
type Client struct {
	world *World
	by    manager.By
}

var _ backends.Backend = (*World)(nil)

// As returns a client that reads and commands the world with by's rights.
func (w *World) As(by manager.By) *Client { return &Client{world: w, by: by} }

// checkContext returns ErrUnreachable if ctx has ended, as a queue that did not answer in time.
func checkContext(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	}
	return nil
}

// Snapshot implements backends.Backend.
func (c *Client) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.world.manager.Snapshot(c.world.now, endedSince), nil
}

// snapshotOf is Snapshot with some of the jobs alone, in the memory of jobs; the others are counted.
func (c *Client) snapshotOf(ctx context.Context, jobs []backends.Job, ids []backends.ID, others []backends.Unlisted, endedSince time.Time) (*backends.Snapshot, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	m := c.world.manager
	s := &backends.Snapshot{At: c.world.now, Hosts: m.Hosts(), Guaranteed: m.Guaranteed(c.world.now), Jobs: m.AppendJobs(jobs, c.world.now, ids), Unlisted: others}
	s.Ended = m.EndedFrom(c.world.now, endedSince, math.MaxInt, func(backends.ID) bool { return false })
	return s, nil
}

// Jobs implements backends.Backend.
func (c *Client) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.world.manager.Jobs(c.world.now, ids), nil
}

// Submit implements backends.Backend. The jobs run until World.End, or a kill.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	return c.submit(ctx, manager.Submit{By: c.by, Specs: specs})
}

// submit submits jobs that run until World.End, or a kill.
func (c *Client) submit(ctx context.Context, e manager.Submit) []backends.Submitted {
	if err := checkContext(ctx); err != nil {
		all := make([]backends.Submitted, len(e.Specs))
		for i := range all {
			all[i].Err = err
		}
		return all
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.world.submit(e, Work{})
}

func (c *Client) batch(ctx context.Context, n int, e manager.Event) backends.Errors {
	if err := checkContext(ctx); err != nil {
		return backends.Fail(n, err)
	}
	return c.world.Step(e).Errors
}

// Kill implements backends.Backend.
func (c *Client) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), manager.Kill{By: c.by, IDs: ids})
}

// Requeue implements backends.Backend.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	return c.batch(ctx, len(acts), manager.Requeue{By: c.by, Acts: acts})
}

// Suspend implements backends.Backend.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	return c.batch(ctx, len(acts), manager.Suspend{By: c.by, Acts: acts})
}

// Resume implements backends.Backend.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), manager.Resume{By: c.by, IDs: ids})
}

// Hold implements backends.Backend.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), manager.Hold{By: c.by, IDs: ids})
}

// Release implements backends.Backend.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), manager.Release{By: c.by, IDs: ids})
}

// SetPriority implements backends.Backend.
func (c *Client) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	return c.batch(ctx, len(rankings), manager.SetPriority{By: c.by, Rankings: rankings})
}

// Abilities implements backends.Backend: miniq's.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{ForEngine: backends.ForEngine{
		SuspendFrees: true, PinShares: true, PinEnds: true, Ages: c.world.ages, AgeCap: c.world.ageCap, ManagesMemory: c.world.managesMemory,
		Pin: func(ctx context.Context, pins []backends.Pin) backends.Errors {
			return c.batch(ctx, len(pins), manager.Pin{By: c.by, Pins: pins})
		},
		HoldUntil: func(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
			return c.batch(ctx, len(holds), manager.HoldUntil{By: c.by, Holds: holds})
		},
		Reserve: func(ctx context.Context, reservations []backends.Reservation) backends.Errors {
			return c.batch(ctx, len(reservations), manager.Reserve{By: c.by, Reservations: reservations})
		},
		Guarantee: func(ctx context.Context, all []backends.Guaranteed) error {
			return c.batch(ctx, 1, manager.Guarantee{By: c.by, Guaranteed: all}).First()
		},
		Move: func(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
			return c.batch(ctx, len(ids), manager.Move{By: c.by, IDs: ids, Queue: queue})
		},
		Place: func(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
			return c.submit(ctx, manager.Dummies(c.by, "", dummies))
		},
		Enlarge: backends.EnlargeBy(func(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
			return c.batch(ctx, len(ids), manager.Modify{By: c.by, IDs: ids, Change: change})
		}),
		Standbys: true, SavesBySignal: true,
	}}
}

// Close implements backends.Backend; there is nothing to release.
func (c *Client) Close() error { return nil }
