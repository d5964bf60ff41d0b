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

// A dummy job is a job of the engine's own user whose description says for whom it is.
// Others can write the same, but not as that user.
const (
	dummyName = "allotment-dummy"
	dummyText = "allotment-dummy for job "
)

// dummyFor is whom a description holds a slot for; zero: it does not.
func dummyFor(description string) backends.ID {
	if text, ok := strings.CutPrefix(description, dummyText); ok {
		if id, err := backends.ParseID(text); err == nil {
			return id
		}
	}
	return backends.ID{}
}

// engines are the names of the users whose dummy jobs are ones: the owner of the state
// directory, to whom root gave it, and root, who may run the engine in his place. Where
// there is none it is our own user.
func (c *Client) engines() []string {
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

// place hands in dummy jobs, each by a bsub that names its host, its priority and its
// run limit, in the queue of the job that it is for: whoever may run there may be on
// the host. It does nothing but sleep, by a program that every host has. A crash leaves
// a dummy job that is there, and seen in the next picture, or none.
func (c *Client) place(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
	p, b := c.looked(ctx, reconcile.IDs(dummies, func(d backends.Dummy) backends.ID { return d.For }), reconcile.NotEnded)
	if err := p.scale.unable(); err != nil {
		b.Fail(fmt.Errorf("place a dummy job: %w", err))
	}
	return reconcile.InTurn(len(dummies), func(i int) backends.Submitted {
		if b[i].Err != nil {
			return backends.Submitted{Err: b[i].Err}
		}
		return c.placeOne(ctx, p, b[i].Job, &dummies[i])
	})
}

func (c *Client) placeOne(ctx context.Context, p *picture, j *job, d *backends.Dummy) backends.Submitted {
	argv, err := dummyCommand(d, j.Queue, p.scale.number(d.Priority), p.flavour)
	if err != nil {
		return backends.Submitted{Err: err}
	}
	return c.bsub(ctx, command.Command{Argv: argv, Env: c.environment(append(os.Environ(), backends.DummyVariable+"="+d.For.String())), Dir: "/"})
}

// dummyCommand is the bsub of a dummy job. It asks for no memory: what its slot stands
// for is the other one's.
func dummyCommand(d *backends.Dummy, queue string, number int64, f flavour) ([]string, error) {
	if d.Host == "" || strings.ContainsAny(d.Host, " \t\n+!@#") || d.Host[0] == '-' {
		return nil, fmt.Errorf("a dummy job on %q: that is no host", d.Host)
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
	o.flag("-rn", f == lsf10) // lava reruns none that does not ask for it
	o.add("-o", os.DevNull)   // else mail is sent
	// A minute more than the limit, should nobody enforce that.
	return append(o.argv, fmt.Sprintf("exec sleep %d", int64((d.Limit+time.Minute+time.Second-1)/time.Second))), nil
}
