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
