package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/cmd/internal/ask"
	"github.com/allotment-hpc/allotment/cmd/internal/shell"
	"github.com/allotment-hpc/allotment/internal/yamlplain"
	"github.com/allotment-hpc/allotment/pba/configfile"
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
		k := &farmKeeper{id: id}
		k.socket, k.queue, err = p.allotd()
		return k, err
	case !inJob:
		return nil, shell.Usagef("no job runs this: name one by --job")
	}
	sockets, err := p.sockets()
	if err != nil {
		return nil, err
	}
	return newAgentKeeper(sockets), nil
}

// farmKeeper is the agents of the farm, of which allotd knows the one that has the job's object.
type farmKeeper struct {
	socket, queue string
	id            backends.ID
}

func (k *farmKeeper) job() string { return k.id.String() }
func (k *farmKeeper) close()      {}

func (k *farmKeeper) errReadOnly() error {
	return fmt.Errorf("write the state of job %s: %w: on this queue a job's state is written by the job alone", k.id, backends.ErrUnable)
}

func (k *farmKeeper) set(context.Context, string, string) error { return k.errReadOnly() }

func (k *farmKeeper) attach(context.Context, backends.Attachment) error { return k.errReadOnly() }

func (k *farmKeeper) file(ctx context.Context, name string) (backends.Attachment, error) {
	return ask.FileOf(ctx, k.socket, k.queue, k.id, name)
}

func (k *farmKeeper) record(ctx context.Context) (*backends.Record, error) {
	return ask.RecordOf(ctx, k.socket, k.queue, k.id)
}

// allotd returns where allotd listens, and which queue the farm has.
func allotd() (socket, queue string, err error) {
	c, err := configfile.Load(yamlplain.Convert)
	if err != nil {
		return "", "", err
	}
	return c.Web.SocketIn(c.Paths.Runtime), c.Backend, nil
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
