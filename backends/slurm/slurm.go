package slurm

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Options say which cluster is meant.
type Options struct {
	Config Config
}

// Client is a Slurm cluster as a backends.Backend. It keeps nothing open between
// two calls.
type Client struct {
	config Config
}

var _ backends.Backend = (*Client)(nil)

// Open gives a client. Nothing is asked of the cluster yet.
func Open(o Options) *Client {
	if o.Config.Timeout == 0 {
		o.Config.Timeout = DefaultConfig().Timeout
	}
	return &Client{config: o.Config}
}

// Close has nothing to give back.
func (c *Client) Close() error { return nil }

// Farm takes a picture of the queue.
func (c *Client) Farm(context.Context, time.Time) (*backends.Farm, error) {
	return nil, backends.ErrUnable
}

// Jobs looks at some jobs.
func (c *Client) Jobs(context.Context, []backends.ID) ([]backends.Job, error) {
	return nil, backends.ErrUnable
}

// Submit hands jobs in.
func (c *Client) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	return make([]backends.Submitted, len(specs))
}

// Kill ends jobs.
func (c *Client) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), backends.ErrUnable)
}

// Requeue puts running jobs back.
func (c *Client) Requeue(_ context.Context, acts []backends.Act) backends.Errors {
	return backends.Fail(len(acts), backends.ErrUnable)
}

// Suspend stops running jobs.
func (c *Client) Suspend(_ context.Context, acts []backends.Act) backends.Errors {
	return backends.Fail(len(acts), backends.ErrUnable)
}

// Resume lets suspended jobs go on.
func (c *Client) Resume(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), backends.ErrUnable)
}

// Hold keeps pending jobs from starting.
func (c *Client) Hold(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), backends.ErrUnable)
}

// Release undoes Hold.
func (c *Client) Release(_ context.Context, ids []backends.ID) backends.Errors {
	return backends.Fail(len(ids), backends.ErrUnable)
}

// Rank gives jobs their place.
func (c *Client) Rank(_ context.Context, rankings []backends.Ranking) backends.Errors {
	return backends.Fail(len(rankings), backends.ErrUnable)
}

// Abilities is what Slurm can do.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{HookRank: c.HookRank, Examine: c.Examine, Forget: c.Forget}
}
