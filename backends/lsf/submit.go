package lsf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/command"
)

// Submit hands jobs in, one bsub each. A crash leaves a job that is in, or is not:
// nothing follows its bsub.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	results := make([]backends.Submitted, len(specs))
	for i := range specs {
		results[i] = c.submit(ctx, &specs[i])
		if errors.Is(results[i].Err, backends.ErrUnreachable) {
			for k := i + 1; k < len(specs); k++ {
				results[k].Err = results[i].Err
			}
			return results
		}
	}
	return results
}

func (c *Client) submit(ctx context.Context, spec *backends.Spec) backends.Submitted {
	fail := func(err error) backends.Submitted { return backends.Submitted{Err: err} }
	s, err := c.where(ctx)
	if err != nil {
		return fail(err)
	}
	var number int64
	if p := spec.Priority; p.Level() >= backends.LevelNormal && p != backends.At(backends.LevelNormal, backends.DefaultValue) {
		scale := newScale(s.params)
		if err := scale.unable(); err != nil {
			return fail(fmt.Errorf("submit with a priority: %w", err))
		}
		number = scale.number(p)
	}
	sub, err := newSubmission(spec, s.flavour, number, s.limitUnit, c.lowQueue, time.Now())
	if err != nil {
		return fail(err)
	}
	id, queue, told, err := c.bsub(ctx, command.Command{Argv: sub.argv, Env: c.environment(sub.env), Dir: sub.dir})
	return backends.Submitted{ID: id, Queue: queue, Said: told, Err: err}
}

// bsub runs one, and tells which job it made and what else was told the submitter.
func (c *Client) bsub(ctx context.Context, cmd command.Command) (id backends.ID, queue, told string, err error) {
	said, err := c.start(ctx, cmd)
	var failed *command.Error
	if errors.As(err, &failed) && failed.Status > 0 && !failed.Killed {
		err = failure(failed.Stderr)
	}
	if err != nil {
		return backends.ID{}, "", "", err
	}
	id, queue, err = parseSubmitted(said.stdout)
	return id, queue, strings.TrimSpace(said.stderr), err
}
