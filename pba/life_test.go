package pba_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/allotment-hpc/allotment/pba/settings"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// start is a Monday.
var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// life is a farm under virtual time with the engine on it, on a real ledger, and
// a transcript of what happens.
type life struct {
	*testing.T
	world  *simulate.World
	engine *pba.Engine
	ledger *ledger.Ledger
	rules  pba.Rules
	now    func() time.Time // by this machine's wall clock
	text   bytes.Buffer
	shown  map[int64]plan.Phase

	skipped []plan.Skipped // of the last cycle: what repeats is shown once
}

// hooked lets a test do something between two calls of a cycle.
type hooked struct {
	backends.Backend
	beforeJobs func()
}

func (h *hooked) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	if h.beforeJobs != nil {
		h.beforeJobs()
	}
	return h.Backend.Jobs(ctx, ids)
}

// newLife returns a farm of one host of four slots; project A, alice's, has a pool
// of two of them. bob's project B has none.
func newLife(t *testing.T) *life {
	l := &life{T: t, shown: map[int64]plan.Phase{}}
	l.world = simulate.New(simulate.Config{
		Start:   start,
		Manager: manager.Config{AgeingInterval: 20 * time.Second, AgeingCap: 69},
		Hosts:   []backends.Host{{Name: "n1", Slots: 4, Memory: 16 << 30}},
	})
	l.now = func() time.Time { return l.world.Now() }
	var err error
	if l.ledger, err = ledger.Create(filepath.Join(t.TempDir(), "ledger.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.ledger.Close() })
	l.rules.Policy = settings.Default().Policy()
	l.rules.Policy.Projects = []plan.Project{{Name: "A", Group: "a"}, {Name: "B", Group: "b"}}
	l.rules.Policy.Allocations = []plan.Allocation{{ID: 1, Project: "A", Guarantee: 2}}
	l.engine = &pba.Engine{
		Backend: l.world, Ledger: l.ledger, Who: "pba",
		Rules: func(context.Context, time.Time) (pba.Rules, error) { return l.rules, nil },
		Groups: func(context.Context, []string) (map[string][]string, error) {
			return map[string][]string{"alice": {"a"}, "bob": {"b"}}, nil
		},
	}
	return l
}

func (l *life) submit(user, project string, spec backends.Spec, work simulate.Work) backends.ID {
	l.Helper()
	spec.Project, spec.Slots, spec.OneHost = project, max(spec.Slots, 1), true
	id, err := l.world.SubmitWork(manager.By{User: user}, spec, work)
	if err != nil {
		l.Fatal(err)
	}
	l.logf("%s submits job %v of project %s", user, id, project)
	return id
}

func (l *life) logf(format string, args ...any) {
	fmt.Fprintf(&l.text, "%s  %s\n", l.world.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// cycle runs one cycle and writes what it did.
func (l *life) cycle() pba.Result {
	l.Helper()
	r, err := l.engine.Cycle(context.Background(), l.now)
	if err != nil {
		l.Fatal(err)
	}
	outcomes := map[int]ledger.Outcome{}
	for _, o := range r.Outcomes {
		outcomes[o.Action] = o
	}
	if len(r.Plan.Actions) != len(outcomes) && !r.Rules.Observe {
		l.Errorf("%d actions, %d outcomes", len(r.Plan.Actions), len(outcomes))
	}
	head := false
	printLine := func(format string, args ...any) {
		if !head {
			l.logf("cycle")
			head = true
		}
		fmt.Fprintf(&l.text, "            "+format+"\n", args...)
	}
	for i, a := range r.Plan.Actions {
		printLine("%s", describe(a, outcomes[i]))
	}
	for _, s := range r.Plan.Skipped {
		if !slices.Contains(l.skipped, s) {
			printLine("left out: job %v: %s", s.Job, s.Reason)
		}
	}
	l.skipped = r.Plan.Skipped
	for _, rc := range r.Plan.Memory.Reclaims {
		if l.shown[rc.ID] != rc.Phase {
			l.shown[rc.ID] = rc.Phase
			printLine("reclaim %d is %s%s%s", rc.ID, rc.Phase, because(rc.Why), fates(rc.Victims))
		}
	}
	return r
}

func describe(a plan.Action, o ledger.Outcome) string {
	text := fmt.Sprintf("%s job %v", a.Verb, a.Job)
	if a.For != (backends.ID{}) && a.For != a.Job {
		text += fmt.Sprintf(" for job %v", a.For)
	}
	if a.Verb == plan.Rank {
		text += fmt.Sprintf(" %d (%s)", a.Priority.Value(), a.Priority.Level())
	}
	if len(a.Hosts) > 0 {
		text += " on " + strings.Join(a.Hosts, " ")
	}
	if !a.Until.IsZero() {
		text += " until " + a.Until.Format("15:04:05")
	}
	text += ": " + a.Reason + ": " + string(o.Result)
	if o.Error != "" {
		text += ", " + o.Error
	}
	return text
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func fates(victims []plan.Victim) string {
	var text string
	for _, v := range victims {
		text += strings.TrimRight(fmt.Sprintf("; victim %v (%v) %s", v.ID, v.Mode, v.Fate), " ")
		if v.Released {
			text += ", released"
		}
	}
	return text
}

// run lets time pass and runs a cycle each 20 seconds, on the beat.
func (l *life) run(d time.Duration) {
	l.Helper()
	for end := l.world.Now().Add(d); ; {
		next := l.world.Now().Truncate(20 * time.Second).Add(20 * time.Second)
		if next.After(end) {
			return
		}
		l.world.Advance(next)
		l.cycle()
	}
}

// until runs cycles until a reclaim has reached a phase.
func (l *life) until(phase plan.Phase) {
	l.Helper()
	for range 100 {
		l.run(20 * time.Second)
		for _, p := range l.shown {
			if p == phase {
				return
			}
		}
	}
	l.Fatalf("no reclaim became %s:\n%s", phase, l.text.String())
}

func (l *life) job(id backends.ID) backends.Job {
	l.Helper()
	jobs, err := l.world.Jobs(context.Background(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		l.Fatalf("job %v: %v %v", id, jobs, err)
	}
	return jobs[0]
}

// finish checks that no hold or pin is left on the queue, and writes the jobs.
func (l *life) finish() {
	l.Helper()
	farm, err := l.world.Snapshot(context.Background(), start)
	if err != nil {
		l.Fatal(err)
	}
	all := append(slices.Clone(farm.Jobs), farm.Ended...)
	slices.SortFunc(all, func(a, b backends.Job) int { return a.ID.Compare(b.ID) })
	l.logf("in the end")
	for _, j := range all {
		fmt.Fprintf(&l.text, "            job %v %s, priority %d (%s), requeued %d times\n", j.ID, j.State, j.Priority.Value(), j.Priority.Level(), j.Requeues)
		if j.State != backends.Running && !j.State.Ended() && (!j.HeldUntil.IsZero() || len(j.Pinned) > 0) {
			l.Errorf("job %v is still held or pinned: %+v", j.ID, j)
		}
	}
}

func (l *life) golden(name string) {
	l.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, l.text.Bytes(), 0o644); err != nil {
			l.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		l.Fatal(err)
	}
	if d := cmp.Diff(string(want), l.text.String()); d != "" {
		l.Errorf("%s differs; see `go test ./pba -update` and git diff:\n%s", path, d)
	}
}

// full submits bob's jobs to all four slots and lets them run for two minutes.
func (l *life) full(spec backends.Spec, work simulate.Work) []backends.ID {
	l.Helper()
	var ids []backends.ID
	for range 4 {
		ids = append(ids, l.submit("bob", "B", spec, work))
	}
	l.run(2 * time.Minute)
	return ids
}

func TestLifeHandedOver(t *testing.T) { // R14, R18, R19
	l := newLife(t)
	victims := l.full(backends.Spec{}, simulate.Work{Takes: 10 * time.Minute})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.until(plan.HandedOver)
	if j := l.job(b); j.State != backends.Running || j.Started.Sub(j.Submitted) > 100*time.Second {
		t.Errorf("R14: the beneficiary %+v did not run within threshold + 2 cycles", j)
	}
	l.run(20 * time.Minute)
	l.finish()
	if j := l.job(victims[3]); j.State != backends.Done || j.Requeues != 1 {
		t.Errorf("R17, R21: the victim is %+v, want it requeued once and done", j)
	}
	l.golden("handed_over")
}

func TestLifeSuspended(t *testing.T) { // R19, R20: the victim goes by its own mode
	l := newLife(t)
	suspend := backends.Spec{Description: backends.Tag{Preempt: backends.PreemptSuspend}.String()}
	victims := l.full(suspend, simulate.Work{Takes: 10 * time.Minute})
	l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.until(plan.HandedOver)
	if j := l.job(victims[3]); j.State != backends.Suspended {
		t.Errorf("the victim is %+v, want it suspended", j)
	}
	l.run(20 * time.Minute)
	l.finish()
	if j := l.job(victims[3]); j.State != backends.Done || j.Requeues != 0 {
		t.Errorf("the victim is %+v, want it resumed and done", j)
	}
	l.golden("suspended")
}

func TestLifeExpired(t *testing.T) { // R19: free_timeout
	l := newLife(t)
	l.rules.Policy.GracePeriod = 10 * time.Minute
	l.full(backends.Spec{}, simulate.Work{Takes: time.Hour, KillDelay: 10 * time.Minute})
	l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.until(plan.Expired)
	l.run(15 * time.Minute)
	l.finish()
	l.golden("expired")
}

func TestLifeCancelled(t *testing.T) { // R19: the beneficiary is held
	l := newLife(t)
	l.rules.Policy.GracePeriod = 30 * time.Second
	l.full(backends.Spec{}, simulate.Work{Takes: time.Hour, KillDelay: 30 * time.Second})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.until(plan.Acted)
	if err := l.world.As(manager.By{User: "alice"}).Hold(context.Background(), []backends.ID{b}).First(); err != nil {
		t.Fatal(err)
	}
	l.logf("alice holds job %v", b)
	l.until(plan.Cancelled)
	l.run(time.Minute)
	l.finish()
	l.golden("cancelled")
}

func TestLifeVictimGoneBeforeTheAct(t *testing.T) { // R18
	l := newLife(t)
	victims := l.full(backends.Spec{}, simulate.Work{Takes: time.Hour})
	l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	h := &hooked{Backend: l.world}
	h.beforeJobs = func() {
		l.logf("job %v ends by itself", victims[3])
		l.world.End(victims[3], 0)
	}
	l.engine.Backend = h
	l.until(plan.HandedOver)
	h.beforeJobs = nil
	l.run(time.Minute)
	l.finish()
	for _, id := range victims {
		if j := l.job(id); j.Requeues != 0 {
			t.Errorf("job %v was preempted although a slot came free by itself: %+v", id, j)
		}
	}
	l.golden("gone_before_the_act")
}

func TestLifeBeneficiaryRunsInAnothersSlots(t *testing.T) { // R18: then its own victim is preempted, too, for the other
	l := newLife(t)
	l.rules.Policy.GracePeriod = time.Second
	l.full(backends.Spec{}, simulate.Work{Takes: time.Hour, KillDelay: time.Second})
	first := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	second := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	h := &hooked{Backend: l.world}
	reads := 0
	h.beforeJobs = func() {
		if reads++; reads != 2 {
			return
		}
		err := l.world.SetPriority(context.Background(), []backends.PriorityChange{{ID: second, Priority: backends.At(backends.LevelHandOver, 400)}})
		if err.First() != nil {
			t.Error(err)
		}
		l.world.Advance(l.world.Now().Add(2 * time.Second)) // what the first one's victim leaves comes free now
		if j := l.job(second); j.State != backends.Running {
			t.Errorf("the second beneficiary is %v, it should have been quicker", j.State)
		}
	}
	l.engine.Backend = h
	l.run(2 * time.Minute)
	for _, id := range []backends.ID{first, second} {
		if j := l.job(id); j.State != backends.Running {
			t.Errorf("job %v is %v", id, j.State)
		}
	}
	if n := requeues(l); n != 2 {
		t.Errorf("%d jobs were preempted for two", n)
	}
}

func TestLifeBeneficiaryKilledAfterIt(t *testing.T) { // R19: the victim is released at once
	l := newLife(t)
	l.rules.Policy.GracePeriod = 30 * time.Second
	victims := l.full(backends.Spec{}, simulate.Work{Takes: time.Hour, KillDelay: 30 * time.Second})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	l.until(plan.Acted)
	l.world.Advance(l.world.Now().Add(5 * time.Second))
	if err := l.world.As(manager.By{User: "alice"}).Kill(context.Background(), []backends.ID{b}).First(); err != nil {
		t.Fatal(err)
	}
	l.logf("alice kills job %v", b)
	l.run(2 * time.Minute)
	l.finish()
	if j := l.job(victims[3]); j.State != backends.Running {
		t.Errorf("the victim is %+v, want it running again", j)
	}
	l.golden("beneficiary_killed")
}

func TestNoVictimForKilledBeneficiary(t *testing.T) { // R18
	l := newLife(t)
	victims := l.full(backends.Spec{}, simulate.Work{Takes: time.Hour})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	h := &hooked{Backend: l.world}
	h.beforeJobs = func() {
		h.beforeJobs = nil
		if err := l.world.As(manager.By{User: "alice"}).Kill(context.Background(), []backends.ID{b}).First(); err != nil {
			t.Error(err)
		}
	}
	l.engine.Backend = h
	l.until(plan.Cancelled)
	l.run(time.Minute)
	for _, id := range victims {
		if j := l.job(id); j.State != backends.Running || j.Requeues != 0 {
			t.Errorf("job %v was preempted for a job that was killed before the act: %+v", id, j)
		}
	}
}

// refusing is a queue that says when it considered a job, and whose reason changes between
// a plan and its acts.
type refusing struct {
	backends.Backend
	refused bool
}

func (q *refusing) Abilities() backends.Abilities {
	able := q.Backend.Abilities()
	able.Considers = true
	return able
}

func (q *refusing) Snapshot(ctx context.Context, since time.Time) (*backends.Snapshot, error) {
	farm, err := q.Backend.Snapshot(ctx, since)
	if err == nil {
		for i := range farm.Jobs {
			farm.Jobs[i].Considered = farm.At
		}
	}
	return farm, err
}

func (q *refusing) Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error) {
	jobs, err := q.Backend.Jobs(ctx, ids)
	for i := range jobs {
		if q.refused && jobs[i].State == backends.Pending {
			jobs[i].Wait, jobs[i].Reason = backends.WaitOther, "AssocGrpCpuLimit"
		}
	}
	return jobs, err
}

func TestNoVictimForBeneficiaryThatTheQueueRefusesMeanwhile(t *testing.T) { // R32
	l := newLife(t)
	victims := l.full(backends.Spec{}, simulate.Work{Takes: time.Hour})
	b := l.submit("alice", "A", backends.Spec{}, simulate.Work{Takes: 5 * time.Minute})
	q := &refusing{Backend: l.world, refused: true}
	l.engine.Backend = q
	l.until(plan.Cancelled)
	for _, id := range victims {
		if j := l.job(id); j.State != backends.Running || j.Requeues != 0 {
			t.Errorf("job %v was preempted for a job that the queue would not start: %+v", id, j)
		}
	}
	q.refused = false
	l.run(10 * time.Minute)
	if j := l.job(b); j.Started.IsZero() {
		t.Errorf("later: %+v", j)
	}
}
