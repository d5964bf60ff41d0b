package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/test/await"
)

// A queue that was flooded with jobs that have ended.
const (
	endedJobs         = 1_000_000
	endedUsers        = 4      // more than can each have the most ended jobs in memory
	endedLast         = 20_000 // jobs that only the journal has when the daemon is killed
	endedElements     = 80_000 // elements of one array, likewise
	endedBudget       = 10 * time.Second
	endedMemoryBudget = 1024 // MiB
)

// restart is the time until a started daemon answered, and the most memory that it used
// until a while later, in MiB.
type restart struct {
	after  string
	took   time.Duration
	memory int
}

// measureRestarts measures the daemon's start with many ended jobs: after it was stopped, and
// after it was killed with a long journal; then compaction of such a state.
func (b *bench) measureRestarts(ctx context.Context) (err error) {
	q, err := startMiniq(ctx, &b.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	if _, err := q.Run(ctx, "miniqd", "stop"); err != nil {
		return err
	}
	began := time.Now()
	if err := fillState(miniq.StateDir(q.paths)); err != nil {
		return err
	}
	b.printf("\na state of %d ended jobs was made in %.0f s", endedJobs, time.Since(began).Seconds())
	if err := b.measureStart(ctx, q, "stopped"); err != nil {
		return err
	}
	if err := q.submitAndKill(ctx, endedLast); err != nil {
		return err
	}
	if err := q.submitAndKillArray(ctx, endedElements); err != nil {
		return err
	}
	b.printf("the journal has %d MB when the daemon is killed", journalSize(miniq.StateDir(q.paths))>>20)
	if err := q.killDaemon(ctx); err != nil {
		return err
	}
	if err := b.measureStart(ctx, q, "killed"); err != nil {
		return err
	}
	began = time.Now()
	keep := time.Second
	c := q.openFor(10 * time.Minute)
	defer func() { _ = c.Close() }()
	done, err := c.Compact(ctx, &keep)
	if err != nil {
		return err
	}
	status, err := q.client.Status(ctx)
	if err != nil {
		return err
	}
	_, most, err := memoryOf(status.PID)
	b.printf("compaction forgot %d jobs in %.1f s; the daemon took %d MiB at most", done.Forgotten, time.Since(began).Seconds(), most)
	return err
}

// measureStart starts the daemon and measures it.
func (b *bench) measureStart(ctx context.Context, q *miniqQueue, after string) error {
	began := time.Now()
	if _, err := q.Run(ctx, "miniqd"); err != nil {
		return err
	}
	status, err := q.client.Status(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	time.Sleep(10 * time.Second) // it reads the state objects in the background
	_, most, err := memoryOf(status.PID)
	b.printf("started after it was %s: it answered after %.1f s and took %d MiB at most; %d ended jobs are in memory", after, took.Seconds(), most, status.Ended)
	b.restarts = append(b.restarts, restart{after, took, most})
	return err
}

func (b *bench) judgeEnded() bool {
	if len(b.restarts) == 0 {
		b.printf("  not judged  a start with %d ended jobs: not measured", endedJobs)
		return true
	}
	all := true
	for _, r := range b.restarts {
		met := r.took <= endedBudget && r.memory <= endedMemoryBudget
		verdict := "met"
		if !met {
			verdict, all = "missed", false
		}
		b.printf("  %-10s  a start with %d ended jobs, after it was %s, ≤ %v and ≤ %d MiB: it is %v and %d MiB",
			verdict, endedJobs, r.after, endedBudget, endedMemoryBudget, r.took.Round(100*time.Millisecond), r.memory)
	}
	return all
}

// fillState fills a state directory with ended jobs while no daemon runs: the snapshot holds
// as many as the queue keeps in memory, and each job has a state object. The queue itself
// would take half an hour to write them.
func fillState(state string) error {
	const pack = 1000
	m := manager.New(manager.Config{
		AgeingInterval: 20 * time.Second, AgeingCap: 69, MaxEnded: miniq.DefaultMaxJobs, MaxEndedBytes: 64 << 20,
	})
	now := time.Now().Add(-time.Hour)
	ids := make([]backends.ID, pack)
	specs := make([]backends.Spec, pack)
	for n := range endedJobs / pack {
		by := manager.By{User: fmt.Sprintf("user%d", n%endedUsers)}
		for i := range specs {
			specs[i] = backends.Spec{Slots: 1, Hold: true, Name: fmt.Sprintf("step-%d", n*pack+i), Project: "flood"}
		}
		_, result := m.Step(now, manager.Submit{By: by, Specs: specs})
		for i, s := range result.Submitted {
			if s.Err != nil {
				return s.Err
			}
			ids[i] = s.ID
		}
		now = now.Add(time.Millisecond)
		if _, result = m.Step(now, manager.Kill{By: by, IDs: ids}); result.Errors.First() != nil {
			return result.Errors.First()
		}
		if err := writeObjects(filepath.Join(state, "jobs"), ids, now); err != nil {
			return err
		}
	}
	return writeSnapshot(state, m)
}

// writeObjects makes files as large as the state objects of small jobs.
func writeObjects(dir string, ids []backends.ID, at time.Time) error {
	content := make([]byte, 4<<10)
	for _, id := range ids {
		path := state.Path(dir, id)
		err := os.WriteFile(path, content, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeSnapshot replaces the snapshot that a daemon wrote by m's, at the same place in the
// journal and in the same format.
func writeSnapshot(state string, m *manager.Manager) error {
	const header = "allotment-miniq %d %d %08x\n"
	path := filepath.Join(state, "queue")
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var format, seq, sum int
	if _, err := fmt.Sscanf(string(old[:min(len(old), 100)]), header, &format, &seq, &sum); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	data, err := m.State()
	if err != nil {
		return err
	}
	head := fmt.Appendf(nil, header, format, seq, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	return os.WriteFile(path, append(head, data...), 0o600)
}

// submitAndKill submits jobs that never start, and kills them.
func (q *miniqQueue) submitAndKill(ctx context.Context, jobs int) error {
	const pack = 100
	specs := make([]backends.Spec, pack)
	for i := range specs {
		specs[i] = q.spec("true")
		specs[i].Hold = true
	}
	ids := make([]backends.ID, pack)
	for range jobs / pack {
		for i, s := range q.client.Submit(ctx, specs) {
			if s.Err != nil {
				return s.Err
			}
			ids[i] = s.ID
		}
		if err := q.client.Kill(ctx, ids).First(); err != nil {
			return err
		}
	}
	return nil
}

func (q *miniqQueue) submitAndKillArray(ctx context.Context, elements int) error {
	spec := q.spec("true")
	spec.Hold, spec.Array = true, &backends.Array{}
	for i := range elements {
		spec.Array.Indices = append(spec.Array.Indices, i+1)
	}
	submitted := q.client.Submit(ctx, []backends.Spec{spec})[0]
	if submitted.Err != nil {
		return submitted.Err
	}
	return q.client.Kill(ctx, []backends.ID{submitted.ID}).First()
}

// killDaemon ends the daemon as a crash does.
func (q *miniqQueue) killDaemon(ctx context.Context) error {
	status, err := q.client.Status(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(status.PID, syscall.SIGKILL); err != nil {
		return err
	}
	await.End(ctx, status.PID)
	return ctx.Err()
}

func journalSize(state string) int64 {
	names, _ := filepath.Glob(filepath.Join(state, "journal.*"))
	var size int64
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			size += info.Size()
		}
	}
	return size
}
