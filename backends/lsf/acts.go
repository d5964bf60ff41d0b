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
)

// Every act is three steps: what must be remembered of it is written, LSF is told, and
// the queue is read back, since what its commands print proves nothing. Its comment
// says what is left when we die between two of them, and what heals it.

// looked takes a picture of jobs, and checks each. Where it fails there is no picture.
func (c *Client) looked(ctx context.Context, ids []backends.ID, check func(i int, j *job) error) (*picture, []*job, backends.Errors) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	p, err := c.look(ctx, ids)
	if err != nil {
		return nil, nil, backends.Fail(len(ids), err)
	}
	jobs, errs := make([]*job, len(ids)), make(backends.Errors, len(ids))
	for i, id := range ids {
		if jobs[i], errs[i] = p.one(id); errs[i] == nil {
			errs[i] = check(i, jobs[i])
		}
	}
	return p, jobs, errs
}

// note changes what is remembered of those jobs that have no error.
func (c *Client) note(jobs []*job, errs backends.Errors, f func(i int, j *job, e *entry)) {
	if !slices.Contains(errs, nil) {
		return
	}
	err := c.record.change(func(all entries) {
		for i, j := range jobs {
			if errs[i] != nil {
				continue
			}
			e := all[j.ID]
			if !e.about(j.listed) {
				e = entry{Submitted: j.Submitted}
			}
			e.Gone = time.Time{}
			f(i, j, &e)
			all[j.ID], j.entry = e, e
		}
	})
	for i := range errs {
		if err != nil && errs[i] == nil {
			errs[i] = err
		}
	}
}

// order tells LSF of those jobs that have no error.
func (c *Client) order(ctx context.Context, jobs []*job, errs backends.Errors, argv ...string) {
	var ids []backends.ID
	var of []int
	for i, j := range jobs {
		if errs[i] == nil {
			ids, of = append(ids, j.ID), append(of, i)
		}
	}
	for k, err := range c.tell(ctx, ids, argv...) {
		errs[of[k]] = err
	}
}

// bmod changes one job.
func (c *Client) bmod(ctx context.Context, id backends.ID, options ...string) error {
	return c.tell(ctx, []backends.ID{id}, append([]string{"bmod"}, options...)...)[0]
}

// refused tells of an error whether the queue said no; otherwise nothing is known of
// what it did.
func refused(err error) bool {
	return err != nil && !errors.Is(err, backends.ErrUnreachable) && !neverRan(err)
}

const (
	// showing is how long the queue may take to show what it was told: its daemons
	// tick once a second.
	showing = 8 * time.Second
	// settling is how long Requeue waits for jobs to be back in the queue; what takes
	// longer is left to Tend.
	settling = 10 * time.Second
)

// until reads jobs back until done says so of all that have no error, or for so long.
// What is not so by then is not done: it has a picture of each job for the last time.
func (c *Client) until(ctx context.Context, ids []backends.ID, errs backends.Errors, long time.Duration, done func(i int, j *job) error) {
	deadline := time.Now().Add(long)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 300*time.Millisecond) {
		var left []backends.ID
		var of []int
		for i, id := range ids {
			if errs[i] == nil {
				left, of = append(left, id), append(of, i)
			}
		}
		if len(left) == 0 {
			return
		}
		p, err := c.look(ctx, left)
		wrong := make(backends.Errors, len(left))
		ready := err == nil
		for k := range left {
			if wrong[k] = err; err != nil {
				continue
			}
			j, err := p.one(left[k])
			if err == nil {
				err = done(of[k], j)
			}
			wrong[k], ready = err, ready && err == nil
		}
		if ready {
			return
		}
		if time.Now().Add(pause).After(deadline) || !rest(ctx, pause) {
			for k, i := range of {
				errs[i] = wrong[k]
			}
			return
		}
	}
}

// rest waits; it tells whether ctx is still on.
func rest(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// running checks that a job is in the run that is meant.
func running(j *job, act *backends.Act) error {
	if j.State != backends.Running || j.Ending {
		return errNot(j)
	}
	if !act.Started.IsZero() && !j.Started.Equal(act.Started) {
		return fmt.Errorf("job %v: %w: it started anew at %v", j.ID, backends.ErrWrongState, j.Started)
	}
	return nil
}

func waiting(_ int, j *job) error {
	if !j.waits() {
		return errNot(j)
	}
	return nil
}

func idOfAct(a backends.Act) backends.ID { return a.ID }

// Requeue puts running jobs back, by brequeue -H where they must not start at once:
// they come back held, are given their begin time, and are let go then, so that they
// run in the end with nobody's help (R21). On LSF 10.1 it is -H in any case: bjobs tells
// minutes alone there, so that a run and the next one may look the same. LSF itself sends SIGINT, SIGTERM and
// SIGKILL (JOB_TERMINATE_INTERVAL): an Act's Grace is that.
//
// Dying before brequeue leaves a job that shows as Ending until Tend finds, after a
// while, that it was never told; dying after it, one that comes back held, and Tend
// lets it go.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	ids := idsOf(acts, idOfAct)
	p, jobs, errs := c.looked(ctx, ids, func(i int, j *job) error {
		if j.NoRequeue {
			return fmt.Errorf("job %v: %w: it can't be requeued", j.ID, backends.ErrWrongState)
		}
		return running(j, &acts[i])
	})
	if p == nil {
		return errs
	}
	before := make([]entry, len(jobs))
	c.note(jobs, errs, func(i int, j *job, e *entry) {
		before[i] = *e
		now := time.Now()
		e.Mark, e.Until = acts[i].Mark, acts[i].Until
		e.Run, e.Acted, e.Requeuing, e.Returns = j.listed.Started, now, true, acts[i].Until.After(now) || p.flavour == lsf10
		e.Suspended, e.Resuming, e.Ran, e.Down = false, false, 0, time.Time{}
		e.Begin, e.Ours, e.Was, e.Freed = time.Time{}, time.Time{}, time.Time{}, false
		if !before[i].Run.Equal(e.Run) {
			e.Resumed = time.Time{}
		}
	})
	for _, returns := range []bool{true, false} {
		some, wrong := []*job{}, backends.Errors{}
		var of []int
		for i, j := range jobs {
			if errs[i] == nil && j.entry.Returns == returns {
				some, wrong, of = append(some, j), append(wrong, nil), append(of, i)
			}
		}
		argv := []string{"brequeue"}
		if returns {
			argv = append(argv, "-H")
		}
		c.order(ctx, some, wrong, argv...)
		for k, i := range of {
			errs[i] = wrong[k]
		}
	}
	undone := make(backends.Errors, len(jobs))
	for i, err := range errs {
		if jobs[i] == nil || !refused(err) || before[i].Submitted.IsZero() {
			undone[i] = errNothing
		}
	}
	c.note(jobs, undone, func(i int, _ *job, e *entry) { *e = before[i] })
	var gone []*job
	for i, j := range jobs {
		if errs[i] == nil {
			gone = append(gone, j)
		}
	}
	c.settle(ctx, gone)
	return errs
}

var errNothing = errors.New("nothing is to be done")

// settle waits for requeued jobs, and lets them go as they come back.
func (c *Client) settle(ctx context.Context, requeued []*job) {
	ids := idsOf(requeued, func(j *job) backends.ID { return j.ID })
	deadline := time.Now().Add(settling)
	for pause := 50 * time.Millisecond; len(ids) > 0; pause = min(2*pause, 300*time.Millisecond) {
		p, err := c.look(ctx, ids)
		if err != nil {
			return // Tend goes on with it
		}
		if ids = c.comeBack(ctx, p); len(ids) == 0 || time.Now().Add(pause).After(deadline) || !rest(ctx, pause) {
			return
		}
	}
}

// comeBack lets the requeued jobs of a picture go that are back in the queue, and
// returns those that are still to come back. The order is such that each step can be
// done again: their rank and begin time, then the end of LSF's hold, then the note
// that all is done.
func (c *Client) comeBack(ctx context.Context, p *picture) (left []backends.ID) {
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
	if len(back) == 0 {
		return left
	}
	errs := make(backends.Errors, len(back))
	c.rerank(ctx, p, back, errs)
	c.begin(ctx, p, back, errs)
	held := slices.Clone(errs)
	for i, j := range back {
		if !j.entry.Returns || j.listed.State != backends.Held {
			held[i] = errNothing
		}
	}
	c.order(ctx, back, held, "bresume")
	c.until(ctx, idsOf(back, func(j *job) backends.ID { return j.ID }), held, showing, func(_ int, j *job) error {
		if j.listed.State == backends.Held {
			return fmt.Errorf("job %v: %w: it is still held after bresume", j.ID, backends.ErrWrongState)
		}
		return nil
	})
	for i := range errs {
		if held[i] != nil && !errors.Is(held[i], errNothing) {
			errs[i] = held[i]
		}
	}
	c.note(back, errs, func(_ int, _ *job, e *entry) {
		e.Requeuing, e.Returns, e.Run, e.Acted, e.Down, e.Resumed = false, false, time.Time{}, time.Time{}, time.Time{}, time.Time{}
		e.Requeues++
	})
	for i, err := range errs {
		if err != nil {
			left = append(left, back[i].ID)
		}
	}
	return left
}

// Suspend stops running jobs. Dying before bstop leaves a job that runs though it is
// noted as stopped: Tend stops it, as it does one that its owner resumed.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	ids := idsOf(acts, idOfAct)
	p, jobs, errs := c.looked(ctx, ids, func(i int, j *job) error { return running(j, &acts[i]) })
	if p == nil {
		return errs
	}
	before := make([]entry, len(jobs))
	c.note(jobs, errs, func(i int, j *job, e *entry) {
		before[i] = *e
		if !e.Run.Equal(j.listed.Started) {
			e.Resumed, e.Ran = time.Time{}, 0
		}
		now := time.Now()
		e.Mark, e.Until = acts[i].Mark, acts[i].Until
		e.Run, e.Acted, e.Suspended, e.Resuming, e.Requeuing, e.Returns = j.listed.Started, now, true, false, false, false
		e.Ran += now.Sub(j.Started)
	})
	c.order(ctx, jobs, errs, "bstop")
	undone := make(backends.Errors, len(jobs))
	for i, err := range errs {
		if jobs[i] == nil || !refused(err) || before[i].Submitted.IsZero() {
			undone[i] = errNothing
		}
	}
	c.note(jobs, undone, func(i int, _ *job, e *entry) { *e = before[i] })
	c.until(ctx, ids, errs, showing, func(_ int, j *job) error {
		if j.listed.State != backends.Suspended {
			return errNot(j)
		}
		return nil
	})
	return errs
}

// Hold keeps pending jobs from starting, as their owner would: he can release them. It
// may be repeated.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, waiting)
	if p == nil {
		return errs
	}
	c.hold(ctx, jobs, errs, backends.Held, "bstop")
	return errs
}

// Release undoes an owner's hold. It may be repeated.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *job) error {
		if j.State != backends.Held {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	c.hold(ctx, jobs, errs, backends.Pending, "bresume")
	return errs
}

// hold brings waiting jobs into a state by a command.
func (c *Client) hold(ctx context.Context, jobs []*job, errs backends.Errors, want backends.State, by string) {
	todo := slices.Clone(errs)
	for i, j := range jobs {
		if errs[i] == nil && j.listed.State == want {
			todo[i] = errNothing
		}
	}
	c.order(ctx, jobs, todo, by)
	ids := make([]backends.ID, len(jobs))
	for i, j := range jobs {
		if j != nil {
			ids[i] = j.ID
		}
	}
	c.until(ctx, ids, todo, showing, func(_ int, j *job) error {
		if (j.listed.State == backends.Held) != (want == backends.Held) {
			return errNot(j)
		}
		return nil
	})
	for i := range errs {
		if !errors.Is(todo[i], errNothing) {
			errs[i] = todo[i]
		}
	}
}

// Rank gives jobs their priorities. LSF takes it of jobs that wait alone (lava): that
// of others is remembered, and given when they are back in the queue. Dying in between
// leaves a number that is not the noted one, and reads as what it is.
func (c *Client) Rank(ctx context.Context, rankings []backends.Ranking) backends.Errors {
	p, jobs, errs := c.looked(ctx, idsOf(rankings, func(r backends.Ranking) backends.ID { return r.ID }), func(_ int, j *job) error {
		if j.State.Ended() || j.State == backends.Running && !j.Ending {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	if err := p.scale.unable(); err != nil {
		return backends.Fail(len(rankings), fmt.Errorf("rank jobs: %w", err))
	}
	c.note(jobs, errs, func(i int, j *job, e *entry) {
		e.Ranked, e.Rank, e.Number = true, rankings[i].Priority, 0
		if j.waits() {
			e.Number = p.scale.number(e.Rank)
		}
	})
	c.rerank(ctx, p, jobs, errs)
	return errs
}

// rerank gives jobs that wait the priorities that are remembered for them.
func (c *Client) rerank(ctx context.Context, p *picture, jobs []*job, errs backends.Errors) {
	todo := slices.Clone(errs)
	number := func(j *job) int64 { return p.scale.number(j.entry.Rank) }
	for i, j := range jobs {
		if errs[i] == nil && (!j.entry.Ranked || !j.waits() || j.number == number(j) && j.entry.Number == j.number) {
			todo[i] = errNothing
		}
	}
	c.note(jobs, todo, func(_ int, j *job, e *entry) { e.Number = number(j) })
	ids := make([]backends.ID, len(jobs))
	for i, j := range jobs {
		if todo[i] == nil {
			ids[i] = j.ID
			todo[i] = c.tellWith(ctx, []string{backends.RankVariable + "=1"}, ids[i:i+1], "bmod", "-sp", strconv.FormatInt(number(j), 10))[0]
		}
	}
	c.until(ctx, ids, todo, showing, func(i int, j *job) error {
		if j.waits() && j.number != number(jobs[i]) {
			return fmt.Errorf("job %v has the priority %d after bmod -sp %d", j.ID, j.number, number(jobs[i]))
		}
		return nil
	})
	for i := range errs {
		if !errors.Is(todo[i], errNothing) {
			errs[i] = todo[i]
		}
	}
}

// pin binds jobs to hosts: each to any of them. Dying before bmod leaves a note of a
// pin that is not there, which tells nobody anything.
func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	ids := idsOf(pins, func(p backends.Pin) backends.ID { return p.ID })
	p, jobs, errs := c.looked(ctx, ids, waiting)
	if p == nil {
		return errs
	}
	c.note(jobs, errs, func(i int, j *job, e *entry) {
		e.Asked = j.Asked
		if len(pins[i].Hosts) > 0 {
			e.Pinned = pins[i].Hosts
		}
	})
	want := make([][]string, len(jobs))
	for i, j := range jobs {
		if errs[i] != nil {
			continue
		}
		if want[i] = pins[i].Hosts; len(want[i]) == 0 {
			want[i] = j.Asked
		}
		if slices.ContainsFunc(want[i], func(h string) bool { return h == "" || h[0] == '-' || strings.ContainsAny(h, " \t") }) {
			errs[i] = fmt.Errorf("job %v: pin to %q: that is no host", j.ID, want[i])
		} else if sameHosts(j.listed.Asked, want[i]) {
			continue
		} else if len(want[i]) == 0 {
			errs[i] = c.bmod(ctx, j.ID, "-mn")
		} else {
			errs[i] = c.bmod(ctx, j.ID, "-m", strings.Join(want[i], " "))
		}
	}
	c.until(ctx, ids, errs, showing, func(i int, j *job) error {
		if j.waits() && !sameHosts(j.listed.Asked, want[i]) {
			return fmt.Errorf("job %v: bmod -m %s: its hosts are %s", j.ID, strings.Join(want[i], " "), strings.Join(j.listed.Asked, " "))
		}
		return nil
	})
	c.note(jobs, errs, func(i int, _ *job, e *entry) {
		if len(pins[i].Hosts) == 0 {
			e.Asked, e.Pinned = nil, nil
		}
	})
	return errs
}

// holdUntil sets begin times that are the engine's, in whole minutes: a job that waits
// starts not before, and with the engine gone it starts then. The owner's own one
// comes back with the end of the hold. A suspended job is resumed by Tend. Dying before
// bmod leaves a hold that is noted: Tend sets it.
func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	ids := idsOf(holds, func(h backends.HoldUntil) backends.ID { return h.ID })
	p, jobs, errs := c.looked(ctx, ids, func(_ int, j *job) error {
		if !j.waits() && !j.returns() && j.State != backends.Suspended {
			return errNot(j)
		}
		return nil
	})
	if p == nil {
		return errs
	}
	c.note(jobs, errs, func(i int, j *job, e *entry) {
		e.Until = holds[i].Until
		if j.State == backends.Suspended && e.Run.IsZero() { // its owner stopped it
			e.Run, e.Acted, e.Suspended = j.listed.Started, time.Now(), true
		}
	})
	var back []*job
	done := slices.Clone(errs)
	for i, j := range jobs {
		switch {
		case errs[i] != nil:
		case j.entry.Requeuing && j.waits():
			back = append(back, j)
			done[i] = errNothing
		case !j.waits():
			done[i] = errNothing
		}
	}
	c.begin(ctx, p, jobs, done)
	for i := range errs {
		if !errors.Is(done[i], errNothing) {
			errs[i] = done[i]
		}
	}
	c.comeBack(ctx, &picture{at: p.at, flavour: p.flavour, params: p.params, scale: p.scale, jobs: back})
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

// move puts pending jobs into another queue. It may be repeated.
func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	p, jobs, errs := c.looked(ctx, ids, waiting)
	if p == nil {
		return errs
	}
	if queue == "" || queue[0] == '-' || strings.ContainsAny(queue, " \t") {
		return backends.Fail(len(ids), fmt.Errorf("move to queue %q: that is no name of one", queue))
	}
	for i, j := range jobs {
		if errs[i] == nil && j.Queue != queue {
			errs[i] = c.bmod(ctx, j.ID, "-q", queue)
		}
	}
	c.until(ctx, ids, errs, showing, func(_ int, j *job) error {
		if j.waits() && j.Queue != queue {
			return fmt.Errorf("job %v: it is in queue %s after bmod -q %s", j.ID, j.Queue, queue)
		}
		return nil
	})
	return errs
}

// startOn puts a job straight into slots, full or not, by brun: administrators alone may
// do that. LSF counts it beside what is there, and starts nobody else meanwhile. Dying
// leaves a job that runs, or waits as before.
func (c *Client) startOn(ctx context.Context, id backends.ID, hosts []backends.Placement) error {
	ids := []backends.ID{id}
	p, _, errs := c.looked(ctx, ids, waiting)
	if errs[0] != nil {
		return errs[0]
	}
	if len(hosts) == 0 {
		return fmt.Errorf("start job %v: no hosts are named", id)
	}
	for _, h := range hosts {
		if h.Host == "" || h.Host[0] == '-' || strings.ContainsAny(h.Host, " \t#") {
			return fmt.Errorf("start job %v on %q: that is no host", id, h.Host)
		}
	}
	if errs = c.tell(ctx, ids, "brun", "-m", places(hosts, p.flavour)); errs[0] != nil {
		return errs[0]
	}
	c.until(ctx, ids, errs, showing, func(_ int, j *job) error {
		if j.waits() {
			return errNot(j)
		}
		return nil
	})
	return errs[0]
}

// Kill ends jobs; pending ones too. It may be repeated.
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
	var of []int
	for i, id := range ids {
		switch jobs := p.of(id); {
		case len(jobs) == 0:
			errs[i] = fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
		case !slices.ContainsFunc(jobs, func(j *job) bool { return !j.State.Ended() }):
			errs[i] = errNot(jobs[0])
		default:
			alive, of = append(alive, id), append(of, i)
		}
	}
	for k, err := range c.tell(ctx, alive, "bkill") {
		errs[of[k]] = err
	}
	return errs
}
