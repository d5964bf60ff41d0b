package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// TestSubmitRefuses what could never run, with an error that says what to do.
func TestSubmitRefuses(t *testing.T) {
	for _, c := range []struct {
		spec backends.Spec
		want string
	}{
		{backends.Spec{Slots: -1}, "ask for 1 or more"},
		{backends.Spec{Memory: -1}, "ask for 0 or more"},
		{backends.Spec{Slots: 7}, "7 slots: the farm has 6 slots, the largest host 4: ask for less"},
		{backends.Spec{Slots: 5, OneHost: true}, "5 slots on one host: the farm has"},
		{backends.Spec{Slots: 3, Hosts: []string{"n2"}}, "these hosts have 2 slots"},
		{backends.Spec{Slots: 1, Memory: 17 * gib}, "at most 16384 MiB: ask for less"},
		{backends.Spec{Hosts: []string{"n7"}}, `no host is named "n7": name some of: n1 n2`},
		{backends.Spec{Queue: "fast"}, `no queue is named "fast": choose one of: normal low`},
		{backends.Spec{RunLimit: -time.Second}, "run limit"},
		{backends.Spec{BeginTime: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}, "year"},
		{backends.Spec{Priority: 1_000_000}, "no such priority"},
		{backends.Spec{Array: &backends.Array{}}, "array"},
		{backends.Spec{Array: &backends.Array{Indices: []int{0, 1}}}, "start at 1"},
		{backends.Spec{Array: &backends.Array{Indices: []int{2, 2}}}, "ascend"},
		{backends.Spec{After: "done(77)"}, "job 77: no such job"},
	} {
		b := newBench(t, Config{}, 4, 2)
		b.do(Submit{By: user, Specs: []backends.Spec{c.spec, {}}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
		if s := b.last.Submitted[1]; s.Err != nil || s.ID.Job != 1 {
			t.Errorf("the next one: %+v", s)
		}
	}
}

// TestSubmitBeforeNodes: a daemon that begins accepts what it can't judge yet.
func TestSubmitBeforeNodes(t *testing.T) {
	b := newBench(t, Config{})
	id := b.submit(spec(4))
	b.waits(id, backends.WaitOther)
	b.must(NodeUp{Name: "n1", Slots: 4})
	b.starts(id)
}

// TestJobShowsItsSpec: what people and the engine read back.
func TestJobShowsItsSpec(t *testing.T) {
	b := newBench(t, Config{}, 4)
	tag := backends.Tag{Preempt: backends.PreemptSuspend}
	id := b.submit(backends.Spec{Name: "a b\n", Project: "chipA:synthesis", Description: tag.String() + " text", NoRequeue: true, Memory: gib})
	j := b.job(id)
	if j.Name != "a b\n" || j.User != "ann" || j.Project != "chipA" || j.Step != "synthesis" || j.Queue != "normal" || j.Slots != 1 || !j.OneHost {
		t.Errorf("%+v", j)
	}
	if got, _, err := backends.ParseTag(j.Tag); err != nil || got != tag {
		t.Errorf("tag %q", j.Tag)
	}
}

// TestBeginTime (R14): waits for its time, without a tick before.
func TestBeginTime(t *testing.T) {
	b := newBench(t, Config{AgeingInterval: time.Second, AgeingCap: 69, ReserveAfter: time.Minute}, 1)
	at := b.now.Add(time.Hour)
	id := b.submit(backends.Spec{BeginTime: at})
	if w := effectOf[WakeAt](b); !w.At.Equal(at) {
		t.Fatalf("%+v", w)
	}
	b.after(time.Hour - 1)
	b.waits(id, backends.WaitTime)
	b.after(1)
	b.starts(id)
	if !b.m.Wake().IsZero() {
		t.Errorf("wakes at %v for nothing", b.m.Wake())
	}
}

// TestFullFarmNeedsNoWakeup: time alone starts no job where no slot is free.
func TestFullFarmNeedsNoWakeup(t *testing.T) {
	b := newBench(t, Config{AgeingInterval: time.Second, AgeingCap: 69, ReserveAfter: time.Minute}, 1)
	b.submit(spec(1))
	b.submit(spec(1))
	if !b.m.Wake().IsZero() {
		t.Errorf("wakes at %v for nothing", b.m.Wake())
	}
}

func TestDependencies(t *testing.T) {
	for _, c := range []struct {
		after string // A is job 1, B the array 2 of two elements
		first int    // exit code of A
		last  int    // exit code of 2[2]
		runs  string // after: "now", "A" ended, "2[1]" ended, "B" ended, "" never
	}{
		{"done(1)", 0, 0, "A"},
		{"1", 0, 0, "A"},
		{`"a"`, 0, 0, "A"},
		{"done(a)", 0, 0, "A"},
		{"done(1)", 1, 0, ""},
		{"ended(1)", 1, 0, "A"},
		{"exit(1)", 1, 0, "A"},
		{"exit(1)", 0, 0, ""},
		{"exit(1, 3)", 3, 0, "A"},
		{"exit(1,>3)", 3, 0, ""},
		{"started(1)", 0, 0, "now"},
		{"!done(1)", 0, 0, "now"},
		{"done(2[1])", 0, 0, "2[1]"},
		{"done(2)", 0, 0, "B"},
		{"done(2)", 0, 1, ""},
		{"ended(2)", 0, 1, "B"},
		{"exit(b)", 0, 1, "B"},
		{"done(1) && done(2)", 0, 0, "B"},
		{"done(2) || exit(1)", 1, 0, "A"},
		{"(done(1) || done(2)) && ended(2[1])", 0, 0, "2[1]"},
		{"done(1) || done(2) && exit(2)", 0, 0, "A"},
	} {
		b := newBench(t, Config{}, 9)
		b.submit(backends.Spec{Name: "a"})
		b.submit(backends.Spec{Name: "b", Array: &backends.Array{Indices: []int{1, 2}}})
		id := b.submit(backends.Spec{After: c.after})
		ran := ""
		look := func(when string) {
			if j := b.job(id); ran == "" && j.State == backends.Running {
				ran = when
			} else if ran == "" && (j.State != backends.Pending || j.Wait != backends.WaitDependency) {
				t.Errorf("%s: %v, waits for %v", c.after, j.State, j.Wait)
			}
		}
		look("now")
		b.ends(backends.ID{Job: 1}, c.first)
		look("A")
		b.ends(backends.ID{Job: 2, Index: 1}, 0)
		b.must(Forget{b.now.Add(time.Hour)}) // what it depends on may be forgotten
		b.m = restored(b)
		look("2[1]")
		b.ends(backends.ID{Job: 2, Index: 2}, c.last)
		look("B")
		if hopeless := strings.Contains(b.job(id).Reason, "can't come true"); hopeless != (c.runs == "") {
			t.Errorf("%s: %s", c.after, b.job(id).Reason)
		}
		if ran != c.runs {
			t.Errorf("%s with %d and %d: runs after %q, want %q (%s)", c.after, c.first, c.last, ran, c.runs, b.job(id).Reason)
		}
	}
}

func restored(b *bench) *Manager {
	b.Helper()
	state, err := b.m.State()
	if err != nil {
		b.Fatal(err)
	}
	m, err := Restore(state)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func TestDependencyRefused(t *testing.T) {
	for _, c := range []struct{ after, want string }{
		{"done(", "a job is missing"},
		{"done(1", "parenthesis"},
		{"(done(1)", "parenthesis"},
		{"done(1) done(1)", "join conditions"},
		{"post_done(1)", "not supported"},
		{"numdone(1, 3)", "not supported"},
		{"done(1, 3)", "takes one job"},
		{"exit(1, x)", "not an exit code"},
		{`done("missing")`, `no job named "missing"`},
		{`done("a`, "quote"},
		{"done(1[*])", "element by element"},
		{strings.Repeat("(", 100_000), "nested"},
	} {
		b := newBench(t, Config{}, 9)
		b.submit(spec(1))
		b.do(Submit{By: user, Specs: []backends.Spec{{After: c.after}}})
		if err := b.last.Submitted[0].Err; err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: %.100v, want %q", c.after, err, c.want)
		}
	}
}
