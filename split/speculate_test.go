package split

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/metrics"
)

// Which tasks get copies, and where (R54).
func TestStragglers(t *testing.T) {
	const s = time.Second
	took := map[string]time.Duration{"n1": 4 * s, "n2": 3 * s, "n3": 5 * s}
	for name, x := range map[string]struct {
		open []running
		took map[string]time.Duration
		idle []string
		want map[int64]string
		next time.Duration
	}{
		"half as long again":             {[]running{{4, "n4", 7500*time.Millisecond + 1, false}}, took, []string{"n1", "n2", "n3"}, map[int64]string{4: "n2"}, 0},
		"not yet":                        {[]running{{4, "n4", 7500 * time.Millisecond, false}}, took, []string{"n1", "n2", "n3"}, nil, time.Millisecond},
		"the slowest one first":          {[]running{{4, "n4", 11 * s, false}, {5, "n5", 12 * s, false}, {6, "n6", 2 * s, false}}, took, []string{"n1"}, map[int64]string{5: "n1"}, 0},
		"it has a copy":                  {[]running{{4, "n4", 11 * s, true}, {7, "n1", 11 * s, true}}, took, []string{"n2"}, nil, 0},
		"no host is idle":                {[]running{{4, "n4", 11 * s, false}}, took, nil, nil, 0},
		"no other task of it ended":      {[]running{{4, "n4", 11 * s, false}}, nil, []string{"n1"}, nil, 0},
		"all of the others were instant": {[]running{{4, "n4", s, false}, {5, "n5", s + 1, false}}, map[string]time.Duration{"n1": 1}, []string{"n1"}, map[int64]string{5: "n1"}, 0},
		"one now, one later":             {[]running{{4, "n4", 11 * s, false}, {6, "n6", 2 * s, false}, {7, "n7", s, false}}, took, []string{"n1", "n2"}, map[int64]string{4: "n2"}, 5501 * time.Millisecond},
	} {
		if got, next := stragglers(x.open, x.took, x.idle, s); !maps.Equal(got, x.want) || next != x.next {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, next, x.want, x.next)
		}
	}
}

// A task that takes long at the end is begun on another host; the first result counts, and what it
// was won against is killed. So it is after an interruption, too.
func TestSpeculate(t *testing.T) {
	for name, interrupt := range map[string]bool{"straight on": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			q := newQueue("n1", "n2", "n3")
			var killed atomic.Int32
			copied := make(chan struct{}, 10)
			q.run = func(ctx context.Context, host, dir string, n int64) int {
				if host == "n2" && n <= 3 {
					<-ctx.Done()
					killed.Add(1)
					return killTask(dir, n)
				}
				if n > 3 {
					copied <- struct{}{}
					if interrupt {
						<-ctx.Done()
						return killTask(dir, n)
					}
				}
				return runTask(ctx, host, dir, n)
			}
			x := newTrial(t, q)
			d := echo(1, 15, 60) // one round: it is the last one
			d.Balance.Rule, d.Speculate = metrics.Equal, true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if interrupt {
				go func() {
					<-copied
					cancel()
				}()
			}
			err := Start(ctx, d, x.options(""))
			if interrupt {
				if err == nil {
					t.Fatal("it was not interrupted")
				}
				q.run = runTask
				err = x.resume(t, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := x.out.String(); got != lines(1, 15) {
				t.Errorf("got %q", got)
			}
			q.awaitEnded(t)
			if killed.Load() != 1 || !x.hasLogged("the first result counts") {
				t.Errorf("%d tasks were killed; %q", killed.Load(), x.recorder.logged)
			}
			if interrupt {
				return
			}
			var states []string
			for _, task := range x.report.Rounds[0].Tasks {
				if task.Task == 2 || task.CopyOf == 2 {
					states = append(states, task.Host+" "+task.State)
				}
			}
			if len(states) != 2 || states[0] != "n2 superseded" || states[1] != "n1 done" && states[1] != "n3 done" {
				t.Errorf("%q", states)
			}
		})
	}
}

// Without the option no task is copied.
func TestNoSpeculation(t *testing.T) {
	q := newQueue("n1", "n2")
	release := make(chan struct{})
	q.run = func(ctx context.Context, host, dir string, n int64) int {
		if host == "n2" {
			<-release
		}
		return runTask(ctx, host, dir, n)
	}
	x := newTrial(t, q)
	d := echo(1, 15, 60) // one round: it is the last one
	d.Balance.Rule = metrics.Equal
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	if err := Start(t.Context(), d, x.options("")); err != nil {
		t.Fatal(err)
	}
	if got := x.out.String(); got != lines(1, 15) || x.hasLogged("the first result counts") {
		t.Errorf("got %q, %q", got, x.recorder.logged)
	}
}
