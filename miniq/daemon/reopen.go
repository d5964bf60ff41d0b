package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// A job that has ended may be put back into the queue. What it runs is no longer in memory: it is
// read from the job's state object and written into the journal with the event, so that after a crash
// the job runs even if its object was lost.

// reopenEvent is the line in a job's history that says so.
const reopenEvent = "requeue"

// maxReopened bounds the jobs of one request, an array being one: what each runs is read.
const maxReopened = 1000

// reopen answers a request to put jobs that have ended back into the queue.
func (d *daemon) reopen(c *connection, req *miniq.Request) error {
	fail := func(err error) error { return c.answer(miniq.Response{Error: miniq.ToError(err)}) }
	if err := checkRepeats(req); err != nil {
		return fail(err)
	}
	read, err := d.readEnded(c, req.IDs)
	if err != nil {
		return fail(err)
	}
	errs := make([]*miniq.Error, len(req.IDs))
	event := manager.Reopen{By: c.by}
	var bodies []body
	var places []int
	taken := make(map[int64]bool)
	for i, id := range req.IDs {
		one := read[id.Job]
		if one.err != nil {
			errs[i] = miniq.ToError(one.err)
			continue
		}
		event.IDs, places = append(event.IDs, id), append(places, i)
		if !taken[id.Job] {
			taken[id.Job] = true
			bodies = append(bodies, *one.body)
		}
	}
	if len(event.IDs) > 0 {
		over, err := d.admit(c, len(event.IDs))
		if err != nil {
			return fail(err)
		}
		defer over()
		result, err := d.ask(input{event: event, bodies: bodies})
		if err != nil {
			return fail(err)
		}
		for i, err := range result.Errors {
			errs[places[i]] = miniq.ToError(err)
		}
		if d.isLimited(c) {
			d.rates.addChanges(time.Now(), c.uid, len(result.Errors))
		}
	}
	return c.answer(miniq.Response{Errors: errs})
}

// readBody is what a job runs, or why it can't be read.
type readBody struct {
	body *body
	err  error
}

// readEnded reads what jobs run, by their numbers, where the user may have them run again.
func (d *daemon) readEnded(c *connection, ids []backends.ID) (map[int64]readBody, error) {
	all := make(map[int64]readBody)
	var one []backends.ID // of each number
	for _, id := range ids {
		if _, known := all[id.Job]; !known {
			all[id.Job] = readBody{}
			one = append(one, id)
		}
	}
	if len(one) > maxReopened {
		return nil, fmt.Errorf("%d jobs that have ended: at most %d are put back into the queue at a time, an array being one", len(one), maxReopened)
	}
	if d.isLimited(c) {
		d.rates.charge(time.Now(), c.uid, len(one))
	}
	ok := d.inLoop(func() {
		for _, id := range one {
			known := readBody{}
			if d.m.Count([]backends.ID{id}) > 0 {
				known.err = mayAccess(c.by, d.m.Jobs(time.Now(), []backends.ID{id}), "it is another user's")
			} else {
				known.err = d.unknown(id)
			}
			all[id.Job] = known
		}
	})
	if !ok {
		return nil, errStopping
	}
	ctx, cancel := context.WithTimeout(context.Background(), pastPause)
	defer cancel()
	err := d.objects.Flush(ctx)
	for _, id := range one {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read what the jobs run: %w", miniq.ErrBusy, err)
		}
		if all[id.Job].err == nil {
			all[id.Job] = d.readEndedBody(id)
		}
	}
	return all, nil
}

// unknown is the error for a job that is not in memory. It belongs to the loop.
func (d *daemon) unknown(id backends.ID) error {
	if d.m.Issued(id) {
		return fmt.Errorf("job %v: it ended earlier than the jobs that the queue keeps in memory: submit it again: %w", id, backends.ErrWrongState)
	}
	return fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
}

func (d *daemon) readEndedBody(id backends.ID) readBody {
	d.reading.Lock() // one at a time, as in readFinal
	defer d.reading.Unlock()
	b, err := d.storedBodyOf(id)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("job %v: what it runs is no longer on record: submit it again", id)
	}
	return readBody{b, err}
}

// reopened keeps what reopened jobs run, until they have ended again.
func (n *entryChanges) reopened(e *entry, ev manager.Reopen) {
	next := 0
	taken := make(map[int64]bool)
	for _, id := range ev.IDs {
		if taken[id.Job] || next >= len(e.Bodies) {
			continue
		}
		taken[id.Job] = true
		b := e.Bodies[next]
		next++
		left := n.d.m.Unended(backends.ID{Job: id.Job})
		switch kept := n.d.bodies[id.Job]; {
		case left == 0: // none was reopened
		case kept != nil:
			kept.left = left
		default:
			n.d.keepBody(ev.By.User, id.Job, &b, e.Seq, left)
		}
	}
}
