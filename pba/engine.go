// Package pba is the allocation engine's cycle: observe, plan, apply, record.
// Package plan makes the decisions.
package pba

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Ledger is what the engine needs of one. A cycle calls Load; then, unless it
// has nothing to record, Intend before its first act, Outcome after acts, and
// Finish.
type Ledger interface {
	Load(ctx context.Context) (plan.Memory, error)
	Intend(ctx context.Context, c ledger.Cycle, p plan.Plan) (id int64, err error)
	Outcome(ctx context.Context, cycle int64, outcomes []ledger.Outcome) error
	Finish(ctx context.Context, cycle int64, at time.Time, note string) error
}

// Rules are what a site decided, as it holds for one cycle.
type Rules struct {
	Policy  plan.Policy
	Observe bool // act on nothing (R7)
	Paused  bool // begin nothing at all

	BesideOthers bool // act also where the queuing system itself preempts jobs of managed queues
}

// Engine runs cycles over one queue. Only one at a time may run on a queue and
// ledger; see Lock.
type Engine struct {
	Backend     backends.Backend
	Ledger      Ledger
	Rules       func(ctx context.Context, now time.Time) (Rules, error)
	Groups      func(ctx context.Context, users []string) (map[string][]string, error) // UNIX groups by user; nil: no user is in any
	Pleas       func(ctx context.Context, now time.Time) ([]plan.Plea, error)          // what hosts that lack memory ask for; nil: nothing
	Publish     func(ctx context.Context, s ledger.Standing) error                     // to the submit filter; nil: not at all
	Who         string                                                                 // the identity that the system gives
	Zone        *time.Location                                                         // by whose hours use is recorded; nil: UTC's
	KeepHistory time.Duration                                                          // for how long history is kept; 0: for ever

	ReadClock func() (clock.Reading, error) // this machine's; nil: a clock that is put ahead is not noticed
}

// Result is what a cycle saw, decided and did.
type Result struct {
	Rules    Rules
	State    plan.State
	Plan     plan.Plan
	Outcomes []ledger.Outcome // one for each action that was tried or left out, in the plan's order
	Note     string           // why nothing was planned, or what stopped the cycle

	ClockSet string // what was noticed of a clock that was set; "": nothing
	Observes string // why the cycle acts on nothing, if that is not the config's mode

	readAt time.Time // when the snapshot came, by this machine's clock
	names  names
	former []string // former names of projects that unfinished jobs have
}

// Failed returns the first action that the queue refused, as an error; nil if none.
func (r *Result) Failed() error {
	for _, o := range r.Outcomes {
		if o.Result == ledger.Failed {
			a := r.Plan.Actions[o.Action]
			return fmt.Errorf("%s job %v: %s", a.Verb, a.Job, o.Error)
		}
	}
	return nil
}

// warn adds to the plan's warnings what was noticed before it was made.
func (r *Result) warn() {
	if r.Observes != "" {
		r.Plan.Warnings = append([]string{r.Observes}, r.Plan.Warnings...)
	}
	if r.ClockSet != "" {
		r.Plan.Warnings = append([]string{r.ClockSet}, r.Plan.Warnings...)
	}
}

// readTimeout limits the time in which the queue must return a snapshot, actTimeout that
// of one call.
const (
	readTimeout = 2 * time.Minute
	actTimeout  = 30 * time.Second
)

// Cycle is one rebalance. When it returns, each action was done, is recorded as
// not done, or, after an error of the ledger, stands there as intended. An
// unreachable queue gives an error that wraps backends.ErrUnreachable. A context
// that is over stops it between two actions.
func (e *Engine) Cycle(ctx context.Context, now func() time.Time) (Result, error) {
	started := now()

	// 1. Observe.
	r, err := e.observe(ctx, now, true)
	if err != nil {
		return r, err
	}
	if r.Rules.Paused {
		err := e.publish(ctx, &r, now)
		// What was begun goes on, as it does by itself on other queues.
		if reconcile := e.Backend.Abilities().Reconcile; reconcile != nil && !r.Rules.Observe {
			err = errors.Join(err, e.reconcile(ctx, reconcile))
		}
		return r, err
	}
	if r.Note != "" {
		return r, nil
	}

	// 2. Plan.
	read := now()
	r.Plan = plan.Make(r.State, r.Rules.Policy, r.State.Farm.At)
	r.warn()

	// 3. Apply, once what is intended is on disk.
	cycle := e.ledgerCycle(&r, ledger.Live, started)
	cycle.Read, cycle.Planned = read, now()
	if r.Rules.Observe {
		cycle.Mode = ledger.Observe
		r.Plan.Memory = observed(r.State.Memory, r.Plan.Memory)
	}
	if err := e.carryOut(ctx, &r, cycle, now); err != nil {
		return r, err
	}

	// 4. Publish to the filter.
	return r, e.publish(ctx, &r, now)
}

// Preview returns what Cycle would do now and changes nothing. Where the result has
// a note, it is what Cycle would do but for that.
func (e *Engine) Preview(ctx context.Context, now func() time.Time) (Result, error) {
	r, err := e.Observe(ctx, now)
	if err == nil {
		r.Plan = plan.Make(r.State, r.Rules.Policy, r.State.Farm.At)
		r.warn()
	}
	return r, err
}

// Restore undoes everything that the engine did to the queue (R7).
func (e *Engine) Restore(ctx context.Context, now func() time.Time) (Result, error) {
	r, err := e.undo(ctx, now, func(r *Result) plan.Plan { return plan.Restore(r.State, r.State.Farm.At) })
	if err != nil {
		return r, err
	}
	return r, e.publish(ctx, &r, now)
}

// Remaining returns what a Restore did not put back, by a new snapshot of the queue: what it
// would do again to jobs that it acted on.
func (e *Engine) Remaining(ctx context.Context, restored *Result, now func() time.Time) ([]plan.Action, error) {
	r, err := e.Observe(ctx, now)
	if err != nil {
		return nil, err
	}
	left := plan.Restore(r.State, r.State.Farm.At).Actions
	return slices.DeleteFunc(left, func(a plan.Action) bool {
		return !slices.ContainsFunc(restored.Plan.Actions, func(b plan.Action) bool { return a.Job == b.Job })
	}), nil
}

// Prune ends the dummy jobs that are not needed (R31). It publishes nothing to the
// filter: its plan has no standing of the pools.
func (e *Engine) Prune(ctx context.Context, now func() time.Time) (Result, error) {
	return e.undo(ctx, now, func(r *Result) plan.Plan { return plan.Prune(r.State, r.Rules.Policy, r.State.Farm.At) })
}

// undo carries out a plan that only undoes, even if the engine is paused.
func (e *Engine) undo(ctx context.Context, now func() time.Time, decide func(*Result) plan.Plan) (Result, error) {
	started := now()
	if reconcile := e.Backend.Abilities().Reconcile; reconcile != nil {
		if err := e.reconcile(ctx, reconcile); err != nil {
			return Result{}, err
		}
	}
	r, err := e.Observe(ctx, now)
	if err != nil {
		return r, err
	}
	if r.stale() {
		return r, fmt.Errorf("%s: %w", r.Note, backends.ErrUnreachable)
	}
	r.Note = ""
	r.Plan = decide(&r)
	r.warn()
	return r, e.carryOut(ctx, &r, e.ledgerCycle(&r, ledger.Restore, started), now)
}

// Observe reads what a plan is made from, and changes nothing. It reads the queue
// even if the engine is paused.
func (e *Engine) Observe(ctx context.Context, now func() time.Time) (Result, error) {
	r, err := e.observe(ctx, now, false)
	if err == nil && r.State.Farm == nil {
		err = e.readQueue(ctx, &r, now)
	}
	return r, err
}

// observe reads rules, memory and the queue, which is reconciled before if mayReconcile is set.
// Where nothing may be planned the result has a note; a paused engine does not even
// read the queue.
func (e *Engine) observe(ctx context.Context, now func() time.Time, mayReconcile bool) (Result, error) {
	var (
		r   Result
		err error
	)
	if r.Rules, err = e.Rules(ctx, now()); err != nil {
		return r, err
	}
	if r.State.Memory, err = e.Ledger.Load(ctx); err != nil {
		return r, err
	}
	if r.Rules.Paused {
		r.Note = "paused: run `pba resume` to continue"
		return r, nil
	}
	if reconcile := e.Backend.Abilities().Reconcile; reconcile != nil && mayReconcile && !r.Rules.Observe {
		if err := e.reconcile(ctx, reconcile); err != nil {
			return r, err
		}
	}
	if err := e.readQueue(ctx, &r, now); err != nil {
		return r, err
	}
	if r.stale() {
		r.Note = fmt.Sprintf("the queue's snapshot of %s is older than the last action (%s): this cycle does nothing",
			timeOfDay(r.State.Farm.At), timeOfDay(r.State.Memory.LastAction))
	}
	return r, nil
}

func timeOfDay(t time.Time) string { return t.Local().Format("15:04:05.000") }

// stale reports whether the snapshot may not show the last action yet (R8).
func (r *Result) stale() bool { return r.State.Farm.At.Before(r.State.Memory.LastAction) }

// readQueue reads the snapshot of the queue and looks up its users' groups.
func (e *Engine) readQueue(ctx context.Context, r *Result, now func() time.Time) error {
	timed, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	before := e.readClock()
	farm, err := e.Backend.Snapshot(timed, r.State.Memory.EndedSince)
	r.readAt = now()
	if err == nil {
		was := r.State.Memory
		r.State.Memory = plan.FollowClock(was, farm.At, before, e.readClock())
		if set := r.State.Memory.ClockSet; set != was.ClockSet {
			r.ClockSet = "the queue's clock " + clock.Describe(set.At, set.By) + ": what is remembered is moved with it"
		}
		if r.State.Memory.EndedSince.Before(was.EndedSince) { // jobs that ended since are not in that snapshot
			farm, err = e.Backend.Snapshot(timed, r.State.Memory.EndedSince)
			r.readAt = now()
		}
	}
	if err != nil {
		return unreachable(ctx, fmt.Errorf("read the queue: %w", err))
	}
	farm.Ended = plan.WithoutAhead(farm.Ended, farm.At)
	r.yieldTo(farm.Preempting)
	r.State.Farm, r.State.Abilities = farm, e.Backend.Abilities().ForEngine
	r.names = namesOf(r.State.Abilities, r.Rules.Policy.Projects)
	r.former = r.names.former(farm.Jobs)
	r.names.resolve(farm.Jobs)
	r.names.resolve(farm.Ended)
	if e.Pleas != nil {
		if r.State.Pleas, err = e.Pleas(ctx, r.readAt); err != nil {
			return err
		}
	}
	if e.Groups == nil {
		return nil
	}
	r.State.Groups, err = e.Groups(ctx, projectUsers(farm, r.Rules.Policy.Projects))
	return err
}

// yieldTo has the cycle observe where the queuing system itself preempts jobs in these
// queues, if managed ones are among them (R7): it would take slots that were freed for a
// beneficiary, and the engine those that it freed.
func (r *Result) yieldTo(preempting []string) {
	rules := &r.Rules
	i := slices.IndexFunc(preempting, func(queue string) bool {
		return len(rules.Policy.Queues) == 0 || queue == rules.Policy.LowQueue || slices.Contains(rules.Policy.Queues, queue)
	})
	if i < 0 || rules.Observe || rules.BesideOthers {
		return
	}
	rules.Observe = true
	r.Observes = fmt.Sprintf("the queuing system itself preempts jobs in %s: cycles observe only, see pba.own_preemption and pba doctor", preempting[i])
}

// readClock reads this machine's clocks, if they can be.
func (e *Engine) readClock() clock.Reading {
	if e.ReadClock == nil {
		return clock.Reading{}
	}
	reading, err := e.ReadClock()
	if err != nil {
		return clock.Reading{}
	}
	return reading
}

func (e *Engine) reconcile(ctx context.Context, reconcile func(context.Context) error) error {
	timed, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	if err := reconcile(timed); err != nil {
		return unreachable(ctx, fmt.Errorf("reconcile the queue: %w", err))
	}
	return nil
}

// unreachable marks an error of a queue that took too long.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, backends.ErrUnreachable) {
		return fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	}
	return err
}

// projectUsers returns the users whose jobs name a known project, sorted.
func projectUsers(farm *backends.Snapshot, projects []plan.Project) []string {
	known := make(map[string]bool, len(projects))
	for _, p := range projects {
		known[p.Name] = true
	}
	seen := map[string]bool{}
	for _, jobs := range [][]backends.Job{farm.Jobs, farm.Ended} {
		for i := range jobs {
			if known[jobs[i].Project] {
				seen[jobs[i].User] = true
			}
		}
	}
	users := make([]string, 0, len(seen))
	for user := range seen {
		users = append(users, user)
	}
	slices.Sort(users)
	return users
}

// ledgerCycle describes a cycle for the ledger.
func (e *Engine) ledgerCycle(r *Result, mode ledger.Mode, started time.Time) ledger.Cycle {
	c := ledger.Cycle{
		Who: e.Who, Mode: mode, Started: started, Snapshot: r.State.Farm.At,
		Zone: e.Zone, KeepHistory: e.KeepHistory, Longest: max(time.Minute, 3*r.Rules.Policy.Cycle),
		Former: r.former,
	}
	for _, j := range r.State.Farm.Ended {
		if j.IsDummy() {
			continue // it did no work that a report should show
		}
		end := ledger.Ended{Job: j, Waited: max(0, j.Started.Sub(j.Submitted))}
		if j.Started.IsZero() {
			end.Waited = max(0, j.Ended.Sub(j.Submitted))
		}
		if m, ok := r.State.Memory.Jobs[j.ID]; ok {
			end.Memory, end.PBA = &m, m.Pool != 0
		}
		c.Ended = append(c.Ended, end)
	}
	return c
}

// carryOut records what is intended, does it, and records the outcomes.
func (e *Engine) carryOut(ctx context.Context, r *Result, c ledger.Cycle, now func() time.Time) error {
	queueTime := func() time.Time { return r.State.Farm.At.Add(now().Sub(r.readAt)) }
	acts := c.Mode != ledger.Observe
	if acts && len(r.Plan.Actions) > 0 {
		// Should the engine die before an outcome is on disk, the next cycle must
		// not take an older snapshot for a newer one (R8).
		r.Plan.Memory.LastAction = latest(r.Plan.Memory.LastAction, queueTime())
	}
	id, err := e.Ledger.Intend(ctx, c, r.Plan)
	if err != nil {
		return err
	}
	var stopped error
	if acts {
		a := applier{e: e, ctx: ctx, cycle: id, plan: &r.Plan, farm: r.State.Farm, names: r.names, queueTime: queueTime}
		stopped = firstOf(e.sendGuaranteed(ctx, r), a.run())
		r.Outcomes = a.outcomes
		if stopped != nil {
			r.Note = stopped.Error()
		}
		if errors.Is(stopped, errTimeUp) {
			stopped = nil // that is no failure
		}
	}
	if err := e.Ledger.Finish(context.WithoutCancel(ctx), id, now(), r.Note); err != nil {
		return firstOf(stopped, err)
	}
	return stopped
}

// sendGuaranteed sends the queue what is guaranteed, if that changed (R37). Nothing but its
// own reservations depends on it: where that fails the next cycle tries again.
func (e *Engine) sendGuaranteed(ctx context.Context, r *Result) error {
	if !r.Plan.SendGuaranteed {
		return nil
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), actTimeout)
	defer cancel()
	if err := e.Backend.Abilities().Guarantee(timed, r.Plan.Guaranteed); err != nil && !errors.Is(err, backends.ErrUnable) { // an older one
		return unreachable(ctx, fmt.Errorf("send the queue what is guaranteed: %w", err))
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// publish publishes the engine's sign of life and the pools' standing to the submit filter.
func (e *Engine) publish(ctx context.Context, r *Result, now func() time.Time) error {
	if e.Publish == nil {
		return nil
	}
	s := ledger.Standing{Standing: esub.Standing{
		At: now(), Observe: r.Rules.Observe || r.Rules.Paused, LowerUnpreemptable: r.Plan.Farm.LowerThem,
		FixedShare: r.Plan.Farm.FixedShare, Below: map[int64]bool{},
	}}
	for i := range r.Plan.Pools {
		if pool := &r.Plan.Pools[i]; pool.Below {
			s.Below[pool.ID] = true
		}
	}
	if r.State.Farm != nil {
		heavy := HeavyOf(r.Rules.Policy, r.State.Abilities, r.State.Farm.Hosts)
		s.Heavy = &heavy
	}
	return e.Publish(context.WithoutCancel(ctx), s)
}
