package daemon

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/miniq/node"
)

func (d *daemon) queues(c *connection) error {
	var queues []backends.Queue
	if !d.inLoop(func() { queues = d.m.Queues() }) {
		return c.over()
	}
	return c.answer(miniq.Response{Queues: queues})
}

// signal passes a signal on to the keepers of running jobs. It changes nothing
// of what the queue knows, so that nothing is written down.
func (d *daemon) signal(c *connection, req *miniq.Request) error {
	const realTime = 64
	err := checkRepeats(req)
	if err == nil && (req.Signal < 1 || req.Signal > realTime) {
		err = fmt.Errorf("there is no signal %d", req.Signal)
	}
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	errs, told := make([]*miniq.Error, 0, len(req.IDs)), make(map[backends.ID]error)
	for part := range slices.Chunk(req.IDs, perPart) { // the loop does other things between two parts
		signalled := 0
		ok := d.inLoop(func() {
			for _, id := range part {
				err, again := told[id]
				if !again {
					var n int
					n, err = d.signalJob(c.by, id, syscall.Signal(req.Signal))
					told[id] = err
					signalled += n
				}
				errs = append(errs, miniq.ToError(err))
			}
		})
		if !ok {
			return c.over()
		}
		if d.limits(c) {
			d.rates.owe(time.Now(), c.uid, signalled)
		}
	}
	return c.answer(miniq.Response{Errors: errs})
}

// signalJob signals a job, or all elements of an array that run, and returns how
// many runs that were.
func (d *daemon) signalJob(by manager.By, id backends.ID, signal syscall.Signal) (int, error) {
	runs, err := d.m.Signalled(by, id)
	n := 0
	for _, r := range runs {
		h := d.hosts[r.Hosts[0].Host]
		if h == nil || h.link == nil {
			err = fmt.Errorf("job %v: its node can't be reached now: %w", r.ID, backends.ErrUnreachable)
			continue
		}
		h.link.out.want(node.RunID{ID: r.ID, Run: r.Run}, keeper.Want{Verb: keeper.Signal, Signal: signal})
		n++
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// changes describes a change, for a job's history.
func changes(c *backends.Change) string {
	var b strings.Builder
	tell := func(what string, value any) { fmt.Fprintf(&b, ", %s %v", what, value) }
	text := func(what string, value *string) {
		if value != nil {
			tell(what, strings.TrimSpace(*value))
		}
	}
	text("name", c.Name)
	text("project", c.Project)
	text("queue", c.Queue)
	text("description", c.Description)
	text("dependency", c.After)
	if c.Priority != nil {
		tell("priority", c.Priority.Value())
	}
	if c.Slots != nil {
		tell("slots", *c.Slots)
	}
	if c.Memory != nil {
		tell("memory", fmt.Sprintf("%d bytes", *c.Memory))
	}
	if c.MemoryLimit != nil {
		tell("memory limit", fmt.Sprintf("%d bytes", *c.MemoryLimit))
	}
	if c.OneHost != nil {
		tell("on one host:", *c.OneHost)
	}
	if c.Hosts != nil {
		tell("hosts", strings.Join(*c.Hosts, " "))
	}
	if c.RunLimit != nil {
		tell("run limit", *c.RunLimit)
	}
	if c.BeginTime != nil {
		tell("begin", strings.TrimPrefix(until(*c.BeginTime), "until "))
	}
	return strings.TrimPrefix(b.String(), ", ")
}
