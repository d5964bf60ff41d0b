package pba

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// applier carries out the actions of one plan.
//
// They are done in their order. Neighbours of one verb that belong to no reclaim
// go in one call. Where an act that frees slots for a reclaim, or prepares its
// beneficiary, is not done, the later ones of that reclaim are left out: no job
// is preempted in vain. A job that could not be pinned is not released either:
// it might start beside another that leaves it no memory. Nothing is tried twice: the
// next cycle plans anew from what it sees.
type applier struct {
	e         *Engine
	ctx       context.Context
	cycle     int64
	plan      *plan.Plan
	farm      *backends.Snapshot
	names     names
	queueTime func() time.Time

	outcomes []ledger.Outcome
	written  int                  // how many of outcomes are in the ledger
	broken   map[int64]string     // reclaims of which an act failed
	spared   map[victimRun]string // victims that were gone before the act, or not needed
	unpinned map[backends.ID]string
}

type victimRun struct {
	reclaim int64
	job     backends.ID
}

// errTimeUp ends a cycle that can't finish in its time (R6).
var errTimeUp = errors.New("time is up: the rest is left to the next cycle")

// run does all actions. Its error says why it stopped before the end.
func (a *applier) run() error {
	a.broken, a.spared, a.unpinned = map[int64]string{}, map[victimRun]string{}, map[backends.ID]string{}
	actions := a.plan.Actions
	for i := 0; i < len(actions); {
		if err := a.overdue(); err != nil {
			return firstOf(err, a.leaveOut(i, err))
		}
		n := a.batchSize(actions[i:])
		err := a.do(i, n)
		i += n
		if err != nil {
			return firstOf(err, a.leaveOut(i, err))
		}
	}
	return a.flush()
}

// firstOf returns the error that came first: what follows from it says nothing new.
func firstOf(err, later error) error {
	if err != nil {
		return err
	}
	return later
}

// leastTimeLeft is the part of the cycle's time that must be left to begin another act.
const leastTimeLeft = 500 * time.Millisecond

func (a *applier) overdue() error {
	if errors.Is(a.ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted: %w", a.ctx.Err())
	}
	if end, ok := a.ctx.Deadline(); ok && time.Until(end) < leastTimeLeft {
		return errTimeUp
	}
	return nil
}

// batchSize returns how many actions from the first on go in one call.
func (a *applier) batchSize(actions []plan.Action) int {
	first := &actions[0]
	if first.Reclaim != 0 || first.Verb.Preempts() || a.skipReason(first) != "" {
		return 1
	}
	n := 1
	for n < len(actions) && actions[n].Reclaim == 0 && actions[n].Verb == first.Verb && actions[n].Queue == first.Queue &&
		a.skipReason(&actions[n]) == "" {
		n++
	}
	return n
}

// do does the n actions from the first on. It fails only where going on makes no
// sense: the queue, or the ledger, can't be reached.
func (a *applier) do(first, n int) error {
	actions := a.plan.Actions[first : first+n]
	if why := a.skipReason(&actions[0]); why != "" {
		a.record(first, ledger.LeftOut, why)
		return nil
	}
	if first > 0 && a.plan.Actions[first-1].Reclaim != actions[0].Reclaim {
		if err := a.flush(); err != nil {
			return err
		}
	}
	ctx, cancel := a.actContext()
	defer cancel()
	if actions[0].Verb.Preempts() {
		if err := a.checkVictim(ctx, &actions[0]); err != nil {
			return a.recordResults(first, backends.Errors{err})
		}
	}
	return a.recordResults(first, a.call(ctx, actions))
}

// actContext outlives an interruption, so that no act is left half done, but not
// the cycle's own time.
func (a *applier) actContext() (context.Context, context.CancelFunc) {
	limit := time.Now().Add(actTimeout)
	if end, ok := a.ctx.Deadline(); ok && end.Before(limit) {
		limit = end
	}
	return context.WithDeadline(context.WithoutCancel(a.ctx), limit)
}

// skipReason returns why an action need not be tried any more; "" if it is to be tried.
func (a *applier) skipReason(act *plan.Action) string {
	if why, ok := a.unpinned[act.Job]; ok && act.Verb == plan.Release {
		return why
	}
	if act.Reclaim == 0 {
		return ""
	}
	if why, ok := a.spared[victimRun{act.Reclaim, act.Job}]; ok {
		return why
	}
	if why, ok := a.broken[act.Reclaim]; ok && depends(act) {
		return why
	}
	return ""
}

// depends reports whether an action takes part in freeing slots for its
// beneficiary, so that it is of no use without the others. Acts that undo do not.
func depends(act *plan.Action) bool {
	switch act.Verb {
	case plan.Rank, plan.PinTo, plan.Requeue, plan.Suspend, plan.Move, plan.Reserve, plan.Place:
		return true
	case plan.Drop:
		return act.For != (backends.ID{}) // else their slots are freed for no job
	case plan.Unpin, plan.Unreserve, plan.Hold, plan.Release, plan.Resume, plan.Start, plan.Kill, plan.Enlarge:
	}
	return false
}

// errGone is a job that is not as the plan saw it any more.
var errGone = errors.New("gone before the act")

// errNeedless is an act for a beneficiary that needs it no more.
var errNeedless = errors.New("its beneficiary does not wait any more")

// checkVictim reads a victim right before the act (R18): it must still be in the
// run that is meant, of the same user and project, and no PBA job by now. And its
// beneficiary: no job is preempted for one that the queue can't start there (R32), nor for one that has
// started meanwhile, unless others need its slots: see plan.Surroundings.
func (a *applier) checkVictim(ctx context.Context, act *plan.Action) error {
	was := jobOf(a.farm, act.Job)
	if was == nil {
		return fmt.Errorf("%w: it was not in the plan's snapshot", errGone)
	}
	able := a.e.Backend.Abilities()
	around := plan.Around(was, act.Verb, a.plan, a.farm, able.ForEngine)
	ids := []backends.ID{act.Job, act.For}
	for _, id := range around.IDs {
		if id != act.Job && id != act.For {
			ids = append(ids, id)
		}
	}
	jobs, err := a.e.Backend.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	now := map[backends.ID]*backends.Job{}
	for i := range jobs {
		now[jobs[i].ID] = &jobs[i]
	}
	victim, beneficiary := now[act.Job], now[act.For]
	if victim == nil {
		return fmt.Errorf("%w: the queue does not know it any more", errGone)
	}
	a.names.resolve(jobs)
	if err := sameRun(victim, was, act.Started); err != nil {
		return err
	}
	switch {
	case act.For == (backends.ID{}): // its host asks for it
		return nil
	case beneficiary == nil:
		return errNeedless
	case able.Considers && beneficiary.State == backends.Pending && beneficiary.Wait == backends.WaitOther:
		return fmt.Errorf("%w: the queue does not start it: %s", errNeedless, beneficiary.Reason)
	case !waits(beneficiary) && beneficiary.State != backends.Running:
		return errNeedless
	case !around.Needless(act.For, now, a.later(act)):
		return nil
	case waits(beneficiary):
		return errSupplied
	}
	return errNeedless
}

// errSupplied is an act for slots that are there already.
var errSupplied = errors.New("enough slots came free there meanwhile")

// later returns whether a job is to be preempted by an act after this one.
func (a *applier) later(act *plan.Action) func(backends.ID) bool {
	return func(id backends.ID) bool {
		after := false
		for i := range a.plan.Actions {
			x := &a.plan.Actions[i]
			if after && x.Job == id && x.Verb.Preempts() && a.skipReason(x) == "" {
				return true
			}
			after = after || x == act
		}
		return false
	}
}

func waits(j *backends.Job) bool {
	return j.State == backends.Pending || j.State == backends.Suspended
}

// sameRun compares a victim with what the plan saw.
func sameRun(is, was *backends.Job, started time.Time) error {
	switch {
	case is.State != backends.Running:
		return fmt.Errorf("%w: it is %v", errGone, is.State)
	case !started.IsZero() && !is.Started.Equal(started):
		return fmt.Errorf("%w: it started anew", errGone)
	case is.User != was.User || is.Project != was.Project:
		return fmt.Errorf("%w: it has another user or project", errGone)
	case is.Priority.Level() >= backends.LevelPBA && was.Priority.Level() < backends.LevelPBA:
		return fmt.Errorf("%w: it is no normal job any more", errGone)
	}
	return nil
}

func jobOf(farm *backends.Snapshot, id backends.ID) *backends.Job {
	for i := range farm.Jobs {
		if farm.Jobs[i].ID == id {
			return &farm.Jobs[i]
		}
	}
	return nil
}

// call sends actions of one verb to the queue.
func (a *applier) call(ctx context.Context, actions []plan.Action) backends.Errors {
	b, able := a.e.Backend, a.e.Backend.Abilities()
	ids := make([]backends.ID, len(actions))
	for i := range actions {
		ids[i] = actions[i].Job
	}
	switch actions[0].Verb {
	case plan.Rank:
		return b.SetPriority(ctx, each(actions, func(x *plan.Action) backends.PriorityChange {
			return backends.PriorityChange{ID: x.Job, Priority: x.Priority}
		}))
	case plan.Requeue:
		return b.Requeue(ctx, each(actions, preemptAct))
	case plan.Suspend:
		return b.Suspend(ctx, each(actions, preemptAct))
	case plan.Resume:
		return b.Resume(ctx, ids)
	case plan.Hold:
		if able.HoldUntil == nil {
			return b.Hold(ctx, ids)
		}
		return able.HoldUntil(ctx, each(actions, func(x *plan.Action) backends.HoldUntil {
			return backends.HoldUntil{ID: x.Job, Until: x.Until}
		}))
	case plan.Release:
		if able.HoldUntil == nil {
			return b.Release(ctx, ids)
		}
		return able.HoldUntil(ctx, each(actions, func(x *plan.Action) backends.HoldUntil {
			return backends.HoldUntil{ID: x.Job}
		}))
	case plan.Kill:
		return b.Kill(ctx, ids)
	case plan.Enlarge:
		if able.Enlarge != nil {
			return each(actions, func(x *plan.Action) error { return able.Enlarge(ctx, x.Job, x.Memory) })
		}
	case plan.Move:
		if able.Move != nil {
			return able.Move(ctx, ids, actions[0].Queue)
		}
	case plan.PinTo, plan.Unpin:
		if able.Pin != nil {
			return able.Pin(ctx, each(actions, func(x *plan.Action) backends.Pin {
				if x.Verb == plan.Unpin {
					return backends.Pin{ID: x.Job}
				}
				return backends.Pin{ID: x.Job, Hosts: x.Hosts, Slots: x.Slots, Until: x.Until}
			}))
		}
	case plan.Reserve, plan.Unreserve:
		if able.Reserve != nil {
			return able.Reserve(ctx, each(actions, func(x *plan.Action) backends.Reservation {
				if x.Verb == plan.Unreserve {
					return backends.Reservation{ID: x.Job}
				}
				return backends.Reservation{ID: x.Job, Hosts: x.Hosts, Until: x.Until}
			}))
		}
	case plan.Start:
		if able.Start != nil {
			return backends.Errors{a.start(ctx, &actions[0])}
		}
	case plan.Place:
		if able.Place != nil {
			return a.submitDummies(ctx, actions)
		}
	case plan.Drop:
		return a.endDummies(ctx, actions)
	}
	return backends.Fail(len(actions), fmt.Errorf("%s: %w", actions[0].Verb, backends.ErrUnable))
}

// start puts a beneficiary into its slots, even if the queue counts them as taken, if
// no job runs there by now.
func (a *applier) start(ctx context.Context, act *plan.Action) error {
	farm, err := a.e.Backend.Snapshot(ctx, a.farm.At)
	if err != nil {
		return err
	}
	slots := make([]backends.Placement, len(act.Hosts))
	for i, h := range act.Hosts {
		slots[i] = backends.Placement{Host: h, Slots: act.Slots[i]}
	}
	if !vacant(farm, slots) {
		return fmt.Errorf("%w: other jobs run in its slots now", errGone)
	}
	return a.e.Backend.Abilities().Start(ctx, act.Job, slots)
}

// vacant reports whether hosts that are up have these slots free of running jobs.
func vacant(farm *backends.Snapshot, slots []backends.Placement) bool {
	left := map[string]int{}
	for _, h := range farm.Hosts {
		if h.State == backends.HostUp {
			left[h.Name] = h.Slots
		}
	}
	for i := range farm.Jobs {
		if farm.Jobs[i].State != backends.Running {
			continue
		}
		for _, p := range farm.Jobs[i].Hosts {
			left[p.Host] -= p.Slots
		}
	}
	return !slices.ContainsFunc(slots, func(p backends.Placement) bool { return left[p.Host] < p.Slots })
}

func preemptAct(x *plan.Action) backends.Act {
	return backends.Act{ID: x.Job, Started: x.Started, Until: x.Until, Grace: x.Grace, Save: x.Save, Mark: x.Mark, Notice: x.Notice}
}

func each[T any](actions []plan.Action, f func(*plan.Action) T) []T {
	all := make([]T, len(actions))
	for i := range actions {
		all[i] = f(&actions[i])
	}
	return all
}

// recordResults records what became of the actions from the first on. Its error is the
// queue's or the ledger's, and ends the cycle.
func (a *applier) recordResults(first int, errs backends.Errors) error {
	var lost error
	for i, err := range errs {
		act := &a.plan.Actions[first+i]
		if err != nil && act.Verb == plan.PinTo {
			a.unpinned[act.Job] = fmt.Sprintf("it was not pinned: %v", err)
		}
		switch {
		case err == nil:
			a.record(first+i, ledger.Done, "")
			continue
		case errors.Is(err, errNeedless):
			a.record(first+i, ledger.LeftOut, err.Error())
		case errors.Is(err, errSupplied):
			a.record(first+i, ledger.LeftOut, err.Error())
			a.spare(act, err)
			continue
		case isGone(err):
			a.record(first+i, ledger.Gone, err.Error())
			if act.Verb.Preempts() {
				a.spare(act, err)
				continue
			}
		default:
			a.record(first+i, ledger.Failed, err.Error())
			if isLost(err) {
				lost = err
			}
		}
		if act.Reclaim != 0 && depends(act) && (act.Verb != plan.Rank || act.Job == act.For) {
			a.broken[act.Reclaim] = fmt.Sprintf("%s of job %v was not done: %v", act.Verb, act.Job, err)
		}
	}
	if lost != nil {
		act := a.plan.Actions[first]
		return fmt.Errorf("%s job %v: %w", act.Verb, act.Job, unreachable(a.ctx, lost))
	}
	if a.plan.Actions[first].Verb.Preempts() {
		return a.flush()
	}
	return nil
}

// spare leaves out the later acts on a victim; those on its reclaim's others are done.
func (a *applier) spare(act *plan.Action, why error) {
	a.spared[victimRun{act.Reclaim, act.Job}] = "its slots were not preempted: " + why.Error()
}

func isGone(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, backends.ErrWrongState) || errors.Is(err, backends.ErrUnknownJob)
}

func isLost(err error) bool {
	return errors.Is(err, backends.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (a *applier) record(action int, result ledger.Result, text string) {
	a.outcomes = append(a.outcomes, ledger.Outcome{Action: action, Result: result, Error: text, At: a.queueTime()})
}

// leaveOut records that the actions from the first on were not tried, and why.
func (a *applier) leaveOut(first int, why error) error {
	for i := first; i < len(a.plan.Actions); i++ {
		a.record(i, ledger.LeftOut, why.Error())
	}
	return a.flush()
}

// flush writes the outcomes that the ledger does not have yet.
func (a *applier) flush() error {
	if a.written == len(a.outcomes) {
		return nil
	}
	if err := a.e.Ledger.Outcome(context.WithoutCancel(a.ctx), a.cycle, a.outcomes[a.written:]); err != nil {
		return err
	}
	a.written = len(a.outcomes)
	return nil
}
