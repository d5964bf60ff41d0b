package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// Past jobs have ended and are no longer in memory (manager.Config.MaxEnded). What
// is asked of them is read from their state objects, never in the loop.

// Bounds of the ended jobs in memory, of one user.
const (
	keptEnded      = miniq.DefaultMaxJobs // or max_jobs, see maxEnded
	keptEndedBytes = 64 << 20
)

// past returns those of some jobs that are past. It belongs to the loop.
func (d *daemon) past(ids []backends.ID) []backends.ID {
	var past []backends.ID
	for _, id := range ids {
		if d.m.Issued(id) && d.m.Count([]backends.ID{id}) == 0 {
			past = append(past, id)
		}
	}
	return past
}

// readFinal reads how a past job ended. fs.ErrNotExist: nothing says so any more.
func (d *daemon) readFinal(id backends.ID) (*backends.Job, error) {
	d.reading.Lock() // one at a time: many would take all processors from the queue
	defer d.reading.Unlock()
	return state.ReadFinal(d.objectDir(), id)
}

// readFinals reads how past jobs ended, and leaves out those of which nothing is known.
func (d *daemon) readFinals(ids []backends.ID) []backends.CompactJob {
	var jobs []backends.CompactJob
	for _, id := range ids {
		j, err := d.readFinal(id)
		switch {
		case err == nil:
			escaped := j.MapTexts(backends.Escape)
			jobs = append(jobs, escaped.Compact())
		case !errors.Is(err, fs.ErrNotExist):
			d.log.Warn("how a job ended can't be read", "job", id, "error", err)
		}
	}
	return jobs
}

// Bounds of what the dependencies of one request may have read.
const (
	maxPastEnds = 1000
	pastPause   = 10 * time.Second
)

// pastEnds reads how the past jobs that conditions name ended.
func (d *daemon) pastEnds(c *connection, conditions []string) ([]manager.PastEnd, error) {
	past, err := d.pastNamed(conditions)
	if len(past) == 0 || err != nil {
		return nil, err
	}
	if d.isLimited(c) {
		d.rates.charge(time.Now(), c.uid, len(past))
	}
	ctx, cancel := context.WithTimeout(context.Background(), pastPause)
	defer cancel()
	err = d.objects.Flush(ctx)
	var ends []manager.PastEnd
	for _, id := range past {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("%w: look up how the jobs ended that the request depends on: %w", miniq.ErrBusy, err)
		}
		for _, j := range d.readFinals([]backends.ID{id}) {
			ends = append(ends, manager.PastEnd{ID: id, Exited: j.State == backends.Exited, ExitCode: j.ExitCode})
		}
	}
	return ends, nil
}

// pastNamed lists the past jobs that conditions name, by ID.
func (d *daemon) pastNamed(conditions []string) ([]backends.ID, error) {
	all := make(map[backends.ID]bool)
	var named []backends.ID
	for i, after := range conditions {
		if i == 0 || after != conditions[i-1] {
			named = append(named, manager.Mentions(after)...)
		}
		if len(named) < maxPastEnds && i < len(conditions)-1 {
			continue
		}
		for ids := range slices.Chunk(distinct(named), maxPastEnds) { // a turn of the loop is short
			ok := d.inLoop(func() {
				for _, id := range d.past(ids) {
					all[id] = true
				}
			})
			if !ok {
				return nil, errStopping
			}
		}
		named = named[:0]
		if len(all) > maxPastEnds {
			return nil, fmt.Errorf("the dependencies name more than %d jobs that ended long ago: leave out those that you know to be done", maxPastEnds)
		}
	}
	return slices.SortedFunc(maps.Keys(all), backends.ID.Compare), nil
}

// awaitObjects waits until the objects of past jobs hold what happened to them.
func (d *daemon) awaitObjects(past []backends.ID) {
	if len(past) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerPause)
	defer cancel()
	if err := d.objects.Flush(ctx); err != nil {
		d.log.Warn("a state object may be behind", "error", err)
	}
}

// pastRecord reads the state object of a past job.
func (d *daemon) pastRecord(by manager.By, id backends.ID) (*backends.Record, error) {
	d.awaitObjects([]backends.ID{id})
	j, err := d.readFinal(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	}
	if err != nil {
		return nil, err
	}
	if !by.Admin && by.User != j.User {
		return nil, fmt.Errorf("job %v: its record is its owner's to see: %w", id, backends.ErrDenied)
	}
	return state.Read(d.objectDir(), id)
}

// collected counts the objects of past jobs that collect found.
type collected struct {
	gone int // removed: their jobs ended before the time that was asked for
	left int
	open int // of gone those that may not be removed yet
}

// removedAtOnce is how many objects are removed before the writer of state objects goes
// on with what else it has to write.
const removedAtOnce = 4000

// collect removes the objects of past jobs that ended before a time. known reports
// which jobs are in memory, or have never been.
func (d *daemon) collect(before time.Time, known func([]backends.ID) ([]bool, error)) (collected, error) {
	const atOnce = 1000
	var c collected
	folders, err := state.Folders(d.objectDir())
	if err != nil {
		return c, err
	}
	for _, folder := range folders {
		all, err := state.ListFolder(folder)
		if errors.Is(err, fs.ErrNotExist) { // its last object was removed
			continue
		}
		if err != nil {
			return c, err
		}
		for ids := range slices.Chunk(all, atOnce) {
			notPast, err := known(ids)
			if err != nil {
				return c, err
			}
			d.collectSome(&c, ids, notPast, before)
		}
	}
	return c, nil
}

func (d *daemon) collectSome(c *collected, ids []backends.ID, notPast []bool, before time.Time) {
	var old []backends.ID
	for i, id := range ids {
		if notPast[i] {
			continue
		}
		if at, err := state.LastChange(d.objectDir(), id); err == nil && at.Before(before) {
			old = append(old, id)
		} else {
			c.left++
		}
	}
	c.gone += len(old)
	d.objects.Remove(old...)
	if c.open += len(old); c.open >= removedAtOnce {
		c.open = 0
		_ = d.objects.Flush(context.Background()) // the writer logs its error
	}
}

// notPast reports which jobs' objects are not those of past jobs. It belongs to the loop.
func (d *daemon) notPast(ids []backends.ID) []bool {
	notPast := make([]bool, len(ids))
	for i, id := range ids {
		notPast[i] = !d.m.Issued(id) || d.m.Count([]backends.ID{id}) > 0
	}
	return notPast
}

// notPastInLoop is kept for other goroutines.
func (d *daemon) notPastInLoop(ids []backends.ID) (notPast []bool, err error) {
	if !d.inLoop(func() { notPast = d.notPast(ids) }) {
		return nil, errStopping
	}
	return notPast, nil
}
