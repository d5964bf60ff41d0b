package daemon

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/backends/miniq/keeper"
	"github.com/allotment-hpc/allotment/backends/miniq/manager"
	"github.com/allotment-hpc/allotment/backends/miniq/node"
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
	errs := make([]*miniq.Error, len(req.IDs))
	ok := d.inLoop(func() {
		for i, id := range req.IDs {
			errs[i] = miniq.ToError(d.signalJob(c.by, id, req.Signal))
		}
	})
	if !ok {
		return c.over()
	}
	return c.answer(miniq.Response{Errors: errs})
}

// signalJob signals a job, or all elements of an array that run.
func (d *daemon) signalJob(by manager.By, id backends.ID, signal int) error {
	const realTime = 64
	if signal < 1 || signal > realTime {
		return fmt.Errorf("there is no signal %d", signal)
	}
	jobs := d.m.Jobs(time.Now(), []backends.ID{id})
	if len(jobs) == 0 {
		return fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	}
	if err := mayTouch(by, jobs, "it is another user's"); err != nil {
		return err
	}
	err := fmt.Errorf("job %v does not run: %w", id, backends.ErrWrongState)
	for _, r := range d.m.Runs() {
		if r.ID != id && (id.Index > 0 || r.ID.Job != id.Job) {
			continue
		}
		h := d.hosts[r.Hosts[0].Host]
		if h == nil || h.link == nil {
			err = fmt.Errorf("job %v: its node can't be reached now: %w", r.ID, backends.ErrUnreachable)
			continue
		}
		h.link.send(node.Command{Want: &node.Want{Run: node.RunID{ID: r.ID, Run: r.Run}, Verb: keeper.Signal, Signal: syscall.Signal(signal)}})
		err = nil
	}
	return err
}

// changes says what a change is about, for a job's history.
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
