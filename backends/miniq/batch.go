package miniq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/miniq"
)

// Abilities returns what miniq can do. Start is nil: it puts no job into a full slot.
func (c *Client) Abilities() backends.Abilities {
	return backends.Abilities{
		ForEngine: backends.ForEngine{
			SuspendFrees: true, PinShares: true, PinEnds: true, SavesBySignal: true, SavesByCommand: true,
			Ages: c.options.Config.Every(), AgeCap: c.options.Config.Ageing.Cap, ManagesMemory: c.options.Config.ScheduleBy != miniq.BySlots,
			Pin: c.pin, HoldUntil: c.holdUntil, Reserve: c.reserve, Guarantee: c.guarantee, Move: c.move, Enlarge: backends.EnlargeBy(c.modify), Place: c.submitDummies, Standbys: true,
		},
		ForFilter: backends.ForFilter{Marks: true},
		ForWrappers: backends.ForWrappers{
			Terminals: true, Resources: true, SharesState: true,
			Queues: c.queues, Modify: c.modify, Reorder: c.reorder, Reopen: c.reopen, KillNow: c.killNow, InGroup: inGroup, Record: c.Record, Set: c.set, Attach: c.attach, Attached: c.attached, History: c.history, Output: c.output, Wait: c.WaitEnded, Changed: c.WaitChange, Signal: c.signal, CloseHosts: c.closeHosts,
		},
	}
}

// Snapshot returns a snapshot of the queue.
func (c *Client) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	var snapshot *backends.Snapshot
	var sets miniq.HostSets
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpSnapshot, EndedSince: endedSince}, func(r *miniq.Response) error {
		if r.Snapshot != nil {
			sets = nil
			snapshot = &backends.Snapshot{At: unixtime.Time(r.Snapshot.At), Hosts: r.Snapshot.Hosts, Guaranteed: r.Snapshot.Guaranteed}
		}
		if snapshot == nil {
			return errors.New("miniqd's answer lacks its first part")
		}
		sets.Add(r.Sets)
		jobs, err := sets.Jobs(r.Jobs)
		if err != nil {
			return err
		}
		snapshot.Jobs = append(snapshot.Jobs, jobs...)
		ended, err := sets.Jobs(r.Ended)
		snapshot.Ended = append(snapshot.Ended, ended...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// Jobs returns those of some jobs that the queue knows.
func (c *Client) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	var answer jobList
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpJobs, IDs: ids}, answer.add)
	return answer.jobs, err
}

// jobList gathers the jobs of an answer.
type jobList struct {
	sets miniq.HostSets
	jobs []backends.Job
}

// add takes a part of the answer.
func (l *jobList) add(r *miniq.Response) error {
	l.sets.Add(r.Sets)
	jobs, err := l.sets.Jobs(r.Jobs)
	l.jobs = append(l.jobs, jobs...)
	return err
}

// batchBytes is about how much of a list goes into one request.
const batchBytes = 4 << 20

// Submit submits jobs, in as few requests as they fit into. A crash keeps all jobs
// of a request or none; single ones may be refused.
func (c *Client) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	return c.SubmitOnce(ctx, newKey(), specs)
}

// specSize estimates how long a Spec is on the wire, in bytes.
func specSize(s *backends.Spec) int {
	const perArg, perSpec = 4, 1024
	return perSpec + s.Size() + len(s.Script)/3 + perArg*(len(s.Command)+len(s.Env))
}

func (c *Client) submit(ctx context.Context, key string, specs []miniq.Spec) []backends.Submitted {
	return c.submitBatch(ctx, len(specs), &miniq.Request{Op: miniq.OpSubmit, Key: key, Specs: specs})
}

// submitDummies submits dummy jobs, in as few requests as they fit into.
func (c *Client) submitDummies(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
	var results []backends.Submitted
	for part := range slices.Chunk(dummies, miniq.MaxSpecs) {
		results = append(results, c.submitBatch(ctx, len(part), &miniq.Request{Op: miniq.OpPlace, Key: newKey(), Dummies: part})...)
	}
	return results
}

// submitBatch makes a request that submits n jobs under a key.
func (c *Client) submitBatch(ctx context.Context, n int, req *miniq.Request) []backends.Submitted {
	results := make([]backends.Submitted, n)
	err := c.callRetrying(ctx, req, func(r *miniq.Response) error {
		if len(r.Submitted) != n {
			return fmt.Errorf("%d results for %d jobs", len(r.Submitted), n)
		}
		for i, s := range r.Submitted {
			results[i] = backends.Submitted{ID: s.ID, Queue: backends.Unescape(s.Queue), Err: s.Error.Err()}
		}
		return nil
	})
	if err != nil {
		for i := range results {
			results[i] = backends.Submitted{Err: err}
		}
	}
	return results
}

// batch makes a request on n elements.
func (c *Client) batch(ctx context.Context, n int, req *miniq.Request) backends.Errors {
	if n == 0 {
		return nil
	}
	errs := make(backends.Errors, n)
	err := c.call(ctx, req, func(r *miniq.Response) error {
		if len(r.Errors) != n {
			return fmt.Errorf("%d results for %d jobs", len(r.Errors), n)
		}
		for i, e := range r.Errors {
			errs[i] = e.Err()
		}
		return nil
	})
	if err != nil {
		return backends.Fail(n, err)
	}
	return errs
}

// Kill ends jobs.
func (c *Client) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpKill, IDs: ids})
}

// Requeue puts running jobs back into the queue.
func (c *Client) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	return c.batch(ctx, len(acts), &miniq.Request{Op: miniq.OpRequeue, Acts: escapeActs(acts)})
}

// Suspend stops running jobs.
func (c *Client) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	return c.batch(ctx, len(acts), &miniq.Request{Op: miniq.OpSuspend, Acts: escapeActs(acts)})
}

func escapeActs(acts []backends.Act) []backends.Act {
	out := make([]backends.Act, len(acts))
	for i, a := range acts {
		a.Mark, a.Notice, a.Save.Command = backends.Escape(a.Mark), backends.Escape(a.Notice), backends.Escape(a.Save.Command)
		out[i] = a
	}
	return out
}

// Resume continues suspended jobs.
func (c *Client) Resume(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpResume, IDs: ids})
}

// Hold keeps pending jobs from starting.
func (c *Client) Hold(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpHold, IDs: ids})
}

// Release undoes Hold.
func (c *Client) Release(ctx context.Context, ids []backends.ID) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpRelease, IDs: ids})
}

// SetPriority sets jobs' priorities.
func (c *Client) SetPriority(ctx context.Context, rankings []backends.PriorityChange) backends.Errors {
	return c.batch(ctx, len(rankings), &miniq.Request{Op: miniq.OpRank, Rankings: rankings})
}

func (c *Client) pin(ctx context.Context, pins []backends.Pin) backends.Errors {
	return c.batch(ctx, len(pins), &miniq.Request{Op: miniq.OpPin, Pins: pins})
}

func (c *Client) holdUntil(ctx context.Context, holds []backends.HoldUntil) backends.Errors {
	return c.batch(ctx, len(holds), &miniq.Request{Op: miniq.OpHoldUntil, Holds: holds})
}

func (c *Client) reserve(ctx context.Context, reservations []backends.Reservation) backends.Errors {
	return c.batch(ctx, len(reservations), &miniq.Request{Op: miniq.OpReserve, Reservations: reservations})
}

func (c *Client) guarantee(ctx context.Context, all []backends.Guaranteed) error {
	return c.batch(ctx, 1, &miniq.Request{Op: miniq.OpGuarantee, Guaranteed: all}).First()
}

func (c *Client) move(ctx context.Context, ids []backends.ID, queue string) backends.Errors {
	return c.batch(ctx, len(ids), &miniq.Request{Op: miniq.OpMove, IDs: ids, Queue: backends.Escape(queue)})
}

// Status asks the daemon about itself.
func (c *Client) Status(ctx context.Context) (*miniq.Status, error) {
	var status *miniq.Status
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpStatus}, func(r *miniq.Response) error {
		status = r.Status
		return checkPresent(status != nil)
	})
	return status, err
}

// Compact has the daemon forget jobs that ended longer ago than keep (nil: than
// its config says) and shorten its journal.
func (c *Client) Compact(ctx context.Context, keep *time.Duration) (*miniq.Compacted, error) {
	var compacted *miniq.Compacted
	err := c.call(ctx, &miniq.Request{Op: miniq.OpCompact, Keep: keep}, func(r *miniq.Response) error {
		compacted = r.Compacted
		return checkPresent(compacted != nil)
	})
	return compacted, err
}

func checkPresent(there bool) error {
	if !there {
		return errors.New("miniqd's answer lacks what was requested")
	}
	return nil
}

// Record reads a job's state object.
func (c *Client) Record(ctx context.Context, id backends.ID) (*backends.Record, error) {
	var record *backends.Record
	err := c.callRetrying(ctx, &miniq.Request{Op: miniq.OpRecord, IDs: []backends.ID{id}}, func(r *miniq.Response) error {
		record = r.Record
		return checkPresent(record != nil)
	})
	if err != nil {
		return nil, err
	}
	record.MapTexts(backends.Unescape)
	return record, nil
}

// output returns the file of a job's standard output.
func (c *Client) output(ctx context.Context, id backends.ID) (string, error) {
	record, err := c.Record(ctx, id)
	if err != nil || record.Spec.Terminal != "" {
		return "", err
	}
	return record.Spec.OutputFile(id), nil
}

// waitPart is how long one request of a wait lasts; a longer wait asks again.
const waitPart = 30 * time.Second

// WaitEnded waits until all of these jobs have ended (an array's ID stands for
// its elements) and returns them; a job that the queue does not know counts as
// ended. It lasts as long as ctx.
func (c *Client) WaitEnded(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	for {
		var answer jobList
		err := c.wait(ctx, &miniq.Request{Op: miniq.OpWait, IDs: ids, Timeout: waitPart}, answer.add)
		if err != nil || allEnded(answer.jobs) {
			return answer.jobs, err
		}
	}
}

func allEnded(jobs []backends.Job) bool {
	for i := range jobs {
		if !jobs[i].State.Ended() {
			return false
		}
	}
	return true
}

// WaitChange waits until the queue's state has changed since it returned after, and
// returns a higher number; begin with 0, which returns at once.
func (c *Client) WaitChange(ctx context.Context, after uint64) (uint64, error) {
	for {
		var changes uint64
		err := c.wait(ctx, &miniq.Request{Op: miniq.OpWait, After: after, Timeout: waitPart}, func(r *miniq.Response) error {
			changes = r.Changes
			return nil
		})
		if err != nil || changes > after || after == 0 {
			return changes, err
		}
	}
}

// wait is call with a deadline of its own for each request: the daemon answers
// after waitPart at the latest.
func (c *Client) wait(ctx context.Context, req *miniq.Request, part func(*miniq.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitPart+c.options.Timeout)
	defer cancel()
	return c.callRetrying(ctx, req, part)
}
