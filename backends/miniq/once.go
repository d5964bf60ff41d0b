package miniq

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
)

// SubmitOnce is Submit for a caller that must know the outcome. Without an answer,
// since the daemon was killed, say, a submission may have been taken or not: repeated
// with the same key and the same jobs it gives the same IDs, and no job twice.
// A key belongs to one submission of one user and is remembered by the queue for
// its latest 100,000 jobs; it survives restarts of the daemon.
//
// Submit makes a key of its own for each call, so that it can ask again once the
// daemon serves again, or Options.Start lets it start one.
func (c *Client) SubmitOnce(ctx context.Context, key string, specs []backends.Spec) []backends.Submitted {
	results := make([]backends.Submitted, len(specs))
	for from, part := 0, 0; from < len(specs); part++ {
		batch, size := []miniq.Spec(nil), 0
		for to := from; to < len(specs) && size < batchBytes; to++ {
			spec := specs[to].MapTexts(backends.Escape)
			batch = append(batch, miniq.Spec{Spec: spec})
			size += specSize(&spec)
		}
		copy(results[from:], c.submit(ctx, key+"/"+strconv.Itoa(part), batch))
		from += len(batch)
	}
	return results
}

// lostError wraps why a connection ended before the answer had come.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// maxTries bounds how often a call is made whose connection is lost each time: a
// request that brings every daemon down must not do so for ever.
const maxTries = 4

// callRetrying is call for a request that may be made twice: if the connection is lost
// before an answer, it asks again.
func (c *Client) callRetrying(ctx context.Context, req *miniq.Request, part func(*miniq.Response) error) error {
	ctx = c.bounded(ctx)
	for try := 1; ; try++ {
		answered := false
		err := c.call(ctx, req, func(r *miniq.Response) error {
			answered = true
			return part(r)
		})
		var lost *lostError
		if !errors.As(err, &lost) || answered || try == maxTries {
			return err
		}
	}
}

// newKey returns a unique key, which need not be a secret: it counts for one user's jobs.
func newKey() string {
	return strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}
