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
	item  = reconcile.Item[*listedJob]
	batch = reconcile.Batch[*listedJob]
)

// newBatch takes a snapshot of jobs, and checks each.
func (c *Client) newBatch(ctx context.Context, ids []backends.ID, check func(*item) error) (*snapshot, batch) {
	if len(ids) == 0 {
		return &snapshot{}, nil
	}
	p, err := c.readToAct(ctx, ids)
	if err != nil {
		return &snapshot{}, reconcile.Failed[*listedJob](ids, err)
	}
	return p, reconcile.Begin(ids, p.jobs, check)
}

// loadDetails reads the records of jobs about to be changed. readSnapshot leaves them out
// where nothing seems to be recorded.
func (c *Client) loadDetails(ctx context.Context, p *snapshot, b batch) {
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
		c.addDetail(it.Job, d, p.at)
		return nil
	})
}

// recordChange is the part of an update that writes a job's record.
func (j *listedJob) recordChange() string {
	return "AdminComment=" + j.record.comment(j.before, j.after)
}

// update is a request to change a job. A record beside a site's own text, which has
// spaces, can't be written by it: see write.
func (j *listedJob) update(changes ...string) string {
	return "update JobId=" + name(j.ID) + " " + strings.Join(changes, " ")
}

// longestOnLine bounds the parts of an update on a line that scontrol reads, of 4 kB.
const longestOnLine = 1000

// write puts updates of jobs to scontrol, and those that hold spaces or long parts to one of
// its own each.
func (c *Client) write(ctx context.Context, b batch, changes func(*item) []string) {
	spaced := map[*item][]string{}
	c.sendBatch(ctx, b, func(it *item) string {
		all := changes(it)
		if len(all) == 0 {
			return ""
		}
		if slices.ContainsFunc(all, func(s string) bool { return len(s) > longestOnLine || strings.ContainsAny(s, " \t\n\"'") }) {
			spaced[it] = all
			return ""
		}
		return it.Job.update(all...)
	})
	for it, all := range spaced {
		_, it.Err = c.run(ctx, nil, append([]string{"scontrol", "update", "JobId=" + name(it.ID)}, all...)...)
	}
}

// writeRecords writes the records of jobs as they are now.
func (c *Client) writeRecords(ctx context.Context, jobs []*listedJob) backends.Errors {
	b := reconcile.Of(jobs)
	c.write(ctx, b, func(it *item) []string { return []string{it.Job.recordChange()} })
	return b.Errors()
}

func idOfAct(a backends.Act) backends.ID { return a.ID }

// roundUp is a time in the queue's seconds, the next one if it is between two.
func roundUp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Second - 1).Truncate(time.Second).UTC()
}

// formatTime is a time as Slurm's commands read it; the zone is UTC.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// Requeue puts running jobs back, or asks them to save themselves before (see save.go). Slurm itself sends SIGTERM and, KillWait later,
// SIGKILL: that replaces an Act's Grace. Slurm's delay of a requeued job (121 s, 22.05)
// is removed as soon as its processes are gone, here or by Reconcile.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(acts, idOfAct), reconcile.Requeueable[*listedJob](acts))
	c.loadDetails(ctx, p, b)
	asked := c.askToSave(ctx, p, b, acts)
	rest := b.Where(func(it *item) bool { return !asked[it] })
	// The record first: it holds from the next requeue on, should we die in between.
	c.write(ctx, rest, func(it *item) []string {
		it.Job.announce(&acts[it.Index])
		if acts[it.Index].Save.Signal != "" {
			it.Job.record.failed++ // it could not be asked
		}
		return []string{it.Job.recordChange()}
	})
	c.sendBatch(ctx, rest, func(it *item) string { return "requeue " + name(it.ID) })
	c.awaitRequeue(ctx, rest.Open().Jobs())
	return b.Errors()
}

// requeueWait is how long Requeue waits for jobs that may start again at once; Reconcile
// handles those that take longer.
const requeueWait = rest + 3*time.Second

// awaitRequeue removes Slurm's delay from requeued jobs as they leave their hosts.
func (c *Client) awaitRequeue(ctx context.Context, requeued []*listedJob) {
	if len(requeued) == 0 {
		return
	}
	ids := reconcile.Of(requeued).IDs()
	reconcile.Pace{First: 20 * time.Millisecond, Most: 200 * time.Millisecond, Limit: requeueWait}.Poll(ctx, func() bool {
		p, err := c.readSnapshot(ctx, ids)
		if err == nil {
			c.restoreRecords(ctx, p, requeued)
			ids = c.endDelays(ctx, p)
		}
		return err != nil || len(ids) == 0
	})
}

// restoreRecords writes the records of requeued and suspended jobs again where they are lost:
// slurmctld saves its state every five seconds (22.05), and may have died between the
// record and the act, which waits until it is back.
func (c *Client) restoreRecords(ctx context.Context, p *snapshot, acted []*listedJob) {
	var lost []*listedJob
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
	c.writeRecords(ctx, lost)
}

// endDelays gives the requeued jobs of a snapshot their begin times, and returns those
// for which it is too early. The scheduler does not wake up when a begin time passes,
// and may run only once a minute: a job that may start gets StartTime=now.
func (c *Client) endDelays(ctx context.Context, p *snapshot) (left []backends.ID) {
	var jobs []*listedJob
	for _, j := range p.jobs {
		switch {
		case !j.record.delayed || j.returning || j.State.Ended() || j.State == backends.Suspended:
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
		j.settleSave()
		fresh := j.record.rest.IsZero()
		if fresh {
			j.record.rest = roundUp(p.at.Add(rest))
		}
		start := j.startTime(p.at)
		if fresh && start == formatTime(j.record.rest) {
			left = append(left, j.ID)
			return []string{j.recordChange()} // Slurm's delay holds it until then
		}
		j.record.delayed, j.record.started = false, time.Time{}
		return []string{"StartTime=" + start, j.recordChange()}
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
func (j *listedJob) startTime(at time.Time) string {
	begin := j.record.until
	for _, t := range []time.Time{j.record.begin, j.record.rest} {
		if t.After(begin) {
			begin = t
		}
	}
	if !begin.After(at) {
		return "now"
	}
	return formatTime(begin)
}

// Suspend stops running jobs.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(acts, idOfAct), reconcile.InRun[*listedJob](acts))
	c.loadDetails(ctx, p, b)
	before := make([]record, len(b))
	// The record first: it holds while the job is suspended, should we die in between.
	c.write(ctx, b, func(it *item) []string {
		r, act := &it.Job.record, &acts[it.Index]
		before[it.Index] = *r
		r.run, r.stop, r.mark, r.until, r.resumed = 0, true, act.Mark, roundUp(act.Until), time.Time{}
		r.ranked, r.priority = true, it.Job.Priority
		return []string{it.Job.recordChange()}
	})
	written := b.Open()
	c.sendBatch(ctx, b, func(it *item) string { return "suspend " + name(it.ID) })
	var refused []*listedJob
	for _, it := range written {
		if errors.Is(it.Err, backends.ErrWrongState) || errors.Is(it.Err, backends.ErrDenied) {
			it.Job.record = before[it.Index]
			refused = append(refused, it.Job)
		}
	}
	if suspended := b.Open(); len(suspended) > 0 {
		if p, err := c.readSnapshot(ctx, suspended.IDs()); err == nil {
			c.restoreRecords(ctx, p, suspended.Jobs())
		}
	}
	c.writeRecords(ctx, refused)
	return b.Errors()
}

// Hold sets an owner's hold on pending jobs: the owner can release them.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Waiting)
	free := b.Where(func(it *item) bool { return it.Job.State != backends.Held })
	c.sendBatch(ctx, free, func(it *item) string { return "uhold " + name(it.ID) })
	return b.Errors()
}

// Release undoes an owner's hold.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	_, b := c.newBatch(ctx, ids, reconcile.Held)
	b.Each(func(it *item) error {
		if it.Job.Reason == "JobHeldAdmin" {
			return fmt.Errorf("job %v: %w: an administrator holds it", it.ID, backends.ErrDenied)
		}
		return nil
	})
	c.sendBatch(ctx, b, func(it *item) string { return "release " + name(it.ID) })
	return b.Errors()
}

func idOfChange(r backends.PriorityChange) backends.ID { return r.ID }

// SetPriority gives jobs their site factors. A priority that an owner set outright
// (Priority=5) overrides them: root's release clears it (22.05).
func (c *Client) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	b := reconcile.Failed[*listedJob](reconcile.IDs(rankings, idOfChange), nil)
	rest := c.rankPending(ctx, b, rankings)
	some := make([]backends.PriorityChange, len(rest))
	for i, it := range rest {
		some[i] = rankings[it.Index]
	}
	rest.Do(func([]backends.ID) backends.Errors { return c.rankAny(ctx, some) })
	return b.Errors()
}

// rankPending ranks jobs that were pending in Snapshot's last snapshot, without reading
// all jobs. It returns the others, and those whose rank is not confirmed.
func (c *Client) rankPending(ctx context.Context, b batch, rankings []backends.PriorityChange) (rest batch) {
	c.mu.Lock()
	p := c.lastSnapshot
	c.mu.Unlock()
	if p == nil || p.rankErr != nil {
		return b
	}
	factor := func(it *item) int64 { return p.scale.SiteFactor(rankings[it.Index].Priority) }
	pending := b.Where(func(it *item) bool {
		j, err := reconcile.One(p.jobs, it.ID)
		return err == nil && j.State == backends.Pending && !j.returning
	})
	var orders []string
	for _, it := range pending {
		orders = append(orders, fmt.Sprintf("update JobId=%s SiteFactor=%d", name(it.ID), factor(it)))
	}
	done, answers := c.sendAndShow(ctx, orders, pending.IDs())
	ranked := map[*item]bool{}
	for i, it := range pending {
		// A job that is no longer pending, or whose texts make the answer unclear, has no
		// priority here.
		q, ok := parsePriority(answers[it.ID])
		it.Err, ranked[it] = done[i], ok && q >= factor(it)
	}
	return b.Where(func(it *item) bool { return !ranked[it] })
}

// rankAny ranks jobs that may be in any state.
func (c *Client) rankAny(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(rankings, idOfChange), reconcile.NotEnded)
	if p.rankErr != nil {
		b.Fail(fmt.Errorf("rank jobs: %w", p.rankErr))
	}
	c.loadDetails(ctx, p, b.Where(func(it *item) bool { return it.Job.State == backends.Suspended }))
	rank := func(it *item) []string {
		changes := []string{"SiteFactor=" + strconv.FormatInt(p.scale.SiteFactor(rankings[it.Index].Priority), 10)}
		if it.Job.State == backends.Suspended {
			it.Job.record.ranked, it.Job.record.priority = true, rankings[it.Index].Priority
			changes = append(changes, it.Job.recordChange())
		}
		return changes
	}
	c.write(ctx, b, rank)
	// Look again: if the priority is still too low, its owner has set it.
	open := b.Open()
	if len(open) == 0 {
		return b.Errors()
	}
	now, err := c.readSnapshot(ctx, open.IDs())
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
	c.sendBatch(ctx, short, func(it *item) string { return "release " + name(it.ID) })
	c.write(ctx, short, rank)
	return b.Errors()
}

// pin binds jobs to hosts by excluding all others. ReqNodeList won't do: on a job that
// has started since it was read, Slurm takes it as a wish to shrink, and takes its other
// nodes away (22.05 and 24.11; even if it refuses another part of the same update). A change of
// what is excluded it refuses then.
func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(pins, func(p backends.Pin) backends.ID { return p.ID }), reconcile.Waiting)
	b.Each(func(it *item) error {
		hosts := pins[it.Index].Hosts
		if slices.ContainsFunc(hosts, func(h string) bool { return p.slots[h] == 0 }) {
			return fmt.Errorf("job %v: pin to %s: no such host", it.ID, strings.Join(hosts, " "))
		}
		if len(formatHosts(hosts)) > longestPin {
			return fmt.Errorf("job %v: pin to %d hosts: their names are longer than its record may be", it.ID, len(hosts))
		}
		return nil
	})
	c.loadDetails(ctx, p, b)
	b.Each(func(it *item) error {
		for _, h := range pins[it.Index].Hosts {
			if slices.Contains(it.Job.excluded, h) {
				c.excluded.forget(it.ID)
				return fmt.Errorf("job %v: pin to %s: its owner excludes that host", it.ID, h)
			}
		}
		return nil
	})
	c.write(ctx, b, func(it *item) []string {
		r, excluded := &it.Job.record, it.Job.excluded
		r.pin, r.out, r.excluded = pins[it.Index].Hosts, nil, 0
		if len(r.pin) > 0 {
			r.out = excluded
			excluded = p.othersThan(r.pin, excluded)
			r.excluded = len(excluded)
		}
		changes := []string{"ExcNodeList=" + formatHosts(excluded), it.Job.recordChange()}
		if own, fixed := withoutFixed(it.Job.licences); fixed && len(r.pin) > 0 {
			changes = append(changes, "Licenses="+own) // it has room in a pool by now
		}
		return changes
	})
	return b.Errors()
}

// longestPin bounds the list of hosts in a record: AdminComment has room for 2,000 characters.
const longestPin = 800

// othersThan returns the cluster's hosts without some, and hosts that are excluded anyway, by
// name.
func (p *snapshot) othersThan(hosts, excluded []string) []string {
	others := slices.Clone(excluded)
	for h := range p.slots {
		if !slices.Contains(hosts, h) {
			others = append(others, h)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// holdUntil sets begin times that are the engine's. The owner's own one comes back
// with the end of the hold.
func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	p, b := c.newBatch(ctx, reconcile.IDs(holds, func(h backends.HoldUntil) backends.ID { return h.ID }), func(it *item) error {
		j := it.Job
		requeued := j.Ending && j.record.delayed // on its way back into the queue
		if !reconcile.Waits(&j.Job) && j.State != backends.Suspended && !requeued {
			return reconcile.WrongState(&j.Job)
		}
		return nil
	})
	c.loadDetails(ctx, p, b)
	c.write(ctx, b, func(it *item) []string {
		j, r := it.Job, &it.Job.record
		if r.until.IsZero() && !r.delayed && r.begin.IsZero() {
			r.begin = j.BeginTime
		}
		if r.until = roundUp(holds[it.Index].Until); r.until.After(p.at) {
			r.resumed = time.Time{} // it waits for the end of the hold first
		}
		if r.delayed && r.rest.IsZero() && !j.Ending {
			r.rest = roundUp(p.at.Add(rest))
		}
		start := j.startTime(p.at)
		if r.until.IsZero() {
			r.begin = time.Time{}
		}
		if j.State == backends.Suspended || j.Ending {
			return []string{j.recordChange()}
		}
		r.delayed = false
		return []string{"StartTime=" + start, j.recordChange()}
	})
	b.Where(func(it *item) bool { return it.Job.State == backends.Suspended && !holds[it.Index].Until.After(p.at) }).
		Do(func(ids []backends.ID) backends.Errors { return c.Resume(ctx, ids) })
	return b.Errors()
}

// move puts pending jobs into another partition.
func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	p, b := c.newBatch(ctx, ids, reconcile.Waiting)
	if !slices.ContainsFunc(p.queues, func(q backends.Queue) bool { return q.Name == queue }) {
		b.Fail(fmt.Errorf("move to partition %q: no such partition", queue))
	}
	c.write(ctx, b, func(*item) []string { return []string{"Partition=" + queue} })
	return b.Errors()
}

// Kill ends jobs.
func (c *Client) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	if len(ids) == 0 {
		return nil
	}
	p, err := c.readToAct(ctx, ids)
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
