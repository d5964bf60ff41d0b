package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

func (b *bench) modify(c backends.Change, ids ...backends.ID) error {
	b.Helper()
	b.do(Modify{By: user, IDs: ids, Change: c})
	return b.last.Errors.First()
}

func ptr[T any](v T) *T { return &v }

func TestModifiedJobStartsAsModified(t *testing.T) {
	b := newBench(t, Config{}, 2)
	first := b.submit(spec(2))
	id := b.submit(spec(2))
	begin := b.now.Add(time.Hour)
	c := backends.Change{
		Name: ptr("new"), Project: ptr("chipB:layout"), Description: ptr("text"), Slots: ptr(1), Memory: ptr(int64(1 << 30)),
		RunLimit: ptr(time.Minute), Hosts: ptr([]string{"n1"}), Priority: ptr(backends.Priority(7)), Queue: ptr("low"), BeginTime: &begin,
	}
	if err := b.modify(c, id); err != nil {
		t.Fatal(err)
	}
	j := b.job(id)
	if j.Name != "new" || j.Project != "chipB" || j.Step != "layout" || j.Slots != 1 || !j.OneHost || j.Memory != 1<<30 || j.RunLimit != time.Minute ||
		len(j.Asked) != 1 || j.Priority != backends.At(backends.LevelLow, 7) || j.Queue != "low" || !j.BeginTime.Equal(begin) || j.Wait != backends.WaitTime {
		t.Errorf("%+v", j)
	}
	b.ends(first, 0)
	b.starts()
	if err := b.modify(backends.Change{BeginTime: new(time.Time)}, id); err != nil {
		t.Fatal(err)
	}
	b.starts(id)
	if s := effectOf[StartRun](b); s.Spec.Slots != 1 || s.Spec.Project != "chipB:layout" || s.Queue != "low" {
		t.Errorf("%+v", s.Spec)
	}
	b.after(time.Minute)
	if b.job(id).Reason != "is over its run limit" {
		t.Errorf("after its new run limit: %+v", b.job(id))
	}
}

func TestModifyRefuses(t *testing.T) {
	b := newBench(t, Config{}, 2)
	running := b.submit(spec(2))
	id := b.submit(spec(1))
	ranked := b.submit(spec(1))
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: ranked, Priority: backends.At(backends.LevelPBA, 120)}}})
	for _, c := range []struct {
		by     By
		id     backends.ID
		change backends.Change
		is     error
		says   string
	}{
		{user, running, backends.Change{Slots: ptr(1)}, backends.ErrWrongState, "has started"},
		{other, id, backends.Change{Slots: ptr(1)}, backends.ErrDenied, "another user's"},
		{user, backends.ID{Job: 77}, backends.Change{}, backends.ErrUnknownJob, ""},
		{user, id, backends.Change{Slots: ptr(3), Name: ptr("x")}, nil, "3 slots: the farm has 2 slots"},
		{user, id, backends.Change{Slots: ptr(0)}, nil, "0 slots"},
		{user, id, backends.Change{Queue: ptr("fast")}, nil, "no queue is named"},
		{user, id, backends.Change{Hosts: ptr([]string{"n7"})}, nil, "no host is named"},
		{user, id, backends.Change{After: ptr("done(")}, nil, "dependency"},
		{user, id, backends.Change{After: ptr("done(2)")}, nil, "can't wait for itself"},
		{user, id, backends.Change{Priority: ptr(backends.At(backends.LevelPBA, 1))}, backends.ErrDenied, "administrator"},
		{user, ranked, backends.Change{Priority: ptr(backends.Priority(5)), Name: ptr("x")}, backends.ErrWrongState, "allocation"},
	} {
		b.do(Modify{By: c.by, IDs: []backends.ID{c.id}, Change: c.change})
		err := b.last.Errors.First()
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %v and %q", c.change, err, c.is, c.says)
		}
	}
	if j := b.job(id); j.Name != "" || j.Slots != 1 {
		t.Errorf("a refused change left %+v", j)
	}
	if j := b.job(ranked); j.Name != "" {
		t.Errorf("a refused change left %+v", j)
	}
}

func TestModifiedDependency(t *testing.T) {
	b := newBench(t, Config{}, 1)
	first, second := b.submit(spec(1)), b.submit(spec(1))
	s := spec(1)
	s.After, s.Name = "done(1)", "third"
	third := b.submit(s)
	b.waits(third, backends.WaitDependency)
	if err := b.modify(backends.Change{After: ptr("exit(2)")}, third); err != nil {
		t.Fatal(err)
	}
	b.ends(first, 0)
	b.starts(second)
	b.waits(third, backends.WaitDependency)
	b.ends(second, 3)
	b.starts(third)
}

func TestModifiedArrayAndItsElements(t *testing.T) {
	b := newBench(t, Config{}, 1)
	s := spec(1)
	s.Name, s.Array = "sim", &backends.Array{Indices: []int{1, 2, 3}, Limit: 1}
	id := b.submit(s)
	element := func(i int) backends.ID { return backends.ID{Job: id.Job, Index: i} }
	if err := b.modify(backends.Change{Memory: ptr(int64(5))}, element(3)); err != nil {
		t.Fatal(err)
	}
	if err := b.modify(backends.Change{Name: ptr("renamed")}, id); err != nil { // the one that runs is left out
		t.Fatal(err)
	}
	for i, want := range []struct {
		name   string
		memory int64
	}{{"sim", 0}, {"renamed", 0}, {"renamed", 5}} {
		if j := b.job(element(i + 1)); j.Name != want.name || j.Memory != want.memory {
			t.Errorf("%s: %q, %d bytes; want %+v", j.ID, j.Name, j.Memory, want)
		}
	}
	after := spec(1)
	after.After = "ended(renamed)"
	last := b.submit(after)
	for i := range 3 {
		b.ends(element(i+1), 0)
	}
	b.starts(last)
}

// The run limit of a job that has started is raised and lowered; one that is over ends the run.
func TestRunLimitOfARunningJob(t *testing.T) {
	b := newBench(t, Config{}, 2)
	s := spec(1)
	s.RunLimit = time.Hour
	id := b.submit(s)
	s.RunLimit = 0
	unlimited := b.submit(s)
	limit := func(id backends.ID, d time.Duration) {
		t.Helper()
		if err := b.modify(backends.Change{RunLimit: &d}, id); err != nil {
			t.Fatal(err)
		}
		if got := b.job(id).RunLimit; got != d {
			t.Errorf("job %s: limit %v, want %v", id, got, d)
		}
	}
	b.after(30 * time.Minute)
	limit(id, 3*time.Hour)
	limit(unlimited, 2*time.Hour)
	b.after(time.Hour)
	b.state(id, backends.Running)
	b.do(Suspend{By: user, Acts: []backends.Act{{ID: unlimited}}})
	limit(unlimited, 100*time.Minute)
	b.state(unlimited, backends.Suspended)
	limit(unlimited, time.Hour)
	if kill := effectOf[KillRun](b); kill.ID != unlimited {
		t.Errorf("a limit that was over before it was suspended: %+v", kill)
	}
	b.ends(unlimited, 143)
	limit(id, time.Hour)
	if kill := effectOf[KillRun](b); kill.ID != id || b.job(id).Reason != "is over its run limit" {
		t.Errorf("a limit that is over: %+v, %+v", kill, b.job(id))
	}
	if err := b.modify(backends.Change{RunLimit: ptr(5 * time.Hour)}, id); !errors.Is(err, backends.ErrWrongState) {
		t.Errorf("a run that is being ended: %v", err)
	}
	b.ends(id, 143)
	fresh := b.submit(spec(1))
	for _, c := range []struct {
		by     By
		change backends.Change
		is     error
	}{
		{user, backends.Change{RunLimit: ptr(time.Hour), Name: ptr("x")}, backends.ErrWrongState},
		{user, backends.Change{}, backends.ErrWrongState},
		{other, backends.Change{RunLimit: ptr(time.Hour)}, backends.ErrDenied},
		{user, backends.Change{RunLimit: ptr(-time.Hour)}, nil},
	} {
		b.do(Modify{By: c.by, IDs: []backends.ID{fresh}, Change: c.change})
		if err := b.last.Errors.First(); err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%+v: %v", c.change, err)
		}
	}
	limit(fresh, 0)
	if err := b.modify(backends.Change{RunLimit: ptr(time.Minute)}, fresh); err != nil {
		t.Fatal(err)
	}
	b.after(2 * time.Minute)
	if b.job(fresh).Reason != "is over its run limit" {
		t.Errorf("a limit for a job that had none: %+v", b.job(fresh))
	}
}

// A run whose slots are kept for another job, by the time of its limit, gets no longer limit from
// its owner (R37).
func TestRunLimitDoesNotDelayAKeptJob(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 3)
	s := spec(1)
	s.RunLimit = time.Hour
	first, second := b.submit(s), b.submit(s)
	b.submit(spec(3))
	b.after(5 * time.Minute)
	b.submit(spec(1))
	raise := Modify{By: user, IDs: []backends.ID{first}, Change: backends.Change{RunLimit: ptr(2 * time.Hour)}}
	if b.do(raise); !errors.Is(b.last.Errors.First(), backends.ErrDenied) || !strings.Contains(b.last.Errors.First().Error(), "more than 1h0m0s in all") {
		t.Errorf("its owner: %v", b.last.Errors.First())
	}
	if err := b.modify(backends.Change{RunLimit: ptr(30 * time.Minute)}, first); err != nil {
		t.Error(err)
	}
	raise.IDs[0], raise.By = second, admin
	b.must(raise)
	if b.job(second).RunLimit != 2*time.Hour {
		t.Errorf("an administrator's: %+v", b.job(second))
	}
}
