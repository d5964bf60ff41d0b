package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
)

// keeper keeps the state object of one job.
type keeper interface {
	job() string // its name, for people
	set(ctx context.Context, key, value string) error
	attach(ctx context.Context, f backends.Attachment) error
	file(ctx context.Context, name string) (backends.Attachment, error)
	record(ctx context.Context) (*backends.Record, error)
	close()
}

// jobVariable is set in jobs of a queue that keeps the objects itself.
const jobVariable = "MINIQ_JOBID"

// openKeeper returns the keeper of the job that is named, or that runs this.
func (p process) openKeeper(c *cli.Context) (keeper, error) {
	name, named := c.String("job"), c.IsSet("job")
	if !named {
		name = p.env(jobVariable)
	}
	var id backends.ID
	if name != "" || named {
		var err error
		if id, err = backends.ParseID(name); err != nil {
			return nil, shell.Usagef("%w", err)
		}
	}
	queue, err := p.open(c.Context)
	if err != nil {
		return nil, err
	}
	able := queue.Abilities()
	if able.Set != nil && id != (backends.ID{}) {
		return &queueKeeper{queue, able.ForWrappers, id}, nil
	}
	_ = queue.Close()
	inJob := p.env("SLURM_JOB_ID") != "" || p.env("LSB_JOBID") != ""
	switch {
	case named:
		return nil, fmt.Errorf("the state of job %s: %w: its host's ahostd keeps it, for the job itself: run astate within the job; ajobs -l lists what the queue has", id, backends.ErrUnable)
	case !inJob:
		return nil, shell.Usagef("no job runs this: name one by --job")
	}
	sockets, err := p.sockets()
	if err != nil {
		return nil, err
	}
	return newAgentKeeper(sockets), nil
}

// queueKeeper is a queue that keeps the objects of its jobs.
type queueKeeper struct {
	queue backends.Backend
	able  backends.ForWrappers
	id    backends.ID
}

func (k *queueKeeper) job() string { return k.id.String() }
func (k *queueKeeper) close()      { _ = k.queue.Close() }

func (k *queueKeeper) set(ctx context.Context, key, value string) error {
	return k.able.Set(ctx, k.id, key, value)
}

func (k *queueKeeper) attach(ctx context.Context, f backends.Attachment) error {
	return k.able.Attach(ctx, k.id, f)
}

func (k *queueKeeper) file(ctx context.Context, name string) (backends.Attachment, error) {
	return k.able.Attached(ctx, k.id, name)
}

func (k *queueKeeper) record(ctx context.Context) (*backends.Record, error) {
	return k.able.Record(ctx, k.id)
}
