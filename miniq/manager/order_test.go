package manager

import (
	"errors"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// r10 is the queue of R10: 20 s a tick, ages to 89.
var r10 = Config{AgeingInterval: 20 * time.Second, AgeingCap: 69}

// TestR10PBANumbers: 20, 120, 121, 122.
func TestR10PBANumbers(t *testing.T) {
	b := newBench(t, r10, 1)
	b.submit(spec(1))
	id := b.submit(spec(1))
	b.shows(id, 20)
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelPBA, 120)}}})
	for _, want := range []int{120, 121, 122} {
		b.shows(id, want)
		b.after(20 * time.Second)
	}
}

// TestR10VictimNumbers: pending two cycles 22; requeued 32; next cycle 33;
// requeued again 43.
func TestR10VictimNumbers(t *testing.T) {
	b := newBench(t, r10, 1)
	first := b.submit(spec(1))
	id := b.submit(spec(1))
	b.after(40 * time.Second)
	b.shows(id, 22)
	b.ends(first, 0)
	b.starts(id)
	b.after(5 * time.Minute)
	b.shows(id, 22)

	// The engine holds the victim, then lets another job have the slot.
	takeBack := func(shows int) {
		b.must(Requeue{admin, []backends.Act{{ID: id, Until: b.now.Add(time.Second), Mark: "r1"}}})
		b.must(SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelVictim, b.job(id).Priority.Value()+10)}}})
		b.shows(id, shows)
		high := b.submit(backends.Spec{Slots: 1, Priority: backends.At(backends.LevelNext, 20)})
		b.ends(id, 143)
		b.starts(high)
		b.shows(id, shows)
		b.after(time.Second)
		b.shows(id, shows)
		b.after(20 * time.Second)
		b.shows(id, shows+1)
		b.ends(high, 0)
		b.starts(id)
	}
	takeBack(32)
	takeBack(43)
}

// TestR11AgeStops: 69 ticks over a job's life, however often it waits.
func TestR11AgeStops(t *testing.T) {
	b := newBench(t, r10, 1)
	first := b.submit(spec(1))
	id := b.submit(spec(1))
	b.after(50 * 20 * time.Second)
	b.shows(id, 70)
	b.ends(first, 0)
	b.submit(backends.Spec{Slots: 1, Priority: backends.At(backends.LevelNext, 20)})
	b.must(Requeue{admin, []backends.Act{{ID: id}}})
	b.ends(id, 143)
	b.waits(id, backends.WaitResources)
	b.after(100 * 20 * time.Second)
	b.shows(id, 89)
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelNormal, 30)}}})
	b.after(100 * 20 * time.Second)
	b.shows(id, 30)
}

// TestAgeStaysInLevel: a value near the top of its level never enters the next.
func TestAgeStaysInLevel(t *testing.T) {
	b := newBench(t, r10, 1)
	b.submit(spec(1))
	id := b.submit(backends.Spec{Slots: 1, Priority: backends.At(backends.LevelNormal, 998)})
	b.after(time.Hour)
	if p := b.job(id).Priority; p != backends.At(backends.LevelNormal, 999) {
		t.Fatalf("priority %d", p)
	}
}

// TestOnlyWaitersAge (R14): what waits for a time, its owner, another job, its
// array or a host that is down does not age.
func TestOnlyWaitersAge(t *testing.T) {
	b := newBench(t, r10, 1, 3)
	first := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n1"}})
	b.must(NodeDown{"n2"})
	timed := b.submit(backends.Spec{Slots: 1, BeginTime: b.now.Add(time.Hour)})
	held := b.submit(backends.Spec{Slots: 1, Hold: true})
	after := b.submit(backends.Spec{Slots: 1, After: first.String()})
	away := b.submit(backends.Spec{Slots: 2})
	array := b.submit(backends.Spec{Slots: 1, Array: &backends.Array{Indices: []int{1, 2}, Limit: 1}})
	one, two := backends.ID{Job: array.Job, Index: 1}, backends.ID{Job: array.Job, Index: 2}
	b.waits(timed, backends.WaitTime)
	b.state(held, backends.Held)
	b.waits(after, backends.WaitDependency)
	b.waits(away, backends.WaitOther)
	b.waits(one, backends.WaitResources)
	b.waits(two, backends.WaitThrottle)
	b.after(time.Minute)
	for _, id := range []backends.ID{timed, held, after, away, two} {
		b.shows(id, 20)
	}
	b.shows(one, 23)
	b.must(NodeUp{Name: "n2", Slots: 1})
	b.must(NodeUp{Name: "n1", Slots: 2, Closed: true})
	b.waits(away, backends.WaitOther)
	b.must(NodeUp{Name: "n2", Slots: 3})
	b.state(away, backends.Running)
}

// TestOrder: priority, then FIFO; what does not fit is passed over.
func TestOrder(t *testing.T) {
	b := newBench(t, Config{}, 4)
	all := b.submit(spec(4))
	wide := b.submit(spec(3))
	low := b.submit(backends.Spec{Slots: 1, Queue: "low"})
	first := b.submit(spec(1))
	second := b.submit(spec(1))
	high := b.submit(backends.Spec{Slots: 2, Priority: backends.At(backends.LevelNormal, 21)})
	b.ends(all, 0)
	b.starts(high, first, second)
	b.ends(high, 0)
	b.starts(low)
	b.waits(wide, backends.WaitResources)
	b.ends(first, 0)
	b.ends(second, 0)
	b.starts(wide)
}

// TestAgeOvertakes: a job that has gained all it can is overtaken by one that
// has not.
func TestAgeOvertakes(t *testing.T) {
	b := newBench(t, Config{AgeingInterval: time.Second, AgeingCap: 5}, 1)
	running := b.submit(spec(1))
	old := b.submit(spec(1))
	b.after(5 * time.Second)
	young := b.submit(backends.Spec{Slots: 1, Priority: backends.At(backends.LevelNormal, 21)})
	b.after(4 * time.Second)
	b.shows(old, 25)
	b.shows(young, 25)
	b.after(time.Second)
	b.shows(young, 26)
	b.ends(running, 0)
	b.starts(young)
}

func TestRankPermission(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1))
	id := b.submit(spec(1))
	for _, c := range []struct {
		by    By
		level backends.Level
		want  error
	}{
		{user, backends.LevelNext, backends.ErrDenied},
		{other, backends.LevelLow, backends.ErrDenied},
		{user, backends.LevelLow, nil},
		{user, backends.LevelNormal, backends.ErrDenied},
		{admin, backends.LevelHandOver, nil},
	} {
		b.do(SetPriority{c.by, []backends.PriorityChange{{ID: id, Priority: backends.At(c.level, 20)}}})
		if err := b.last.Errors[0]; !errors.Is(err, c.want) {
			t.Errorf("%s ranks to %v: %v, want %v", c.by.User, c.level, err, c.want)
		}
	}
	b.do(Submit{By: user, Specs: []backends.Spec{{Priority: backends.At(backends.LevelPBA, 1)}}})
	if err := b.last.Submitted[0].Err; !errors.Is(err, backends.ErrDenied) {
		t.Errorf("a user submits at LevelPBA: %v", err)
	}
}

// TestMove: the queue's level follows, a rank of the engine's outlives it.
func TestMove(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.submit(spec(1))
	id := b.submit(backends.Spec{Slots: 1, Queue: "low", Priority: 30})
	if p := b.job(id).Priority; p != backends.At(backends.LevelLow, 30) {
		t.Fatalf("in the low queue: %d", p)
	}
	b.must(Move{admin, []backends.ID{id}, "normal"})
	if j := b.job(id); j.Priority != backends.At(backends.LevelNormal, 30) || j.Queue != "normal" {
		t.Fatalf("moved: %d in %s", j.Priority, j.Queue)
	}
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: id, Priority: backends.At(backends.LevelPBA, 120)}}})
	b.must(Move{admin, []backends.ID{id}, "low"})
	if j := b.job(id); j.Priority != backends.At(backends.LevelPBA, 120) || j.Queue != "low" {
		t.Fatalf("a PBA job moved: %d in %s", j.Priority, j.Queue)
	}
	b.do(Move{user, []backends.ID{id}, "fast"})
	if b.last.Errors[0] == nil {
		t.Error("moved to a queue that is not there")
	}
}
