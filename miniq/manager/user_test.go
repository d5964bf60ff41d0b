package manager

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// What a user asks for at submission puts a job before no other user's.
func TestUsersCannotSubmitAbove(t *testing.T) {
	const denied = backends.Priority(1 << 20)
	next := backends.At(backends.LevelNext, 20)
	for _, c := range []struct {
		what string
		by   By
		spec backends.Spec
		next bool
		want backends.Priority
	}{
		{"nothing", user, backends.Spec{}, false, 20},
		{"less", user, backends.Spec{Priority: 5}, false, 5},
		{"less, in low", user, backends.Spec{Priority: 5, Queue: "low"}, false, backends.At(backends.LevelLow, 5)},
		{"more", user, backends.Spec{Priority: 21}, false, denied},
		{"more, in low", user, backends.Spec{Priority: 21, Queue: "low"}, false, denied},
		{"next in line", user, backends.Spec{Priority: next}, false, 20},
		{"next in line, in low", user, backends.Spec{Priority: next, Queue: "low"}, false, backends.At(backends.LevelLow, 20)},
		{"next in line, as the policy says", user, backends.Spec{Priority: next}, true, next},
		{"more than next in line", user, backends.Spec{Priority: next + 1}, true, denied},
		{"victim's rank", user, backends.Spec{Priority: backends.At(backends.LevelVictim, 20)}, false, 20},
		{"allocation's rank", user, backends.Spec{Priority: backends.At(backends.LevelPBA, 0)}, true, denied},
		{"an administrator", admin, backends.Spec{Priority: backends.At(backends.LevelHandOver, 999)}, false, backends.At(backends.LevelHandOver, 999)},
	} {
		b := newBench(t, Config{}, 1)
		b.submit(spec(1))
		c.spec.Slots = 1
		b.do(Submit{By: c.by, Specs: []backends.Spec{c.spec}, Next: []bool{c.next}})
		got := b.last.Submitted[0]
		switch {
		case c.want == denied:
			if !errors.Is(got.Err, backends.ErrDenied) {
				t.Errorf("%s: %v, want it denied", c.what, got.Err)
			}
		case got.Err != nil:
			t.Errorf("%s: %v", c.what, got.Err)
		default:
			if p := b.job(got.ID).Priority; p != c.want {
				t.Errorf("%s: begins at %d, want %d", c.what, p, c.want)
			}
		}
	}
}

// A user's change lowers a job or leaves it where it is.
func TestUsersCanOnlyLowerPriority(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1))
	id := b.submit(spec(1))
	change := func(c backends.Change) Event { return Modify{By: user, IDs: []backends.ID{id}, Change: c} }
	move := func(queue string) Event { return Move{user, []backends.ID{id}, queue} }
	for _, c := range []struct {
		what  string
		event Event
		want  error
		shows backends.Priority
	}{
		{"raise", change(backends.Change{Priority: ptr(backends.Priority(21))}), backends.ErrDenied, 20},
		{"to the level above", change(backends.Change{Priority: ptr(backends.At(backends.LevelVictim, 0))}), backends.ErrDenied, 20},
		{"lower", change(backends.Change{Priority: ptr(backends.Priority(10))}), nil, 10},
		{"back", change(backends.Change{Priority: ptr(backends.Priority(20))}), backends.ErrDenied, 10},
		{"to the same queue", move("normal"), nil, 10},
		{"down", move("low"), nil, backends.At(backends.LevelLow, 10)},
		{"up", move("normal"), backends.ErrDenied, backends.At(backends.LevelLow, 10)},
		{"up by a change", change(backends.Change{Queue: ptr("normal")}), backends.ErrDenied, backends.At(backends.LevelLow, 10)},
		{"up by the default queue", change(backends.Change{Queue: ptr("")}), backends.ErrDenied, backends.At(backends.LevelLow, 10)},
		{"lower and up at once", change(backends.Change{Queue: ptr("normal"), Priority: ptr(backends.Priority(1))}), backends.ErrDenied, backends.At(backends.LevelLow, 10)},
		{"another's change", Modify{By: other, IDs: []backends.ID{id}, Change: backends.Change{Priority: ptr(backends.Priority(1))}}, backends.ErrDenied, backends.At(backends.LevelLow, 10)},
	} {
		b.do(c.event)
		if err := b.last.Errors[0]; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		if p := b.job(id).Priority; p != c.shows {
			t.Errorf("%s: shows %d, want %d", c.what, p, c.shows)
		}
	}
}

// A user's grace is bounded: a job that is being ended is not chosen as a victim.
func TestUsersGraceIsBounded(t *testing.T) {
	b := newBench(t, Config{KillGrace: 7 * time.Second}, 1)
	for _, c := range []struct {
		by   By
		want time.Duration
	}{{user, 7 * time.Second}, {admin, time.Hour}} {
		id := b.submit(spec(1))
		for _, e := range b.must(Requeue{c.by, []backends.Act{{ID: id, Grace: time.Hour}}}) {
			if kill, ok := e.(KillRun); ok && kill.Grace != c.want {
				t.Errorf("%s requeues with a grace of %v, want %v", c.by.User, kill.Grace, c.want)
			}
		}
		b.must(Kill{admin, []backends.ID{id}})
		b.ends(id, 143)
	}
}

// A user has so many jobs that have not ended, and no more; others have theirs.
func TestMaxJobs(t *testing.T) {
	b := newBench(t, Config{MaxJobs: 3}, 1)
	other := By{User: "other"}
	submit := func(by By, indices ...int) error {
		s := backends.Spec{Slots: 1}
		if len(indices) > 0 {
			s.Array = &backends.Array{Indices: indices}
		}
		b.do(Submit{By: by, Specs: []backends.Spec{s}})
		return b.last.Submitted[0].Err
	}
	for n, c := range []struct {
		by      By
		indices []int
		refused bool
	}{
		{user, nil, false},
		{user, []int{1, 2, 3}, true},
		{user, []int{1, 2}, false},
		{user, nil, true},
		{other, []int{5, 6, 7}, false},
		{other, nil, true},
		{admin, []int{1, 2, 3, 4}, false},
	} {
		if err := submit(c.by, c.indices...); errors.Is(err, backends.ErrDenied) != c.refused || (err != nil) != c.refused {
			t.Errorf("%d: %v, want it refused: %v", n, err, c.refused)
		}
	}
	b.do(Kill{By: user, IDs: []backends.ID{{Job: 2, Index: 2}}}) // ids of what was refused are not used up
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again := &bench{T: t, now: b.now}
	if again.m, err = Restore(state); err != nil {
		t.Fatal(err)
	}
	for n, m := range []*bench{b, again} {
		m.do(Submit{By: user, Specs: []backends.Spec{{Slots: 1}, {Slots: 1}}})
		if got := m.last.Submitted; got[0].Err != nil || !errors.Is(got[1].Err, backends.ErrDenied) {
			t.Errorf("%d, after one was killed: %v, %v: want room for one", n, got[0].Err, got[1].Err)
		}
	}
}

// TestConditionsCountAsBytes: a condition takes many times its text in memory, and counts so.
func TestConditionsCountAsBytes(t *testing.T) {
	for _, after := range []string{strings.Repeat("1||", 20_000) + "1", strings.Repeat(strings.Repeat("!", 90)+"1||", 700) + "1"} {
		b := newBench(t, Config{MaxBytes: 10 << 20}, 1)
		b.submit(heldSpec(spec(1)))
		n := 0
		for ; n < 100; n++ {
			s := heldSpec(spec(1))
			s.After = after
			b.do(Submit{By: user, Specs: []backends.Spec{s}})
			if err := b.last.Submitted[0].Err; errors.Is(err, backends.ErrDenied) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n == 0 || n > 3 {
			t.Errorf("%d jobs with conditions of some 3 MiB in memory are taken, want 2 or 3", n)
		}
	}
}

// What a user's jobs were submitted with is bounded while they have not ended: an array's
// once. A change counts, too; administrators, and others, have room.
func TestMaxBytes(t *testing.T) {
	b := newBench(t, Config{MaxBytes: 1000}, 1)
	other := By{User: "other"}
	submit := func(by By, bytes int64, indices ...int) error {
		s := backends.Spec{Slots: 1, Hold: true, Name: "ten letter"}
		if len(indices) > 0 {
			s.Array = &backends.Array{Indices: indices}
		}
		b.do(Submit{By: by, Specs: []backends.Spec{s}, Bytes: []int64{bytes}})
		return b.last.Submitted[0].Err
	}
	refused := func(what string, err error, want bool) {
		t.Helper()
		if (err != nil) != want || want && (!errors.Is(err, backends.ErrDenied) || !strings.Contains(err.Error(), "max_bytes")) {
			t.Errorf("%s: %v, want it refused: %v", what, err, want)
		}
	}
	refused("more than all", submit(user, 1000), true)
	refused("an array", submit(user, 500, 1, 2, 3), false) // 534, in parts of 178
	refused("too much beside it", submit(user, 500), true)
	refused("what fits", submit(user, 400), false)
	refused("another's", submit(other, 990), false)
	refused("an administrator's", submit(admin, 5000), false)
	long := strings.Repeat("x", 100)
	change := func(name string) error {
		b.do(Modify{By: user, IDs: []backends.ID{{Job: 2}}, Change: backends.Change{Name: &name}})
		return b.last.Errors.First()
	}
	refused("a long name", change(long), true)
	refused("a longer name", change(long[:30]), false)
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again := &bench{T: t, now: b.now}
	if again.m, err = Restore(state); err != nil {
		t.Fatal(err)
	}
	for _, b = range []*bench{b, again} {
		refused("no more", submit(user, 100), true)
		b.do(Kill{By: user, IDs: []backends.ID{{Job: 1, Index: 2}}})
		refused("an element's part", submit(user, 150), false)
		b.do(Kill{By: user, IDs: []backends.ID{{Job: 1}, {Job: 2}, {Job: 5}}})
		refused("all, when the rest has ended", submit(user, 990), false)
	}
}
