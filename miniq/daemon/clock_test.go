package daemon

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

func TestJumped(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const hour, years = time.Hour, 87600 * time.Hour
	at := func(wall time.Duration, boot uint64, up time.Duration) clock.Reading {
		return clock.Reading{Wall: noon.Add(wall), Boot: boot, Up: up}
	}
	for name, c := range map[string]struct {
		was   clock.Reading
		queue time.Duration // the queue's last step, after noon
		is    clock.Reading
		want  time.Duration
	}{
		"a restart":                              {at(0, 1, hour), hour, at(2*hour, 1, 3*hour), 0},
		"ahead while it was down":                {at(0, 1, hour), hour, at(4*hour, 1, 3*hour), 2 * hour},
		"back while it was down":                 {at(years, 1, hour), years + hour, at(2*hour, 1, 3*hour), -years},
		"another boot":                           {at(0, 1, hour), hour, at(years, 2, 0), 0},
		"another boot, back":                     {at(years, 1, hour), years + hour, at(0, 2, 0), -years - hour},
		"a state from before readings were kept": {clock.Reading{}, years, at(hour, 1, hour), hour - years},
		"a new state":                            {clock.Reading{}, 0, at(hour, 1, hour), 0},
		"the queue is ahead all the same":        {at(0, 1, 0), 2 * hour, at(hour, 1, hour), -hour},
	} {
		if got := clockJump(c.was, noon.Add(c.queue), c.is); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestForgottenBefore(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const day, years = 24 * time.Hour, 87600 * time.Hour
	for name, c := range map[string]struct {
		ahead manager.Ahead
		want  time.Duration // before noon
	}{
		"never set":             {manager.Ahead{}, 7 * day},
		"ahead, an hour ago":    {manager.Ahead{At: noon.Add(-time.Hour), By: years}, 7*day + years},
		"ahead, eight days ago": {manager.Ahead{At: noon.Add(-8 * day), By: years}, 7 * day},
		"ahead, and back again": {manager.Ahead{At: noon.Add(years), By: years}, 7 * day},
	} {
		if got := noon.Sub(forgetCutoff(noon, 7*day, c.ahead)); got != c.want {
			t.Errorf("%s: those that ended %v ago, want %v", name, got, c.want)
		}
	}
}

// wallClock is one that a test sets.
type wallClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (w *wallClock) set(ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead = ahead
}

func (w *wallClock) read() (clock.Reading, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := clock.Read()
	r.Wall = r.Wall.Add(w.ahead)
	return r, err
}

// A clock that was ahead and is put right: while the daemon serves, while it does not,
// and while one of the version before served. The queue's time is the clock's again, and
// run limits are kept, no sooner than they should.
func TestClockIsCorrected(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, 87600 * time.Hour} {
		for _, restarts := range []bool{false, true} {
			t.Run(ahead.String(), func(t *testing.T) {
				w := &wallClock{ahead: ahead}
				with := func(o *Options) { o.ReadClock = w.read }
				s := serve(t, t.TempDir(), with)
				limited, long := s.spec("sleep 300"), s.spec("sleep 300")
				limited.RunLimit, long.RunLimit = 4*time.Second, time.Hour
				ids := s.submit(limited, long)
				s.awaitState(ids[0], backends.Running)
				s.awaitState(ids[1], backends.Running)
				if at := s.snapshot(t).At; time.Until(at) < ahead-time.Minute {
					t.Fatalf("the queue's time is %v, its clock is ahead by %v", at, ahead)
				}
				if restarts {
					if err := s.client.Stop(t.Context(), false); err != nil {
						t.Fatal(err)
					}
				}
				w.set(0)
				if restarts {
					s = serve(t, s.o.Paths.State, with)
				} else {
					s.submit(s.held()) // something happens
				}
				if at := s.snapshot(t).At; time.Until(at).Abs() > time.Minute {
					t.Errorf("the queue's time is %v, the clock's %v", at, time.Now())
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := s.client.WaitEnded(ctx, ids[:1]); err != nil {
					t.Fatalf("await the end by a run limit of 4 s: %v", err)
				}
				if j := s.job(t, ids[1]); j.State != backends.Running || j.Ending {
					t.Errorf("a run with an hour's limit is %v", j.State)
				}
			})
		}
	}
}

func (s *server) snapshot(t *testing.T) *backends.Snapshot {
	t.Helper()
	snapshot, err := s.client.Snapshot(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func (s *server) job(t *testing.T, id backends.ID) backends.Job {
	t.Helper()
	jobs, err := s.client.Jobs(t.Context(), []backends.ID{id})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("job %v: %v, %v", id, jobs, err)
	}
	return jobs[0]
}

// awaitState returns when a job is in a state.
func (s *server) awaitState(id backends.ID, want backends.State) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for changes := uint64(0); s.job(s.t, id).State != want; {
		var err error
		if changes, err = s.client.WaitChange(ctx, changes); err != nil {
			s.t.Fatalf("await that job %v is %v: %v", id, want, err)
		}
	}
}
