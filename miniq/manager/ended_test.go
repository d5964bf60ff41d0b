package manager

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// over hands a job in that is held, and ends it.
func (b *bench) over(by By, s backends.Spec) backends.ID {
	b.Helper()
	s.Hold = true
	b.must(Submit{By: by, Specs: []backends.Spec{s}})
	id := b.last.Submitted[0].ID
	b.must(Kill{by, []backends.ID{id}})
	return id
}

func (b *bench) knows(ids ...backends.ID) int { return b.m.Count(ids) }

// TestEndedBound: of each user's ended jobs those that ended last are kept; a user
// who has more of them than there may be drops none of another's.
func TestEndedBound(t *testing.T) {
	const most = 32
	b := newBench(t, Config{MaxEnded: most}, 4)
	calm := b.over(other, spec(1))
	var ids []backends.ID
	for range 10 * most {
		ids = append(ids, b.over(user, spec(1)))
		if n := b.knows(ids...); n > most {
			t.Fatalf("%d ended jobs of one user are kept, want %d at most", n, most)
		}
	}
	if n := b.knows(ids[len(ids)-most/2:]...); n != most/2 {
		t.Errorf("%d of the %d jobs that ended last are kept", n, most/2)
	}
	if b.knows(calm) != 1 {
		t.Error("another user's ended job was dropped")
	}
	if len(b.m.jobs) != b.m.ended.count || b.m.ended.count != len(b.m.Farm(b.now, time.Time{}).Ended) {
		t.Errorf("%d jobs, %d ended, %d listed", len(b.m.jobs), b.m.ended.count, len(b.m.Farm(b.now, time.Time{}).Ended))
	}
	b.do(Kill{user, ids[:1]})
	if err := b.last.Errors.First(); !errors.Is(err, backends.ErrUnknownJob) {
		t.Errorf("an end of a job that was dropped: %v", err)
	}
}

// TestEndedOfAll: many users together keep so many; who has the most loses first.
func TestEndedOfAll(t *testing.T) {
	const most = 8
	b := newBench(t, Config{MaxEnded: most}, 4)
	calm := b.over(By{User: "calm"}, spec(1))
	for n := range 10 * most {
		b.over(By{User: fmt.Sprintf("user%d", n%10)}, spec(1))
	}
	if n := b.m.ended.count; n > endedShares*most || n < endedShares*most/2 {
		t.Errorf("%d ended jobs are kept, want %d", n, endedShares*most)
	}
	for n := range 3 * most {
		b.over(By{User: fmt.Sprintf("big%d", n%2)}, spec(1))
	}
	if b.knows(calm) != 1 {
		t.Error("a job was dropped of a user who has one")
	}
}

// TestEndedBytes: what ended jobs take is bounded too.
func TestEndedBytes(t *testing.T) {
	const most = 1 << 20
	b := newBench(t, Config{MaxEndedBytes: most}, 4)
	s := spec(1)
	s.Description = string(bytes.Repeat([]byte("x"), 64<<10))
	for range 100 {
		b.over(user, s)
	}
	if n := b.m.ended.count; n > most>>16 || n < most>>17 {
		t.Errorf("%d ended jobs of 64 KiB are kept, want at most %d", n, most>>16)
	}
	var left int64
	for j := b.m.ended.first; j != nil; j = j.next {
		left += j.weight
	}
	if left != b.m.ended.bytes || left != b.m.ended.of["ann"].bytes {
		t.Errorf("they weigh %d, noted are %d and %d", left, b.m.ended.bytes, b.m.ended.of["ann"].bytes)
	}
}

// TestEndedConfigured: another bound holds at once, and one state of the queue
// gives the next.
func TestEndedConfigured(t *testing.T) {
	b := newBench(t, Config{}, 4)
	for range 100 {
		b.over(user, spec(1))
		b.over(other, spec(1))
	}
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	b.do(Configure{Config{MaxEnded: 10}})
	again.Step(b.now, Configure{Config{MaxEnded: 10}})
	if n := b.m.ended.count; n != 20 {
		t.Errorf("%d ended jobs are kept, want 20", n)
	}
	one, _ := b.m.State()
	two, _ := again.State()
	if !bytes.Equal(one, two) {
		t.Error("the queue that was restored dropped others")
	}
}

// TestEndedDependency: a dependency holds on what its job ended as, though that
// was dropped.
func TestEndedDependency(t *testing.T) {
	b := newBench(t, Config{MaxEnded: 2}, 1)
	first := b.submit(spec(1))
	s := spec(1)
	s.After = "done(" + first.String() + ")"
	waiting := b.submit(s)
	b.must(Hold{user, []backends.ID{waiting}})
	b.ends(first, 0)
	for range 5 {
		b.over(user, spec(1))
	}
	if b.knows(first) != 0 {
		t.Fatal("the first job is kept")
	}
	b.must(Release{user, []backends.ID{waiting}})
	b.starts(waiting)
}

// TestEndedArray: the elements of an array are dropped, those first that ended
// first; it is known as long as one of them is.
func TestEndedArray(t *testing.T) {
	b := newBench(t, Config{MaxEnded: 4}, 1)
	s := spec(1)
	s.Hold, s.Name = true, "arr"
	s.Array = &backends.Array{Indices: []int{1, 2, 3, 4, 5, 6, 7, 8}}
	array := b.submit(s)
	for i := 1; i <= 6; i++ {
		b.must(Kill{user, []backends.ID{{Job: array.Job, Index: i}}})
	}
	if n := b.knows(array); n != 6 || b.knows(backends.ID{Job: array.Job, Index: 3}) != 1 {
		t.Errorf("%d elements are known, want 3 to 8", n)
	}
	if n := b.m.Unended(array); n != 2 {
		t.Errorf("%d elements have not ended, want 2", n)
	}
	b.must(Kill{user, []backends.ID{array}})
	if n := b.knows(array); n != 4 {
		t.Errorf("%d elements are known, want 4", n)
	}
	for range 4 {
		b.over(user, spec(1))
	}
	if b.knows(array) != 0 || len(b.m.arrays) != 0 || len(b.m.names) != 0 {
		t.Errorf("an array is known all of whose elements were dropped")
	}
}

// TestEndedConditions: of jobs that waited for one and have ended nothing is left.
func TestEndedConditions(t *testing.T) {
	b := newBench(t, Config{MaxEnded: 10}, 1)
	first := b.submit(spec(1))
	s := spec(1)
	s.After = "done(" + first.String() + ")"
	for range 1000 {
		b.over(user, s)
	}
	if n := len(b.m.waiters[first.Job]); n > 100 {
		t.Errorf("%d conditions of ended jobs are kept", n)
	}
}
