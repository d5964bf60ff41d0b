package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	client "github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/home"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/test/farm"
)

// miniqQueue is the bundled queue on a farm of its own.
type miniqQueue struct {
	*farm.Farm
	client *client.Client
	paths  home.Paths
	anyJob backends.ID // of its jobs
}

func startMiniq(ctx context.Context, o *options) (*miniqQueue, error) {
	var config strings.Builder
	config.WriteString("miniq: {nodes: [")
	for i := range nodes {
		fmt.Fprintf(&config, "\"node%d:%d:16G\", ", i+1, perNode)
	}
	config.WriteString("]}\n")
	f, err := farm.Start(ctx, farm.Options{Programs: o.programs, Config: config.String(), Below: o.below})
	if err != nil {
		return nil, err
	}
	q := &miniqQueue{Farm: f}
	q.paths, err = home.Find(func(name string) string {
		if name == "ALLOTMENT_HOME" {
			return f.Home
		}
		return ""
	}, os.Getuid())
	if err == nil {
		_, err = f.Run(ctx, "pba", "init") // the filter has its snapshot
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	q.client = q.open()
	return q, nil
}

func (q *miniqQueue) open() *client.Client { return q.openFor(time.Minute) }

// openFor returns a client whose requests may take so long.
func (q *miniqQueue) openFor(timeout time.Duration) *client.Client {
	return client.Open(client.Options{Paths: q.paths, Config: miniq.DefaultConfig(), Timeout: timeout})
}

func (q *miniqQueue) name() string { return miniqName }

func (q *miniqQueue) close() error {
	_ = q.client.Close()
	return q.Farm.Close()
}

// spec returns a job as a user's shell would submit it, with all of its environment.
func (q *miniqQueue) spec(command ...string) backends.Spec {
	return backends.Spec{Command: command, Dir: q.Home, Env: os.Environ(), Stdout: os.DevNull, Umask: 0o22, Slots: 1}
}

func (q *miniqQueue) submit(ctx context.Context, clients, jobs int) error {
	_, err := q.submitAll(ctx, clients, jobs, 1)
	return err
}

func (q *miniqQueue) submitPacked(ctx context.Context, clients, jobs, pack int) error {
	_, err := q.submitAll(ctx, clients, jobs, pack)
	return err
}

// submitAll submits jobs from so many clients, so many in each request.
func (q *miniqQueue) submitAll(ctx context.Context, clients, jobs, pack int) ([]backends.ID, error) {
	var mu sync.Mutex
	var ids []backends.ID
	err := inParallel(clients, func(n int) error {
		c := q.open()
		defer func() { _ = c.Close() }()
		specs := make([]backends.Spec, pack)
		for i := range specs {
			specs[i] = q.spec("true")
		}
		for left := share(jobs, clients, n); left > 0; left -= len(specs) {
			specs = specs[:min(left, len(specs))]
			submitted := c.Submit(ctx, specs)
			mu.Lock()
			for _, s := range submitted {
				ids = append(ids, s.ID)
			}
			mu.Unlock()
			for _, s := range submitted {
				if s.Err != nil {
					return s.Err
				}
			}
		}
		return nil
	})
	if len(ids) > 0 {
		q.anyJob = ids[0]
	}
	return ids, err
}

// share returns the size of the nth part of all.
func share(all, parts, n int) int { return all*(n+1)/parts - all*n/parts }

// inParallel does something so many times at once.
func inParallel(times int, do func(n int) error) error {
	errs := make([]error, times)
	var wait sync.WaitGroup
	for n := range times {
		wait.Go(func() { errs[n] = do(n) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (q *miniqQueue) run(ctx context.Context, jobs int) error {
	ids, err := q.submitAll(ctx, clientsAtOnce, jobs, 1)
	if err != nil {
		return err
	}
	return q.await(ctx, ids)
}

func (q *miniqQueue) await(ctx context.Context, ids []backends.ID) error {
	ended, err := q.client.WaitEnded(ctx, ids)
	if err != nil {
		return err
	}
	for i := range ended {
		if ended[i].State != backends.Done {
			return fmt.Errorf("job %v: %s, status %d: %s", ended[i].ID, ended[i].State, ended[i].ExitCode, ended[i].Reason)
		}
	}
	return nil
}

// runArray is run with one submission for all.
func (q *miniqQueue) runArray(ctx context.Context, jobs int) error {
	spec := q.spec("true")
	spec.Array = &backends.Array{}
	for i := range jobs {
		spec.Array.Indices = append(spec.Array.Indices, i+1)
	}
	submitted := q.client.Submit(ctx, []backends.Spec{spec})
	if submitted[0].Err != nil {
		return submitted[0].Err
	}
	q.anyJob = backends.ID{Job: submitted[0].ID.Job, Index: 1}
	return q.await(ctx, []backends.ID{submitted[0].ID})
}

// awaitIdle waits until the queue has written jobs' state objects, which it writes in the
// background. The journal, which is measured, is written at once.
func (q *miniqQueue) awaitIdle(ctx context.Context) error {
	if q.anyJob == (backends.ID{}) {
		return nil
	}
	_, err := q.client.Record(ctx, q.anyJob)
	return err
}

// command is one asub.
func (q *miniqQueue) command(ctx context.Context) error {
	_, err := q.Run(ctx, "asub", "-o", os.DevNull, "true")
	return err
}

func (q *miniqQueue) list(ctx context.Context, pending int) (int, time.Duration, error) {
	farm, err := q.client.Snapshot(ctx, time.Now())
	if err != nil {
		return 0, 0, err
	}
	if missing := pending + slots - len(farm.Jobs); missing > 0 {
		if err := q.submitPacked(ctx, clientsAtOnce, missing, 100); err != nil {
			return 0, 0, err
		}
	}
	began := time.Now()
	out, err := q.Run(ctx, "ajobs", "-p", "-w")
	return len(out), time.Since(began), err
}

func (q *miniqQueue) block(ctx context.Context) error {
	spec := q.spec("sleep", "86400")
	spec.Array = &backends.Array{}
	for i := range slots {
		spec.Array.Indices = append(spec.Array.Indices, i+1)
	}
	return q.client.Submit(ctx, []backends.Spec{spec})[0].Err
}

func (q *miniqQueue) clear(ctx context.Context) error {
	snapshot, err := q.client.Snapshot(ctx, time.Now())
	if err != nil {
		return err
	}
	var ids []backends.ID
	for i := range snapshot.Jobs {
		ids = append(ids, snapshot.Jobs[i].ID)
	}
	// Pending jobs are killed first, so that none starts.
	for i := len(ids) - 1; i >= 0; i -= 5000 {
		part := ids[max(0, i-4999) : i+1]
		if err := q.client.Kill(ctx, part).First(); err != nil && !errors.Is(err, backends.ErrWrongState) {
			return err
		}
	}
	_, err = q.client.WaitEnded(ctx, ids)
	return err
}
