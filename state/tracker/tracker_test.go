package tracker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

func job(n int64) state.Job { return state.Job{Queue: "slurm", ID: backends.ID{Job: n}} }

func digits(c rune) string { return strings.Repeat(string(c), 64) }

// agent is a host in the tests: what it holds, and how it announces it.
type agent struct {
	name          string
	epoch, number uint64
	held          map[state.Job]Entry
	at            state.Job // where its next page begins; zero: at the beginning
}

func newAgent(n int) *agent {
	return &agent{name: fmt.Sprintf("h%d", n), epoch: 1, held: map[state.Job]Entry{}}
}

func (a *agent) announce(entries ...Entry) *Announcement {
	a.number++
	return &Announcement{Epoch: a.epoch, Number: a.number, Address: a.name + ":1", Fingerprint: digits('a'), Entries: entries}
}

// page is the next page, of three jobs at most.
func (a *agent) page() *Announcement {
	m := a.announce()
	m.Page = true
	if a.at != (state.Job{}) {
		m.After = a.at.String()
	}
	jobs := slices.SortedFunc(maps.Keys(a.held), Compare)
	jobs = slices.DeleteFunc(jobs, func(j state.Job) bool { return a.at != (state.Job{}) && Compare(j, a.at) <= 0 })
	a.at = state.Job{}
	if len(jobs) > 3 {
		jobs = jobs[:3]
		a.at = jobs[2]
		m.Through = a.at.String()
	}
	for _, j := range jobs {
		m.Entries = append(m.Entries, a.held[j])
	}
	return m
}

// Whatever is lost, late, doubled or out of order, and whatever happens to the jobs meanwhile:
// when each host's whole list was heard once more the tracker knows what the hosts hold, no
// more and no less, and so does a tracker that began empty. On the way no lower run is ever the
// holder where a higher one is known.
func TestListsAreTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := New()
		now := time.Unix(1e9, 0)
		var agents []*agent
		for n := range rapid.IntRange(1, 4).Draw(t, "hosts") {
			agents = append(agents, newAgent(n))
		}
		type sent struct {
			host string
			data []byte
		}
		var wire []sent
		send := func(a *agent, m *Announcement) {
			data, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "copies") {
				wire = append(wire, sent{a.name, data})
			}
		}
		hear := func(host string, data []byte) map[string][]Order {
			m, err := ParseAnnouncement(data)
			if err != nil {
				t.Fatal(err)
			}
			return tr.Hear(host, m, now)
		}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Second)
			a := agents[rapid.IntRange(0, len(agents)-1).Draw(t, "host")]
			j := job(int64(rapid.IntRange(1, 9).Draw(t, "job")))
			e, holds := a.held[j]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0: // a run starts here
				e = Entry{Job: j, Sequence: state.Sequence{Run: e.Run + rapid.IntRange(1, 2).Draw(t, "run"), N: 1}, Live: true}
				a.held[j] = e
				send(a, a.announce(e))
			case 1: // something happens to it, or it ends
				if holds {
					e.N, e.Live = e.N+1, rapid.Bool().Draw(t, "live")
					a.held[j] = e
					send(a, a.announce(e))
				}
			case 2: // it has gone elsewhere, or is purged
				if holds {
					delete(a.held, j)
					e.Gone = true
					send(a, a.announce(e))
				}
			case 3:
				send(a, a.page())
			case 4: // the agent starts anew
				a.epoch, a.number, a.at = a.epoch+1, 0, state.Job{}
			default:
				if len(wire) > 0 {
					n := rapid.IntRange(0, min(len(wire)-1, 5)).Draw(t, "message")
					hear(wire[n].host, wire[n].data)
					wire = slices.Delete(wire, n, n+1)
				}
			}
			for k, n := range tr.jobs {
				for _, other := range tr.more[k] {
					if tr.list[other].held[k].run > tr.list[n].held[k].run {
						t.Fatalf("job %v: run %d holds it, and not run %d", k.name(), tr.list[n].held[k].run, tr.list[other].held[k].run)
					}
				}
			}
		}
		empty := New()
		for _, a := range agents {
			a.at = state.Job{}
			for first := true; first || a.at != (state.Job{}); first = false {
				m := a.page()
				tr.Hear(a.name, m, now)
				empty.Hear(a.name, m, now)
			}
		}
		for _, s := range wire { // late ones change nothing any more
			hear(s.host, s.data)
		}
		for n := range int64(10) {
			var want []Place
			for _, a := range agents {
				if e, ok := a.held[job(n)]; ok {
					want = append(want, Place{a.name, e.Sequence, e.Live})
				}
			}
			slices.SortFunc(want, func(a, b Place) int {
				if a.Run != b.Run {
					return b.Run - a.Run
				}
				return strings.Compare(a.Host, b.Host)
			})
			if len(want) > 1 {
				slices.SortFunc(want[1:], func(a, b Place) int { return strings.Compare(a.Host, b.Host) })
			}
			for which, tr := range map[string]*Tracker{"tracker": tr, "empty tracker": empty} {
				if diff := cmp.Diff(want, tr.Find(job(n))); diff != "" {
					t.Fatalf("%s, job %d:\n%s", which, n, diff)
				}
			}
		}
		if len(tr.jobs) != len(empty.jobs) || tr.held != empty.held || len(tr.more) != len(empty.more) {
			t.Fatalf("the tracker has %d jobs and %d places, the one that began empty %d and %d", len(tr.jobs), tr.held, len(empty.jobs), empty.held)
		}
	})
}

// A job's next run on another host has what the first one left pushed there; two runs that live
// are shown as two.
func TestOrders(t *testing.T) {
	now := time.Unix(1e9, 0)
	entry := func(run int, n uint64, live bool) Entry {
		return Entry{Job: job(7), Sequence: state.Sequence{Run: run, N: n}, Live: live}
	}
	tr := New()
	h1, h2 := newAgent(1), newAgent(2)
	if o := tr.Hear("h1", h1.announce(entry(1, 1, true)), now); len(o) != 0 {
		t.Fatalf("one host: %v", o)
	}
	want := map[string][]Order{
		"h1": {{Job: job(7), Send: true, Host: "h2", Address: "h2:1", Fingerprint: digits('a')}},
		"h2": {{Job: job(7), Expect: true, Host: "h1", Fingerprint: digits('a')}},
	}
	if diff := cmp.Diff(want, tr.Hear("h2", h2.announce(entry(2, 1, true)), now)); diff != "" {
		t.Fatal("run 2 begins:", diff)
	}
	if p := tr.Find(job(7)); len(p) != 2 || p[0].Host != "h2" || !p[1].Live || Moving(p) {
		t.Errorf("run 1 lives on: %v", p)
	}
	if diff := cmp.Diff(want, tr.Hear("h1", h1.announce(entry(1, 9, false)), now)); diff != "" {
		t.Error("run 1 has ended:", diff)
	}
	if p := tr.Find(job(7)); !Moving(p) {
		t.Errorf("run 1 has ended: %v", p)
	}
	gone := entry(1, 9, false)
	gone.Gone = true
	tr.Hear("h1", h1.announce(gone), now)
	if p := tr.Find(job(7)); len(p) != 1 || p[0] != (Place{"h2", state.Sequence{Run: 2, N: 1}, true}) || Moving(p) {
		t.Errorf("it has moved: %v", p)
	}
	// It comes back, and a message of the past changes nothing.
	old := h2.announce(entry(2, 5, false))
	tr.Hear("h2", h2.announce(entry(2, 6, false)), now)
	tr.Hear("h1", h1.announce(entry(3, 1, true)), now)
	tr.Hear("h2", old, now)
	if p := tr.Find(job(7)); p[0].Host != "h1" || p[1].N != 6 {
		t.Errorf("back on its first host: %v", p)
	}
	tr.Withdraw("h1")
	if p := tr.Find(job(7)); len(p) != 1 || p[0].Host != "h2" {
		t.Errorf("h1 is withdrawn: %v", p)
	}
	if a, _ := tr.Address("h1"); a != "" {
		t.Errorf("a withdrawn host is at %s", a)
	}
}

// A job that any user can name, of however high a run, does not displace one that is proven.
func TestClaims(t *testing.T) {
	tr, now := New(), time.Unix(1e9, 0)
	h1, h2 := newAgent(1), newAgent(2)
	proven := Entry{Job: job(7), Sequence: state.Sequence{Run: 1, N: 3}, Live: true}
	claim := Entry{Job: job(7), Sequence: state.Sequence{Run: 900, N: 1}, Live: true, Claimed: true}
	tr.Hear("h2", h2.announce(claim), now)
	tr.Hear("h1", h1.announce(proven), now)
	if p := tr.Find(job(7)); len(p) != 2 || p[0].Host != "h1" {
		t.Errorf("a claim came first: %v", p)
	}
	tr.Hear("h2", h2.announce(claim), now)
	if p := tr.Find(job(7)); p[0].Host != "h1" {
		t.Errorf("a claim came last: %v", p)
	}
	proven.Gone = true
	tr.Hear("h1", h1.announce(proven), now)
	if p := tr.Find(job(7)); len(p) != 1 || p[0].Host != "h2" {
		t.Errorf("a claim alone: %v", p)
	}
}

// Without an address no one is ordered to push, and a host without a certificate is not expected.
func TestHostsThatTakeNothing(t *testing.T) {
	tr, now := New(), time.Unix(1e9, 0)
	e := Entry{Job: job(1), Sequence: state.Sequence{Run: 1, N: 1}}
	tr.Hear("h1", &Announcement{Epoch: 1, Number: 1, Entries: []Entry{e}}, now)
	e.Run = 2
	if o := tr.Hear("h2", newAgent(2).announce(e), now); len(o) != 0 {
		t.Errorf("h1 has no certificate: %v", o)
	}
	e.Run = 3
	if o := tr.Hear("h1", &Announcement{Epoch: 1, Number: 2, Entries: []Entry{e}}, now); len(o) != 0 {
		t.Errorf("h1 has no address: %v", o)
	}
}

// A clock that was set back shuts a host out for a minute at most.
func TestClockSetBack(t *testing.T) {
	tr, now := New(), time.Unix(1e9, 0)
	a := newAgent(1)
	a.epoch = 100
	tr.Hear("h1", a.announce(Entry{Job: job(1), Sequence: state.Sequence{Run: 1, N: 1}}), now)
	a.epoch, a.number = 50, 0
	later := a.announce(Entry{Job: job(2), Sequence: state.Sequence{Run: 1, N: 1}})
	if tr.Hear("h1", later, now.Add(oldEpoch-1)); tr.Find(job(2)) != nil {
		t.Error("an old epoch is heard")
	}
	if tr.Hear("h1", later, now.Add(oldEpoch)); tr.Find(job(2)) == nil {
		t.Error("after a minute it is not heard")
	}
}

// A host that announces more than it may shuts out no other, and nothing of its own that is known.
func TestOneHostHasABound(t *testing.T) {
	tr, now := New(), time.Unix(1e9, 0)
	a, b := newAgent(1), newAgent(2)
	for n := int64(0); n < MaxJobsOfHost+5*MaxEntries; {
		var list []Entry
		for range MaxEntries {
			n++
			list = append(list, Entry{Job: job(n), Sequence: state.Sequence{Run: 1, N: 1}})
		}
		tr.Hear("h1", a.announce(list...), now)
	}
	if tr.Len() != MaxJobsOfHost {
		t.Errorf("%d jobs are known, want %d", tr.Len(), MaxJobsOfHost)
	}
	tr.Hear("h2", b.announce(Entry{Job: job(1), Sequence: state.Sequence{Run: 2, N: 1}}, Entry{Job: job(1e9), Sequence: state.Sequence{Run: 1, N: 1}}), now)
	if p := tr.Find(job(1)); p[0].Host != "h2" || tr.Find(job(1e9)) == nil {
		t.Errorf("another host is shut out: %v", p)
	}
}

// A restored place counts until its host is heard.
func TestRestore(t *testing.T) {
	tr, now := New(), time.Unix(1e9, 0)
	tr.Restore(job(1), Place{"h1", state.Sequence{Run: 2, N: 4}, true})
	tr.Restore(job(2), Place{"h1", state.Sequence{Run: 1, N: 4}, false})
	if p := tr.Find(job(1)); len(p) != 1 || p[0] != (Place{"h1", state.Sequence{Run: 2, N: 4}, true}) {
		t.Errorf("restored: %v", p)
	}
	a := newAgent(1)
	a.held[job(2)] = Entry{Job: job(2), Sequence: state.Sequence{Run: 3, N: 1}}
	tr.Changes()
	tr.Hear("h1", a.page(), now)
	tr.Restore(job(1), Place{"h1", state.Sequence{Run: 2, N: 4}, true})
	if tr.Find(job(1)) != nil || tr.Find(job(2))[0].Run != 3 {
		t.Errorf("after its list: %v, %v", tr.Find(job(1)), tr.Find(job(2)))
	}
	changes := tr.Changes()
	slices.SortFunc(changes, Compare)
	if !slices.Equal(changes, []state.Job{job(1), job(2)}) || tr.Changes() != nil {
		t.Errorf("changes %v", changes)
	}
}

// All jobs are listed once, part by part.
func TestJobs(t *testing.T) {
	tr, a := New(), newAgent(1)
	var want []state.Job
	for n := range int64(5000) {
		j := state.Job{Queue: []string{"lsf", "slurm"}[n%2], ID: backends.ID{Job: 1 + n*7919%5003, Index: int(n % 3)}}
		want = append(want, j)
		tr.Hear(a.name, a.announce(Entry{Job: j, Sequence: state.Sequence{Run: 1, N: 1}}), time.Unix(1e9, 0))
	}
	slices.SortFunc(want, Compare)
	var got []state.Job
	var after state.Job
	for {
		part := tr.Jobs(after, 300)
		if len(part) == 0 {
			break
		}
		got, after = append(got, part...), part[len(part)-1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d jobs are listed, want %d, in order", len(got), len(want))
	}
}

func TestMessages(t *testing.T) {
	a := &Announcement{Epoch: 3, Number: 9, Address: "h1.example.org:8474", Fingerprint: digits('0'), Page: true, After: "slurm/3", Through: "slurm/12.3", Entries: []Entry{{Job: job(4), Sequence: state.Sequence{Run: 2, N: 7}, Live: true, Claimed: true}, {Job: job(5), Gone: true}}}
	data, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseAnnouncement(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		`x`, `{"l":[{"j":"../x"}]}`, `{"l":[{"j":"slurm/1","r":-1}]}`, `{"l":[{"j":"slurm/1","r":2000000}]}`, `{"l":[{"j":"slurm/1","n":9999999999999999}]}`,
		`{"a":"h1:1"}`, `{"a":"h1","f":"` + digits('a') + `"}`, `{"a":"h1:1/x","f":"` + digits('a') + `"}`, `{"a":"u@h1:1","f":"` + digits('a') + `"}`, `{"a":"h1:1","f":"` + digits('A') + `"}`, `{"after":"x"}`,
		`{"l":[` + strings.Repeat(`{"j":"slurm/1"},`, MaxEntries) + `{"j":"slurm/1"}]}`, `{"x":"` + strings.Repeat("x", MaxMessage) + `"}`,
	} {
		if _, err := ParseAnnouncement([]byte(bad)); err == nil {
			t.Errorf("%.60s is read", bad)
		}
	}
	orders := []Order{{Job: job(1), Send: true, Host: "h2", Address: "h2:1", Fingerprint: digits('b')}, {Job: job(2), Expect: true, Host: "h3", Fingerprint: digits('c')}}
	messages, err := EncodeOrders(digits('d'), orders)
	if err != nil || len(messages) != 1 {
		t.Fatal(len(messages), err)
	}
	reader, back, err := ParseOrders(messages[0])
	if diff := cmp.Diff(orders, back); diff != "" || reader != digits('d') || err != nil {
		t.Error(reader, err, diff)
	}
	if many, err := EncodeOrders("", slices.Repeat(orders, MaxOrders)); err != nil || len(many) != 2 {
		t.Errorf("%d messages, %v; want 2", len(many), err)
	}
	if none, err := EncodeOrders(digits('d'), nil); err != nil || len(none) != 1 {
		t.Errorf("%d messages, %v; want 1", len(none), err)
	}
	for _, bad := range []string{`{"orders":[{"j":"slurm/1","s":true,"h":"h2","f":"` + digits('b') + `"}]}`, `{"orders":[{"j":"slurm/1","h":"","f":"` + digits('b') + `"}]}`, `{"orders":[{"j":"slurm/1","h":"h1"}]}`} {
		if _, _, err := ParseOrders([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"e":1,"n":2,"a":"h1:1","f":"","p":true,"after":"slurm/1","l":[{"j":"slurm/2","r":1,"n":3,"v":true}]}`))
	f.Add([]byte(`{"reader":"x","orders":[{"j":"slurm/2","s":true,"h":"h2","a":"h2:1","f":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := ParseAnnouncement(data); err == nil {
			tr := New()
			tr.Hear("h1", a, time.Unix(1e9, 0))
			for _, e := range a.Entries {
				tr.Find(e.Job)
			}
		}
		_, _, _ = ParseOrders(data)
	})
}

// BenchmarkMemory reports what a tracker needs of memory for a job.
func BenchmarkMemory(b *testing.B) {
	tr := New()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	hosts := make([]*agent, 1000)
	for n := range hosts {
		hosts[n] = newAgent(n)
	}
	for n := range b.N {
		a := hosts[rand.IntN(len(hosts))]
		tr.Hear(a.name, a.announce(Entry{Job: job(int64(n + 1)), Sequence: state.Sequence{Run: 1, N: 3}}), time.Unix(1e9, 0))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(tr.Len()), "B/job")
	runtime.KeepAlive(tr)
}
