package miniq

import (
	"context"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
)

// queues lists the names under which jobs are submitted.
func (c *Client) queues(ctx context.Context) ([]backends.Queue, error) {
	var queues []backends.Queue
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpQueues}, func(r *miniq.Response) error {
		queues = r.Queues
		return nil
	})
	for i := range queues {
		queues[i].Name = backends.Unescape(queues[i].Name)
	}
	return queues, err
}

// modify changes pending jobs.
func (c *Client) modify(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
	change = change.MapTexts(backends.Escape)
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpModify, IDs: ids, Change: &change})
}

// reorder puts pending jobs to a position among those of their owner.
func (c *Client) reorder(ctx context.Context, ids []backends.ID, position int, bottom bool) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpReorder, IDs: ids, Position: position, Bottom: bottom})
}

// reopen puts jobs that have ended back into the queue, some at a time: miniqd reads what they run.
func (c *Client) reopen(ctx context.Context, ids []backends.ID) backends.Errors {
	const atOnce = 500
	var errs backends.Errors
	for some := range slices.Chunk(ids, atOnce) {
		errs = append(errs, c.batch(ctx, len(some), &miniq.Request{Op: miniq.OpReopen, IDs: some})...)
	}
	return errs
}

// killNow ends jobs without a grace.
func (c *Client) killNow(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpKill, IDs: ids, Now: true})
}

// inGroup reports whether a job is in a job group: each job shows its own.
func inGroup(_ context.Context, group string) (func(*backends.Job) bool, error) {
	return func(j *backends.Job) bool { return j.Group == group }, nil
}

// closeHosts has hosts take no new jobs, or take them again.
func (c *Client) closeHosts(ctx context.Context, hosts []string, open bool, reason string) backends.Errors {
	req := &miniq.Request{Op: miniq.OpHosts, Hosts: make([]string, len(hosts)), OpenHosts: open, Reason: backends.Escape(reason)}
	for i, name := range hosts {
		req.Hosts[i] = backends.Escape(name)
	}
	return c.batch(ctx, len(hosts), req)
}

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpSignal, IDs: ids, Signal: signal})
}
