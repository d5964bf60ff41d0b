package manager

import (
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// set puts the bench's clock ahead, or back, with the ClockRead for it.
func (b *bench) set(by time.Duration) {
	b.Helper()
	b.now = b.now.Add(by)
	b.must(ClockRead{Now: clock.Reading{Wall: b.now, Boot: 1, Up: time.Hour}, Jump: by})
}

const year = 365 * 24 * time.Hour

// jumps are what a clock may do while the queue works, with what comes of it.
var jumps = []time.Duration{2 * time.Hour, -2 * time.Hour, 10 * year, -10 * year}

// What counts elapsed time goes on when the wall clock is set, ahead or back.
func TestElapsedTimeGoesOnWhenTheClockIsSet(t *testing.T) {
	for _, by := range jumps {
		t.Run(by.String(), func(t *testing.T) {
			b := newBench(t, Config{ReserveAfter: 10 * time.Minute}, 1, 1, 1, 1)
			on := func(host string, s backends.Spec) backends.Spec {
				s.Slots, s.Hosts = 1, []string{host}
				return s
			}
			limited := b.submit(on("n1", backends.Spec{RunLimit: time.Hour}))
			victim := b.submit(on("n2", backends.Spec{}))
			b.must(Suspend{admin, []backends.Act{{ID: victim, Until: b.now.Add(time.Hour)}}})
			held := b.submit(on("n2", backends.Spec{HeldUntil: b.now.Add(time.Hour)}))
			b.must(HoldUntil{admin, []backends.HoldUntil{{ID: held, Until: b.now.Add(time.Hour)}}})
			failing := b.submit(on("n3", backends.Spec{}))
			b.must(StartFailed{ID: failing, Run: 1, Reason: "no such host"})

			b.after(5 * time.Second)
			b.set(by)
			if got := b.m.Now(); !got.Equal(b.now) {
				t.Fatalf("the queue's time is %v, the clock's %v", got, b.now)
			}
			if j := b.job(failing); j.State != backends.Pending {
				t.Errorf("a start that failed 5 s ago is tried again: %v", j.State)
			}
			b.after(6 * time.Second)
			if j := b.job(failing); j.State != backends.Running {
				t.Errorf("11 s after a start failed it was not tried again: %v, %s", j.State, j.Reason)
			}
			b.after(time.Hour - 12*time.Second)
			for id, want := range map[backends.ID]backends.State{limited: backends.Running, victim: backends.Suspended, held: backends.Pending} {
				if j := b.job(id); j.State != want || j.Ending {
					t.Errorf("1 s before the hour is over job %v is %v (ending %v), want %v", id, j.State, j.Ending, want)
				}
			}
			b.after(2 * time.Second)
			b.do(Tick{})
			if !b.job(limited).Ending {
				t.Error("the run limit of an hour was not kept")
			}
			if j := b.job(victim); j.State != backends.Running {
				t.Errorf("the suspended job is %v after its hour", j.State)
			}
			if !b.job(held).HeldUntil.IsZero() {
				t.Errorf("the engine's hold goes on after its hour, until %v", b.job(held).HeldUntil)
			}
		})
	}
}

// A run that began while the clock was ahead has what it took counted, and its next
// one begins when it begins.
func TestRunsStartedByWrongClock(t *testing.T) {
	b := newBench(t, Config{}, 1)
	b.now = b.now.Add(10 * year)
	id := b.submit(backends.Spec{Slots: 1, RunLimit: time.Hour})
	started := b.job(id).Started
	b.after(time.Minute)
	b.set(-10 * year)
	j := b.job(id)
	if !j.Started.Equal(started) {
		t.Errorf("the run's start went from %v to %v: it names the run", started, j.Started)
	}
	if ran := j.RanFor + b.now.Sub(j.Started); ran != time.Minute {
		t.Errorf("it has run for %v, want a minute", ran)
	}
	b.must(Suspend{admin, []backends.Act{{ID: id, Started: started}}})
	if j := b.job(id); j.RanFor != time.Minute {
		t.Errorf("suspended, it has run for %v, want a minute", j.RanFor)
	}
	b.must(Resume{admin, []backends.ID{id}})
	b.do(Tick{})
	if j := b.job(id); j.State != backends.Running || !j.Started.Equal(b.now) {
		t.Errorf("resumed at %v, it is %v since %v", b.now, j.State, j.Started)
	}
	b.must(Ended{ID: id, Run: 1, Self: true})
	if j := b.job(id); j.Ended.After(b.now) {
		t.Errorf("it ended at %v, and it is %v", j.Ended, b.now)
	}
}

// A begin time is its owner's: by the wall clock, whatever that did.
func TestBeginTimesFollowWallClock(t *testing.T) {
	b := newBench(t, Config{}, 1)
	id := b.submit(backends.Spec{Slots: 1, BeginTime: b.now.Add(time.Hour)})
	b.set(-2 * time.Hour)
	b.after(2 * time.Hour)
	if j := b.job(id); j.State != backends.Pending {
		t.Fatalf("an hour before its begin time it is %v", j.State)
	}
	b.set(2 * time.Hour)
	if j := b.job(id); j.State != backends.Running {
		t.Errorf("the clock was put past its begin time, and it is %v, %s", j.State, j.Reason)
	}
}

// A waiting job keeps what it gained, and gains on; the one that waited longest reserves
// when its time has come, and no sooner.
func TestWaitingGoesOnWhenTheClockIsSet(t *testing.T) {
	for _, by := range jumps {
		t.Run(by.String(), func(t *testing.T) {
			b := newBench(t, Config{AgeingInterval: time.Minute, AgeingCap: 50, ReserveAfter: 10 * time.Minute}, 2)
			b.submit(backends.Spec{Slots: 1})
			wide := b.submit(backends.Spec{Slots: 2})
			before := b.job(wide).Priority
			b.after(5 * time.Minute)
			b.set(by)
			if got := b.job(wide).Priority - before; got != 5 {
				t.Errorf("5 minutes brought %d", got)
			}
			b.after(4 * time.Minute)
			if j := b.job(wide); len(j.Keeps) > 0 || j.Priority-before < 8 || j.Priority-before > 9 {
				t.Errorf("after 9 minutes it gained %d, and keeps %v", j.Priority-before, j.Keeps)
			}
			b.after(2 * time.Minute)
			b.do(Tick{})
			if j := b.job(wide); len(j.Keeps) == 0 {
				t.Error("after 11 minutes it reserves nothing")
			}
		})
	}
}

// The engine's reservation lasts as long as it was to.
func TestReservationsWhenTheClockIsSet(t *testing.T) {
	for _, by := range jumps {
		b := newBench(t, Config{}, 2)
		b.submit(backends.Spec{Slots: 1})
		wide := b.submit(backends.Spec{Slots: 2})
		b.must(Reserve{admin, []backends.Reservation{{ID: wide, Hosts: []string{"n1"}, Until: b.now.Add(time.Hour)}}})
		b.set(by)
		b.after(59 * time.Minute)
		small := b.submit(backends.Spec{Slots: 1})
		if b.job(small).State != backends.Pending {
			t.Errorf("%v: a job took what is reserved", by)
		}
		b.after(2 * time.Minute)
		if b.job(small).State != backends.Running {
			t.Errorf("%v: a reservation of an hour goes on after 61 minutes", by)
		}
	}
}

// A queue whose clock was set is the same after a restart: by its state, and by its
// journal.
func TestStateWithClock(t *testing.T) {
	b := newBench(t, Config{AgeingInterval: time.Minute, AgeingCap: 50}, 1)
	b.submit(backends.Spec{Slots: 1, RunLimit: time.Hour})
	b.submit(backends.Spec{Slots: 1})
	b.after(time.Minute)
	b.set(10 * year)
	if want := (Ahead{b.now, 10 * year}); b.m.Ahead() != want {
		t.Errorf("put ahead %+v, want %+v", b.m.Ahead(), want)
	}
	b.set(-10 * year)
	state, err := b.m.State()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Restore(state)
	if err != nil {
		t.Fatal(err)
	}
	if again.Ahead() != b.m.Ahead() || again.Clock() != b.m.Clock() || !again.Now().Equal(b.now) {
		t.Errorf("restored with %+v at %v, want %+v at %v", again.Clock(), again.Now(), b.m.Clock(), b.now)
	}
}

// TestAgeingBefore1970: a wall clock may be set to before the Unix epoch. A job gains
// one at each multiple of the interval there too, and one at the epoch. The laws count
// the same.
func TestAgeingBefore1970(t *testing.T) {
	epoch := time.Unix(0, 0).UTC()
	for _, c := range []struct {
		from, to time.Duration // since the epoch
		want     int
	}{
		{-39 * time.Second, -21 * time.Second, 0},
		{-39 * time.Second, -20 * time.Second, 1},
		{-21 * time.Second, -19 * time.Second, 1},
		{-20 * time.Second, -1, 0},
		{-20 * time.Second, 0, 1},
		{-15 * time.Second, -1, 0},
		{-15 * time.Second, 0, 1},
		{-15 * time.Second, 15 * time.Second, 1},
		{-45 * time.Second, 55 * time.Second, 5},
		{0, 19 * time.Second, 0},
		{5 * time.Second, 20 * time.Second, 1},
		{-3*year - 19*time.Second, -3*year - time.Second, 0},
		{-3*year - 19*time.Second, -3 * year, 1},
	} {
		t.Run(c.from.String()+" to "+c.to.String(), func(t *testing.T) {
			b := newBench(t, Config{AgeingInterval: lawTick, AgeingCap: lawCap}, 1)
			b.submit(spec(1))
			id := b.submit(spec(1))
			b.set(epoch.Add(c.from).Sub(b.now))
			before := b.job(id).Priority
			b.after(c.to - c.from)
			if got := int(b.job(id).Priority - before); got != c.want {
				t.Errorf("the job gained %d, want %d", got, c.want)
			}
			if got := lawTicks(epoch.Add(c.from), epoch.Add(c.to)); got != c.want {
				t.Errorf("the laws count %d, want %d", got, c.want)
			}
		})
	}
}
