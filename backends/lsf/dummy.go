package lsf

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/backends/reconcile"
	"github.com/allotment-hpc/allotment/internal/command"
)

// A dummy job is a job of the engine's own user whose description names the job that it
// is for. Others can write the same, but not as that user.
const (
	dummyName = "allotment-dummy"
	dummyText = "allotment-dummy for job "
)

// dummyFor returns the job that a description holds a slot for; zero: none.
func dummyFor(description string) backends.ID {
	if text, ok := strings.CutPrefix(description, dummyText); ok {
		if id, err := backends.ParseID(text); err == nil {
			return id
		}
	}
	return backends.ID{}
}

// engineUsers returns the users whose dummy jobs count: the owner of the state directory, who
// may have got it from root, and root, who may run the engine as well. Without a record
// it is our own user.
func (c *Client) engineUsers() []string {
	if c.record.path == "" {
		return []string{nameOf(os.Geteuid())}
	}
	info, err := os.Stat(filepath.Dir(c.record.path))
	if err != nil {
		return nil
	}
	root := "root"
	if u, err := user.LookupId("0"); err == nil {
		root = u.Username
	}
	if owner, ok := uidOf(info); ok {
		return []string{nameOf(int(owner)), root}
	}
	return nil
}

// submitDummies submits dummy jobs, each by a bsub that names its host, its priority and its run
// limit, in the queue of the job that it is for: jobs there may use the host. A dummy job
// only sleeps, by a program that every host has. A crash leaves a dummy job that the next
// snapshot shows, or none.
func (c *Client) submitDummies(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
	p, b := c.newBatch(ctx, reconcile.IDs(dummies, func(d backends.Dummy) backends.ID { return d.For }), reconcile.NotEnded)
	if err := p.scale.unable(); err != nil {
		b.Fail(fmt.Errorf("submit a dummy job: %w", err))
	}
	return reconcile.SubmitEach(len(dummies), func(i int) backends.Submitted {
		if b[i].Err != nil {
			return backends.Submitted{Err: b[i].Err}
		}
		return c.submitDummy(ctx, p, b[i].Job, &dummies[i])
	})
}

func (c *Client) submitDummy(ctx context.Context, p *snapshot, j *job, d *backends.Dummy) backends.Submitted {
	argv, err := dummyCommand(d, j.Queue, p.scale.number(d.Priority), p.flavour)
	if err != nil {
		return backends.Submitted{Err: err}
	}
	return c.bsub(ctx, command.Command{Argv: argv, Env: c.environment(append(os.Environ(), backends.DummyVariable+"="+d.For.String())), Dir: "/"})
}

// dummyCommand returns the bsub of a dummy job. It asks for no memory: that of its slot
// is for the other job.
func dummyCommand(d *backends.Dummy, queue string, number int64, f flavour) ([]string, error) {
	if d.Host == "" || strings.ContainsAny(d.Host, " \t\n+!@#") || d.Host[0] == '-' {
		return nil, fmt.Errorf("a dummy job on %q: not a host name", d.Host)
	}
	if d.Limit <= 0 {
		return nil, fmt.Errorf("a dummy job for job %v: no run limit", d.For)
	}
	o := arguments{argv: []string{"bsub"}}
	o.add("-J", dummyName)
	o.add("-Jd", dummyText+d.For.String())
	o.text("-q", queue)
	o.add("-m", d.Host)
	o.add("-sp", strconv.FormatInt(number, 10))
	o.add("-W", bsub.FormatMinutes(d.Limit))
	o.flag("-rn", f == lsf10) // lava reruns only jobs that ask for it
	o.add("-o", os.DevNull)   // else mail is sent
	// One minute more than the limit, in case LSF does not enforce that.
	return append(o.argv, fmt.Sprintf("exec sleep %d", int64((d.Limit+time.Minute+time.Second-1)/time.Second))), nil
}
