package slurm

import (
	"context"

	"github.com/allotment-hpc/allotment/backends"
)

// HookRank is the site factor that job_submit.lua gives a new job of a priority.
func (c *Client) HookRank(ctx context.Context, p backends.Priority) (int64, error) {
	c.mu.Lock()
	last := c.lastSnapshot
	c.mu.Unlock()
	if last != nil { // the snapshot that this cycle was planned on
		return last.scale.SiteFactor(p), last.rankErr
	}
	config, err := c.run(ctx, nil, "scontrol", "show", "config")
	if err != nil {
		return 0, err
	}
	scale, err := NewScale(config)
	if err != nil {
		return 0, err
	}
	return scale.SiteFactor(p), nil
}
