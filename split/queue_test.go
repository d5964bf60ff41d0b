package split

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/split/task"
)

// queue is a queue in memory that runs tasks in this process.
type queue struct {
	mu            sync.Mutex
	hosts         []backends.Host
	jobs          []backends.Job
	news          chan struct{}
	lost          int                                                      // number of jobs that are accepted and not acknowledged
	refuse        func(host string) error                                  // nil: none
	pend          func(host string) bool                                   // nil: none
	run           func(ctx context.Context, host, dir string, n int64) int // a task, to its exit status
	ends          map[int64]context.CancelFunc
	snapshots     chan int // receives the number of each snapshot; nil: not counted
	snapshotCount int
}

func newQueue(hosts ...string) *queue {
	q := &queue{news: make(chan struct{}), ends: map[int64]context.CancelFunc{}, run: runTask}
	for _, name := range hosts {
		q.hosts = append(q.hosts, backends.Host{Name: name, Slots: 2})
	}
	return q
}

func runTask(_ context.Context, _, dir string, n int64) int {
	if task.Run(dir, n) != nil {
		return 1
	}
	return 0
}

// killTask leaves the files of a task that is killed at work, and returns its exit status.
func killTask(dir string, n int64) int {
	_ = os.WriteFile(task.File(dir, n, task.KindNew), nil, 0o600)
	return 137
}

func (q *queue) change(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
	close(q.news)
	q.news = make(chan struct{})
}

// all returns its jobs, ended or not.
func (q *queue) all() []backends.Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.jobs)
}

func (q *queue) Snapshot(context.Context, time.Time) (*backends.Snapshot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.snapshotCount++
	select {
	case q.snapshots <- q.snapshotCount:
	default: // no receiver any more
	}
	f := &backends.Snapshot{Hosts: slices.Clone(q.hosts)}
	for _, j := range q.jobs {
		if j.State.Ended() {
			f.Ended = append(f.Ended, j)
		} else {
			f.Jobs = append(f.Jobs, j)
		}
	}
	return f, nil
}

func (q *queue) Jobs(_ context.Context, ids []backends.ID) ([]backends.Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(q.jobs), func(j backends.Job) bool { return !slices.Contains(ids, j.ID) }), nil
}

func (q *queue) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	results := make([]backends.Submitted, len(specs))
	for i, s := range specs {
		if q.refuse != nil {
			if results[i].Err = q.refuse(s.Hosts[0]); results[i].Err != nil {
				continue
			}
		}
		q.change(func() {
			job := backends.Job{ID: backends.ID{Job: int64(len(q.jobs) + 1)}, Name: s.Name, State: backends.Pending}
			results[i].ID = job.ID
			if q.lost > 0 {
				q.lost--
				results[i] = backends.Submitted{Err: backends.ErrUnreachable}
			}
			ctx, cancel := context.WithCancel(context.Background())
			q.ends[job.ID.Job] = cancel
			if q.pend == nil || !q.pend(s.Hosts[0]) {
				job.State = backends.Running
				job.Hosts = []backends.Placement{{Host: s.Hosts[0], Slots: s.Slots}}
				go q.work(ctx, job.ID, s)
			}
			q.jobs = append(q.jobs, job)
		})
	}
	return results
}

func (q *queue) work(ctx context.Context, id backends.ID, s backends.Spec) {
	n, err := strconv.ParseInt(s.Command[len(s.Command)-1], 10, 64)
	if err != nil {
		panic(err)
	}
	status := q.run(ctx, s.Hosts[0], s.Command[len(s.Command)-2], n)
	q.end(id, status)
}

func (q *queue) end(id backends.ID, status int) {
	q.change(func() {
		j := &q.jobs[id.Job-1]
		if j.State.Ended() {
			return
		}
		j.State, j.ExitCode = backends.Done, status
		if status != 0 {
			j.State = backends.Exited
		}
	})
}

func (q *queue) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	errs := make(backends.Errors, len(ids))
	for _, id := range ids {
		q.ends[id.Job]()
		q.mu.Lock()
		pending := q.jobs[id.Job-1].State == backends.Pending
		q.mu.Unlock()
		if pending {
			q.end(id, 137)
		}
	}
	return errs
}

func (q *queue) Changes() func(context.Context) error {
	var seen chan struct{}
	return func(ctx context.Context) error {
		q.mu.Lock()
		now := q.news
		q.mu.Unlock()
		if seen != now {
			seen = now
			return nil
		}
		select {
		case <-now:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitEnded waits until each of its jobs has ended: one whose result is there may not
// have.
func (q *queue) awaitEnded(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for changes := q.Changes(); ; {
		left := slices.DeleteFunc(q.all(), func(j backends.Job) bool { return j.State.Ended() })
		if len(left) == 0 {
			return
		}
		if err := changes(ctx); err != nil {
			t.Fatalf("left: %+v", left)
		}
	}
}
