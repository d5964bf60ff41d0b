package joined

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/miniq"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// machine is one that joined, as a split sees it.
type machine struct {
	record record
	queue  *miniq.Client
	end    context.CancelFunc

	mu      sync.Mutex
	leaving bool
	state   health
	hosts   []backends.Host              // as it last said
	jobs    map[backends.ID]backends.Job // that have not ended, as it last said
	buried  map[backends.ID]struct{}     // jobs that were called lost: they are killed if it comes back
}

// health is whether a machine answers.
type health struct {
	silent time.Time // since when it does not; zero: it does
	why    error
	shown  bool // a snapshot has had it down since
}

// lostTime is how long a machine may be silent until its jobs count as lost.
const lostTime = time.Minute

// lost reports whether what runs there counts as lost.
func (h *health) lost(now time.Time, limit time.Duration) bool {
	return !h.silent.IsZero() && now.Sub(h.silent) >= limit
}

// open connects to a machine, and calls changed after each of its changes until the context ends.
// The machine takes over what before knew, if that is the same one, joined by an earlier process;
// before may be nil.
func open(ctx context.Context, r record, before *machine, changed func()) *machine {
	ctx, cancel := context.WithCancel(ctx)
	m := &machine{record: r, end: cancel, leaving: r.Leaving, jobs: map[backends.ID]backends.Job{}, buried: map[backends.ID]struct{}{}}
	if before != nil && before.record.Number == r.Number {
		before.mu.Lock()
		m.state, m.hosts = before.state, before.hosts
		maps.Copy(m.jobs, before.jobs)
		maps.Copy(m.buried, before.buried)
		before.mu.Unlock()
	}
	m.queue = miniq.Open(miniq.Options{Timeout: callTime, Dial: func(ctx context.Context) (*os.File, error) { return r.dial(ctx) }})
	go m.watch(ctx, changed)
	return m
}

// Times of calls.
const (
	callTime  = 5 * time.Second
	tryPause  = time.Second // between two attempts to reach a silent machine
	maxBuried = 100_000
)

// watch calls changed after each change of the machine, and finds out when it answers again.
func (m *machine) watch(ctx context.Context, changed func()) {
	defer func() { _ = m.queue.Close() }()
	for seen := uint64(0); ctx.Err() == nil; {
		current, err := m.queue.WaitChange(ctx, seen)
		if ctx.Err() != nil {
			return
		}
		m.heard(err)
		if err == nil {
			seen = current
			m.killBuried(ctx)
		} else {
			seen = 0
			_ = clock.Sleep(ctx, tryPause)
		}
		changed()
	}
}

// heard notes whether a call was answered.
func (m *machine) heard(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.state = health{}
	case m.state.silent.IsZero():
		m.state = health{silent: time.Now(), why: err}
	default:
		m.state.why = err
	}
}

// killBuried kills the jobs that were called lost and may run still.
func (m *machine) killBuried(ctx context.Context) {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.buried))
	m.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	errs := m.queue.Kill(ctx, ids)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, id := range ids {
		if !unreachable(errs[i]) {
			delete(m.buried, id)
		}
	}
}

// of returns an ID of the machine's own as one of all machines.
func (m *machine) of(id backends.ID) backends.ID {
	id.Job += m.record.Number << numberBits
	return id
}

// numberBits is the size of a machine's own job numbers, behind the machine's number.
const numberBits = 32

// own is the inverse of machine.of: it returns the machine's number, too.
func own(id backends.ID) (number int64, its backends.ID) {
	number = id.Job >> numberBits
	id.Job &= 1<<numberBits - 1
	return number, id
}

func (m *machine) setLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = leaving
}

// unreachable reports an error that says that a machine did not answer.
func unreachable(err error) bool { return errors.Is(err, backends.ErrUnreachable) }

// ask makes a call, unless the machine is silent, and reports whether it was answered.
func (m *machine) ask(ctx context.Context, call func(context.Context) error) (answered bool) {
	m.mu.Lock()
	silent := !m.state.silent.IsZero()
	m.mu.Unlock()
	if silent {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := call(ctx)
	if unreachable(err) {
		m.heard(err)
	}
	return err == nil
}

// snapshot returns the machine's part of a snapshot.
func (m *machine) snapshot(ctx context.Context, endedSince time.Time, limit time.Duration) (part backends.Snapshot) {
	m.ask(ctx, func(ctx context.Context) error {
		s, err := m.queue.Snapshot(ctx, endedSince)
		if err == nil {
			m.keep(s)
			part.Ended = s.Ended
		}
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := m.state.lost(time.Now(), limit)
	m.state.shown = m.state.shown || lost
	for _, h := range m.hosts {
		if h.Name != m.record.Host {
			continue
		}
		switch {
		case m.leaving || lost:
			h.State = backends.HostDown
		case !m.state.silent.IsZero():
			h.State = backends.HostClosed
		}
		part.Hosts = append(part.Hosts, h)
	}
	if len(part.Hosts) == 0 {
		part.Hosts = []backends.Host{{Name: m.record.Host, State: backends.HostDown}}
	}
	if !lost {
		for _, id := range slices.SortedFunc(maps.Keys(m.jobs), backends.ID.Compare) {
			part.Jobs = append(part.Jobs, m.jobs[id])
		}
	}
	for i := range part.Jobs {
		part.Jobs[i].ID = m.of(part.Jobs[i].ID)
	}
	for i := range part.Ended {
		part.Ended[i].ID = m.of(part.Ended[i].ID)
	}
	return part
}

// keep keeps what a machine said of itself.
func (m *machine) keep(s *backends.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hosts = s.Hosts
	clear(m.jobs)
	for i := range s.Jobs {
		m.jobs[s.Jobs[i].ID] = s.Jobs[i]
	}
}

// list returns those of the jobs that are known.
func (m *machine) list(ctx context.Context, ids []backends.ID, limit time.Duration) (jobs []backends.Job) {
	if len(ids) == 0 {
		return nil
	}
	answered := m.ask(ctx, func(ctx context.Context) (err error) {
		jobs, err = m.queue.Jobs(ctx, ids)
		return err
	})
	if !answered {
		jobs = m.recall(ids, time.Now(), limit)
	}
	for i := range jobs {
		jobs[i].ID = m.of(jobs[i].ID)
	}
	return jobs
}

// recall returns what is known of the jobs of a machine that does not answer.
func (m *machine) recall(ids []backends.ID, now time.Time, limit time.Duration) (jobs []backends.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		j, known := m.jobs[id]
		if !known {
			j = backends.Job{ID: id, State: backends.Running}
		}
		if m.state.shown && m.state.lost(now, limit) {
			j.State, j.Lost, j.Ended = backends.Exited, true, now
			m.bury(id)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (m *machine) bury(id backends.ID) {
	if len(m.buried) < maxBuried {
		m.buried[id] = struct{}{}
	}
}

// submit submits jobs. A machine that is silent gets none.
func (m *machine) submit(ctx context.Context, specs []backends.Spec) (all []backends.Submitted) {
	if len(specs) == 0 {
		return nil
	}
	m.mu.Lock()
	why, leaving := m.state.why, m.leaving
	m.mu.Unlock()
	switch {
	case leaving:
		why = errors.New("it leaves")
	case why == nil:
		all = m.queue.Submit(ctx, specs)
		for i := range all {
			if all[i].Err == nil {
				all[i].ID = m.of(all[i].ID)
			} else if unreachable(all[i].Err) {
				m.heard(all[i].Err)
			}
		}
		return all
	}
	all = make([]backends.Submitted, len(specs))
	for i := range all {
		all[i].Err = fmt.Errorf("%s: %w: %.300s", m.record.Host, backends.ErrHostAway, why.Error()) // no ErrUnreachable: it was not sent
	}
	return all
}

// kill kills jobs.
func (m *machine) kill(ctx context.Context, ids []backends.ID, limit time.Duration) (errs backends.Errors) {
	if len(ids) == 0 {
		return nil
	}
	answered := m.ask(ctx, func(ctx context.Context) error {
		errs = m.queue.Kill(ctx, ids)
		for _, err := range errs {
			if unreachable(err) {
				return err
			}
		}
		return nil
	})
	if answered {
		return errs
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.lost(time.Now(), limit) {
		return backends.Fail(len(ids), fmt.Errorf("%s: %w", m.record.Host, backends.ErrUnreachable))
	}
	for _, id := range ids {
		m.bury(id)
	}
	return make(backends.Errors, len(ids))
}
