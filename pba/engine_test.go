package pba_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// faulty records the calls that the engine makes, and fails those that a test
// wants to fail.
type faulty struct {
	backends.Backend
	calls      []string
	preempting []string                       // queues where it preempts by itself
	fail       func(call string, n int) error // n counts from 1
	reconciles bool                           // it is a queue that must be reconciled
}

func (f *faulty) called(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	if f.fail == nil {
		return nil
	}
	return f.fail(f.calls[len(f.calls)-1], len(f.calls))
}

func (f *faulty) Snapshot(ctx context.Context, since time.Time) (*backends.Snapshot, error) {
	if err := f.called("farm"); err != nil {
		return nil, err
	}
	farm, err := f.Backend.Snapshot(ctx, since)
	if err == nil {
		farm.Preempting = f.preempting
	}
	return farm, err
}

func (f *faulty) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if err := f.called("jobs %v", ids); err != nil {
		return nil, err
	}
	return f.Backend.Jobs(ctx, ids)
}

func (f *faulty) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	if err := f.called("requeue %v", acts[0].ID); err != nil {
		return backends.Fail(len(acts), err)
	}
	return f.Backend.Requeue(ctx, acts)
}

func (f *faulty) SetPriority(ctx context.Context, all []backends.PriorityChange) backends.Errors {
	ids := make([]backends.ID, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	if err := f.called("rank %v", ids); err != nil {
		return backends.Fail(len(all), err)
	}
	return f.Backend.SetPriority(ctx, all)
}

func (f *faulty) Abilities() backends.Abilities {
	able := f.Backend.Abilities()
	pin := able.Pin
	able.Pin = func(ctx context.Context, pins []backends.Pin) backends.Errors {
		if err := f.called("pin %v", pins[0].ID); err != nil {
			return backends.Fail(len(pins), err)
		}
		return pin(ctx, pins)
	}
	if f.reconciles {
		able.Reconcile = func(context.Context) error { return f.called("reconcile") }
	}
	return able
}

// due is a farm on which the next cycle preempts a slot for job 5 of alice.
func due(t *testing.T) (*life, *faulty, backends.ID) {
	l := newLife(t)
	f := &faulty{Backend: l.world}
	l.engine.Backend = f
	l.full(backends.Spec{}, simulate.Work{Takes: time.Hour})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: time.Hour})
	l.run(time.Minute)
	l.world.Advance(l.world.Now().Add(20 * time.Second))
	f.calls = nil
	return l, f, b
}

func requeues(l *life) int {
	l.Helper()
	farm, err := l.world.Snapshot(context.Background(), start)
	if err != nil {
		l.Fatal(err)
	}
	n := 0
	for _, j := range farm.Jobs {
		n += j.Requeues
	}
	return n
}

// TestQueueDiesBetweenTwoCalls kills the queue before each call of a cycle in
// turn: what was intended is on disk, nothing else is tried, and once the queue
// is back the beneficiary runs, with no victim too many.
func TestQueueDiesBetweenTwoCalls(t *testing.T) {
	for n := 1; ; n++ {
		l, f, b := due(t)
		f.fail = func(_ string, call int) error {
			if call >= n {
				return fmt.Errorf("%w: it died", backends.ErrUnreachable)
			}
			return nil
		}
		r, err := l.engine.Cycle(context.Background(), l.world.Now)
		if err == nil {
			if n < 5 {
				t.Errorf("a whole cycle of only %d calls: %v", n, f.calls)
			}
			break
		}
		if !errors.Is(err, backends.ErrUnreachable) {
			t.Errorf("call %d: error %v, want one that exits 75", n, err)
		}
		if len(f.calls) != n {
			t.Errorf("call %d: the engine went on: %v", n, f.calls)
		}
		checkAudit(t, l, &r)
		f.fail = nil
		l.run(3 * time.Minute)
		if j := l.job(b); j.State != backends.Running {
			t.Errorf("call %d: the beneficiary is %v after the queue came back", n, j.State)
		}
		if got := requeues(l); got != 1 {
			t.Errorf("call %d: %d jobs were requeued for one slot", n, got)
		}
	}
}

// checkAudit compares what the ledger says of each action with what was done.
func checkAudit(t *testing.T, l *life, r *pba.Result) {
	t.Helper()
	for i, a := range r.Plan.Actions {
		acts, err := l.ledger.Acts(context.Background(), a.Job, 100)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(acts, func(x ledger.Act) bool {
			return x.Verb == a.Verb && x.Reason == a.Reason && x.Snapshot.Equal(r.State.Farm.At) && x.Outcome == r.Outcomes[i].Result
		})
		if !found {
			t.Errorf("R27: no audit row of %s job %v (%s): %+v", a.Verb, a.Job, r.Outcomes[i].Result, acts)
		}
	}
}

func TestStaleSnapshotIsNotActedOn(t *testing.T) { // R8
	l, f, _ := due(t)
	m, err := l.ledger.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	m.LastAction = l.world.Now().Add(time.Second)
	if _, err := l.ledger.Intend(context.Background(), ledger.Cycle{}, plan.Plan{Memory: m}); err != nil {
		t.Fatal(err)
	}
	r, err := l.engine.Cycle(context.Background(), l.world.Now)
	if err != nil || len(r.Plan.Actions) != 0 || !strings.Contains(r.Note, "older than the last action") {
		t.Errorf("%v, note %q, actions %v", err, r.Note, r.Plan.Actions)
	}
	if fmt.Sprint(f.calls) != "[farm]" {
		t.Errorf("calls %v", f.calls)
	}
	l.world.Advance(l.world.Now().Add(time.Second))
	if r, err = l.engine.Cycle(context.Background(), l.world.Now); err != nil || len(r.Plan.Actions) == 0 {
		t.Errorf("a snapshot of that very instant: %v, %q", err, r.Note)
	}
	if m, _ = l.ledger.Load(context.Background()); m.LastAction.Before(r.State.Farm.At) {
		t.Errorf("last action %v, but the cycle acted at %v", m.LastAction, r.State.Farm.At)
	}
}

// R7: where the queuing system itself preempts jobs of a managed queue, cycles observe, unless
// the config says otherwise.
func TestCyclesObserveWhereTheQueuePreemptsByItself(t *testing.T) {
	for name, x := range map[string]struct {
		preempting, queues []string
		act, observes      bool
	}{
		"a managed queue":        {[]string{"main"}, []string{"main"}, false, true},
		"one of all":             {[]string{"main"}, nil, false, true},
		"one that isn't managed": {[]string{"other"}, []string{"main"}, false, false},
		"none":                   {nil, nil, false, false},
		"it acts all the same":   {[]string{"main"}, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, f, _ := due(t)
			l.rules.Policy.Queues, l.rules.BesideOthers = x.queues, x.act
			f.preempting = x.preempting
			var published ledger.Standing
			l.engine.Publish = func(_ context.Context, s ledger.Standing) error { published = s; return nil }
			r, err := l.engine.Cycle(context.Background(), l.world.Now)
			if err != nil {
				t.Fatal(err)
			}
			if acted := fmt.Sprint(f.calls) != "[farm]"; acted == x.observes && len(x.queues) == 0 {
				t.Errorf("calls %v", f.calls)
			}
			warned := slices.ContainsFunc(r.Plan.Warnings, func(w string) bool { return strings.Contains(w, "pba.own_preemption") })
			if r.Rules.Observe != x.observes || warned != x.observes || published.Observe != x.observes {
				t.Errorf("observes %t, filter observes %t, warnings %q", r.Rules.Observe, published.Observe, r.Plan.Warnings)
			}
		})
	}
}

func TestObserveModeActsOnNothing(t *testing.T) { // R7
	l, f, b := due(t)
	l.rules.Observe = true
	var published ledger.Standing
	l.engine.Publish = func(_ context.Context, s ledger.Standing) error { published = s; return nil }
	r, err := l.engine.Cycle(context.Background(), l.world.Now)
	if err != nil || len(r.Plan.Actions) < 3 {
		t.Fatalf("%v, actions %v", err, r.Plan.Actions)
	}
	if fmt.Sprint(f.calls) != "[farm]" {
		t.Errorf("calls %v", f.calls)
	}
	if !published.Observe {
		t.Error("the filter still lowers jobs")
	}
	m, err := l.ledger.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Reclaims) != 0 || m.Jobs[b].Written.Level() == backends.LevelHandOver {
		t.Errorf("it remembers what was never done: %+v %+v", m.Reclaims, m.Jobs[b])
	}
	if m.Jobs[b].Clock < time.Minute {
		t.Errorf("the clock stands at %v", m.Jobs[b].Clock)
	}
	acts, err := l.ledger.Acts(context.Background(), b, 1)
	if err != nil || len(acts) != 1 || acts[0].Outcome != ledger.Would || acts[0].Mode != ledger.Observe {
		t.Errorf("audit %+v %v", acts, err)
	}
	l.rules.Observe = false
	l.run(40 * time.Second)
	if j := l.job(b); j.State != backends.Running || requeues(l) != 1 {
		t.Errorf("live again: the beneficiary is %v, %d requeues", j.State, requeues(l))
	}
}

func TestPausedReadsNothing(t *testing.T) { // R7
	l, f, _ := due(t)
	l.rules.Paused = true
	r, err := l.engine.Cycle(context.Background(), l.world.Now)
	if err != nil || len(f.calls) != 0 || !strings.Contains(r.Note, "pba resume") {
		t.Errorf("%v, calls %v, note %q", err, f.calls, r.Note)
	}
}

// A paused engine begins nothing, and reconciles a queue that can't end by itself what
// was begun. If the queue is out of reach, the engine still publishes to the filter.
func TestPausedReconciles(t *testing.T) { // R7
	for _, fails := range []error{nil, backends.ErrUnreachable} {
		l, f, _ := due(t)
		published := 0
		l.engine.Publish = func(context.Context, ledger.Standing) error { published++; return nil }
		f.fail = func(string, int) error { return fails }
		f.reconciles = true
		l.rules.Paused = true
		_, err := l.engine.Cycle(context.Background(), l.world.Now)
		if !errors.Is(err, fails) || fmt.Sprint(f.calls) != "[reconcile]" || published != 1 {
			t.Errorf("%v, want %v; calls %v, the filter was notified %d times", err, fails, f.calls, published)
		}
		f.calls, l.rules.Observe = nil, true
		if _, err := l.engine.Cycle(context.Background(), l.world.Now); err != nil || len(f.calls) != 0 {
			t.Errorf("observing: %v, calls %v", err, f.calls)
		}
	}
}

// TestCyclePartsAreRecorded: what takes long can be seen.
func TestCyclePartsAreRecorded(t *testing.T) {
	l, _, _ := due(t)
	if _, err := l.engine.Cycle(context.Background(), l.world.Now); err != nil {
		t.Fatal(err)
	}
	c, ok, err := l.ledger.LastCycle(context.Background())
	if err != nil || !ok || c.Read.IsZero() || c.Read.Before(c.Started) || c.Planned.Before(c.Read) || c.Finished.Before(c.Planned) {
		t.Errorf("%+v %v %v", c, ok, err)
	}
}

func TestPreviewChangesNothing(t *testing.T) { // R7
	l, f, _ := due(t)
	before, err := l.ledger.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	last, _, _ := l.ledger.LastCycle(context.Background())
	r, err := l.engine.Preview(context.Background(), l.world.Now)
	if err != nil || len(r.Plan.Actions) < 3 {
		t.Fatalf("%v, actions %v", err, r.Plan.Actions)
	}
	after, _ := l.ledger.Load(context.Background())
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("memory changed:\n%s", d)
	}
	if again, _, _ := l.ledger.LastCycle(context.Background()); again != last || fmt.Sprint(f.calls) != "[farm]" {
		t.Errorf("cycle %+v, calls %v", again, f.calls)
	}
}

func TestRefusedActSkipsRestOfReclaim(t *testing.T) {
	l, f, b := due(t)
	f.fail = func(call string, _ int) error {
		if strings.HasPrefix(call, "pin") {
			return fmt.Errorf("%w: not you", backends.ErrDenied)
		}
		return nil
	}
	r, err := l.engine.Cycle(context.Background(), l.world.Now)
	if err != nil {
		t.Fatal(err)
	}
	if failed := r.Failed(); failed == nil || !strings.Contains(failed.Error(), "not you") {
		t.Errorf("Failed() = %v", failed)
	}
	if requeues(l) != 0 {
		t.Errorf("a job was requeued for a beneficiary that could not be pinned: %v", f.calls)
	}
	checkAudit(t, l, &r)
	f.fail = nil
	l.run(4 * time.Minute)
	if j := l.job(b); j.State != backends.Running || requeues(l) != 1 {
		t.Errorf("later: %v, %d requeues", j.State, requeues(l))
	}
}

func TestRanksGoInOneCall(t *testing.T) {
	l := newLife(t)
	f := &faulty{Backend: l.world}
	l.full(backends.Spec{}, simulate.Work{Takes: time.Hour})
	l.engine.Backend = f
	for range 2 {
		l.submit("alice", "A", backends.Spec{}, simulate.Work{})
	}
	l.world.Advance(l.world.Now().Add(20 * time.Second))
	l.cycle()
	if fmt.Sprint(f.calls) != "[farm rank [5 6]]" {
		t.Errorf("calls %v", f.calls)
	}
}

func TestCycleThatIsOutOfTimeStopsBetweenActions(t *testing.T) { // R6
	l, f, b := due(t)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	r, err := l.engine.Cycle(ctx, l.world.Now)
	if err != nil || !strings.Contains(r.Note, "time is up") || fmt.Sprint(f.calls) != "[farm]" {
		t.Errorf("%v, note %q, calls %v", err, r.Note, f.calls)
	}
	checkAudit(t, l, &r)
	l.run(4 * time.Minute)
	if j := l.job(b); j.State != backends.Running || requeues(l) != 1 {
		t.Errorf("later: %v, %d requeues", j.State, requeues(l))
	}
}

// TestRestorePutsEverythingBack stops the engine in the middle of two reclaims.
func TestRestorePutsEverythingBack(t *testing.T) { // R7
	l := newLife(t)
	l.rules.Policy.GracePeriod = 30 * time.Second
	slow := simulate.Work{Takes: time.Hour, KillDelay: 30 * time.Second}
	for range 3 {
		l.submit("bob", "B", backends.Spec{}, slow)
	}
	suspended := l.submit("bob", "B", backends.Spec{Description: backends.Tag{Preempt: backends.PreemptSuspend}.String()}, slow)
	l.run(2 * time.Minute)
	l.submit("alice", "A", backends.Spec{Slots: 2}, simulate.Work{Takes: time.Hour})
	l.until(plan.Acted)
	r, err := l.engine.Restore(context.Background(), l.world.Now)
	if err != nil || r.Failed() != nil || len(r.Plan.Actions) == 0 {
		t.Fatalf("%v, %v, %v", err, r.Failed(), r.Plan.Actions)
	}
	farm, err := l.world.Snapshot(context.Background(), start)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range farm.Jobs {
		if !j.HeldUntil.IsZero() || j.State != backends.Running && (len(j.Pinned) > 0 || j.Priority.Level() > backends.LevelNormal) {
			t.Errorf("after restore: %+v", j)
		}
	}
	if j := l.job(suspended); j.State != backends.Running {
		t.Errorf("the suspended job is %v, want it running in the slot that is still free", j.State)
	}
	m, err := l.ledger.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, rc := range m.Reclaims {
		if rc.Phase.Open() {
			t.Errorf("reclaim %d is still %s", rc.ID, rc.Phase)
		}
	}
	if again, err := l.engine.Restore(context.Background(), l.world.Now); err != nil || len(again.Plan.Actions) != 0 {
		t.Errorf("a second restore finds %v, %v", again.Plan.Actions, err)
	}
}

// TestLedgerThatFailsStopsBeforeTheFirstAct: no act without its intent on disk.
func TestLedgerThatFailsStopsBeforeTheFirstAct(t *testing.T) { // R18
	l, f, _ := due(t)
	l.engine.Ledger = failing{l.engine.Ledger}
	if _, err := l.engine.Cycle(context.Background(), l.world.Now); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
	if fmt.Sprint(f.calls) != "[farm]" {
		t.Errorf("calls %v", f.calls)
	}
}

type failing struct{ pba.Ledger }

func (failing) Intend(context.Context, ledger.Cycle, plan.Plan) (int64, error) {
	return 0, errors.New("disk full")
}

func TestEndedJobsAreRecorded(t *testing.T) {
	l := newLife(t)
	id := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 50 * time.Second, ExitCode: 3})
	l.run(2 * time.Minute)
	e, err := l.ledger.EndedJob(context.Background(), id)
	if err != nil || e == nil {
		t.Fatal(e, err)
	}
	if !e.PBA || e.Job.ExitCode != 3 || e.Job.State != backends.Exited || e.Job.User != "alice" || e.Waited != 0 {
		t.Errorf("%+v", e)
	}
	if err := l.world.As(manager.By{User: "alice"}).Kill(context.Background(), []backends.ID{id}).First(); !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("killing it again: %v", err)
	}
}

// A queue may report acts that it did not do: Left checks what Restore did.
func TestRestoreIsCheckedAgainstTheQueue(t *testing.T) { // R7
	l := newLife(t)
	id := l.submit("bob", "B", backends.Spec{HeldUntil: start.Add(time.Hour)}, simulate.Work{Takes: time.Hour})
	l.engine.Backend = falseReporter{l.world}
	r, err := l.engine.Restore(t.Context(), l.world.Now)
	if err != nil || r.Failed() != nil || len(r.Plan.Actions) != 1 {
		t.Fatalf("%v, %v, %v", err, r.Failed(), r.Plan.Actions)
	}
	if left, err := l.engine.Remaining(t.Context(), &r, l.world.Now); err != nil || len(left) != 1 || left[0].Job != id || left[0].Verb != plan.Release {
		t.Errorf("left: %v, %v; want the release of job %v", left, err, id)
	}
	l.engine.Backend = l.world
	if r, err = l.engine.Restore(t.Context(), l.world.Now); err != nil || r.Failed() != nil {
		t.Fatal(err, r.Failed())
	}
	if left, err := l.engine.Remaining(t.Context(), &r, l.world.Now); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v; want nothing", left, err)
	}
}

// falseReporter reports that it released jobs, and releases none.
type falseReporter struct{ backends.Backend }

func (l falseReporter) Abilities() backends.Abilities {
	able := l.Backend.Abilities()
	able.HoldUntil = func(_ context.Context, holds []backends.HoldUntil) backends.Errors {
		return make(backends.Errors, len(holds))
	}
	return able
}
