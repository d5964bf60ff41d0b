package joined

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Queue is the machines of a directory as the queue of a split.
type Queue struct {
	dir string
	log func(string)

	ctx    context.Context //nolint:containedctx // of its machines' watches
	cancel context.CancelFunc
	limit  time.Duration // lostTime

	mu       sync.Mutex
	machines map[string]*machine
	refused  map[string]string // records that can't be used, and what was said of them
	news     backends.News
}

// ErrNone is wrapped where no machine has joined.
var ErrNone = errors.New("no machine has joined")

// Open reads which machines have joined. Those that join later, or leave, are found with each Snapshot.
func Open(dir string, log func(string)) (*Queue, error) {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{dir: dir, log: log, ctx: ctx, cancel: cancel, limit: lostTime, machines: map[string]*machine{}, refused: map[string]string{}}
	if err := q.refresh(); err != nil {
		cancel()
		return nil, err
	}
	if len(q.all()) == 0 {
		cancel()
		return nil, fmt.Errorf("%w in %s: run asplit worker --join on each", ErrNone, dir)
	}
	return q, nil
}

// Close closes the connections. No job is touched.
func (q *Queue) Close() error {
	q.cancel()
	return nil
}

// refresh reads the records.
func (q *Queue) refresh() error {
	hosts, err := listRecords(q.dir)
	if err != nil {
		return err
	}
	now := map[string]record{}
	numbers := map[int64]string{}
	for _, host := range hosts {
		r, err := readRecord(q.dir, host)
		if other, ok := numbers[r.Number]; err == nil && ok {
			err = fmt.Errorf("%s has the same number as %s: a state directory was copied; remove the file joined in one", host, other)
		}
		if err != nil {
			q.refuse(host, err)
			continue
		}
		now[host], numbers[r.Number] = r, host
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for host, m := range q.machines {
		if _, ok := now[host]; !ok {
			m.end()
			delete(q.machines, host)
		}
	}
	for host, r := range now {
		m := q.machines[host]
		if m != nil && m.record.Number == r.Number && m.record.Certificate == r.Certificate {
			m.setLeaving(r.Leaving)
			continue
		}
		next := open(q.ctx, r, m, q.news.Tell)
		if m != nil {
			m.end()
		}
		q.machines[host] = next
	}
	return nil
}

// refuse says once what is wrong with a record.
func (q *Queue) refuse(host string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if text := err.Error(); q.refused[host] != text {
		q.refused[host] = text
		q.log("a machine is left out: " + text)
	}
}

// Changes returns a function that waits until a machine has changed since its last call.
func (q *Queue) Changes() func(context.Context) error { return q.news.Changes() }

// all returns the machines by name.
func (q *Queue) all() []*machine {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*machine, 0, len(q.machines))
	for _, m := range q.machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(a.record.Host, b.record.Host) })
	return all
}

// each calls a function for each machine, side by side.
func each(all []*machine, f func(i int, m *machine)) {
	var calls sync.WaitGroup
	for i, m := range all {
		calls.Go(func() { f(i, m) })
	}
	calls.Wait()
}

// Snapshot returns the hosts and jobs of all machines. One that does not answer is closed, and
// down when it has been silent for a while: then its jobs are not listed.
func (q *Queue) Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error) {
	if err := q.refresh(); err != nil {
		return nil, fmt.Errorf("%w: %w", backends.ErrUnreachable, err)
	}
	machines := q.all()
	parts := make([]backends.Snapshot, len(machines))
	each(machines, func(i int, m *machine) { parts[i] = m.snapshot(ctx, endedSince, q.limit) })
	s := &backends.Snapshot{At: time.Now()}
	for _, p := range parts {
		s.Hosts, s.Jobs, s.Ended = append(s.Hosts, p.Hosts...), append(s.Jobs, p.Jobs...), append(s.Ended, p.Ended...)
	}
	return s, ctx.Err()
}

// group returns the indices of a batch of n by what of returns for each.
func group[T comparable](n int, of func(i int) T) map[T][]int {
	all := map[T][]int{}
	for i := range n {
		all[of(i)] = append(all[of(i)], i)
	}
	return all
}

// Jobs returns the jobs that the machines know. Those of a machine that is silent are as they were
// last; when a snapshot has had it down they have ended.
func (q *Queue) Jobs(ctx context.Context, ids []backends.ID) (jobs []backends.Job, err error) {
	groups := group(len(ids), func(i int) int64 { number, _ := own(ids[i]); return number })
	machines := q.all()
	parts := make([][]backends.Job, len(machines))
	each(machines, func(i int, m *machine) {
		var its []backends.ID
		for _, at := range groups[m.record.Number] {
			_, id := own(ids[at])
			its = append(its, id)
		}
		parts[i] = m.list(ctx, its, q.limit)
	})
	for _, p := range parts {
		jobs = append(jobs, p...)
	}
	return jobs, ctx.Err()
}

// Submit submits each job to the machine that it is for.
func (q *Queue) Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted {
	all := make([]backends.Submitted, len(specs))
	groups := group(len(specs), func(i int) string {
		if len(specs[i].Hosts) != 1 {
			return ""
		}
		return specs[i].Hosts[0]
	})
	machines := q.all()
	each(machines, func(_ int, m *machine) {
		at := groups[m.record.Host]
		its := make([]backends.Spec, len(at))
		for k, i := range at {
			its[k] = specs[i]
		}
		for k, one := range m.submit(ctx, its) {
			all[at[k]] = one
		}
	})
	for i := range all {
		if all[i] == (backends.Submitted{}) {
			all[i].Err = fmt.Errorf("%w: its machine has left", backends.ErrHostAway)
		}
	}
	return all
}

// Kill kills jobs. Those that were lost with their machines are killed if those come back.
func (q *Queue) Kill(ctx context.Context, ids []backends.ID) backends.Errors {
	all := make(backends.Errors, len(ids))
	groups := group(len(ids), func(i int) int64 { number, _ := own(ids[i]); return number })
	each(q.all(), func(_ int, m *machine) {
		at := groups[m.record.Number]
		its := make([]backends.ID, len(at))
		for k, i := range at {
			_, its[k] = own(ids[i])
		}
		for k, err := range m.kill(ctx, its, q.limit) {
			all[at[k]] = err
		}
	})
	return all
}
