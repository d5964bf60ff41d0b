package manager

import (
	"slices"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

const gib = int64(1) << 30

// TestPlacement: one host where one can hold it, the fullest such; else those
// that can give most. Memory goes by the slot, rounded up.
func TestPlacement(t *testing.T) {
	place := func(host string, slots int) backends.Placement { return backends.Placement{Host: host, Slots: slots} }
	for _, c := range []struct {
		name string
		cfg  Config
		spec backends.Spec
		want []backends.Placement
	}{
		{"fullest", Config{}, backends.Spec{Slots: 2}, []backends.Placement{place("n1", 2)}},
		{"only one is wide enough", Config{}, backends.Spec{Slots: 4, OneHost: true}, []backends.Placement{place("n2", 4)}},
		{"spans", Config{}, backends.Spec{Slots: 9}, []backends.Placement{place("n2", 6), place("n3", 3)}},
		{"asked", Config{}, backends.Spec{Slots: 2, Hosts: []string{"n3", "n2", "n3"}}, []backends.Placement{place("n3", 2)}},
		{"memory", Config{}, backends.Spec{Slots: 2, Memory: 9 * gib}, []backends.Placement{place("n3", 2)}},
		{"memory spans", Config{}, backends.Spec{Slots: 5, Memory: 30*gib + 1}, []backends.Placement{place("n2", 3), place("n3", 2)}},
		{"slots only", Config{SlotsOnly: true}, backends.Spec{Slots: 2, Memory: 1000 * gib}, []backends.Placement{place("n1", 2)}},
	} {
		b := newBench(t, c.cfg, 2, 6, 4)
		b.submit(backends.Spec{Slots: 1, Hosts: []string{"n3"}}) // leaves 2, 6, 3
		id := b.submit(c.spec)
		if got := b.job(id).Hosts; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestExclusive has its hosts for itself, and waits until nothing runs there.
func TestExclusive(t *testing.T) {
	b := newBench(t, Config{}, 4)
	first := b.submit(spec(1))
	id := b.submit(backends.Spec{Exclusive: true})
	b.waits(id, backends.WaitResources)
	passes := b.submit(spec(1))
	b.starts(passes)
	b.ends(first, 0)
	b.ends(passes, 0)
	b.starts(id)
	waits := b.submit(spec(1))
	b.waits(waits, backends.WaitResources)
	b.must(Suspend{user, []backends.Act{{ID: id}}})
	b.starts(waits)
	b.must(Resume{user, []backends.ID{id}})
	b.state(id, backends.Suspended)
	b.ends(waits, 0)
	b.state(id, backends.Running)
}

// TestReserveAfter: what doesn't fit is passed over, until it has waited; then it
// reserves just what it needs, where it will fit first.
func TestReserveAfter(t *testing.T) {
	cfg := Config{ReserveAfter: 10 * time.Minute}
	b := newBench(t, cfg, 4, 4)
	long := b.submit(backends.Spec{Slots: 3, Hosts: []string{"n1"}, RunLimit: 5 * time.Hour})
	short := b.submit(backends.Spec{Slots: 3, Hosts: []string{"n2"}, RunLimit: 2 * time.Hour})
	wide := b.submit(backends.Spec{Slots: 3, OneHost: true})
	narrow := func() backends.ID { return b.submit(spec(1)) }
	passes := narrow()
	if b.starts(passes); b.job(passes).Hosts[0].Host != "n1" {
		t.Fatalf("%v", b.job(passes).Hosts)
	}
	b.ends(passes, 0)
	b.after(10 * time.Minute)

	// n2 ends first: of its four slots one is beyond the need.
	one, two, three := narrow(), narrow(), narrow()
	if b.job(one).Hosts[0].Host != "n1" || b.job(two).Hosts[0].Host != "n2" {
		t.Fatalf("%v %v", b.job(one).Hosts, b.job(two).Hosts)
	}
	b.ends(two, 0)
	b.starts(three)
	high := b.submit(backends.Spec{Slots: 1, Priority: 30})
	b.ends(one, 0)
	b.starts(high) // it ranks above
	four := narrow()
	b.ends(short, 0)
	b.starts(wide)
	if b.job(wide).Hosts[0].Host != "n2" {
		t.Errorf("%v", b.job(wide).Hosts)
	}
	b.ends(long, 0)
	b.starts(four)
}

// TestBackfill (R37): what is kept goes to jobs that end before it is needed; what is beside it
// then goes to any.
func TestBackfill(t *testing.T) {
	cfg := Config{ReserveAfter: time.Minute}
	limited := func(slots int, limit time.Duration) backends.Spec {
		return backends.Spec{Slots: slots, RunLimit: limit}
	}
	for _, c := range []struct {
		name    string
		wide    backends.Spec
		job     backends.Spec // comes when slots have been kept for wide for 9 minutes, 50 minutes before it needs them
		starts  bool
		changes func(b *bench)
	}{
		{"ends in time", limited(8, 0), limited(2, 50*time.Minute), true, nil},
		{"ends a second late", limited(8, 0), limited(2, 50*time.Minute+time.Second), false, nil},
		{"no run limit", limited(8, 0), limited(1, 0), false, nil},
		{"one slot is beside", limited(7, 0), limited(1, 0), true, nil},
		{"one slot of two is beside", limited(7, 0), limited(2, 0), false, nil},
		{"memory beside", backends.Spec{Slots: 7, Memory: 28 * gib}, backends.Spec{Slots: 1, Memory: 4 * gib}, true, nil},
		{"memory that will be needed", backends.Spec{Slots: 7, Memory: 28 * gib}, backends.Spec{Slots: 1, Memory: 5 * gib}, false, nil},
		{"memory until then", backends.Spec{Slots: 7, Memory: 28 * gib}, backends.Spec{Slots: 1, Memory: 5 * gib, RunLimit: time.Minute}, true, nil},
		{"the whole host is needed", backends.Spec{Slots: 1, Exclusive: true}, limited(1, 0), false, nil},
		{"the whole host, in time", backends.Spec{Slots: 1, Exclusive: true}, limited(1, time.Minute), true, nil},
		{"after a restart", limited(7, 0), limited(1, 0), true, (*bench).restart},
		{"after a restart, too many", limited(7, 0), limited(2, 0), false, (*bench).restart},
	} {
		b := newBench(t, cfg, 8)
		b.submit(limited(6, time.Hour))
		wide := b.submit(c.wide)
		b.after(10 * time.Minute)
		if c.changes != nil {
			c.changes(b)
		}
		id := b.submit(c.job)
		if got := b.job(id).State == backends.Running; got != c.starts {
			t.Errorf("%s: starts %v, want %v", c.name, got, c.starts)
		}
		b.waits(wide, backends.WaitResources)
	}
}

// restart goes on with the queue that was written to disk.
func (b *bench) restart() {
	b.Helper()
	state, err := b.m.State()
	if err == nil {
		b.m, err = Restore(state)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// TestReservationIsSearchedAnew: when its time is over, and when a run that ended early lets
// its job start sooner.
func TestReservationIsSearchedAnew(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 2, 2)
	first := b.submit(backends.Spec{Slots: 2, Hosts: []string{"n1"}, RunLimit: time.Hour})
	second := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n2"}, RunLimit: 2 * time.Hour})
	wide := b.submit(backends.Spec{Slots: 2, OneHost: true})
	b.after(time.Minute)
	if at := b.m.overdueJob.at; !at.Equal(b.now.Add(59 * time.Minute)) {
		t.Fatalf("the slots are kept for %v, at %v", at, b.now)
	}
	b.submit(backends.Spec{Slots: 2, Hosts: []string{"n1"}, Priority: backends.At(backends.LevelNext, 20), RunLimit: 10 * time.Hour})
	b.ends(first, 0) // the job that is next in line goes first
	if keeps, at := b.job(wide).Keeps, b.m.overdueJob.at; !slices.Equal(keeps, []string{"n1"}) || !at.Equal(b.now.Add(59*time.Minute)) {
		t.Errorf("%v at %v, now %v", keeps, at, b.now)
	}
	b.after(time.Hour)
	if keeps, at := b.job(wide).Keeps, b.m.overdueJob.at; !slices.Equal(keeps, []string{"n2"}) || !at.Equal(b.now.Add(59*time.Minute)) {
		t.Errorf("an hour later %v at %v, now %v", keeps, at, b.now)
	}
	b.ends(second, 0)
	b.starts(wide)
}

// TestReserveWithoutLimits: on the host with most free slots.
func TestReserveWithoutLimits(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: 10 * time.Minute}, 4, 4)
	b.submit(backends.Spec{Slots: 3, Hosts: []string{"n1"}})
	second := b.submit(backends.Spec{Slots: 2, Hosts: []string{"n2"}})
	wide := b.submit(backends.Spec{Slots: 4, OneHost: true})
	b.after(10 * time.Minute)
	small := []backends.ID{b.submit(spec(1)), b.submit(spec(1))}
	if b.job(small[0]).Hosts[0].Host != "n1" || b.job(small[1]).State != backends.Pending {
		t.Fatalf("%v, %v", b.job(small[0]).Hosts, b.job(small[1]).Hosts)
	}
	if keeps := b.job(wide).Keeps; len(keeps) != 1 || keeps[0] != "n2" || b.job(small[1]).Keeps != nil { // a planner must know of it
		t.Errorf("it is shown to keep %v, and the other one %v", keeps, b.job(small[1]).Keeps)
	}
	b.ends(second, 0)
	b.starts(wide)
	if keeps := b.job(wide).Keeps; keeps != nil {
		t.Errorf("it runs, and keeps %v", keeps)
	}
}

// TestReservedSlotsKeptExactly: of a host with room beyond the need, the rest is free.
func TestReservedSlotsKeptExactly(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 8)
	b.submit(backends.Spec{Slots: 3, Memory: 26 * gib}) // leaves 5 slots, 6 GiB
	heavy := b.submit(backends.Spec{Slots: 2, Memory: 8 * gib})
	b.after(time.Minute)
	ids := make([]backends.ID, 4)
	for i := range ids {
		ids[i] = b.submit(spec(1))
	}
	b.state(ids[2], backends.Running)
	b.waits(ids[3], backends.WaitResources)
	b.waits(heavy, backends.WaitResources)
}

// TestOneReservationAtATime: a lower job that waited as long does not take it over
// when only its own shape is tried.
func TestOneReservationAtATime(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 4, 1)
	b.submit(backends.Spec{Slots: 2, Hosts: []string{"n1"}})
	b.submit(backends.Spec{Slots: 4, OneHost: true, Priority: 30})
	b.submit(backends.Spec{Slots: 3, OneHost: true})
	b.after(time.Minute)
	b.submit(backends.Spec{Slots: 3, OneHost: true})
	b.state(b.submit(backends.Spec{Slots: 1, Priority: 25}), backends.Running) // on n2
	b.waits(b.submit(backends.Spec{Slots: 1, Priority: 25}), backends.WaitResources)
}

// TestReservationChangesHands: what the one before kept is free for all, though
// nothing happened but that a job of one shape came.
func TestReservationChangesHands(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: time.Minute}, 5)
	b.submit(backends.Spec{Slots: 1, Memory: 12 * gib})
	b.submit(backends.Spec{Slots: 5, Priority: 24})
	b.submit(backends.Spec{Slots: 1, Memory: 12 * gib})
	b.after(time.Minute)
	small := b.submit(spec(3))
	b.waits(small, backends.WaitResources)
	b.submit(backends.Spec{Slots: 1, Memory: 12 * gib, Priority: 25}) // its shape has waited
	b.starts(small)
}

// TestReserveClock counts only while it waits for resources.
func TestReserveClock(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: 10 * time.Minute}, 4)
	b.submit(spec(3))
	b.submit(spec(4))
	b.after(9 * time.Minute)
	b.must(NodeDown{"n1"})
	b.must(NodeUp{Name: "n1", Slots: 4})
	b.after(5 * time.Minute)
	passes := b.submit(spec(1))
	b.starts(passes)
	b.ends(passes, 0)
	b.after(5 * time.Minute)
	b.waits(b.submit(spec(1)), backends.WaitResources)
}

// TestAgeOvertakesReservation: the tick at which a job comes to rank above the
// one that reserves is asked for.
func TestAgeOvertakesReservation(t *testing.T) {
	b := newBench(t, Config{ReserveAfter: 1500 * time.Millisecond, AgeingInterval: time.Second, AgeingCap: 5}, 2)
	b.submit(spec(1))
	b.submit(backends.Spec{Slots: 2, Priority: 22})
	b.after(2 * time.Second)
	small := b.submit(backends.Spec{Slots: 1, Priority: 23})
	b.after(5*time.Second - 1)
	b.waits(small, backends.WaitResources)
	b.after(1)
	b.starts(small)
}

// TestReservationEndsWithStart, also for a later time in the queue.
func TestReservationEndsWithStart(t *testing.T) {
	b := newBench(t, Config{}, 2)
	first := b.submit(spec(1))
	pba := b.submit(spec(2))
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: pba, Priority: backends.At(backends.LevelPBA, 120)}}})
	b.must(Reserve{admin, []backends.Reservation{{ID: pba, Hosts: []string{"n1"}, Until: b.now.Add(time.Hour)}}})
	b.ends(first, 0)
	b.starts(pba)
	over := b.submit(spec(1))
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: over, Priority: backends.At(backends.LevelHandOver, 120)}}})
	small := b.submit(spec(1))
	b.must(Requeue{admin, []backends.Act{{ID: pba}}})
	b.ends(pba, 143)
	b.starts(over, small)
}

// TestReserve (R15): what frees on the hosts is kept from lower ranks, until the
// job starts, the time passes, or it is withdrawn.
func TestReserve(t *testing.T) {
	b := newBench(t, Config{}, 2, 1)
	first := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n1"}})
	second := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n1"}})
	third := b.submit(spec(1))
	pba := b.submit(backends.Spec{Slots: 2, OneHost: true})
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: pba, Priority: backends.At(backends.LevelPBA, 120)}}})
	reserve := func(until time.Time) Event {
		return Reserve{admin, []backends.Reservation{{ID: pba, Hosts: []string{"n1"}, Until: until}}}
	}
	b.refuses(Reserve{user, []backends.Reservation{{ID: pba}}}, backends.ErrDenied)
	b.refuses(Reserve{admin, []backends.Reservation{{ID: first}}}, backends.ErrWrongState)
	b.must(reserve(b.now.Add(time.Minute)))
	small := b.submit(spec(1))
	b.ends(first, 0)
	b.starts()
	b.ends(third, 0) // elsewhere nothing is kept
	b.starts(small)
	last := b.submit(spec(1))
	b.ends(second, 0)
	b.starts(pba)

	b.ends(pba, 0) // it is gone with its start
	b.starts(last)
	wide := b.submit(backends.Spec{Slots: 2, OneHost: true})
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: wide, Priority: backends.At(backends.LevelPBA, 120)}}})
	b.must(Reserve{admin, []backends.Reservation{{ID: wide, Hosts: []string{"n1"}, Until: b.now.Add(time.Minute)}}})
	b.must(Kill{user, []backends.ID{small}})
	next := []backends.ID{b.submit(spec(1)), b.submit(spec(1))}
	b.ends(last, 0)
	b.starts(wide)
	b.ends(wide, 0)
	b.starts(next...)
}

func TestReserveExpires(t *testing.T) {
	b := newBench(t, Config{}, 2)
	b.submit(spec(1))
	pba := b.submit(backends.Spec{Slots: 2})
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: pba, Priority: backends.At(backends.LevelPBA, 120)}}})
	reserve := func(d time.Duration) Event {
		return Reserve{admin, []backends.Reservation{{ID: pba, Hosts: []string{"n1"}, Until: b.now.Add(d)}}}
	}
	b.must(reserve(time.Minute))
	small := b.submit(spec(1))
	b.waits(small, backends.WaitResources)
	b.after(time.Minute)
	b.starts(small)
	b.ends(small, 0)
	b.must(reserve(time.Hour))
	small = b.submit(spec(1))
	b.must(Hold{user, []backends.ID{pba}}) // a held job keeps nothing from others
	b.starts(small)
	b.ends(small, 0)
	b.must(Release{user, []backends.ID{pba}})
	small = b.submit(spec(1))
	b.waits(small, backends.WaitResources)
	b.must(Reserve{admin, []backends.Reservation{{ID: pba}}})
	b.starts(small)
}

// TestR20Claim: what frees on a Resuming job's hosts is kept from every job
// below LevelPBA, whatever it is ranked; a PBA job goes first.
func TestR20Claim(t *testing.T) {
	b := newBench(t, Config{}, 2, 1)
	victim := b.submit(spec(2))
	b.must(Suspend{admin, []backends.Act{{ID: victim}}})
	first := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n1"}})
	second := b.submit(backends.Spec{Slots: 1, Hosts: []string{"n1"}})
	third := b.submit(spec(1))
	b.must(Resume{admin, []backends.ID{victim}})
	next := b.submit(backends.Spec{Slots: 1, Priority: backends.At(backends.LevelNext, 500)})
	b.ends(first, 0)
	b.starts() // one slot free, kept
	b.ends(third, 0)
	b.starts(next) // elsewhere
	wide := b.submit(backends.Spec{Slots: 2, OneHost: true})
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: wide, Priority: backends.At(backends.LevelPBA, 120)}}})
	pba := b.submit(spec(1))
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: pba, Priority: backends.At(backends.LevelPBA, 120)}}})
	b.starts(pba)
	b.ends(second, 0)
	b.state(victim, backends.Suspended)
	b.ends(pba, 0)
	b.starts(wide) // it could start there: before the victim
	b.ends(wide, 0)
	b.state(victim, backends.Running)
}

// TestClaimsAmongEachOther: the higher-ranked suspended job goes on first.
func TestClaimsAmongEachOther(t *testing.T) {
	b := newBench(t, Config{}, 2)
	wide := b.submit(spec(2))
	b.must(Suspend{admin, []backends.Act{{ID: wide}}})
	narrow, blocks := b.submit(spec(1)), b.submit(spec(1))
	b.must(Suspend{admin, []backends.Act{{ID: narrow}}})
	b.must(SetPriority{admin, []backends.PriorityChange{{ID: wide, Priority: backends.At(backends.LevelPlaceholder, 20)}}})
	b.must(Resume{admin, []backends.ID{wide}})
	b.must(Resume{admin, []backends.ID{narrow}})
	b.state(narrow, backends.Suspended)
	b.ends(blocks, 0)
	b.state(wide, backends.Running)
	b.ends(wide, 0)
	b.state(narrow, backends.Running)
}

// TestNodes: nothing starts on a closed or a down host; what runs there runs on.
func TestNodes(t *testing.T) {
	b := newBench(t, Config{}, 1, 1)
	one, two := b.submit(spec(1)), b.submit(spec(1))
	waits := b.submit(spec(1))
	b.must(NodeUp{Name: "n1", Slots: 1, Closed: true})
	b.must(NodeDown{"n2"})
	b.refuses(NodeGone{"n1"}, backends.ErrWrongState)
	b.ends(one, 0)
	b.ends(two, 0)
	b.starts()
	b.waits(waits, backends.WaitOther)
	b.must(NodeGone{"n1"})
	b.must(NodeUp{Name: "n0", Slots: 3})
	b.starts(waits)
	f := b.m.Snapshot(b.now, b.now)
	if len(f.Hosts) != 2 || f.Hosts[0].Name != "n0" || f.Hosts[1].State != backends.HostDown {
		t.Errorf("%+v", f.Hosts)
	}
	b.must(NodeUp{Name: "n0", Slots: 0}) // it shrank: running jobs keep their slots
	b.state(waits, backends.Running)
	b.ends(waits, 0)
	b.starts()
}
