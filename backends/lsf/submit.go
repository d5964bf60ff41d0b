package lsf

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Submit submits jobs, by one bsub each. A crash leaves a job that is in the queue, or is
// not: nothing follows its bsub.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	return reconcile.SubmitEach(len(specs), func(i int) backends.Submitted { return c.submit(ctx, &specs[i]) })
}

func (c *Client) submit(ctx context.Context, spec *backends.Spec) backends.Submitted {
	s, err := c.loadFacts(ctx)
	if err != nil {
		return backends.Submitted{Err: err}
	}
	var number int64
	if p := spec.Priority; p.Level() >= backends.LevelNormal && p != backends.At(backends.LevelNormal, backends.DefaultValue) {
		scale := newScale(s.params)
		if err := scale.unable(); err != nil {
			return backends.Submitted{Err: fmt.Errorf("submit with a priority: %w", err)}
		}
		number = scale.number(p)
	}
	sub, err := newSubmission(spec, s.flavour, number, s.limitUnit, c.lowQueue, time.Now())
	if err != nil {
		return backends.Submitted{Err: err}
	}
	return c.bsub(ctx, command.Command{Argv: sub.argv, Env: c.environment(sub.env), Dir: sub.dir})
}

// bsub runs a bsub, and returns which job it made and what else it said to the submitter.
func (c *Client) bsub(ctx context.Context, cmd command.Command) (submitted backends.Submitted) {
	printed, err := c.start(ctx, cmd)
	if words, failed := reconcile.ExitFailure(err); failed {
		err = failure(words)
	}
	if err == nil {
		submitted.Messages = strings.TrimSpace(printed.stderr)
		submitted.ID, submitted.Queue, err = parseSubmitted(printed.stdout)
	}
	submitted.Err = err
	return submitted
}
