package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var begin = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

const (
	mega = 1 << 20
	giga = 1 << 30
)

// table is a manager whose clock the test sets.
type table struct {
	*testing.T
	m   *Manager
	now time.Time
}

func newTable(t *testing.T, limits Limits) *table {
	return &table{t, New(limits), begin}
}

// do takes events that must not be refused, and returns the actions.
func (t *table) do(events ...Event) (all []Action) {
	t.Helper()
	for _, e := range events {
		actions, err := t.m.Step(t.now, e)
		if err != nil {
			t.Fatalf("%T %+v: %v", e, e, err)
		}
		all = append(all, actions...)
	}
	return all
}

func (t *table) refused(e Event, cause error) {
	t.Helper()
	actions, err := t.m.Step(t.now, e)
	if !errors.Is(err, cause) || len(actions) > 0 {
		t.Errorf("%T %.200v: %v, %v; want %v", e, e, actions, err, cause)
	}
}

// lines are actions in words, without those of a kind that a test is not about.
func lines(actions []Action, without ...string) (all []string) {
	for _, a := range actions {
		name := strings.TrimPrefix(fmt.Sprintf("%T", a), "lease.")
		if !slices.Contains(without, name) {
			all = append(all, fmt.Sprintf("%s%v", name, a))
		}
	}
	return all
}

func (t *table) same(got []Action, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(got, "Want")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// placed returns the number of grants on each host, and the jobs in order.
func placed(actions []Action) (hosts map[string]int, jobs []uint64) {
	hosts = map[string]int{}
	for _, a := range actions {
		if g, ok := a.(Grant); ok {
			hosts[g.Host]++
			jobs = append(jobs, g.Job)
		}
	}
	return hosts, jobs
}

// TestSourcesSequence: request, acknowledge, lock, post-back, free, create, as the source of R50 has
// them.
func TestSourcesSequence(t *testing.T) {
	w := newTable(t, Limits{})
	w.same(w.do(OpenJob{Holder: "ann", Limit: 3}), "JobOpened{ann 1 3}")
	w.same(w.do(Request{Holder: "ann", ID: "r1", Job: 1, Slots: 2, Milli: 1000, Memory: giga, PostBack: "there"}), "Acknowledge{ann r1}")
	w.same(
		w.do(Create{Worker: "w1", Host: "h1", Milli: 1000, Memory: 4 * giga}),
		"Lock{1 w1 ann 1000 1073741824 }", "Grant{1 w1 h1 ann r1 1 there 1000 1073741824}",
	)
	w.same(w.do(Posted{1}))
	w.same(
		w.do(Free{"ann", 1}),
		"Unlock{1 w1 ann freed}", "Lock{2 w1 ann 1000 1073741824 }", "Grant{2 w1 h1 ann r1 1 there 1000 1073741824}",
	)
	w.same(w.do(Create{Worker: "w2", Host: "h2", Milli: 2000}))
	w.same(w.do(PostFailed{2}), "Unlock{2 w1 ann it could not be posted back}")
	w.same(
		w.do(Request{Holder: "ann", ID: "r1", Job: 1, Slots: 3, Milli: 1000}),
		"Acknowledge{ann r1}",
		"Lock{3 w2 ann 1000 0 }", "Grant{3 w2 h2 ann r1 1  1000 0}",
		"Lock{4 w1 ann 1000 0 }", "Grant{4 w1 h1 ann r1 1  1000 0}",
		"Lock{5 w2 ann 1000 0 }", "Grant{5 w2 h2 ann r1 1  1000 0}",
	)
}

// TestWorkedExample is figure 4 of the source of R51 and R52: 16 tasks of half a core on three hosts.
func TestWorkedExample(t *testing.T) {
	for name, ids := range map[string][]uint64{"one job": {1}, "two jobs, the second asks first": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newTable(t, Limits{})
			for i, h := range []struct {
				memory int64
				free   int
			}{{2 * giga, 3000}, {giga, 3500}, {giga, 500}} {
				host := fmt.Sprint("h", i+1)
				w.do(Create{Worker: host, Host: host, Milli: 4000, Memory: h.memory, Shared: true}, Heartbeat{host, h.free, h.memory})
			}
			w.do(OpenJob{Holder: "ann"}, OpenJob{Holder: "ann"})
			w.do(Request{Holder: "ann", ID: "first", Job: ids[0], Slots: 15, Milli: 500, Memory: 64 * mega})
			w.same(w.do(Request{Holder: "ann", ID: "last", Job: ids[len(ids)-1], Slots: 1, Milli: 500, Memory: 64 * mega}), "Acknowledge{ann last}")
			got := map[string]int{}
			for _, l := range w.m.leases {
				got[l.worker.host.name]++
			}
			if diff := cmp.Diff(map[string]int{"h1": 6, "h2": 7, "h3": 1}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			hosts, jobs := placed(w.do(Heartbeat{"h3", 1000, giga}))
			if diff := cmp.Diff(map[string]int{"h3": 2}, hosts); diff != "" {
				t.Errorf("delayed ones: (-want +got)\n%s", diff)
			}
			if !slices.IsSorted(jobs) {
				t.Errorf("the jobs come in the order %v", jobs)
			}
		})
	}
}

// TestPlacement: a grant goes to the host with the most free cores, among those with the memory.
func TestPlacement(t *testing.T) {
	one := func(memory int64) Request {
		return Request{Holder: "ann", ID: "r", Job: 1, Slots: 1, Milli: 1000, Memory: memory}
	}
	for name, c := range map[string]struct {
		events []Event
		want   []string // hosts, one for each request
		ask    []Request
	}{
		"equal hosts go by their names": {
			[]Event{Create{"b", "h2", 4000, giga, false}, Create{"a", "h1", 4000, giga, false}},
			[]string{"h1", "h2", "h1", "h2"},
			[]Request{one(0), one(0), one(0), one(0)},
		},
		"memory comes first": {
			[]Event{Create{"a", "h1", 8000, giga, false}, Create{"b", "h2", 2000, 4 * giga, false}},
			[]string{"h2", "h1"},
			[]Request{one(2 * giga), one(giga)},
		},
		"what was granted since the heartbeat is subtracted": {
			[]Event{Create{"a", "h1", 8000, 0, false}, Create{"b", "h2", 8000, 0, false}, Heartbeat{"a", 5000, 0}, Heartbeat{"b", 3000, 0}},
			[]string{"h1", "h1", "h1", "h2", "h1"},
			[]Request{one(0), one(0), one(0), one(0), one(0)},
		},
		"slots that a queue granted are used whatever else the host does": {
			[]Event{Create{"a", "h1", 2000, 0, false}, Heartbeat{"a", 0, 0}},
			[]string{"h1", "h1"},
			[]Request{one(0), one(0)},
		},
		"shared ones are not": {
			[]Event{Create{"a", "h1", 2000, 0, true}, Heartbeat{"a", 1999, giga}},
			[]string{"h1", ""},
			[]Request{one(0), one(0)},
		},
		"nor is shared memory": {
			[]Event{Create{"a", "h1", 8000, 0, true}, Heartbeat{"a", 8000, giga}},
			[]string{"h1", ""},
			[]Request{one(giga), one(1)},
		},
		"workers of one host": {
			[]Event{Create{"a", "h1", 1000, 0, false}, Create{"b", "h1", 2000, 0, false}, Create{"c", "h2", 2000, 0, false}},
			[]string{"h1", "h1", "h2", "h1", "h2", ""},
			[]Request{one(0), one(0), one(0), one(0), one(0), one(0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTable(t, Limits{})
			w.do(OpenJob{Holder: "ann"})
			w.do(c.events...)
			var got []string
			for i, r := range c.ask {
				r.ID = fmt.Sprint(i)
				host := ""
				for _, a := range w.do(r) {
					if g, ok := a.(Grant); ok {
						host = g.Host
					}
				}
				got = append(got, host)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestOrder: requests are served in their order, and none overtakes.
func TestOrder(t *testing.T) {
	w := newTable(t, Limits{})
	w.do(OpenJob{Holder: "ann"}, OpenJob{Holder: "bob"})
	ask := func(holder, id string, job uint64, priority, milli int) {
		w.do(Request{Holder: holder, ID: id, Job: job, Priority: priority, Slots: 1, Milli: milli})
	}
	ask("bob", "second job", 2, 0, 1000)
	ask("ann", "first", 1, 0, 1000)
	ask("ann", "later", 1, 0, 1000)
	ask("bob", "impossible", 2, 9, 9000)
	ask("ann", "whole host", 1, 1, 4000)
	ask("bob", "urgent", 2, 2, 1000)
	granted := func(actions []Action) (ids []string) {
		for _, a := range actions {
			if g, ok := a.(Grant); ok {
				ids = append(ids, g.ID)
			}
		}
		return ids
	}
	got := granted(w.do(Create{Worker: "w", Host: "h", Milli: 4000}))
	got = append(got, "|")
	got = append(got, granted(w.do(Free{"bob", 1}))...)
	got = append(got, "|")
	got = append(got, granted(w.do(Free{"ann", 2}))...)
	got = append(got, "|")
	got = append(got, granted(w.do(Create{Worker: "v", Host: "g", Milli: 9000}))...)
	want := []string{"urgent", "|", "whole host", "|", "first", "later", "second job", "|", "impossible"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestEnds: what becomes of leases when their worker or holder ends.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		events []Event
		want   []string
	}{
		"the worker goes": {[]Event{Gone{"w"}}, []string{
			"Unlock{1 w ann its worker is gone}", "Revoke{1 w ann a its worker is gone}",
			"Unlock{2 w bob its worker is gone}", "Revoke{2 w bob b its worker is gone}",
		}},
		"the worker returns its slots": {[]Event{Withdraw{"w"}, Withdraw{"w"}, Free{"bob", 2}, Free{"ann", 1}, Gone{"w"}}, []string{
			"Revoke{1 w ann a its worker returns its slots}", "Revoke{2 w bob b its worker returns its slots}",
			"Unlock{2 w bob freed}", "Unlock{1 w ann freed}", "Release{w its worker returns its slots}",
		}},
		"and is killed meanwhile": {[]Event{Withdraw{"w"}, Free{"bob", 2}, Gone{"w"}}, []string{
			"Revoke{1 w ann a its worker returns its slots}", "Revoke{2 w bob b its worker returns its slots}",
			"Unlock{2 w bob freed}", "Unlock{1 w ann its worker is gone}", "Revoke{1 w ann a its worker is gone}",
		}},
		"a holder goes": {[]Event{HolderGone{"ann"}}, []string{"Unlock{1 w ann its holder is gone}"}},
		"a job is closed, and the next request is served": {
			[]Event{Request{Holder: "bob", ID: "more", Job: 2, Slots: 1, Milli: 1000}, CloseJob{"ann", 1}},
			[]string{
				"Acknowledge{bob more}", "Unlock{1 w ann its job was closed}",
				"Lock{3 w bob 1000 0 }", "Grant{3 w h bob more 2  1000 0}",
			},
		},
		"a request is cancelled": {
			[]Event{Request{Holder: "bob", ID: "more", Job: 2, Slots: 1, Milli: 1000}, Cancel{"bob", "more"}, Free{"ann", 1}},
			[]string{"Acknowledge{bob more}", "Unlock{1 w ann freed}"},
		},
		"freed before the post-back was answered": {[]Event{Free{"ann", 1}}, []string{"Unlock{1 w ann freed}"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTable(t, Limits{})
			w.do(
				Create{Worker: "w", Host: "h", Milli: 2000}, OpenJob{Holder: "ann"}, OpenJob{Holder: "bob"},
				Request{Holder: "ann", ID: "a", Job: 1, Slots: 1, Milli: 1000}, Request{Holder: "bob", ID: "b", Job: 2, Slots: 1, Milli: 1000},
			)
			w.same(w.do(c.events...), c.want...)
		})
	}
}

// TestTasks: a task goes to the worker with its lock, and its result to the holder; only its worker
// ends it so.
func TestTasks(t *testing.T) {
	w := newTable(t, Limits{Tasks: 10})
	ask := func(id, task string) Request {
		return Request{Holder: "ann", ID: id, Job: 1, Slots: 1, Milli: 1000, Task: task}
	}
	w.do(Create{Worker: "w", Host: "h", Milli: 1000}, Create{Worker: "v", Host: "g", Milli: 1000}, OpenJob{Holder: "ann"})
	w.same(w.do(ask("a", "count")), "Acknowledge{ann a}", "Lock{1 v ann 1000 0 count}", "Grant{1 v g ann a 1  1000 0}")
	w.same(w.do(ask("b", "")), "Acknowledge{ann b}", "Lock{2 w ann 1000 0 }", "Grant{2 w h ann b 1  1000 0}")
	w.same(w.do(ask("c", "1234567890")), "Acknowledge{ann c}")
	w.refused(ask("d", "1"), ErrLimit)
	w.refused(Done{"w", 1, "not its own"}, ErrUnknown)
	w.refused(Done{"w", 2, "no task"}, ErrUnknown)
	w.refused(Done{"v", 1, strings.Repeat("x", MaxResult+1)}, ErrInvalid)
	w.same(w.do(Done{"v", 1, "3"}),
		"Unlock{1 v ann its task is done}", "Result{1 v ann a 1 3}", "Lock{3 v ann 1000 0 1234567890}", "Grant{3 v g ann c 1  1000 0}")
	w.refused(Done{"v", 1, "3"}, ErrUnknown)
	w.same(w.do(Withdraw{"v"}, Done{"v", 3, ""}),
		"Revoke{3 v ann c its worker returns its slots}", "Unlock{3 v ann its task is done}", "Release{v its worker returns its slots}", "Result{3 v ann c 1 }")
	w.same(w.do(ask("d", "1")), "Acknowledge{ann d}")
	w.same(w.do(Free{"ann", 2}), "Unlock{2 w ann freed}", "Lock{4 w ann 1000 0 1}", "Grant{4 w h ann d 1  1000 0}")
	w.same(w.do(Gone{"w"}), "Unlock{4 w ann its worker is gone}", "Revoke{4 w ann d its worker is gone}")
}

// TestRefused: what is refused at once, and changes nothing.
func TestRefused(t *testing.T) {
	w := newTable(t, Limits{Workers: 2, Holders: 1, Jobs: 2, Waiting: 3, Each: 2, Held: 8, Slots: 4})
	w.do(OpenJob{Holder: "ann", Limit: 2}, OpenJob{Holder: "ann"}, Create{Worker: "w", Host: "h", Milli: 1000})
	good := Request{Holder: "ann", ID: "r", Job: 2, Slots: 1, Milli: 1000}
	w.do(good)
	w.do(Posted{1})
	w.refused(Posted{1}, ErrTaken)
	w.refused(PostFailed{1}, ErrTaken)
	w.refused(Free{"bob", 1}, ErrUnknown)
	w.refused(Free{"ann", 2}, ErrUnknown)
	w.do(good)
	w.refused(good, ErrTaken)
	with := func(change func(*Request)) Request {
		r := good
		r.ID = "other"
		change(&r)
		return r
	}
	w.refused(with(func(r *Request) { r.Slots = 0 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Slots = -1 << 62 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Slots = 5 }), ErrLimit)
	w.refused(with(func(r *Request) { r.Milli = 0 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Milli = MaxMilli + 1 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Memory = -1 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.PostBack = strings.Repeat("x", MaxPostBack+1) }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Task = strings.Repeat("x", MaxTask+1) }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Task, r.Slots = "x", 2 }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Task, r.PostBack = "x", "there" }), ErrInvalid)
	w.refused(with(func(r *Request) { r.ID = "\x1b[2J" }), ErrInvalid)
	w.refused(with(func(r *Request) { r.ID = strings.Repeat("x", MaxName+1) }), ErrInvalid)
	w.refused(with(func(r *Request) { r.Job = 3 }), ErrUnknown)
	w.refused(with(func(r *Request) { r.Holder = "bob" }), ErrUnknown)
	w.refused(with(func(r *Request) { r.Job, r.Slots = 1, 3 }), ErrLimit)
	w.do(with(func(r *Request) { r.ID, r.Job, r.Slots = "limit", 1, 2 }))
	w.refused(with(func(r *Request) {}), ErrLimit) // the third that would wait
	w.refused(OpenJob{Holder: "bob"}, ErrLimit)
	w.refused(OpenJob{Holder: "ann"}, ErrLimit)
	w.refused(OpenJob{Holder: "ann", Limit: -1}, ErrInvalid)
	w.refused(Create{Worker: "w", Host: "h", Milli: 1000}, ErrTaken)
	w.refused(Create{Worker: "v", Host: "h", Milli: 1000, Shared: true}, ErrInvalid)
	w.refused(Create{Worker: "v", Host: "g", Milli: -1}, ErrInvalid)
	w.refused(Create{Worker: "v", Host: "", Milli: 1}, ErrInvalid)
	w.do(Create{Worker: "v", Host: "g", Milli: 1})
	w.refused(Create{Worker: "u", Host: "g", Milli: 1}, ErrLimit)
	w.refused(Heartbeat{"u", 1, 1}, ErrUnknown)
	w.refused(Heartbeat{"v", -1, 1}, ErrInvalid)
	w.refused(Heartbeat{"v", 1, -1}, ErrInvalid)
	w.refused(Gone{strings.Repeat("\x1b", 1000)}, ErrUnknown)
	w.refused(Withdraw{"u"}, ErrUnknown)
	w.refused(CloseJob{"ann", 9}, ErrUnknown)
	w.refused(Cancel{"ann", "none"}, ErrUnknown)
	w.refused(Cancel{"bob", "r"}, ErrUnknown)
	w.refused(HolderGone{"bob"}, ErrUnknown)
	w.refused(nil, ErrInvalid)
}

// TestIdle: a worker without a lease is released in time, but not while a request waits for one.
func TestIdle(t *testing.T) {
	w := newTable(t, Limits{Idle: 30 * time.Second})
	w.do(OpenJob{Holder: "ann"}, Create{Worker: "w", Host: "h", Milli: 2000})
	w.do(Request{Holder: "ann", ID: "r", Job: 1, Slots: 1, Milli: 1000})
	if at := w.m.Wake(); !at.IsZero() {
		t.Errorf("a Tick at %v: no worker is idle", at)
	}
	w.now = begin.Add(10 * time.Second)
	w.do(Create{Worker: "v", Host: "g", Milli: 1000}, Free{"ann", 1})
	w.do(Request{Holder: "ann", ID: "blocked", Job: 1, Slots: 1, Milli: 2000})
	w.do(Request{Holder: "ann", ID: "behind it", Job: 1, Slots: 1, Milli: 2000})
	w.now = w.m.Wake()
	if want := begin.Add(40 * time.Second); !w.now.Equal(want) {
		t.Fatalf("a Tick at %v, want %v", w.now, want)
	}
	w.same(w.do(Tick{}))
	w.do(Cancel{"ann", "behind it"})
	w.now = w.m.Wake().Add(-1)
	w.same(w.do(Tick{}))
	w.now = w.now.Add(1)
	w.same(w.do(Tick{}), "Release{v idle}")
	w.same(w.do(Gone{"v"}))
	w.same(w.do(Free{"ann", 2}), "Unlock{2 w ann freed}")
	w.now = w.m.Wake()
	w.same(w.do(Tick{}), "Release{w idle}")
	w.same(w.do(Request{Holder: "ann", ID: "too late", Job: 1, Slots: 1, Milli: 1000}), "Acknowledge{ann too late}")
}

// TestWant: more workers are asked for as far as they would be of use.
func TestWant(t *testing.T) {
	w := newTable(t, Limits{Workers: 3, Milli: 2000, Memory: 4 * giga})
	want := func(n int, events ...Event) {
		t.Helper()
		got := 0
		for _, a := range w.do(events...) {
			if a, ok := a.(Want); ok {
				got = a.Workers
			}
		}
		if w.m.want != n || got != n && got != 0 {
			t.Errorf("%d workers are wanted, the last action said %d; want %d", w.m.want, got, n)
		}
	}
	ask := func(id string, slots, milli int, memory int64) Request {
		return Request{Holder: "ann", ID: id, Job: 1, Slots: slots, Milli: milli, Memory: memory}
	}
	want(0, OpenJob{Holder: "ann"})
	want(0, ask("too large", 1, 2001, 0), ask("too much", 1, 1000, 5*giga))
	want(1, ask("one", 2, 1000, 0))
	want(2, ask("half", 1, 1000, 3*giga))
	want(3, ask("more", 9, 500, 0))
	want(2, Create{Worker: "w", Host: "h", Milli: 1000})
	want(0, HolderGone{"ann"})
}
