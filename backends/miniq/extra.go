package miniq

import (
	"context"

	"github.com/allotment-hpc/allotment/backends"
)

// queues lists the names under which jobs are submitted.
func (c *Client) queues(ctx context.Context) ([]backends.Queue, error) {
	var queues []backends.Queue
	err := c.callAgain(ctx, &Request{Op: OpQueues}, func(r *Response) error {
		queues = r.Queues
		return nil
	})
	for i := range queues {
		queues[i].Name = Unescape(queues[i].Name)
	}
	return queues, err
}

// modify changes pending jobs.
func (c *Client) modify(ctx context.Context, ids []backends.ID, change backends.Change) backends.Errors {
	change = change.MapTexts(Escape)
	return c.batch(ctx, len(ids), &Request{Op: OpModify, IDs: ids, Change: &change})
}

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	return c.batch(ctx, len(ids), &Request{Op: OpSignal, IDs: ids, Signal: signal})
}
