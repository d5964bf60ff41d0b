package manager

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// runToEnd submits a job that is held, and ends it.
func (b *bench) runToEnd(by By, s backends.Spec) backends.ID {
	b.Helper()
	s.Hold = true
	b.must(Submit{By: by, Specs: []backends.Spec{s}})
	id := b.last.Submitted[0].ID
	b.must(Kill{by, []backends.ID{id}})
	return id
}

func (b *bench) countKnown(ids ...backends.ID) int { return b.m.Count(ids) }

// TestEndedBound: of each user's ended jobs those that ended last are kept; a user
// who has more of them than there may be drops none of another's.
func TestEndedBound(t *testing.T) {
	const most = 32
	b := newBench(t, Config{MaxEnded: most}, 4)
	calm := b.runToEnd(other, spec(1))
	var ids []backends.ID
	for range 10 * most {
		ids = append(ids, b.runToEnd(user, spec(1)))
		if n := b.countKnown(ids...); n > most {
			t.Fatalf("%d ended jobs of one user are kept, want %d at most", n, most)
		}
	}
	if n := b.countKnown(ids[len(ids)-most/2:]...); n != most/2 {
		t.Errorf("%d of the %d jobs that ended last are kept", n, most/2)
	}
	if b.countKnown(calm) != 1 {
		t.Error("another user's ended job was dropped")
	}
	if len(b.m.jobs) != b.m.ended.count || b.m.ended.count != len(b.m.Snapshot(b.now, time.Time{}).Ended) {
		t.Errorf("%d jobs, %d ended, %d listed", len(b.m.jobs), b.m.ended.count, len(b.m.Snapshot(b.now, time.Time{}).Ended))
	}
	b.do(Kill{user, ids[:1]})
	if err := b.last.Errors.First(); !errors.Is(err, backends.ErrUnknownJob) {
		t.Errorf("an end of a job that was dropped: %v", err)
	}
}

// TestEndedBoundOfAllUsers: many users together keep so many; the user with the most loses first.
func TestEndedBoundOfAllUsers(t *testing.T) {
	const most = 8
	b := newBench(t, Config{MaxEnded: most}, 4)
	calm := b.runToEnd(By{User: "calm"}, spec(1))
	for n := range 10 * most {
		b.runToEnd(By{User: fmt.Sprintf("user%d", n%10)}, spec(1))
	}
	if n := b.m.ended.count; n > endedShares*most || n < endedShares*most/2 {
		t.Errorf("%d ended jobs are kept, want %d", n, endedShares*most)
	}
	for n := range 3 * most {
		b.runToEnd(By{User: fmt.Sprintf("big%d", n%2)}, spec(1))
	}
	if b.countKnown(calm) != 1 {
		t.Error("the only ended job of a user was dropped")
	}
}

// TestEndedBytes: what ended jobs take is bounded too.
func TestEndedBytes(t *testing.T) {
	const most = 1 << 20
	b := newBench(t, Config{MaxEndedBytes: most}, 4)
	s := spec(1)
	s.Description = string(bytes.Repeat([]byte("x"), 64<<10))
	for range 100 {
		b.runToEnd(user, s)
	}
	if n := b.m.ended.count; n > most>>16 || n < most>>17 {
		t.Errorf("%d ended jobs of 64 KiB are kept, want at most %d", n, most>>16)
	}
	b.checkEndedBytes()
}

// checkEndedBytes compares what ended jobs take with what is counted.
func (b *bench) checkEndedBytes() {
	b.Helper()
	var left int64
	works := map[*work]bool{}
	for j := b.m.ended.first; j != nil; j = j.next {
		if left += j.weight; !works[j.work] {
			works[j.work] = true
			left += j.work.weigh()
		}
	}
	if left != b.m.ended.bytes || left != b.m.ended.of[user.User].bytes {
		b.Errorf("they weigh %d, noted are %d and %d", left, b.m.ended.bytes, b.m.ended.of[user.User].bytes)
	}
}

// TestEndedBytesInCommon: what the elements of an array have in common is counted for
// as long as one that has ended is kept, in whatever order they end.
func TestEndedBytesInCommon(t *testing.T) {
	const most, each = 1 << 20, 64 << 10
	const lag = most / each / 2
	b := newBench(t, Config{MaxEndedBytes: most}, 4)
	var last []backends.ID
	for n := range 10 * most / each { // an array's second element ends while its first one is kept
		s := heldSpec(spec(1))
		s.Description = fmt.Sprint(n, string(bytes.Repeat([]byte("x"), each)))
		s.Array = &backends.Array{Indices: []int{1, 2}}
		id := b.submit(s).Job
		last = append(last, backends.ID{Job: id, Index: 2})
		b.must(Kill{user, []backends.ID{{Job: id, Index: 1}}})
		if n >= lag {
			b.must(Kill{user, last[n-lag : n-lag+1]})
		}
		descriptions := map[*work]bool{}
		for j := b.m.ended.first; j != nil; j = j.next {
			descriptions[j.work] = true
		}
		if len(descriptions)*each > most {
			t.Fatalf("after %d arrays ended jobs keep %d KiB of descriptions, want %d at most", n+1, len(descriptions)*each>>10, most>>10)
		}
		b.checkEndedBytes()
	}
	b.m = restored(b)
	b.checkEndedBytes()
}

// TestEndedConfigured: another bound holds at once, and one state of the queue
// gives the next.
func TestEndedConfigured(t *testing.T) {
	b := newBench(t, Config{}, 4)
	for range 100 {
		b.runToEnd(user, spec(1))
		b.runToEnd(other, spec(1))
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
		b.runToEnd(user, spec(1))
	}
	if b.countKnown(first) != 0 {
		t.Fatal("the first job is kept")
	}
	b.must(Release{user, []backends.ID{waiting}})
	b.starts(waiting)
}

// TestNewDependencyOnPastJob: a new dependency on a job that was dropped is as one on
// a job that has ended and is in memory, if the event has its end.
func TestNewDependencyOnPastJob(t *testing.T) {
	const done, failed, array = 1, 2, 3 // job 3 is an array whose second element failed
	for _, c := range []struct {
		after string
		runs  bool
	}{
		{"done(1)", true},
		{"1", true},
		{"ended(1)", true},
		{"started(1)", true},
		{"exit(1)", false},
		{"done(2)", false},
		{"!done(2)", true},
		{"ended(2)", true},
		{"exit(2)", true},
		{"exit(2, 7)", true},
		{"exit(2, < 7)", false},
		{"done(3)", false},
		{"ended(3)", true},
		{"exit(3, 4)", true},
		{"done(3[1])", true},
		{"exit(3[2])", true},
		{"(done(1) || done(2)) && ended(3[2])", true},
		{"done(1) && done(2)", false},
	} {
		past := []PastEnd{
			{ID: backends.ID{Job: done}},
			{ID: backends.ID{Job: failed}, Exited: true, ExitCode: 7},
			{ID: backends.ID{Job: array}, Exited: true, ExitCode: 4},
			{ID: backends.ID{Job: array, Index: 1}},
			{ID: backends.ID{Job: array, Index: 2}, Exited: true, ExitCode: 4},
		}
		b := newBench(t, Config{MaxEnded: 2}, 2)
		for _, code := range []int{0, 7} {
			b.ends(b.submit(spec(1)), code)
		}
		s := spec(1)
		s.Array = &backends.Array{Indices: []int{1, 2}}
		id := b.submit(s)
		b.ends(backends.ID{Job: id.Job, Index: 1}, 0)
		b.ends(backends.ID{Job: id.Job, Index: 2}, 4)
		for range 4 {
			b.runToEnd(user, spec(1))
		}
		if n := b.countKnown(backends.ID{Job: done}, backends.ID{Job: failed}, backends.ID{Job: array}); n != 0 {
			t.Fatalf("%d of the jobs are in memory", n)
		}
		other := b.submit(heldSpec(spec(1)))
		check := func(what string, id backends.ID) {
			t.Helper()
			b.m = restored(b)
			if runs := b.job(id).State == backends.Running; runs != c.runs {
				t.Errorf("%s: %s: runs: %v (%s), want %v", c.after, what, runs, b.job(id).Reason, c.runs)
			}
			if hopeless := strings.Contains(b.job(id).Reason, "can't come true"); hopeless == c.runs {
				t.Errorf("%s: %s: %q", c.after, what, b.job(id).Reason)
			}
			if len(b.m.waiters) != 0 {
				t.Errorf("%s: %s: what is final is waited for", c.after, what)
			}
		}
		s = spec(1)
		s.After = c.after
		b.do(roundTrip(t, Submit{By: user, Specs: []backends.Spec{s}, Past: past}))
		if err := b.last.Submitted[0].Err; err != nil {
			t.Errorf("%s: %v", c.after, err)
			continue
		}
		check("a new job", b.last.Submitted[0].ID)
		b.must(roundTrip(t, Modify{By: user, IDs: []backends.ID{other}, Change: backends.Change{After: &c.after}, Past: past}))
		b.must(Release{user, []backends.ID{other}})
		check("a changed job", other)

		b.do(Submit{By: user, Specs: []backends.Spec{s}})
		if err := b.last.Submitted[0].Err; !errors.Is(err, backends.ErrUnknownJob) {
			t.Errorf("%s: without the ends: %v", c.after, err)
		}
	}
}

func heldSpec(s backends.Spec) backends.Spec {
	s.Hold = true
	return s
}

// roundTrip returns an event as a journal gives it back.
func roundTrip(t *testing.T, e Event) Event {
	t.Helper()
	line, err := EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	if e, err = DecodeEvent(line); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestMentions: jobs by number only, of what can be read.
func TestMentions(t *testing.T) {
	ids := Mentions(`done(1) && (ended("2") || exit(3[4], > 5)) && started(name) && !7`)
	if want := []backends.ID{{Job: 1}, {Job: 3, Index: 4}, {Job: 7}}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
	if ids := Mentions("done(1) &&"); ids != nil {
		t.Errorf("%v of what can't be read", ids)
	}
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
	if n := b.countKnown(array); n != 6 || b.countKnown(backends.ID{Job: array.Job, Index: 3}) != 1 {
		t.Errorf("%d elements are known, want 3 to 8", n)
	}
	if n := b.m.Unended(array); n != 2 {
		t.Errorf("%d elements have not ended, want 2", n)
	}
	b.must(Kill{user, []backends.ID{array}})
	if n := b.countKnown(array); n != 4 {
		t.Errorf("%d elements are known, want 4", n)
	}
	for range 4 {
		b.runToEnd(user, spec(1))
	}
	if b.countKnown(array) != 0 || len(b.m.arrays) != 0 || len(b.m.names) != 0 {
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
		b.runToEnd(user, s)
	}
	if n := len(b.m.waiters[first.Job]); n > 100 {
		t.Errorf("%d conditions of ended jobs are kept", n)
	}
}
