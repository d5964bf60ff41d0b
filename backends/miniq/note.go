package miniq

import (
	"context"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
)

func (c *Client) set(ctx context.Context, id backends.ID, key, value string) error {
	return c.note(ctx, &miniq.Request{IDs: []backends.ID{id}, Setting: &miniq.Setting{Key: backends.Escape(key), Value: backends.Escape(value)}})
}

func (c *Client) attach(ctx context.Context, id backends.ID, f backends.Attachment) error {
	return c.note(ctx, &miniq.Request{IDs: []backends.ID{id}, File: &miniq.File{Name: backends.Escape(f.Name), Executable: f.Executable, Data: f.Data}})
}

// note writes into a job's state object. Noting something twice is noting it once.
func (c *Client) note(ctx context.Context, req *miniq.Request) error {
	req.Op = miniq.OpNote
	return c.callRetrying(ctx, req, func(*miniq.Response) error { return nil })
}

// attached reads a file from there.
func (c *Client) attached(ctx context.Context, id backends.ID, name string) (backends.Attachment, error) {
	var f backends.Attachment
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpFile, IDs: []backends.ID{id}, Name: backends.Escape(name)}, func(r *miniq.Response) error {
		if r.File != nil {
			f = backends.Attachment(*r.File)
		}
		return checkPresent(r.File != nil)
	})
	return f, err
}
