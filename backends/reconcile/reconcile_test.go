package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

type job struct{ backends.Job }

func (j *job) Shown() *backends.Job { return &j.Job }

func jobs(state backends.State, ids ...backends.ID) (all []*job) {
	for _, id := range ids {
		all = append(all, &job{backends.Job{ID: id, State: state}})
	}
	return all
}

func id(n int64, index int) backends.ID { return backends.ID{Job: n, Index: index} }

// Each element has its own error, and a step acts on those alone that have none.
func TestBatchKeepsEachError(t *testing.T) {
	there := append(jobs(backends.Pending, id(1, 0), id(2, backends.ZeroIndex), id(2, 1)), jobs(backends.Done, id(3, 0), id(4, 0))...)
	ids := []backends.ID{id(4, 0), id(1, 0), id(2, 0), id(9, 0), id(2, backends.ZeroIndex)}
	b := Begin(ids, there, Waiting)
	var called []backends.ID
	b.Do(func(ids []backends.ID) backends.Errors {
		called = ids
		return backends.Errors{nil, backends.ErrDenied}
	})
	if want := []backends.ID{id(1, 0), id(2, backends.ZeroIndex)}; !slices.Equal(called, want) {
		t.Errorf("called for %v, want %v", called, want)
	}
	b.Fail(backends.ErrUnable)
	for i, want := range []error{backends.ErrWrongState, backends.ErrUnable, backends.ErrWrongState, backends.ErrUnknownJob, backends.ErrDenied} {
		if got := b.Errors()[i]; !errors.Is(got, want) {
			t.Errorf("job %v: %v, want %v", ids[i], got, want)
		}
	}
	b.Where(func(*Item[*job]) bool { t.Error("an element with an error was looked at"); return true })
	b.Do(func([]backends.ID) backends.Errors { t.Error("called for no job"); return nil })
}

func TestFindAndAlive(t *testing.T) {
	there := append(jobs(backends.Exited, id(1, 0), id(2, backends.ZeroIndex)), jobs(backends.Running, id(2, 1))...)
	if found := Shown(there, []backends.ID{id(2, 0), id(1, 0), id(5, 0)}); len(found) != 3 || found[0].ID != id(2, backends.ZeroIndex) || found[2].ID != id(1, 0) {
		t.Errorf("%+v", found)
	}
	errs := Alive([]backends.ID{id(2, 0), id(1, 0), id(5, 0)}, there).Errors()
	if errs[0] != nil || !errors.Is(errs[1], backends.ErrWrongState) || !errors.Is(errs[2], backends.ErrUnknownJob) {
		t.Error(errs)
	}
}

// R20: a job fits where all that it needs is free, and takes it; else it takes nothing.
func TestFits(t *testing.T) {
	free := map[string]int{"a": 2, "b": 1}
	if Fits(map[string]int{"a": 1, "b": 2}, free) || free["a"] != 2 {
		t.Error(free)
	}
	if !Fits(map[string]int{"a": 2, "b": 1}, free) || Fits(map[string]int{"a": 1}, free) {
		t.Error(free)
	}
}

func TestSubmitEachStopsIfUnreachable(t *testing.T) {
	tried := 0
	results := SubmitEach(4, func(i int) backends.Submitted {
		tried++
		return backends.Submitted{Err: []error{nil, backends.ErrDenied, backends.ErrUnreachable}[i]}
	})
	if tried != 3 || results[0].Err != nil || !errors.Is(results[1].Err, backends.ErrDenied) || !errors.Is(results[3].Err, backends.ErrUnreachable) {
		t.Errorf("%d tried: %+v", tried, results)
	}
}

func TestPollAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, polls := time.Now(), 0
		if (Pace{First: time.Second, Most: 4 * time.Second, Limit: 10 * time.Second}).Poll(t.Context(), func() bool { polls++; return false }) {
			t.Error("it is done")
		}
		if took := time.Since(began); polls != 4 || took != 7*time.Second { // the next one would be at 11 s
			t.Errorf("asked %d times in %v", polls, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		state := backends.Running
		list := func(context.Context, []backends.ID) ([]backends.Job, error) {
			return []backends.Job{{State: state}}, nil
		}
		if _, err := Wait(ctx, nil, list); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		state = backends.Done
		if jobs, err := Wait(ctx, nil, list); err != nil || len(jobs) != 1 {
			t.Error(jobs, err)
		}
	})
}

// A snapshot serves once, while it is fresh, and not after another command.
func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Latest[int]
		p := new(int)
		l.Invalidate()
		l.Store(p, time.Now(), l.Commands())
		if l.Pop() != p || l.Pop() != nil {
			t.Error("it serves not once")
		}
		l.Store(p, time.Now(), l.Commands())
		l.Invalidate()
		if l.Pop() != nil {
			t.Error("it serves after a command")
		}
		l.Store(p, time.Now(), l.Commands()-1)
		if l.Pop() != nil {
			t.Error("it is kept after a command")
		}
		l.Store(p, time.Now(), l.Commands())
		time.Sleep(freshness + time.Millisecond)
		if l.Pop() != nil {
			t.Error("it serves when it is old")
		}
	})
}
