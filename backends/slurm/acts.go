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
)

// errNot says what a job is instead of what an act needs.
func errNot(j *seen) error {
	if j.Ending {
		return fmt.Errorf("job %v: %w: it is ending", j.ID, backends.ErrWrongState)
	}
	return fmt.Errorf("job %v: %w: it is %v", j.ID, backends.ErrWrongState, j.State)
}

// looked takes a picture of jobs, and checks each. Where it fails there is no job.
func (c *Client) looked(ctx context.Context, ids []backends.ID, check func(i int, j *seen) error) (*picture, []*seen, backends.Errors) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	p, err := c.look(ctx, ids)
	if err != nil {
		return nil, nil, backends.Fail(len(ids), err)
	}
	jobs, errs := make([]*seen, len(ids)), make(backends.Errors, len(ids))
	for i, id := range ids {
		if jobs[i], errs[i] = p.one(id); errs[i] == nil {
			errs[i] = check(i, jobs[i])
		}
	}
	return p, jobs, errs
}

// detailed reads the records of jobs about to be changed, which looking at them
// left out where nothing seemed to be recorded.
func (c *Client) detailed(ctx context.Context, p *picture, jobs []*seen, errs backends.Errors) {
	var ids []backends.ID
	var of []int
	for i, j := range jobs {
		if errs[i] == nil && !j.detailed {
			ids, of = append(ids, j.ID), append(of, i)
		}
	}
	if len(ids) == 0 {
		return
	}
	details, unclear, err := c.details(ctx, ids)
	if unclear && err == nil {
		details, err = c.allDetails(ctx)
	}
	for k, i := range of {
		d, ok := details[ids[k]]
		switch {
		case err != nil:
			errs[i] = err
		case !ok:
			errs[i] = fmt.Errorf("job %v: %w", ids[k], backends.ErrUnknownJob)
		default:
			jobs[i].take(d, p.at)
		}
	}
}

// keep is the part of an update that writes a job's record.
func (j *seen) keep() string { return "AdminComment=" + j.record.comment(j.before, j.after) }

// update is a request to change a job. A record beside a site's own text, which
// has spaces, can't be written by it: see plain.
func (j *seen) update(changes ...string) string {
	return "update JobId=" + name(j.ID) + " " + strings.Join(changes, " ")
}

// write puts updates of jobs to scontrol, and those that hold spaces to one of its
// own each.
func (c *Client) write(ctx context.Context, jobs []*seen, errs backends.Errors, changes func(i int, j *seen) []string) {
	spaced := map[int][]string{}
	c.orderSome(ctx, errs, func(i int) string {
		all := changes(i, jobs[i])
		if len(all) == 0 {
			return ""
		}
		if slices.ContainsFunc(all, func(s string) bool { return strings.ContainsAny(s, " \t\n\"'") }) {
			spaced[i] = all
			return ""
		}
		return jobs[i].update(all...)
	})
	for i, all := range spaced {
		_, errs[i] = c.run(ctx, nil, append([]string{"scontrol", "update", "JobId=" + name(jobs[i].ID)}, all...)...)
	}
}

func idsOf[T any](list []T, id func(T) backends.ID) []backends.ID {
	ids := make([]backends.ID, len(list))
	for i, x := range list {
		ids[i] = id(x)
	}
	return ids
}

func idOfAct(a backends.Act) backends.ID { return a.ID }

func idOfSeen(j *seen) backends.ID { return j.ID }

// whole is a time in the queue's seconds, the next one if it is between two.
func whole(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Second - 1).Truncate(time.Second).UTC()
}

// clock is a time as Slurm's commands read it; the zone is UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") }

// running checks that a job is in the run that is meant.
func running(j *seen, act *backends.Act) error {
	if j.State != backends.Running || j.Ending {
		return errNot(j)
	}
	if !act.Started.IsZero() && !j.Started.Equal(act.Started) {
		return fmt.Errorf("job %v: %w: it started anew at %v", j.ID, backends.ErrWrongState, j.Started)
	}
	return nil
}

// Requeue puts running jobs back. Slurm itself sends SIGTERM and, KillWait later,
// SIGKILL: an Act's Grace is that. What it delays a requeued job by (121 s, 22.05)
// is taken off as soon as its processes are gone, here or by Tend.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	p, jobs, errs := c.looked(ctx, idsOf(acts, idOfAct), func(i int, j *seen) error {
		if j.NoRequeue {
			return fmt.Errorf("job %v: %w: it can't be requeued", j.ID, backends.ErrWrongState)
		}
		return running(j, &acts[i])
	})
	if p == nil {
		return errs
	}
	c.detailed(ctx, p, jobs, errs)
	// The record first: it holds from the next requeue on, should we die in between.
	c.write(ctx, jobs, errs, func(i int, j *seen) []string {
		r := &j.record
		r.run, r.mark, r.until, r.started, r.delayed = j.Requeues+1, acts[i].Mark, whole(acts[i].Until), j.Started, true
		r.stop, r.resumed, r.ranked, r.rest = false, time.Time{}, false, time.Time{}
		if r.submitted.IsZero() {
			r.submitted = j.Submitted
		}
		return []string{j.keep()}
	})
	c.orderSome(ctx, errs, func(i int) string { return "requeue " + name(jobs[i].ID) })
	var requeued []*seen
	for i, err := range errs {
		if err == nil {
			requeued = append(requeued, jobs[i])
		}
	}
	c.settle(ctx, requeued)
	return errs
}

// settling is how long Requeue waits for jobs that may start again at once; what
// takes longer is left to Tend.
const settling = rest + 3*time.Second

// settle takes Slurm's delay off requeued jobs as they leave their hosts.
func (c *Client) settle(ctx context.Context, requeued []*seen) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	ids := idsOf(requeued, idOfSeen)
	for pause := 20 * time.Millisecond; len(ids) > 0; pause = min(2*pause, 200*time.Millisecond) {
		p, err := c.look(ctx, ids)
		if err != nil {
			return
		}
		c.remind(ctx, p, requeued)
		ids = c.undelay(ctx, p)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// remind writes the records of requeued and suspended jobs again where they are lost:
// slurmctld saves what it was told every five seconds (22.05), and may have died between
// the record and the act, which waits until it is back.
func (c *Client) remind(ctx context.Context, p *picture, acted []*seen) {
	var lost []*seen
	for _, was := range acted {
		j, err := p.one(was.ID)
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
	c.write(ctx, lost, make(backends.Errors, len(lost)), func(_ int, j *seen) []string { return []string{j.keep()} })
}

// undelay gives the requeued jobs of a picture the begin time that they should
// have, and returns those whose time for that is still to come. A begin time that
// passes wakes no scheduler up, which may look only once a minute: who may start
// is told to by StartTime=now.
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
	errs := make(backends.Errors, len(jobs))
	c.write(ctx, jobs, errs, func(_ int, j *seen) []string {
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
	for i, err := range errs {
		if err != nil {
			left = append(left, jobs[i].ID)
		}
	}
	return left
}

// rest is how long a requeued job must wait after it has left its hosts. A host
// refuses a run whose credential is not younger, in whole seconds of its clock, than
// the kill of the run before: "already killed, do not launch batch job", and the
// job has failed (22.05). Slurm's own delay is there for that, and is longer.
const rest = 3 * time.Second

// startTime is when a job that waits may start, as far as the engine and its owner
// go.
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
	p, jobs, errs := c.looked(ctx, idsOf(acts, idOfAct), func(i int, j *seen) error { return running(j, &acts[i]) })
	if p == nil {
		return errs
	}
	c.detailed(ctx, p, jobs, errs)
	before := make([]record, len(jobs))
	// The record first: it holds while the job is suspended, should we die in between.
	c.write(ctx, jobs, errs, func(i int, j *seen) []string {
		r := &j.record
		before[i] = *r
		r.run, r.stop, r.mark, r.until, r.resumed = 0, true, acts[i].Mark, whole(acts[i].Until), time.Time{}
		r.ranked, r.priority = true, j.Priority
		return []string{j.keep()}
	})
	written := slices.Clone(errs)
	c.orderSome(ctx, errs, func(i int) string { return "suspend " + name(jobs[i].ID) })
	var refused, suspended []*seen
	for i, err := range errs {
		switch {
		case err == nil:
			suspended = append(suspended, jobs[i])
		case written[i] == nil && (errors.Is(err, backends.ErrWrongState) || errors.Is(err, backends.ErrDenied)):
			jobs[i].record = before[i]
			refused = append(refused, jobs[i])
		}
	}
	if len(suspended) > 0 {
		if p, err := c.look(ctx, idsOf(suspended, idOfSeen)); err == nil {
			c.remind(ctx, p, suspended)
		}
	}
	c.write(ctx, refused, make(backends.Errors, len(refused)), func(_ int, j *seen) []string { return []string{j.keep()} })
	return errs
}

// Hold keeps pending jobs from starting, as their owner would: he can release them.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	_, jobs, errs := c.looked(ctx, ids, func(_ int, j *seen) error {
		if j.State != backends.Pending && j.State != backends.Held {
			return errNot(j)
		}
		return nil
	})
	c.orderSome(ctx, errs, func(i int) string {
		if jobs[i].State == backends.Held {
			return ""
		}
		return "uhold " + name(jobs[i].ID)
	})
	return errs
}

// Release undoes an owner's hold.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	_, _, errs := c.looked(ctx, ids, func(_ int, j *seen) error {
		if j.State != backends.Held {
			return errNot(j)
		}
		if j.Reason == "JobHeldAdmin" {
			return fmt.Errorf("job %v: %w: an administrator holds it", j.ID, backends.ErrDenied)
		}
		return nil
	})
	c.orderSome(ctx, errs, func(i int) string { return "release " + name(ids[i]) })
	return errs
}

// Rank gives jobs their site factors. A priority that an owner set outright
// (Priority=5) hides them: root's release takes it off (22.05).
func (c *Client) Rank(ctx context.Context, rankings []backends.Ranking) backends.Errors {
	errs := make(backends.Errors, len(rankings))
	var rest []backends.Ranking
	var of []int
	for i, err := range c.rankPending(ctx, rankings) {
		if errs[i] = err; errors.Is(err, errLook) {
			rest, of = append(rest, rankings[i]), append(of, i)
		}
	}
	for k, err := range c.rankLooking(ctx, rest) {
		errs[of[k]] = err
	}
	return errs
}

var errLook = errors.New("the job must be looked at first")

// rankPending ranks jobs that were pending when Farm showed them, without a look at
// all jobs; each has errLook that needs one, before or since.
func (c *Client) rankPending(ctx context.Context, rankings []backends.Ranking) backends.Errors {
	errs := backends.Fail(len(rankings), errLook)
	c.mu.Lock()
	p := c.last
	c.mu.Unlock()
	if p == nil || p.unranked != nil {
		return errs
	}
	var ids []backends.ID
	var of []int
	var orders []string
	for i, r := range rankings {
		if j, err := p.one(r.ID); err == nil && j.State == backends.Pending {
			ids, of = append(ids, r.ID), append(of, i)
			orders = append(orders, fmt.Sprintf("update JobId=%s SiteFactor=%d", name(r.ID), p.scale.SiteFactor(r.Priority)))
		}
	}
	done, answers := c.orderAndShow(ctx, orders, ids)
	for k, i := range of {
		// Of one that waits no more, and of one whose texts make the answer unclear,
		// none is told.
		switch q, told := parsePriority(answers[ids[k]]); {
		case done[k] != nil:
			errs[i] = done[k]
		case !told || q < p.scale.SiteFactor(rankings[i].Priority):
		default:
			errs[i] = nil
		}
	}
	return errs
}

// rankLooking ranks jobs that may be in any state.
func (c *Client) rankLooking(ctx context.Context, rankings []backends.Ranking) backends.Errors {
	ids := idsOf(rankings, func(r backends.Ranking) backends.ID { return r.ID })
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *seen) error {
		if j.State.Ended() {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	if p.unranked != nil {
		return backends.Fail(len(rankings), fmt.Errorf("rank jobs: %w", p.unranked))
	}
	c.detailedIf(ctx, p, jobs, errs, func(j *seen) bool { return j.State == backends.Suspended })
	rank := func(i int, j *seen) []string {
		changes := []string{"SiteFactor=" + strconv.FormatInt(p.scale.SiteFactor(rankings[i].Priority), 10)}
		if j.State == backends.Suspended {
			j.record.ranked, j.record.priority = true, rankings[i].Priority
			changes = append(changes, j.keep())
		}
		return changes
	}
	c.write(ctx, jobs, errs, rank)
	c.insist(ctx, ids, errs, func(i int, j *seen, q *picture) bool {
		return j.State == backends.Pending && j.factor < q.scale.SiteFactor(rankings[i].Priority)
	}, rank)
	return errs
}

// insist looks at ranked jobs again: who has too little all the same has a
// priority of its owner's, which is released.
func (c *Client) insist(ctx context.Context, ids []backends.ID, errs backends.Errors, short func(int, *seen, *picture) bool, rank func(int, *seen) []string) {
	p, err := c.look(ctx, ids)
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = err
			}
		}
		return
	}
	var jobs []*seen
	var of []int
	for i, id := range ids {
		if j, err := p.one(id); errs[i] == nil && err == nil && short(i, j, p) {
			jobs, of = append(jobs, j), append(of, i)
		}
	}
	again := make(backends.Errors, len(jobs))
	c.orderSome(ctx, again, func(k int) string { return "release " + name(jobs[k].ID) })
	c.write(ctx, jobs, again, func(k int, j *seen) []string { return rank(of[k], j) })
	for k, i := range of {
		errs[i] = again[k]
	}
}

// detailedIf is detailed for those jobs that need it.
func (c *Client) detailedIf(ctx context.Context, p *picture, jobs []*seen, errs backends.Errors, need func(*seen) bool) {
	some, failed := []*seen{}, backends.Errors{}
	var of []int
	for i, j := range jobs {
		if errs[i] == nil && need(j) {
			some, failed, of = append(some, j), append(failed, nil), append(of, i)
		}
	}
	c.detailed(ctx, p, some, failed)
	for k, i := range of {
		errs[i] = failed[k]
	}
}

func waiting(_ int, j *seen) error {
	if j.State != backends.Pending && j.State != backends.Held {
		return errNot(j)
	}
	return nil
}

// pin binds jobs to hosts: all of them, as Slurm has it.
func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	p, jobs, errs := c.looked(ctx, idsOf(pins, func(p backends.Pin) backends.ID { return p.ID }), waiting)
	if p == nil {
		return errs
	}
	for i := range pins {
		if errs[i] == nil && slices.ContainsFunc(pins[i].Hosts, func(h string) bool { return p.slots[h] == 0 }) {
			errs[i] = fmt.Errorf("job %v: pin to %s: no such host", pins[i].ID, strings.Join(pins[i].Hosts, " "))
		}
	}
	c.detailed(ctx, p, jobs, errs)
	c.write(ctx, jobs, errs, func(i int, j *seen) []string {
		r := &j.record
		if !r.pinned || len(j.Pinned) == 0 {
			r.asked = j.Asked
		}
		hosts := pins[i].Hosts
		if r.pinned = len(hosts) > 0; !r.pinned {
			hosts, r.asked = r.asked, nil
		}
		return []string{"ReqNodeList=" + strings.Join(hosts, ","), j.keep()}
	})
	return errs
}

// holdUntil sets begin times that are the engine's. The owner's own one comes back
// with the end of the hold.
func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	p, jobs, errs := c.looked(ctx, idsOf(holds, func(h backends.HoldUntil) backends.ID { return h.ID }), func(_ int, j *seen) error {
		requeued := j.Ending && j.record.delayed // on its way back into the queue
		if j.State != backends.Pending && j.State != backends.Held && j.State != backends.Suspended && !requeued {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	c.detailed(ctx, p, jobs, errs)
	c.write(ctx, jobs, errs, func(i int, j *seen) []string {
		r := &j.record
		if r.until.IsZero() && !r.delayed && r.begin.IsZero() {
			r.begin = j.BeginTime
		}
		r.until = whole(holds[i].Until)
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
	var released []backends.ID
	var of []int
	for i := range holds {
		if errs[i] == nil && jobs[i].State == backends.Suspended && !holds[i].Until.After(p.at) {
			released, of = append(released, holds[i].ID), append(of, i)
		}
	}
	for k, err := range c.Resume(ctx, released) {
		errs[of[k]] = err
	}
	return errs
}

// move puts pending jobs into another partition.
func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, waiting)
	if p == nil {
		return errs
	}
	if !slices.ContainsFunc(p.queues, func(q backends.Queue) bool { return q.Name == queue }) {
		return backends.Fail(len(ids), fmt.Errorf("move to partition %q: there is none of this name", queue))
	}
	c.write(ctx, jobs, errs, func(int, *seen) []string { return []string{"Partition=" + queue} })
	return errs
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
	errs := make(backends.Errors, len(ids))
	var alive []backends.ID
	for i, id := range ids {
		jobs := p.of(id)
		if len(jobs) == 0 {
			errs[i] = fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
		} else if !slices.ContainsFunc(jobs, func(j *seen) bool { return !j.State.Ended() }) {
			errs[i] = errNot(jobs[0])
		} else {
			alive = append(alive, id)
		}
	}
	var failed error
	for some := range slices.Chunk(names(alive), mostAtOnce) {
		if _, err := c.run(ctx, nil, append([]string{"scancel", "--quiet"}, some...)...); err != nil {
			failed = err
		}
	}
	if failed == nil || errors.Is(failed, backends.ErrWrongState) && len(alive) > 1 {
		return errs
	}
	for i := range errs {
		if errs[i] == nil {
			errs[i] = failed
		}
	}
	return errs
}
