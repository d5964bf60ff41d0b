package lsf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// Each act has three steps: record what must be remembered of it, run LSF's command, and
// read the queue back, since the output of LSF's commands proves nothing. The act's
// comment says what a crash between two steps leaves, and what repairs it.

type (
	item  = reconcile.Item[*job]
	batch = reconcile.Batch[*job]
)

// newBatch takes a snapshot of jobs and checks each.
func (c *Client) newBatch(ctx context.Context, ids []backends.ID, check func(*item) error) (*snapshot, batch) {
	if len(ids) == 0 {
		return &snapshot{}, nil
	}
	p, err := c.readSnapshot(ctx, ids)
	if err != nil {
		return &snapshot{}, reconcile.Failed[*job](ids, err)
	}
	return p, reconcile.Begin(ids, p.jobs, check)
}

// updateEntries changes what is remembered of jobs.
func (c *Client) updateEntries(b batch, f func(it *item, e *entry)) {
	if b = b.Open(); len(b) == 0 {
		return
	}
	err := c.record.change(func(all entries) {
		for _, it := range b {
			e := all[it.ID]
			if !e.describes(it.Job.listed) {
				e = entry{Submitted: it.Job.Submitted}
			}
			e.Gone = time.Time{}
			f(it, &e)
			all[it.ID], it.Job.entry = e, e
		}
	})
	if err != nil {
		b.Fail(err)
	}
}

// restoreEntries restores the earlier entries of jobs for which the queue refused the
// command.
func (c *Client) restoreEntries(b batch, before []entry) {
	var undone batch
	for _, it := range b {
		if refused(it.Err) && !before[it.Index].Submitted.IsZero() {
			undone = append(undone, &item{Index: it.Index, ID: it.ID, Job: it.Job})
		}
	}
	c.updateEntries(undone, func(it *item, e *entry) { *e = before[it.Index] })
}

// runBatch runs a command on the jobs of a batch and takes each one's error.
func (c *Client) runBatch(ctx context.Context, b batch, argv ...string) {
	b.Do(func(ids []backends.ID) backends.Errors { return c.runOnJobs(ctx, ids, argv...) })
}

// bmod changes one job.
func (c *Client) bmod(ctx context.Context, id backends.ID, options ...string) error {
	return c.runOnJobs(ctx, []backends.ID{id}, append([]string{"bmod"}, options...)...)[0]
}

// brequeue puts jobs back into the queue, with -H those that must come back held.
func (c *Client) brequeue(ctx context.Context, b batch, options ...string) {
	argv := append([]string{"brequeue"}, options...)
	returns := func(it *item) bool { return it.Job.entry.Returns }
	stays := b.Where(func(it *item) bool { return !returns(it) })
	c.runBatch(ctx, b.Where(returns), append(slices.Clone(argv), "-H")...)
	c.runBatch(ctx, stays, argv...)
}

// refused reports whether err is the queue's refusal. After any other error it is not
// known what the queue did.
func refused(err error) bool {
	return err != nil && !errors.Is(err, backends.ErrUnreachable) && !neverRan(err)
}

// effectPace is the pace of polling until the queue shows a command's effect: its daemons
// tick once a second. requeuePace is that of Requeue until jobs are back in the queue;
// Reconcile finishes what takes longer.
func effectPace() reconcile.Pace {
	return reconcile.Pace{First: 20 * time.Millisecond, Most: 300 * time.Millisecond, Limit: 8 * time.Second}
}

func requeuePace() reconcile.Pace {
	return reconcile.Pace{First: 50 * time.Millisecond, Most: 300 * time.Millisecond, Limit: 10 * time.Second}
}

// awaitEffect reads jobs back until wrong returns no error for any of them. A job that is still
// wrong at the end gets that error.
func (c *Client) awaitEffect(ctx context.Context, b batch, wrong func(it *item, now *job) error) {
	if b = b.Open(); len(b) == 0 {
		return
	}
	var batchNow batch
	inTime := effectPace().Poll(ctx, func() bool {
		_, batchNow = c.newBatch(ctx, b.IDs(), func(now *item) error { return wrong(b[now.Index], now.Job) })
		return batchNow.Errors().First() == nil
	})
	if !inTime {
		b.Do(func([]backends.ID) backends.Errors { return batchNow.Errors() })
	}
}

func idOfAct(a backends.Act) backends.ID { return a.ID }

// Requeue puts running jobs back into the queue, with brequeue -H where they must not
// start at once: they come back held, get their begin time, and are then released, so
// that they run in the end even without the engine (R21). LSF 10.1 always gets -H: bjobs
// shows only minutes there, so that a run and the next one may look the same. An Act's
// Grace has no effect: LSF itself sends SIGINT, SIGTERM and SIGKILL
// (JOB_TERMINATE_INTERVAL). A job that saves itself is asked to, and Reconcile does the
// rest (R33, see save).
//
// A crash before brequeue leaves a job that shows as Ending until Reconcile finds, after a
// while, that brequeue never ran. A crash after it leaves a job that comes back held, and
// Reconcile releases it.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(acts, idOfAct), reconcile.Requeueable[*job](acts))
	before := make([]entry, len(b))
	c.updateEntries(b, func(it *item, e *entry) {
		before[it.Index] = *e
		now, act := time.Now(), &acts[it.Index]
		e.Mark, e.Until = act.Mark, act.Until
		if !e.Run.Equal(it.Job.listed.Started) {
			e.Resumed = time.Time{}
		}
		e.Run, e.Acted, e.Requeuing, e.Returns = it.Job.listed.Started, now, true, act.Until.After(now) || p.flavour == lsf10
		e.Suspended, e.Resuming, e.Ran, e.Down = false, false, 0, time.Time{}
		e.Begin, e.Ours, e.Was, e.Freed = time.Time{}, time.Time{}, time.Time{}, false
		if e.Save = saveOf(act, &it.Job.Job); e.Save.Signal != "" {
			e.Returns = false // it is put back later
		}
	})
	asks := func(it *item) bool { return it.Job.entry.Save.Signal != "" }
	leave := b.Where(func(it *item) bool { return !asks(it) })
	c.askToSave(ctx, b.Where(asks))
	c.brequeue(ctx, leave)
	c.restoreEntries(b, before)
	c.awaitRequeue(ctx, requeuePace(), leave.Open().IDs())
	return b.Errors()
}

// awaitRequeue waits for requeued jobs, and completes each as it comes back.
func (c *Client) awaitRequeue(ctx context.Context, pace reconcile.Pace, ids []backends.ID) {
	if len(ids) == 0 {
		return
	}
	pace.Poll(ctx, func() bool {
		p, err := c.readSnapshot(ctx, ids)
		if err == nil {
			ids = c.completeRequeues(ctx, p)
		}
		return err != nil || len(ids) == 0 // Reconcile does the rest
	})
}

// completeRequeues completes the requeue of jobs that are back in the queue, and returns those
// that are not complete. Its order allows each step to be repeated: priority and begin
// time, then the end of LSF's hold, then the note that all is done.
func (c *Client) completeRequeues(ctx context.Context, p *snapshot) (left []backends.ID) {
	var back []*job
	for _, j := range p.jobs {
		switch {
		case !j.entry.Requeuing || j.State.Ended():
		case j.Ending:
			left = append(left, j.ID)
		case j.waits(), !j.sameRun():
			back = append(back, j)
		}
	}
	b := reconcile.Of(back)
	c.applyPriorities(ctx, p, b)
	c.setBeginTimes(ctx, p, b)
	c.bresume(ctx, b.Where(func(it *item) bool { return it.Job.entry.Returns && it.Job.listed.State == backends.Held }))
	c.notePutBack(ctx, b)
	for _, it := range b {
		if it.Err != nil {
			left = append(left, it.ID)
		}
	}
	return left
}

// Suspend stops running jobs. A crash before bstop leaves a job that runs though it is
// recorded as stopped: Reconcile stops it, as it does one that its owner resumed.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	_, b := c.newBatch(ctx, reconcile.IDs(acts, idOfAct), reconcile.InRun[*job](acts))
	before := make([]entry, len(b))
	c.updateEntries(b, func(it *item, e *entry) {
		before[it.Index] = *e
		started := it.Job.listed.Started
		if !e.Run.Equal(started) {
			e.Resumed, e.Ran = time.Time{}, 0
		}
		now := time.Now()
		e.Mark, e.Until = acts[it.Index].Mark, acts[it.Index].Until
		e.Run, e.Acted, e.Suspended, e.Resuming, e.Requeuing, e.Returns = started, now, true, false, false, false
		e.Ran += now.Sub(it.Job.Started)
	})
	c.runBatch(ctx, b, "bstop")
	c.restoreEntries(b, before)
	c.awaitEffect(ctx, b, func(_ *item, now *job) error {
		if now.listed.State != backends.Suspended {
			return reconcile.WrongState(&now.Job)
		}
		return nil
	})
	return b.Errors()
}

// Hold keeps pending jobs from starting, as their owner's bstop would: the owner can
// release them. It may be repeated.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Waiting)
	free := b.Where(func(it *item) bool { return it.Job.listed.State != backends.Held })
	c.runBatch(ctx, free, "bstop")
	c.awaitEffect(ctx, free, func(_ *item, now *job) error {
		if now.listed.State != backends.Held {
			return reconcile.WrongState(&now.Job)
		}
		return nil
	})
	return b.Errors()
}

// Release undoes an owner's hold. It may be repeated.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Held)
	c.bresume(ctx, b.Where(func(it *item) bool { return it.Job.listed.State != backends.Pending }))
	return b.Errors()
}

// bresume ends the holds of waiting jobs.
func (c *Client) bresume(ctx context.Context, b batch) {
	c.runBatch(ctx, b, "bresume")
	c.awaitEffect(ctx, b, func(_ *item, now *job) error {
		if now.listed.State == backends.Held {
			return fmt.Errorf("job %v: %w: it is still held after bresume", now.ID, backends.ErrWrongState)
		}
		return nil
	})
}

// SetPriority gives jobs their priorities. LSF changes those of waiting jobs only (lava): for
// others the priority is remembered, and set when they are back in the queue. A crash in
// between leaves a number other than the noted one, which is read as what it stands for.
func (c *Client) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(rankings, func(r backends.PriorityChange) backends.ID { return r.ID }), func(it *item) error {
		if j := it.Job; j.State.Ended() || j.State == backends.Running && !j.Ending {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	if err := p.scale.unable(); err != nil {
		b.Fail(fmt.Errorf("rank jobs: %w", err))
	}
	c.updateEntries(b, func(it *item, e *entry) {
		e.Ranked, e.Rank, e.Number = true, rankings[it.Index].Priority, 0
		if it.Job.waits() {
			e.Number = p.scale.number(e.Rank)
		}
	})
	c.applyPriorities(ctx, p, b)
	return b.Errors()
}

// applyPriorities gives waiting jobs the priorities that are remembered for them.
func (c *Client) applyPriorities(ctx context.Context, p *snapshot, b batch) {
	number := func(it *item) int64 { return p.scale.number(it.Job.entry.Rank) }
	b = b.Where(func(it *item) bool {
		j := it.Job
		return j.entry.Ranked && j.waits() && (j.number != number(it) || j.entry.Number != j.number)
	})
	c.updateEntries(b, func(it *item, e *entry) { e.Number = number(it) })
	b.Each(func(it *item) error {
		return c.runOnJobsWith(ctx, []string{backends.RankVariable + "=1"}, []backends.ID{it.ID}, "bmod", "-sp", strconv.FormatInt(number(it), 10))[0]
	})
	c.awaitEffect(ctx, b, func(it *item, now *job) error {
		if now.waits() && now.number != number(it) {
			return fmt.Errorf("job %v has the priority %d after bmod -sp %d", it.ID, now.number, number(it))
		}
		return nil
	})
}

// pin binds each job to its hosts: it may run on any of them. A crash before bmod leaves
// a note of a pin that is not there, which has no effect.
func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	_, b := c.newBatch(ctx, reconcile.IDs(pins, func(p backends.Pin) backends.ID { return p.ID }), reconcile.Waiting)
	c.updateEntries(b, func(it *item, e *entry) {
		e.Asked = it.Job.asked
		if hosts := pins[it.Index].Hosts; len(hosts) > 0 {
			e.Pinned = hosts
		}
	})
	want := func(it *item) []string {
		if hosts := pins[it.Index].Hosts; len(hosts) > 0 {
			return hosts
		}
		return it.Job.asked
	}
	b.Each(func(it *item) error {
		switch hosts := want(it); {
		case slices.ContainsFunc(hosts, func(h string) bool { return h == "" || h[0] == '-' || strings.ContainsAny(h, " \t") }):
			return fmt.Errorf("job %v: pin to %q: not a host name", it.ID, hosts)
		case sameHosts(it.Job.listed.Asked, hosts):
			return nil
		case len(hosts) == 0:
			return c.bmod(ctx, it.ID, "-mn")
		default:
			return c.bmod(ctx, it.ID, "-m", strings.Join(hosts, " "))
		}
	})
	c.awaitEffect(ctx, b, func(it *item, now *job) error {
		if hosts := want(it); now.waits() && !sameHosts(now.listed.Asked, hosts) {
			return fmt.Errorf("job %v: bmod -m %s: its hosts are %s", it.ID, strings.Join(hosts, " "), strings.Join(now.listed.Asked, " "))
		}
		return nil
	})
	c.updateEntries(b, func(it *item, e *entry) {
		if len(pins[it.Index].Hosts) == 0 {
			e.Asked, e.Pinned = nil, nil
		}
	})
	return b.Errors()
}

// holdUntil sets the engine's begin times, in whole minutes: a waiting job does not start
// before, and starts then even without the engine. At the end of the hold the owner's
// begin time is restored. Reconcile resumes a suspended job then, also one that was to be
// resumed. A crash before bmod leaves a hold that is noted: Reconcile sets it.
func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(holds, func(h backends.HoldUntil) backends.ID { return h.ID }), func(it *item) error {
		if j := it.Job; !j.waits() && !j.returning() && j.State != backends.Suspended {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	c.updateEntries(b, func(it *item, e *entry) {
		e.Until = holds[it.Index].Until
		e.Resuming = e.Resuming && !e.Until.After(p.at)
		if it.Job.State == backends.Suspended && e.Run.IsZero() { // its owner stopped it
			e.Run, e.Acted, e.Suspended = it.Job.listed.Started, time.Now(), true
		}
	})
	back := b.Where(func(it *item) bool { return it.Job.waits() && it.Job.entry.Requeuing })
	c.setBeginTimes(ctx, p, b.Where(func(it *item) bool { return it.Job.waits() && !it.Job.entry.Requeuing }))
	c.completeRequeues(ctx, &snapshot{at: p.at, flavour: p.flavour, params: p.params, scale: p.scale, jobs: back.Jobs()})
	b.Where(func(it *item) bool { return it.Job.State == backends.Suspended && !holds[it.Index].Until.After(p.at) }).
		Do(func(ids []backends.ID) backends.Errors { return c.Resume(ctx, ids) })
	return b.Errors()
}

// move puts pending jobs into another queue. It may be repeated.
func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Waiting)
	if queue == "" || queue[0] == '-' || strings.ContainsAny(queue, " \t") {
		b.Fail(fmt.Errorf("move to queue %q: not a queue name", queue))
	}
	b.Each(func(it *item) error {
		if it.Job.Queue == queue {
			return nil
		}
		return c.bmod(ctx, it.ID, "-q", queue)
	})
	c.awaitEffect(ctx, b, func(it *item, now *job) error {
		if now.waits() && now.Queue != queue {
			return fmt.Errorf("job %v: it is in queue %s after bmod -q %s", it.ID, now.Queue, queue)
		}
		return nil
	})
	return b.Errors()
}

// startOn starts a job in the given slots, full or not, by brun, which only
// administrators may run. LSF counts the job on top of those that run there, and starts
// no other there meanwhile. A crash leaves a job that runs, or waits as before.
func (c *Client) startOn(ctx context.Context, id backends.ID, hosts []backends.Placement) error {
	p, b := c.newBatch(ctx, []backends.ID{id}, reconcile.Waiting)
	if len(hosts) == 0 {
		b.Fail(fmt.Errorf("start job %v: no hosts are named", id))
	}
	for _, h := range hosts {
		if h.Host == "" || h.Host[0] == '-' || strings.ContainsAny(h.Host, " \t#") {
			b.Fail(fmt.Errorf("start job %v on %q: not a host name", id, h.Host))
		}
	}
	c.runBatch(ctx, b, "brun", "-m", brunHosts(hosts, p.flavour))
	c.awaitEffect(ctx, b, func(_ *item, now *job) error {
		if now.waits() {
			return reconcile.WrongState(&now.Job)
		}
		return nil
	})
	return b.Errors().First()
}

// Kill ends jobs; pending ones too. It may be repeated.
func (c *Client) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	if len(ids) == 0 {
		return nil
	}
	p, err := c.readSnapshot(ctx, ids)
	if err != nil {
		return backends.Fail(len(ids), err)
	}
	b := reconcile.Alive(ids, p.jobs)
	c.runBatch(ctx, b, "bkill")
	return b.Errors()
}
