package pba

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestSchedule runs processes in virtual time and writes down when their cycles
// start, in seconds (R6).
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		name     string
		schedule Schedule
		late     time.Duration // the first cycle starts so long after the process
		takes    []time.Duration
		want     string
		ends     time.Duration
	}{
		{"one cycle", Schedule{}, 0, nil, "[0]", 0},
		{"cron's minute", Schedule{Every: 20 * time.Second, For: time.Minute}, 0, nil, "[0 20 40]", 40 * time.Second},
		{"it waited for the lock", Schedule{Every: 20 * time.Second, For: time.Minute}, 3 * time.Second, nil, "[3 20 40]", 40 * time.Second},
		{"a long cycle skips a beat", Schedule{Every: 20 * time.Second, For: time.Minute}, 0, []time.Duration{25 * time.Second}, "[0 40]", 40 * time.Second},
		{"not a whole number of beats", Schedule{Every: 20 * time.Second, For: 50 * time.Second}, 0, nil, "[0 20]", 20 * time.Second},
		{"the last cycle may take its beat", Schedule{Every: 20 * time.Second, For: time.Minute}, 0, []time.Duration{0, 0, time.Hour}, "[0 20 40]", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				time.Sleep(c.late)
				var starts []int
				err := c.schedule.Run(context.Background(), start, func(ctx context.Context) (Then, error) {
					starts = append(starts, int(time.Since(start).Seconds()))
					if n := len(starts) - 1; n < len(c.takes) {
						select {
						case <-time.After(c.takes[n]):
						case <-ctx.Done():
						}
					}
					return GoOn, nil
				})
				if got := fmt.Sprint(starts); got != c.want || err != nil {
					t.Errorf("cycles at %s, %v; want %s", got, err, c.want)
				}
				if took := time.Since(start) - c.late; c.late == 0 && took != c.ends {
					t.Errorf("the process took %v, want %v", took, c.ends)
				}
			})
		})
	}
}

func TestServiceGoesOnUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour+time.Second)
		defer cancel()
		n := 0
		away := errors.New("away")
		err := Schedule{Every: 20 * time.Second}.Run(ctx, time.Now(), func(context.Context) (Then, error) {
			n++
			return GoOn, away
		})
		if n != 24*180+1 || !errors.Is(err, away) {
			t.Errorf("%d cycles in a day, %v", n, err)
		}
	})
}

func TestCycleMayEndTheService(t *testing.T) {
	broken := errors.New("broken")
	err := Schedule{Every: time.Hour}.Run(context.Background(), time.Now(), func(context.Context) (Then, error) { return Stop, broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestLock(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	unlock, err := Lock(ctx, dir, RunLock, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(ctx, dir, RunLock, 50*time.Millisecond); !errors.Is(err, ErrBusy) {
		t.Errorf("a lock that is held: %v", err)
	}
	if other, err := Lock(ctx, dir, EditLock, 0); err != nil {
		t.Errorf("the other lock: %v", err)
	} else {
		other()
	}
	got := make(chan error)
	go func() {
		again, err := Lock(ctx, dir, RunLock, time.Minute)
		if err == nil {
			again()
		}
		got <- err
	}()
	unlock()
	unlock()
	if err := <-got; err != nil {
		t.Errorf("a lock that came free: %v", err)
	}
	stopped, cancel := context.WithCancel(ctx)
	unlock, err = Lock(ctx, dir, RunLock, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	cancel()
	if _, err := Lock(stopped, dir, RunLock, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted wait: %v", err)
	}
	if _, err := Lock(ctx, dir+"/none", RunLock, 0); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("a directory that is missing: %v", err)
	}
}
