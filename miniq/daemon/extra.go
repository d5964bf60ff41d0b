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
		return c.answerStopping()
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
	errs, results := make([]*miniq.Error, 0, len(req.IDs)), make(map[backends.ID]error)
	for part := range slices.Chunk(req.IDs, perPart) { // the loop does other things between two parts
		signalled := 0
		ok := d.inLoop(func() {
			for _, id := range part {
				err, again := results[id]
				if !again {
					var n int
					n, err = d.signalJob(c.by, id, syscall.Signal(req.Signal))
					results[id] = err
					signalled += n
				}
				errs = append(errs, miniq.ToError(err))
			}
		})
		if !ok {
			return c.answerStopping()
		}
		if d.isLimited(c) {
			d.rates.charge(time.Now(), c.uid, signalled)
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
		h.link.out.addWant(node.RunID{ID: r.ID, Run: r.Run}, keeper.Want{Verb: keeper.Signal, Signal: signal})
		n++
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// describeChange describes a change, for a job's history.
func describeChange(c *backends.Change) string {
	var b strings.Builder
	add := func(what string, value any) { fmt.Fprintf(&b, ", %s %v", what, value) }
	text := func(what string, value *string) {
		if value != nil {
			add(what, strings.TrimSpace(*value))
		}
	}
	text("name", c.Name)
	text("project", c.Project)
	text("queue", c.Queue)
	text("description", c.Description)
	text("dependency", c.After)
	if c.Priority != nil {
		add("priority", c.Priority.Value())
	}
	if c.Slots != nil {
		add("slots", *c.Slots)
	}
	if c.Memory != nil {
		add("memory", fmt.Sprintf("%d bytes", *c.Memory))
	}
	if c.MemoryLimit != nil {
		add("memory limit", fmt.Sprintf("%d bytes", *c.MemoryLimit))
	}
	if c.OneHost != nil {
		add("on one host:", *c.OneHost)
	}
	if c.PerHost != nil {
		add("slots on each host", *c.PerHost)
	}
	if c.Hosts != nil {
		add("hosts", strings.Join(*c.Hosts, " "))
	}
	if c.Needs != nil {
		add("resources", backends.FormatAmounts(*c.Needs))
	}
	if c.Features != nil {
		add("features", strings.Join(*c.Features, " "))
	}
	text("condition on hosts", c.Select)
	if c.Same != nil {
		add("the same on all hosts", strings.Join(*c.Same, " "))
	}
	if c.RunLimit != nil {
		add("run limit", *c.RunLimit)
	}
	if c.BeginTime != nil {
		add("begin", strings.TrimPrefix(until(*c.BeginTime), "until "))
	}
	return strings.TrimPrefix(b.String(), ", ")
}
