package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/metrics"
	"github.com/allotment-hpc/allotment/split"
	"github.com/allotment-hpc/allotment/split/task"
	workerbus "github.com/allotment-hpc/allotment/split/worker"
)

// The crowd: workers of as many hosts as asplit lets stand, all in this process, on the bus of a real
// split. What they execute is real; only the queue that starts them is not.
const (
	crowdRounds = 10
	// maxCrowd bounds a round of one item on each host in a directory in memory, as a multiple of the
	// time in which a loop starts as many and waits.
	maxCrowd = 4.0
	// memory holds the files of the split that is judged. The hosts of a cluster have a disk each; here one
	// would make and remove the four files of an item for all, and be most of a round.
	memory = "/dev/shm"
)

// crowd is a queue whose jobs are goroutines.
type crowd struct {
	hosts []backends.Host

	mu   sync.Mutex
	jobs []backends.Job
	ends []context.CancelFunc
	news chan struct{}
	left sync.WaitGroup
}

func newCrowd(n int) *crowd {
	q := &crowd{news: make(chan struct{})}
	for i := range n {
		q.hosts = append(q.hosts, backends.Host{Name: fmt.Sprintf("h%04d", i+1), Slots: 1})
	}
	return q
}

func (q *crowd) change(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	do()
	close(q.news)
	q.news = make(chan struct{})
}

// Snapshot returns the hosts, and the jobs that have not ended.
func (q *crowd) Snapshot(context.Context, time.Time) (*backends.Snapshot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs := slices.DeleteFunc(slices.Clone(q.jobs), func(j backends.Job) bool { return j.State.Ended() })
	return &backends.Snapshot{At: time.Now(), Hosts: slices.Clone(q.hosts), Jobs: jobs}, nil
}

// Jobs returns jobs.
func (q *crowd) Jobs(_ context.Context, ids []backends.ID) (jobs []backends.Job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		jobs = append(jobs, q.jobs[id.Job-1])
	}
	return jobs, nil
}

// Submit starts jobs: each is a worker.
func (q *crowd) Submit(_ context.Context, specs []backends.Spec) []backends.Submitted {
	all := make([]backends.Submitted, len(specs))
	q.change(func() {
		for i := range specs {
			s := &specs[i]
			id := backends.ID{Job: int64(len(q.jobs) + 1)}
			ctx, cancel := context.WithCancel(context.Background())
			q.jobs = append(q.jobs, backends.Job{
				ID: id, Name: s.Name, State: backends.Running, Slots: s.Slots, Started: time.Now(), Hosts: []backends.Placement{{Host: s.Hosts[0], Slots: s.Slots}},
			})
			q.ends = append(q.ends, cancel)
			all[i].ID = id
			q.left.Go(func() { q.work(ctx, id, s.Command) })
		}
	})
	return all
}

func (q *crowd) work(ctx context.Context, id backends.ID, command []string) {
	n, err := strconv.ParseInt(command[len(command)-1], 10, 64)
	if err == nil {
		err = workerbus.Run(ctx, workerbus.Options{Dir: command[len(command)-2], N: n, Idle: time.Minute, Log: func(text string) { fmt.Fprintln(os.Stderr, text) }})
	}
	q.change(func() {
		j := &q.jobs[id.Job-1]
		j.State = backends.Done
		if err != nil {
			j.State, j.ExitCode = backends.Exited, 1
		}
	})
}

// Kill ends jobs.
func (q *crowd) Kill(_ context.Context, ids []backends.ID) backends.Errors {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.ends[id.Job-1]()
	}
	return make(backends.Errors, len(ids))
}

// Changes waits until a job has begun or ended.
func (q *crowd) Changes() func(context.Context) error {
	next := make(chan struct{})
	close(next)
	return func(ctx context.Context) error {
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		next = q.news
		return nil
	}
}

// quiet is a split's reporter that keeps what it logs.
type quiet struct{ bytes.Buffer }

func (q *quiet) Log(text string)       { fmt.Fprintln(q, text) }
func (*quiet) Progress(split.Progress) {}
func (*quiet) Round(split.RoundReport) {}

// measureCrowd compares a round of one item on each host with a loop that starts as many processes.
func measureCrowd(ctx context.Context, hosts int) ([]budget, error) {
	printf("\n%-36s %6s  %9s", "a worker on each of many hosts", "hosts", "a round")
	var inMemory float64
	for _, dir := range []string{os.TempDir(), memory} {
		median, err := runCrowd(ctx, dir, hosts)
		if err != nil {
			return nil, err
		}
		printf("%-36s %6d  %6.0f ms", "echo, an item on each, "+dir, hosts, 1000*median)
		inMemory = median
	}
	bare, err := spawnAll(ctx, hosts)
	if err != nil {
		return nil, err
	}
	printf("%-36s %6d  %6.0f ms", "a loop that starts as many", hosts, 1000*bare.Seconds())
	return []budget{{fmt.Sprintf("a round on %d workers in memory ÷ a loop that starts as many processes", hosts), inMemory / bare.Seconds(), maxCrowd}}, nil
}

// runCrowd runs a split of one item on each host a round, and returns the rounds' median in seconds.
func runCrowd(ctx context.Context, dir string, hosts int) (median float64, err error) {
	work, err := os.MkdirTemp(dir, "crowd-")
	if err != nil {
		return 0, err
	}
	before, set := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", work); err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, os.Unsetenv("TMPDIR")); set {
			err = errors.Join(err, os.Setenv("TMPDIR", before))
		}
	}()
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	q := newCrowd(hosts)
	var report *split.Report
	var said quiet
	var out bytes.Buffer
	d := split.Definition{
		Argv: []string{"echo", "{}"}, Mode: task.Each, Slots: 1,
		Input:   split.Input{Kind: split.Range, From: 1, To: int64(hosts) * crowdRounds},
		Balance: metrics.Options{Rule: metrics.Equal, RoundItems: hosts},
	}
	err = split.Start(ctx, d, split.Options{
		Work: work, Queue: q, Spec: backends.Spec{Dir: work}, Program: []string{"task"},
		Standing: split.Standing{Workers: new(workerbus.Bus), Program: []string{"worker"}, Most: hosts},
		Stdout:   &out, Stderr: &said, Reporter: &said, Report: func(r *split.Report) error { report = r; return nil },
	})
	q.left.Wait()
	if err == nil {
		err = checkSide(out.String(), hosts*crowdRounds, true)
	}
	if err != nil {
		return 0, fmt.Errorf("a split on %d hosts: %w\n%s", hosts, err, said.String())
	}
	var rounds []float64
	given, tasks := 0, 0
	for _, r := range report.Rounds[1:] {
		rounds = append(rounds, r.Ended.Sub(r.Began).Seconds())
		for _, t := range r.Tasks {
			if tasks++; t.Worker != 0 && t.Worker != t.Task {
				given++
			}
		}
	}
	if given < tasks*9/10 {
		return 0, fmt.Errorf("workers had %d of %d tasks of later rounds:\n%s", given, tasks, said.String())
	}
	return quantile.Median(rounds), nil
}
