package miniq

import (
	"context"

	"github.com/allotment-hpc/allotment/backends"
)

// queues lists the names under which jobs are submitted.
func (c *Client) queues(ctx context.Context) ([]backends.Queue, error) {
	var queues []backends.Queue
	err := c.call(ctx, &Request{Op: OpQueues}, func(r *Response) error {
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
	change = mapChange(change, Escape)
	return c.batch(ctx, len(ids), &Request{Op: OpModify, IDs: ids, Change: &change})
}

// signal sends a signal to all processes of running jobs.
func (c *Client) signal(ctx context.Context, ids []backends.ID, signal int) backends.Errors {
	return c.batch(ctx, len(ids), &Request{Op: OpSignal, IDs: ids, Signal: signal})
}

// mapChange is a Change with f applied to each of its texts.
func mapChange(c backends.Change, f func(string) string) backends.Change {
	for _, p := range []**string{&c.Name, &c.Project, &c.Queue, &c.Description, &c.After} {
		if *p != nil {
			text := f(**p)
			*p = &text
		}
	}
	if c.Hosts != nil {
		hosts := append([]string{}, mapAll(*c.Hosts, f)...) // JSON's null would be no change
		c.Hosts = &hosts
	}
	return c
}
