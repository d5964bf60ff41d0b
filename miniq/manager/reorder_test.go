package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// waitingOrder lists the pending jobs as they will start, with their users.
func waitingOrder(m *Manager, now time.Time) string {
	var order []string
	farm := m.Snapshot(now, now)
	for level := backends.LevelHandOver; level >= backends.LevelLow; level-- {
		for value := maxValue(); value >= 0; value-- {
			for i := range farm.Jobs {
				if j := &farm.Jobs[i]; j.State == backends.Pending && j.Priority == backends.At(level, value) {
					order = append(order, j.User[:1]+j.ID.String())
				}
			}
		}
	}
	return strings.Join(order, " ")
}

func (b *bench) order(want string) {
	b.Helper()
	if got := waitingOrder(b.m, b.now); got != want {
		b.Errorf("they wait as %s, want %s", got, want)
	}
}

func TestReorder(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1)) // job 1 runs
	submitAs := func(by By, s backends.Spec) {
		t.Helper()
		b.do(Submit{By: by, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	submitAs(user, spec(1))
	submitAs(user, spec(1))
	submitAs(other, spec(1))
	array := spec(1)
	array.Array = &backends.Array{Indices: []int{1, 2}}
	submitAs(user, array)
	submitAs(user, spec(1))
	b.order("a2 a3 b4 a5[1] a5[2] a6")
	id := func(job int64) []backends.ID { return []backends.ID{{Job: job}} }
	for _, c := range []struct {
		by       By
		ids      []backends.ID
		position int
		bottom   bool
		want     string
	}{
		{user, id(6), 1, false, "a6 a2 b4 a3 a5[1] a5[2]"},
		{user, id(5), 2, false, "a6 a5[1] b4 a5[2] a2 a3"},
		{user, id(6), 1, true, "a5[1] a5[2] b4 a2 a3 a6"},
		{user, id(5), 2, true, "a2 a3 b4 a5[1] a5[2] a6"},
		{user, id(2), 100, false, "a3 a5[1] b4 a5[2] a6 a2"},
		{admin, []backends.ID{{Job: 5, Index: 2}, {Job: 6}}, 1, false, "a5[2] a6 b4 a3 a5[1] a2"},
		{other, id(4), 1, false, "a5[2] a6 b4 a3 a5[1] a2"},
	} {
		b.must(Reorder{c.by, c.ids, c.position, c.bottom})
		b.order(c.want)
	}
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	restored, err := Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	if got := waitingOrder(restored, b.now); got != "a5[2] a6 b4 a3 a5[1] a2" {
		t.Errorf("after a restart they wait as %s", got)
	}
	for _, want := range []backends.ID{{Job: 5, Index: 2}, {Job: 6}, {Job: 4}, {Job: 3}} { // they start so, too
		for _, j := range b.m.Snapshot(b.now, b.now).Jobs {
			if j.State == backends.Running {
				b.ends(j.ID, 0)
			}
		}
		b.starts(want)
	}
}

func TestReorderIsRefused(t *testing.T) {
	b := newBench(t, Config{}, 1)
	running := b.submit(spec(1))
	low := spec(1)
	low.Priority = backends.At(backends.LevelNormal, 5)
	first, lower := b.submit(spec(1)), b.submit(low)
	for _, c := range []struct {
		e    Reorder
		kind error
		text string
	}{
		{Reorder{user, []backends.ID{running}, 1, false}, backends.ErrWrongState, "has started"},
		{Reorder{other, []backends.ID{first}, 1, false}, backends.ErrDenied, "another user's"},
		{Reorder{user, []backends.ID{{Job: 99}}, 1, false}, backends.ErrUnknownJob, "99"},
		{Reorder{user, []backends.ID{first}, 0, false}, nil, "positions count from 1"},
		{Reorder{user, []backends.ID{lower}, 1, false}, nil, "have other priorities"},
	} {
		b.do(c.e)
		err := b.last.Errors.First()
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %s", c.e, err, c.text)
		}
	}
	b.order(fmt.Sprintf("a%s a%s", first, lower))
}

// A user's reordering moves no other user's job: it has as many jobs of each user before it, at
// any time.
func TestLawReorderConcernsItsUserAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(Config{AgeingInterval: 20 * time.Second, AgeingCap: 5})
		now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
		step := func(e Event) Result {
			_, r := m.Step(now, e)
			return r
		}
		step(NodeUp{Name: "n1", Slots: 1})
		step(Submit{By: other, Specs: []backends.Spec{spec(1)}}) // it has the slot
		for range rapid.IntRange(2, 12).Draw(t, "jobs") {
			by := rapid.SampledFrom([]By{user, other}).Draw(t, "by")
			s := spec(1)
			s.Hold = rapid.IntRange(0, 5).Draw(t, "hold") == 0
			if n := rapid.IntRange(0, 4).Draw(t, "array"); n > 0 {
				s.Array = &backends.Array{Indices: []int{1, 2, 3}, Limit: n - 1}
			}
			step(Submit{By: by, Specs: []backends.Spec{s}})
			now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * time.Second)
			step(Tick{})
		}
		state, err := m.State()
		if err != nil {
			t.Fatal(err)
		}
		before, err := Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			id := backends.ID{Job: int64(rapid.IntRange(1, 14).Draw(t, "id"))}
			step(Reorder{user, []backends.ID{id}, rapid.IntRange(1, 4).Draw(t, "position"), rapid.Bool().Draw(t, "bottom")})
		}
		users := func(m *Manager) (list string) {
			for id := range strings.FieldsSeq(waitingOrder(m, now)) {
				if id[0] == 'a' {
					id = "a"
				}
				list += id + " "
			}
			return list
		}
		for range 8 {
			if got, want := users(m), users(before); got != want {
				t.Fatalf("they wait as %s, without the reordering as %s", got, want)
			}
			now = now.Add(20 * time.Second)
			step(Tick{})
			before.Step(now, Tick{})
		}
	})
}
