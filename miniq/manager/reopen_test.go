package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func TestReopen(t *testing.T) {
	b := newBench(t, Config{}, 1)
	first := b.submit(spec(1))
	b.must(Ended{ID: first, Run: 1, ExitCode: 3, Self: true})
	runs, waits := b.submit(spec(1)), b.submit(spec(1))
	b.after(time.Hour)
	b.must(Reopen{user, []backends.ID{first}})
	if got := effectOf[Reopened](b); got != (Reopened{first, user.User}) {
		t.Errorf("reported as %+v", got)
	}
	j := b.job(first)
	if j.State != backends.Pending || j.Requeues != 1 || j.ExitCode != 0 || !j.Ended.IsZero() || !j.Submitted.Equal(b.now) {
		t.Errorf("it is %+v", j)
	}
	if n := b.m.Ended(); n != 0 {
		t.Errorf("%d jobs count as ended", n)
	}
	b.m = b.restored()
	b.order("a3 a1") // it is the last one
	b.ends(runs, 0)
	b.starts(waits)
	b.ends(waits, 0)
	if s := effectOf[StartRun](b); s.ID != first || s.Run != 2 {
		t.Errorf("started: %+v", s)
	}
	b.ends(first, 0)
	b.state(first, backends.Done)
	b.must(Reopen{admin, []backends.ID{first}}) // a done one, too, and more than once
	if s := effectOf[StartRun](b); s.Run != 3 || s.Requeues != 2 {
		t.Errorf("started: %+v", s)
	}
}

// restored returns the queue as its state has it.
func (b *bench) restored() *Manager {
	b.Helper()
	state, err := b.m.State()
	if err != nil {
		b.Fatal(err)
	}
	m, err := Restore(state)
	if err != nil {
		b.Fatal(err)
	}
	again, err := m.State()
	if err != nil || string(again) != string(state) {
		b.Fatalf("the restored state differs: %v", err)
	}
	return m
}

func TestReopenRefuses(t *testing.T) {
	b := newBench(t, Config{MaxJobs: 4}, 1)
	runs := b.submit(spec(1))
	ended := func(s backends.Spec) backends.ID {
		id := b.submit(s)
		b.must(Kill{user, []backends.ID{id}})
		return id
	}
	never, terminal, after := spec(1), spec(1), spec(1)
	never.NoRequeue, terminal.Interactive, after.After = true, true, "done(1)"
	plain := ended(spec(1))
	for _, c := range []struct {
		by   By
		id   backends.ID
		is   error
		says string
	}{
		{user, runs, backends.ErrWrongState, "has not ended"},
		{other, plain, backends.ErrDenied, "another user's"},
		{user, ended(never), backends.ErrDenied, "must not be requeued"},
		{user, ended(terminal), backends.ErrDenied, "at a terminal"},
		{user, ended(after), backends.ErrWrongState, "ended before the jobs that it was to wait for"},
		{user, backends.ID{Job: 99}, backends.ErrUnknownJob, "99"},
	} {
		b.do(Reopen{c.by, []backends.ID{c.id}})
		if err := b.last.Errors.First(); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("job %v: %v, want %q", c.id, err, c.says)
		}
	}
	for range 3 {
		b.submit(spec(1))
	}
	b.do(Reopen{user, []backends.ID{plain}})
	if err := b.last.Errors.First(); !errors.Is(err, backends.ErrDenied) || !strings.Contains(err.Error(), "max_jobs") {
		t.Errorf("beyond the number of a user's jobs: %v", err)
	}
	b.must(Reopen{admin, []backends.ID{plain}})
}

// An array's elements that have ended are reopened, and the array ends anew; jobs that were told of
// its end stay told.
func TestReopenArray(t *testing.T) {
	b := newBench(t, Config{}, 4)
	array := spec(1)
	array.Array = &backends.Array{Indices: []int{1, 2, 3}}
	id := b.submit(array)
	element := func(i int) backends.ID { return backends.ID{Job: id.Job, Index: i} }
	b.ends(element(1), 5)
	b.ends(element(2), 0)
	b.must(Reopen{user, []backends.ID{id}}) // 3 runs on
	b.state(element(1), backends.Running)
	b.state(element(2), backends.Running)
	if n := b.m.Unended(id); n != 3 {
		t.Errorf("%d have not ended", n)
	}
	waits := spec(1)
	waits.After = "done(1)"
	after := b.submit(waits)
	for i := 1; i <= 3; i++ {
		b.waits(after, backends.WaitDependency)
		b.ends(element(i), 0)
	}
	if whole := effectOf[Finished](b).Array; whole == nil || whole.State != backends.Done {
		t.Errorf("the array ended as %+v", whole)
	}
	b.state(after, backends.Running)
	b.must(Reopen{user, []backends.ID{element(2)}})
	b.ends(after, 1)
	b.must(Reopen{user, []backends.ID{after}}) // though job 1 is not done now
	b.state(after, backends.Running)
	if s, _ := b.m.Spec(after); s.After != "" {
		t.Errorf("it waits for %s", s.After)
	}
	b.m = b.restored()
	b.ends(element(2), 7)
	if whole := effectOf[Finished](b).Array; whole == nil || whole.State != backends.Exited || whole.ExitCode != 7 {
		t.Errorf("the array ended as %+v", whole)
	}
}

// A level that the policy gave once is not kept.
func TestReopenedPriority(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1))
	s := spec(1)
	s.Priority = backends.At(backends.LevelNext, 20)
	id := b.submit(s)
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelPBA, 30)}}})
	b.must(Kill{user, []backends.ID{id}})
	b.must(Reopen{user, []backends.ID{id}})
	if got := b.job(id).Priority; got != backends.At(backends.LevelNormal, 20) {
		t.Errorf("it ranks as %v %d", got.Level(), got.Value())
	}
}
