package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func (b *bench) refuses(e Event, want error) {
	b.Helper()
	b.do(e)
	if err := b.last.Errors[0]; !errors.Is(err, want) {
		b.Errorf("%T: %v, want %v", e, err, want)
	}
}

// TestKill: pending jobs at once, running ones by TERM and KILL, twice is no
// failure, an ended job is.
func TestKill(t *testing.T) {
	b := newBench(t, Config{}, 1)
	running, pending := b.submit(spec(1)), b.submit(spec(1))
	kill := func(id backends.ID) Event { return Kill{user, []backends.ID{id}} }
	b.refuses(Kill{other, []backends.ID{running}}, backends.ErrDenied)
	b.must(kill(pending))
	if j := effectOf[Finished](b).Job; j.ID != pending || j.State != backends.Exited {
		t.Fatalf("finished %+v", j)
	}
	b.refuses(kill(pending), backends.ErrWrongState)
	b.refuses(kill(backends.ID{Job: 99}), backends.ErrUnknownJob)
	b.must(kill(running)) // before it is known to have started
	if k := effectOf[KillRun](b); k != (KillRun{running, 1, 10 * time.Second, backends.Checkpoint{}, false}) {
		t.Fatalf("%+v", k)
	}
	b.state(running, backends.Running)
	b.must(kill(running))
	if len(b.effects) != 0 {
		t.Errorf("killed again: %v", b.effects)
	}
	b.ends(running, 0) // it traps SIGTERM
	if j := b.job(running); j.State != backends.Exited || j.ExitCode != 143 {
		t.Errorf("%v with %d", j.State, j.ExitCode)
	}
}

// TestKillNow: without a grace, also where a job has one by now, and once.
func TestKillNow(t *testing.T) {
	b := newBench(t, Config{}, 2)
	fresh, dying, pending := b.submit(spec(1)), b.submit(spec(1)), b.submit(spec(1))
	now := func(id backends.ID) Event { return KillNow{user, []backends.ID{id}} }
	b.must(Kill{user, []backends.ID{dying}})
	for _, id := range []backends.ID{fresh, dying} {
		b.must(now(id))
		if k := effectOf[KillRun](b); k != (KillRun{id, 1, 0, backends.Checkpoint{}, false}) {
			t.Errorf("%+v", k)
		}
		b.state(id, backends.Running) // its slots are taken until it has ended
		b.must(now(id))
		b.must(Kill{user, []backends.ID{id}})
		if len(b.effects) != 0 {
			t.Errorf("killed again: %v", b.effects)
		}
	}
	b.refuses(KillNow{other, []backends.ID{fresh}}, backends.ErrDenied)
	b.must(now(pending))
	b.state(pending, backends.Exited)
	b.refuses(now(pending), backends.ErrWrongState)
}

// TestOwnEndBeforeKillCounts: a run that ended before our signal reached it keeps its own status.
func TestOwnEndBeforeKillCounts(t *testing.T) {
	b := newBench(t, Config{}, 2)
	kill, requeue, fails := b.submit(spec(1)), b.submit(spec(1)), b.submit(spec(1))
	b.must(Kill{user, []backends.ID{kill}})
	b.must(Requeue{user, []backends.Act{{ID: requeue}}})
	b.must(Ended{ID: kill, Run: 1, Self: true})
	b.state(kill, backends.Done)
	b.must(Ended{ID: requeue, Run: 1, Self: true})
	b.state(requeue, backends.Done)
	b.must(Requeue{user, []backends.Act{{ID: fails}}})
	b.must(Ended{ID: fails, Run: 1, ExitCode: 1, Self: true})
	if j := b.job(fails); j.Requeues != 1 {
		t.Errorf("a requeued job whose run failed: %v, %d requeues", j.State, j.Requeues)
	}
}

// TestRunLimit: TERM at the limit, counted without the time it was suspended.
func TestRunLimit(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(backends.Spec{Slots: 1, RunLimit: time.Minute})
	b.after(30 * time.Second)
	b.must(Suspend{user, []backends.Act{{ID: id}}})
	b.after(time.Hour)
	b.must(Resume{user, []backends.ID{id}})
	b.after(29 * time.Second)
	if len(b.m.Runs()) != 1 || b.m.Runs()[0].Killing {
		t.Fatal("killed too early")
	}
	b.after(time.Second)
	if k := effectOf[KillRun](b); k.ID != id || k.Grace != 10*time.Second {
		t.Fatalf("%+v", k)
	}
	b.ends(id, 143)
	if j := b.job(id); j.State != backends.Exited || j.ExitCode != 143 || !strings.Contains(j.Reason, "run limit of 1m0s") {
		t.Errorf("%+v", j)
	}
}

// TestRequeue (R19): same ID, same place, one more requeue, slots free only when
// its processes are gone; the engine's hold and mark at once.
func TestRequeue(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	later := b.submit(spec(1))
	started := b.job(id).Started
	act := backends.Act{ID: id, Started: started.Add(-time.Second), Grace: 3 * time.Second, Mark: "r7", Notice: "requeued for chipA"}
	b.refuses(Requeue{admin, []backends.Act{act}}, backends.ErrWrongState)
	act.Started = started
	b.refuses(Requeue{user, []backends.Act{act}}, backends.ErrDenied)
	b.must(Requeue{admin, []backends.Act{act}})
	if k, n := effectOf[KillRun](b), effectOf[Notice](b); k.Grace != 3*time.Second || n.Text != "requeued for chipA" {
		t.Fatalf("%+v %+v", k, n)
	}
	if j := b.job(id); j.State != backends.Running || j.Mark != "r7" {
		t.Fatalf("%+v", j)
	}
	b.refuses(Requeue{admin, []backends.Act{act}}, backends.ErrWrongState)
	b.refuses(Suspend{admin, []backends.Act{act}}, backends.ErrWrongState)
	b.ends(id, 0) // saved its state on SIGTERM
	if b.starts(id); b.job(id).Requeues != 1 {
		t.Fatalf("%+v", b.job(id))
	}
	if s := effectOf[StartRun](b); s.Requeues != 1 || s.Run != 2 || !s.At.After(started) {
		t.Errorf("%+v", s)
	}
	b.waits(later, backends.WaitResources)

	// Killed while it is being requeued, it ends.
	b.must(Requeue{user, []backends.Act{{ID: id}}})
	b.must(Kill{user, []backends.ID{id}})
	b.ends(id, 143)
	b.state(id, backends.Exited)
}

func TestRequeueRefused(t *testing.T) {
	b := newBench(t, Config{}, 2)
	stays, talks, waits := b.submit(backends.Spec{NoRequeue: true}), b.submit(backends.Spec{Interactive: true}), b.submit(spec(1))
	b.refuses(Requeue{admin, []backends.Act{{ID: stays}}}, backends.ErrDenied)
	b.refuses(Requeue{admin, []backends.Act{{ID: talks}}}, backends.ErrDenied)
	b.refuses(Requeue{admin, []backends.Act{{ID: waits}}}, backends.ErrWrongState)
}

// TestRequeueUntil (R21): the engine's hold; its owner can't lift it.
func TestRequeueUntil(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	b.must(Requeue{admin, []backends.Act{{ID: id, Until: b.now.Add(10 * time.Minute)}}})
	b.ends(id, 143)
	b.starts()
	b.waits(id, backends.WaitTime)
	b.refuses(Release{user, []backends.ID{id}}, backends.ErrWrongState)
	b.refuses(HoldUntil{user, []backends.HoldUntil{{ID: id}}}, backends.ErrDenied)
	b.must(HoldUntil{admin, []backends.HoldUntil{{ID: id, Until: b.now.Add(time.Hour)}}})
	b.after(time.Hour - time.Second)
	b.waits(id, backends.WaitTime)
	b.after(time.Second)
	b.starts(id)
	b.must(Requeue{admin, []backends.Act{{ID: id, Until: b.now.Add(10 * time.Minute)}}})
	b.ends(id, 143)
	b.must(HoldUntil{admin, []backends.HoldUntil{{ID: id}}})
	b.starts(id)
}

// TestRequeueSuspended: a suspended job can be requeued; its memory is free when
// its processes are gone.
func TestRequeueSuspended(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(backends.Spec{Memory: 3 << 30})
	b.must(Suspend{admin, []backends.Act{{ID: id}}})
	other := b.submit(backends.Spec{Memory: 2 << 30})
	b.waits(other, backends.WaitResources)
	b.must(Requeue{admin, []backends.Act{{ID: id, Until: b.now.Add(time.Minute)}}})
	b.state(id, backends.Suspended)
	b.starts()
	b.ends(id, 143)
	b.starts(other)
}

// TestSuspend: the slots are free in that very step, after the stop; never the memory.
func TestSuspend(t *testing.T) {
	b := newBench(t, Config{}, 2)
	id := b.submit(backends.Spec{Slots: 2, Memory: 5 << 30})
	big := b.submit(backends.Spec{Slots: 1, Memory: 4 << 30})
	small := b.submit(backends.Spec{Slots: 1, Memory: 3 << 30})
	b.must(Suspend{user, []backends.Act{{ID: id}}})
	b.starts(small)
	if _, ok := b.effects[0].(StopRun); !ok {
		t.Errorf("the first effect is %T", b.effects[0])
	}
	b.waits(big, backends.WaitResources)
	b.refuses(Suspend{user, []backends.Act{{ID: id}}}, backends.ErrWrongState)
	b.after(time.Hour)
	b.state(id, backends.Suspended)

	b.must(Resume{user, []backends.ID{id}}) // does not fit: it waits
	b.must(Resume{user, []backends.ID{id}})
	if j := b.job(id); j.State != backends.Suspended || !j.Resuming {
		t.Fatalf("%+v", j)
	}
	b.after(time.Minute)
	b.ends(small, 0)
	effectOf[ContinueRun](b)
	b.state(id, backends.Running)
	if j := b.job(id); !j.Started.Equal(b.now) || j.RanFor != 0 {
		t.Errorf("resumed: started %v, ran %v before", j.Started, j.RanFor)
	}
	b.must(Resume{user, []backends.ID{id}})
}

// TestRanFor counts what would be lost.
func TestRanFor(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	b.after(time.Minute)
	b.must(Suspend{user, []backends.Act{{ID: id}}})
	b.after(time.Minute)
	b.must(Resume{user, []backends.ID{id}})
	b.after(time.Minute)
	if j := b.job(id); j.RanFor != time.Minute {
		t.Errorf("ran for %v before", j.RanFor)
	}
	b.must(Requeue{user, []backends.Act{{ID: id}}})
	b.ends(id, 143)
	if j := b.job(id); j.RanFor != 0 {
		t.Errorf("a new run has %v behind it", j.RanFor)
	}
}

// TestSuspendUntil (R19, R20): the engine's suspension ends by itself; its owner
// may ask to go on, not lift it.
func TestSuspendUntil(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	act := []backends.Act{{ID: id, Until: b.now.Add(10 * time.Minute)}}
	b.refuses(Suspend{user, act}, backends.ErrDenied)
	b.must(Suspend{admin, act})
	b.must(Resume{user, []backends.ID{id}})
	b.state(id, backends.Suspended)
	b.after(10 * time.Minute)
	b.state(id, backends.Running)
	b.must(Suspend{admin, []backends.Act{{ID: id, Until: b.now.Add(10 * time.Minute)}}})
	b.must(Resume{admin, []backends.ID{id}})
	b.state(id, backends.Running)

	b.must(Suspend{admin, []backends.Act{{ID: id, Until: b.now.Add(10 * time.Minute)}}})
	b.after(10*time.Minute - 1)
	b.state(id, backends.Suspended)
	b.after(1)
	b.state(id, backends.Running)

	// What its owner stopped stays stopped when the engine's hold passes.
	b.must(Suspend{user, []backends.Act{{ID: id}}})
	b.must(HoldUntil{admin, []backends.HoldUntil{{ID: id, Until: b.now.Add(time.Minute)}}})
	b.after(time.Hour)
	b.state(id, backends.Suspended)
}

// TestSlotsAreFreeWhenStopped: the next job begins when the run has stopped, or after StopWait
// where its node says nothing, and not when the stop was decided.
func TestSlotsAreFreeWhenStopped(t *testing.T) {
	suspended := func(cfg Config) (b *bench, id, next backends.ID) {
		b = newBench(t, cfg, 1)
		id, next = b.submit(spec(1)), b.submit(spec(1))
		b.must(Suspend{admin, []backends.Act{{ID: id, Until: b.now.Add(time.Minute)}}})
		return b, id, next
	}
	b, _, next := suspended(Config{})
	b.starts(next)

	wait := Config{StopWait: 5 * time.Second}
	b, id, next := suspended(wait)
	b.state(next, backends.Pending)
	b.state(id, backends.Suspended)
	b.refuses(Stopped{id, 2}, backends.ErrWrongState)
	b.after(time.Second)
	b.must(Stopped{id, 1})
	b.starts(next)
	b.must(Stopped{id, 1}) // again, by a node that was started again
	b.ends(next, 0)
	if free := b.m.room(b.m.hosts[0]).slots; free != 1 {
		t.Errorf("%d slots are free", free)
	}

	b, _, next = suspended(wait)
	b.after(5*time.Second - 1)
	b.state(next, backends.Pending)
	b.after(1)
	b.state(next, backends.Running)

	// One that ends meanwhile, by itself or killed, frees its slots at once.
	b, id, next = suspended(wait)
	b.ends(id, 0)
	b.starts(next)
	b, id, next = suspended(wait)
	b.must(Kill{user, []backends.ID{id}})
	b.ends(id, 143)
	b.starts(next)

	// One that is resumed meanwhile goes on in its own slots, once it has stopped.
	b, id, next = suspended(wait)
	b.must(Resume{admin, []backends.ID{id}})
	b.state(id, backends.Suspended)
	b.must(Stopped{id, 1})
	b.state(id, backends.Running)
	b.state(next, backends.Pending)
}

// TestHold: the owner's hold and the engine's are apart.
func TestHold(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(backends.Spec{Hold: true})
	b.state(id, backends.Held)
	b.must(HoldUntil{admin, []backends.HoldUntil{{ID: id, Until: b.now.Add(time.Minute)}}})
	b.must(Release{user, []backends.ID{id}})
	b.waits(id, backends.WaitTime)
	b.must(Hold{user, []backends.ID{id}})
	b.refuses(Hold{user, []backends.ID{id}}, backends.ErrWrongState)
	b.after(time.Minute)
	b.state(id, backends.Held)
	b.must(Release{user, []backends.ID{id}})
	b.starts(id)
	b.refuses(Hold{user, []backends.ID{id}}, backends.ErrWrongState)
}

// TestPin: in force instead of its owner's list, kept over requeues, withdrawn
// by an empty one.
func TestPin(t *testing.T) {
	b := newBench(t, Config{}, 1, 1, 1)
	id := b.submit(backends.Spec{Hosts: []string{"n1"}})
	b.refuses(Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n2"}}}}, backends.ErrWrongState)
	b.must(Requeue{admin, []backends.Act{{ID: id}}})
	b.refuses(Pin{user, []backends.Pin{{ID: id, Hosts: []string{"n2"}}}}, backends.ErrDenied)
	b.do(Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n9"}}}})
	if err := b.last.Errors[0]; err == nil || !strings.Contains(err.Error(), `"n9"`) {
		t.Errorf("pinned to a host that is not there: %v", err)
	}
	b.must(Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n2"}}}})
	b.ends(id, 143)
	if j := b.job(id); j.Hosts[0].Host != "n2" || j.Pinned[0] != "n2" || j.Asked[0] != "n1" {
		t.Errorf("%+v", j)
	}
	b.must(Requeue{admin, []backends.Act{{ID: id}}})
	b.must(Pin{admin, []backends.Pin{{ID: id}}})
	b.ends(id, 143)
	if j := b.job(id); j.Hosts[0].Host != "n1" || j.Pinned != nil {
		t.Errorf("%+v", j)
	}
}

// TestPinEnds: a pin with an end is withdrawn by itself, whatever became of its host.
func TestPinEnds(t *testing.T) { // R21
	b := newBench(t, Config{}, 1, 1)
	b.submit(backends.Spec{Hosts: []string{"n1"}})
	b.submit(backends.Spec{Hosts: []string{"n2"}})
	id := b.submit(backends.Spec{})
	ends := b.m.Now().Add(10 * time.Minute)
	b.must(Pin{admin, []backends.Pin{{ID: id, Hosts: []string{"n2"}, Until: ends}}})
	if j := b.job(id); !j.PinEnds.Equal(ends) || len(j.Pinned) != 1 {
		t.Errorf("%+v", j)
	}
	b.must(NodeDown{Name: "n2"})
	b.ends(backends.ID{Job: 1}, 0)
	if j := b.job(id); j.State != backends.Pending {
		t.Errorf("it is pinned to n2, and %v on %v", j.State, j.Hosts)
	}
	b.after(10 * time.Minute)
	if j := b.job(id); j.State != backends.Running || j.Hosts[0].Host != "n1" || len(j.Pinned) != 0 || !j.PinEnds.IsZero() {
		t.Errorf("its pin is over: %+v", j)
	}
}

// TestArrays: elements are jobs; the limit holds; the array's ID means all
// elements that have not ended.
func TestArrays(t *testing.T) {
	b := newBench(t, Config{}, 4)
	id := b.submit(backends.Spec{Name: "a", Array: &backends.Array{Indices: []int{1, 2, 5, 9}, Limit: 2}})
	element := func(i int) backends.ID { return backends.ID{Job: id.Job, Index: i} }
	b.starts(element(1), element(2))
	b.waits(element(5), backends.WaitThrottle)
	b.ends(element(2), 1)
	b.starts(element(5))
	b.must(Requeue{user, []backends.Act{{ID: element(1)}}})
	b.ends(element(1), 143)
	b.starts(element(1))
	b.must(Kill{user, []backends.ID{id}})
	b.state(element(9), backends.Exited)
	if n := len(b.m.Jobs(b.now, []backends.ID{id})); n != 4 {
		t.Errorf("%d elements", n)
	}
	b.ends(element(1), 143)
	b.ends(element(5), 143)
	b.refuses(Kill{user, []backends.ID{id}}, backends.ErrWrongState)
	b.refuses(Kill{user, []backends.ID{element(3)}}, backends.ErrUnknownJob)
}

// TestStartFailed: tried again with pauses, given up after MaxStarts.
func TestStartFailed(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	run := 0
	for range 2 * MaxStarts { // where it was the host's trouble that does not count
		run++
		b.must(StartFailed{ID: id, Run: run, Reason: "disk full", Again: true})
		b.after(10 * time.Second)
		b.starts(id)
	}
	b.must(StartFailed{ID: id, Run: run + 1, Reason: "no keeper"})
	b.waits(id, backends.WaitTime)
	b.after(10 * time.Second)
	b.starts(id)
	b.must(StartFailed{ID: id, Run: run + 2, Reason: "no keeper"})
	b.after(20 * time.Second)
	b.starts(id)
	b.must(StartFailed{ID: id, Run: run + 3, Reason: "no keeper"})
	if j := b.job(id); j.State != backends.Exited || j.ExitCode != 126 || j.Requeues != 0 || !strings.Contains(j.Reason, "no keeper") {
		t.Errorf("%+v", j)
	}
}

// A pre-execution command may fail MaxPreExec times in a row, and fewer where it says so.
func TestPreExecFailed(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(spec(1))
	run := 1
	fails := func(status int) {
		b.must(Started{ID: id, Run: run}) // its keeper had begun
		b.must(StartFailed{ID: id, Run: run, Reason: "its pre-execution command ended", PreExec: status})
		run++
	}
	again := func(n int) {
		if j := b.job(id); j.Wait != backends.WaitTime || !strings.Contains(j.Reason, fmt.Sprintf("its pre-execution command failed, %d of 5 times", n)) || j.Requeues != 0 {
			t.Errorf("%+v", j)
		}
		b.after(time.Duration(n) * 10 * time.Second)
		b.starts(id)
	}
	for n := 1; n < MaxPreExec; n++ {
		fails(3)
		again(n)
	}
	fails(3)
	if j := b.job(id); j.State != backends.Exited || j.ExitCode != 3 || !strings.Contains(j.Reason, "did not begin, 5 time(s)") {
		t.Errorf("%+v", j)
	}
	id, run = b.submit(spec(1)), 1
	fails(3)
	again(1)
	b.must(Requeue{By: admin, Acts: []backends.Act{{ID: id}}}) // while it runs once more
	b.must(StartFailed{ID: id, Run: run, PreExec: 143})
	run++
	b.starts(id)
	if j := b.job(id); j.State != backends.Running || j.Requeues != 1 {
		t.Errorf("%+v", j)
	}
	fails(ExitCancel)
	if j := b.job(id); j.State != backends.Exited || j.ExitCode != ExitCancel {
		t.Errorf("%+v", j)
	}
}

// TestRunLost: exit unknown, run again only with -r.
func TestRunLost(t *testing.T) {
	b := newBench(t, Config{}, 2)
	once, again := b.submit(spec(1)), b.submit(backends.Spec{Rerunnable: true})
	b.must(NodeDown{"n1"})
	b.state(once, backends.Running)
	b.must(NodeUp{Name: "n1", Slots: 2})
	b.must(RunLost{once, 1, "its keeper was killed"})
	if j := b.job(once); j.State != backends.Exited || !strings.HasPrefix(j.Reason, "exit unknown: ") {
		t.Errorf("%+v", j)
	}
	b.must(RunLost{again, 1, "its keeper was killed"})
	b.starts(again)
	if j := b.job(again); j.Requeues != 1 {
		t.Errorf("%+v", j)
	}
	b.refuses(Ended{ID: again, Run: 1}, backends.ErrWrongState)
}

// TestRuns gives a restarted daemon what it needs.
func TestRuns(t *testing.T) {
	b := newBench(t, Config{}, 4)
	plain, stopped, killed := b.submit(spec(1)), b.submit(spec(1)), b.submit(spec(1))
	b.must(Started{plain, 1})
	b.must(Suspend{user, []backends.Act{{ID: stopped}}})
	b.must(Requeue{user, []backends.Act{{ID: killed, Grace: time.Second}}})
	runs := b.m.Runs()
	if len(runs) != 3 || !runs[0].Confirmed || runs[0].Killing || !runs[1].Stopped || !runs[2].Killing || runs[2].Grace != time.Second {
		t.Errorf("%+v", runs)
	}
}

func TestForget(t *testing.T) {
	b := newBench(t, Config{}, 4)
	id := b.submit(backends.Spec{Array: &backends.Array{Indices: []int{1, 2}}})
	b.ends(backends.ID{Job: id.Job, Index: 1}, 0)
	b.after(time.Hour)
	since := b.now
	b.ends(backends.ID{Job: id.Job, Index: 2}, 0)
	if f := b.m.Snapshot(b.now, since); len(f.Ended) != 1 || len(f.Jobs) != 0 {
		t.Errorf("%+v", f)
	}
	b.must(Forget{since})
	if f := effectOf[Forgotten](b); len(f.IDs) != 1 || f.IDs[0].Index != 1 {
		t.Errorf("%+v", f)
	}
	if n := len(b.m.Jobs(b.now, []backends.ID{id})); n != 1 {
		t.Errorf("%d elements are known", n)
	}
	b.must(Forget{since.Add(1)})
	if n := len(b.m.Jobs(b.now, []backends.ID{id})); n != 0 {
		t.Errorf("%d elements are known", n)
	}
}
