package slurm

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

type (
	item  = reconcile.Item[*seen]
	batch = reconcile.Batch[*seen]
)

// looked takes a snapshot of jobs, and checks each.
func (c *Client) looked(ctx context.Context, ids []backends.ID, check func(*item) error) (*picture, batch) {
	if len(ids) == 0 {
		return &picture{}, nil
	}
	p, err := c.look(ctx, ids)
	if err != nil {
		return &picture{}, reconcile.Failed[*seen](ids, err)
	}
	return p, reconcile.Begin(ids, p.jobs, check)
}

// detailed reads the records of jobs about to be changed. look leaves them out where
// nothing seems to be recorded.
func (c *Client) detailed(ctx context.Context, p *picture, b batch) {
	b = b.Where(func(it *item) bool { return !it.Job.detailed })
	if len(b) == 0 {
		return
	}
	details, err := c.details(ctx, b.IDs())
	b.Each(func(it *item) error {
		d, known := details[it.ID]
		switch {
		case err != nil:
			return err
		case !known:
			return fmt.Errorf("job %v: %w", it.ID, backends.ErrUnknownJob)
		}
		it.Job.take(d, p.at)
		return nil
	})
}

// keep is the part of an update that writes a job's record.
func (j *seen) keep() string { return "AdminComment=" + j.record.comment(j.before, j.after) }

// update is a request to change a job. A record beside a site's own text, which has
// spaces, can't be written by it: see write.
func (j *seen) update(changes ...string) string {
	return "update JobId=" + name(j.ID) + " " + strings.Join(changes, " ")
}

// write puts updates of jobs to scontrol, and those that hold spaces to one of its
// own each.
func (c *Client) write(ctx context.Context, b batch, changes func(*item) []string) {
	spaced := map[*item][]string{}
	c.orderSome(ctx, b, func(it *item) string {
		all := changes(it)
		if len(all) == 0 {
			return ""
		}
		if slices.ContainsFunc(all, func(s string) bool { return strings.ContainsAny(s, " \t\n\"'") }) {
			spaced[it] = all
			return ""
		}
		return it.Job.update(all...)
	})
	for it, all := range spaced {
		_, it.Err = c.run(ctx, nil, append([]string{"scontrol", "update", "JobId=" + name(it.ID)}, all...)...)
	}
}

// keepAll writes the records of jobs as they are now.
func (c *Client) keepAll(ctx context.Context, jobs []*seen) backends.Errors {
	b := reconcile.Of(jobs)
	c.write(ctx, b, func(it *item) []string { return []string{it.Job.keep()} })
	return b.Errors()
}

func idOfAct(a backends.Act) backends.ID { return a.ID }

// whole is a time in the queue's seconds, the next one if it is between two.
func whole(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Second - 1).Truncate(time.Second).UTC()
}

// clock is a time as Slurm's commands read it; the zone is UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// Requeue puts running jobs back. Slurm itself sends SIGTERM and, KillWait later,
// SIGKILL: that replaces an Act's Grace. Slurm's delay of a requeued job (121 s, 22.05)
// is removed as soon as its processes are gone, here or by Reconcile.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	p, b := c.looked(ctx, reconcile.IDs(acts, idOfAct), reconcile.Requeueable[*seen](acts))
	c.detailed(ctx, p, b)
	// The record first: it holds from the next requeue on, should we die in between.
	c.write(ctx, b, func(it *item) []string {
		r, j, act := &it.Job.record, it.Job, &acts[it.Index]
		r.run, r.mark, r.until, r.started, r.delayed = j.Requeues+1, act.Mark, whole(act.Until), j.Started, true
		r.stop, r.resumed, r.ranked, r.rest = false, time.Time{}, false, time.Time{}
		if r.submitted.IsZero() {
			r.submitted = j.Submitted
		}
		return []string{j.keep()}
	})
	c.orderSome(ctx, b, func(it *item) string { return "requeue " + name(it.ID) })
	c.settle(ctx, b.Open().Jobs())
	return b.Errors()
}

// settling is how long Requeue waits for jobs that may start again at once; Reconcile
// handles those that take longer.
const settling = rest + 3*time.Second

// settle removes Slurm's delay from requeued jobs as they leave their hosts.
func (c *Client) settle(ctx context.Context, requeued []*seen) {
	if len(requeued) == 0 {
		return
	}
	ids := reconcile.Of(requeued).IDs()
	reconcile.Pace{First: 20 * time.Millisecond, Most: 200 * time.Millisecond, Limit: settling}.Poll(ctx, func() bool {
		p, err := c.look(ctx, ids)
		if err == nil {
			c.remind(ctx, p, requeued)
			ids = c.undelay(ctx, p)
		}
		return err != nil || len(ids) == 0
	})
}

// remind writes the records of requeued and suspended jobs again where they are lost:
// slurmctld saves its state every five seconds (22.05), and may have died between the
// record and the act, which waits until it is back.
func (c *Client) remind(ctx context.Context, p *picture, acted []*seen) {
	var lost []*seen
	for _, was := range acted {
		j, err := reconcile.One(p.jobs, was.ID)
		if err != nil {
			continue
		}
		requeued := !j.State.Ended() && j.Requeues == was.record.run && j.record.run < was.record.run
		suspended := j.State == backends.Suspended && was.record.stop && !j.record.stop
		if requeued || suspended {
			j.record = was.record
			lost = append(lost, j)
		}
	}
	c.keepAll(ctx, lost)
}

// undelay gives the requeued jobs of a snapshot their begin times, and returns those
// for which it is too early. The scheduler does not wake up when a begin time passes,
// and may look only once a minute: a job that may start gets StartTime=now.
func (c *Client) undelay(ctx context.Context, p *picture) (left []backends.ID) {
	var jobs []*seen
	for _, j := range p.jobs {
		switch {
		case !j.record.delayed || j.State.Ended() || j.State == backends.Suspended:
		case j.State == backends.Running:
			left = append(left, j.ID) // it is still to leave its hosts
		case !j.record.rest.After(p.at) || j.record.until.After(j.record.rest): // or none is noted yet
			jobs = append(jobs, j)
		default:
			left = append(left, j.ID)
		}
	}
	b := reconcile.Of(jobs)
	c.write(ctx, b, func(it *item) []string {
		j := it.Job
		fresh := j.record.rest.IsZero()
		if fresh {
			j.record.rest = whole(p.at.Add(rest))
		}
		start := j.startTime(p.at)
		if fresh && start == clock(j.record.rest) {
			left = append(left, j.ID)
			return []string{j.keep()} // Slurm's delay holds it until then
		}
		j.record.delayed, j.record.started = false, time.Time{}
		return []string{"StartTime=" + start, j.keep()}
	})
	for _, it := range b {
		if it.Err != nil {
			left = append(left, it.ID)
		}
	}
	return left
}

// rest is how long a requeued job must wait after it has left its hosts. A host
// refuses a run whose credential is not younger, in whole seconds of its clock, than
// the kill of the run before: "already killed, do not launch batch job", and the
// job has failed (22.05). Slurm's own delay is there for that, and is longer.
const rest = 3 * time.Second

// startTime is when a pending job may start, by what the engine and its owner set.
func (j *seen) startTime(at time.Time) string {
	begin := j.record.until
	for _, t := range []time.Time{j.record.begin, j.record.rest} {
		if t.After(begin) {
			begin = t
		}
	}
	if !begin.After(at) {
		return "now"
	}
	return clock(begin)
}

// Suspend stops running jobs.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	p, b := c.looked(ctx, reconcile.IDs(acts, idOfAct), reconcile.InRun[*seen](acts))
	c.detailed(ctx, p, b)
	before := make([]record, len(b))
	// The record first: it holds while the job is suspended, should we die in between.
	c.write(ctx, b, func(it *item) []string {
		r, act := &it.Job.record, &acts[it.Index]
		before[it.Index] = *r
		r.run, r.stop, r.mark, r.until, r.resumed = 0, true, act.Mark, whole(act.Until), time.Time{}
		r.ranked, r.priority = true, it.Job.Priority
		return []string{it.Job.keep()}
	})
	written := b.Open()
	c.orderSome(ctx, b, func(it *item) string { return "suspend " + name(it.ID) })
	var refused []*seen
	for _, it := range written {
		if errors.Is(it.Err, backends.ErrWrongState) || errors.Is(it.Err, backends.ErrDenied) {
			it.Job.record = before[it.Index]
			refused = append(refused, it.Job)
		}
	}
	if suspended := b.Open(); len(suspended) > 0 {
		if p, err := c.look(ctx, suspended.IDs()); err == nil {
			c.remind(ctx, p, suspended.Jobs())
		}
	}
	c.keepAll(ctx, refused)
	return b.Errors()
}

// Hold sets an owner's hold on pending jobs: the owner can release them.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.looked(ctx, ids, reconcile.Waiting)
	free := b.Where(func(it *item) bool { return it.Job.State != backends.Held })
	c.orderSome(ctx, free, func(it *item) string { return "uhold " + name(it.ID) })
	return b.Errors()
}

// Release undoes an owner's hold.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.looked(ctx, ids, reconcile.Held)
	b.Each(func(it *item) error {
		if it.Job.Reason == "JobHeldAdmin" {
			return fmt.Errorf("job %v: %w: an administrator holds it", it.ID, backends.ErrDenied)
		}
		return nil
	})
	c.orderSome(ctx, b, func(it *item) string { return "release " + name(it.ID) })
	return b.Errors()
}

func idOfRanking(r backends.PriorityChange) backends.ID { return r.ID }

// SetPriority gives jobs their site factors. A priority that an owner set outright
// (Priority=5) overrides them: root's release clears it (22.05).
func (c *Client) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	b := reconcile.Failed[*seen](reconcile.IDs(rankings, idOfRanking), nil)
	rest := c.rankPending(ctx, b, rankings)
	some := make([]backends.PriorityChange, len(rest))
	for i, it := range rest {
		some[i] = rankings[it.Index]
	}
	rest.Do(func([]backends.ID) backends.Errors { return c.rankLooking(ctx, some) })
	return b.Errors()
}

// rankPending ranks jobs that were pending in Farm's last snapshot, without a look at
// all jobs. It returns the others, and those whose rank is not confirmed.
func (c *Client) rankPending(ctx context.Context, b batch, rankings []backends.PriorityChange) (rest batch) {
	c.mu.Lock()
	p := c.last
	c.mu.Unlock()
	if p == nil || p.unranked != nil {
		return b
	}
	factor := func(it *item) int64 { return p.scale.SiteFactor(rankings[it.Index].Priority) }
	pending := b.Where(func(it *item) bool {
		j, err := reconcile.One(p.jobs, it.ID)
		return err == nil && j.State == backends.Pending
	})
	var orders []string
	for _, it := range pending {
		orders = append(orders, fmt.Sprintf("update JobId=%s SiteFactor=%d", name(it.ID), factor(it)))
	}
	done, answers := c.orderAndShow(ctx, orders, pending.IDs())
	ranked := map[*item]bool{}
	for i, it := range pending {
		// A job that is no longer pending, or whose texts make the answer unclear, has no
		// priority here.
		q, told := parsePriority(answers[it.ID])
		it.Err, ranked[it] = done[i], told && q >= factor(it)
	}
	return b.Where(func(it *item) bool { return !ranked[it] })
}

// rankLooking ranks jobs that may be in any state.
func (c *Client) rankLooking(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	p, b := c.looked(ctx, reconcile.IDs(rankings, idOfRanking), reconcile.NotEnded)
	if p.unranked != nil {
		b.Fail(fmt.Errorf("rank jobs: %w", p.unranked))
	}
	c.detailed(ctx, p, b.Where(func(it *item) bool { return it.Job.State == backends.Suspended }))
	rank := func(it *item) []string {
		changes := []string{"SiteFactor=" + strconv.FormatInt(p.scale.SiteFactor(rankings[it.Index].Priority), 10)}
		if it.Job.State == backends.Suspended {
			it.Job.record.ranked, it.Job.record.priority = true, rankings[it.Index].Priority
			changes = append(changes, it.Job.keep())
		}
		return changes
	}
	c.write(ctx, b, rank)
	// Look again: if the priority is still too low, its owner has set it.
	open := b.Open()
	if len(open) == 0 {
		return b.Errors()
	}
	now, err := c.look(ctx, open.IDs())
	if err != nil {
		open.Fail(err)
		return b.Errors()
	}
	short := open.Where(func(it *item) bool {
		j, err := reconcile.One(now.jobs, it.ID)
		if err != nil {
			return false
		}
		it.Job = j
		return j.State == backends.Pending && j.factor < now.scale.SiteFactor(rankings[it.Index].Priority)
	})
	c.orderSome(ctx, short, func(it *item) string { return "release " + name(it.ID) })
	c.write(ctx, short, rank)
	return b.Errors()
}

// pin binds jobs to hosts: all of them, as Slurm has it.
func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	p, b := c.looked(ctx, reconcile.IDs(pins, func(p backends.Pin) backends.ID { return p.ID }), reconcile.Waiting)
	b.Each(func(it *item) error {
		hosts := pins[it.Index].Hosts
		if slices.ContainsFunc(hosts, func(h string) bool { return p.slots[h] == 0 }) {
			return fmt.Errorf("job %v: pin to %s: no such host", it.ID, strings.Join(hosts, " "))
		}
		return nil
	})
	c.detailed(ctx, p, b)
	c.write(ctx, b, func(it *item) []string {
		r := &it.Job.record
		if !r.pinned || len(it.Job.Pinned) == 0 {
			r.asked = it.Job.Asked
		}
		hosts := pins[it.Index].Hosts
		if r.pinned = len(hosts) > 0; !r.pinned {
			hosts, r.asked = r.asked, nil
		}
		return []string{"ReqNodeList=" + strings.Join(hosts, ","), it.Job.keep()}
	})
	return b.Errors()
}

// holdUntil sets begin times that are the engine's. The owner's own one comes back
// with the end of the hold.
func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	p, b := c.looked(ctx, reconcile.IDs(holds, func(h backends.HoldUntil) backends.ID { return h.ID }), func(it *item) error {
		j := it.Job
		requeued := j.Ending && j.record.delayed // on its way back into the queue
		if !reconcile.Waits(&j.Job) && j.State != backends.Suspended && !requeued {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	c.detailed(ctx, p, b)
	c.write(ctx, b, func(it *item) []string {
		j, r := it.Job, &it.Job.record
		if r.until.IsZero() && !r.delayed && r.begin.IsZero() {
			r.begin = j.BeginTime
		}
		r.until = whole(holds[it.Index].Until)
		if r.delayed && r.rest.IsZero() && !j.Ending {
			r.rest = whole(p.at.Add(rest))
		}
		start := j.startTime(p.at)
		if r.until.IsZero() {
			r.begin = time.Time{}
		}
		if j.State == backends.Suspended || j.Ending {
			return []string{j.keep()}
		}
		r.delayed = false
		return []string{"StartTime=" + start, j.keep()}
	})
	b.Where(func(it *item) bool { return it.Job.State == backends.Suspended && !holds[it.Index].Until.After(p.at) }).
		Do(func(ids []backends.ID) backends.Errors { return c.Resume(ctx, ids) })
	return b.Errors()
}

// move puts pending jobs into another partition.
func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	p, b := c.looked(ctx, ids, reconcile.Waiting)
	if !slices.ContainsFunc(p.queues, func(q backends.Queue) bool { return q.Name == queue }) {
		b.Fail(fmt.Errorf("move to partition %q: there is none of this name", queue))
	}
	c.write(ctx, b, func(*item) []string { return []string{"Partition=" + queue} })
	return b.Errors()
}

// Kill ends jobs.
func (c *Client) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	if len(ids) == 0 {
		return nil
	}
	p, err := c.look(ctx, ids)
	if err != nil {
		return backends.Fail(len(ids), err)
	}
	b := reconcile.Alive(ids, p.jobs)
	alive := b.Open().IDs()
	var failed error
	for some := range slices.Chunk(names(alive), mostAtOnce) {
		if _, err := c.run(ctx, nil, append([]string{"scancel", "--quiet"}, some...)...); err != nil {
			failed = err
		}
	}
	if failed != nil && (!errors.Is(failed, backends.ErrWrongState) || len(alive) == 1) {
		b.Fail(failed)
	}
	return b.Errors()
}
