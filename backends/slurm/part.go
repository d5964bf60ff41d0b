package slurm

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// part returns the ID of a component of a heterogeneous job.
func (c *Client) part(ctx context.Context, job int64, part int) (backends.ID, error) {
	out, err := c.run(ctx, nil, "scontrol", "-o", "show", "job", fmt.Sprintf("%d+%d", job, part))
	if err != nil && !bytes.HasSuffix(bytes.TrimSpace(out), []byte(" not found")) {
		return backends.ID{}, err
	}
	return parsePart(string(out), job, part)
}

// parsePart reads the first fields of `scontrol show job 82+1`, before which no text of a
// user's stands. Of a component that is not there scontrol prints "Job 82+7 not found", and
// ends with 1, or with 0 (22.05).
func parsePart(out string, job int64, part int) (backends.ID, error) {
	fields := strings.Fields(out)
	if len(fields) >= 3 && fields[1] == fmt.Sprintf("HetJobId=%d", job) && fields[2] == fmt.Sprintf("HetJobOffset=%d", part) {
		if digits, ok := strings.CutPrefix(fields[0], "JobId="); ok {
			return backends.ParseID(digits)
		}
	}
	return backends.ID{}, fmt.Errorf("job %d+%d: %w", job, part, backends.ErrUnknownJob)
}
