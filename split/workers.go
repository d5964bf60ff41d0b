package split

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/split/task"
)

// Workers is the bus of a run: standing workers send their states on it, and receive orders.
type Workers interface {
	// Open opens the bus in a split's directory. heard is called for what a worker says, one
	// after the other; n is the task that its job began with, which no other worker can claim.
	Open(ctx context.Context, dir string, heard func(n int64, s WorkerState)) error
	// Send sends an order. One that is lost is sent again.
	Send(n int64, o WorkerOrder) error
	Close()
}

// Standing is how a run uses standing workers.
type Standing struct {
	Workers Workers  // nil: none
	Program []string // what a job runs that stays, before the split's directory and the task's number
	Most    int      // jobs that stay at a time
}

// maxInbox bounds the workers that have said something which was not read yet.
const maxInbox = 1 << 14

// inbox has the newest state of each worker that was not read yet.
type inbox struct {
	mu   sync.Mutex
	all  map[int64]WorkerState
	news chan struct{}
}

func newInbox() *inbox { return &inbox{all: map[int64]WorkerState{}, news: make(chan struct{}, 1)} }

func (b *inbox) put(n int64, s WorkerState) {
	b.mu.Lock()
	if _, known := b.all[n]; known || len(b.all) < maxInbox {
		b.all[n] = s
	}
	b.mu.Unlock()
	signal(b.news)
}

func (b *inbox) take() map[int64]WorkerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = map[int64]WorkerState{}
	return all
}

// openWorkers opens the bus, before the first job that stays, or that may stand already.
func (r *runner) openWorkers(ctx context.Context) {
	if r.workersOpen || r.crew.most == 0 {
		return
	}
	if err := r.Standing.Workers.Open(ctx, r.dir.Path, r.inbox.put); err != nil {
		r.crew.most = 0
		r.log("no standing workers: each round has jobs of its own: " + oneLine(err.Error()))
		return
	}
	r.workersOpen = true
}

// restoreWorkers finds the workers of an earlier run that may stand still: their jobs run.
func (r *runner) restoreWorkers(ctx context.Context) error {
	if len(r.stood) == 0 {
		return nil
	}
	var ids []backends.ID
	for _, w := range r.stood {
		ids = append(ids, backends.ID{Job: w.Job})
	}
	jobs, err := r.Queue.Jobs(ctx, ids)
	if err != nil {
		return err
	}
	for i := range jobs {
		j := &jobs[i]
		at := slices.IndexFunc(r.stood, func(w *row) bool { return w.Job == j.ID.Job })
		if at < 0 || j.State.Ended() {
			continue
		}
		m := r.crew.add(r.stood[at], r.stood[at].Host, max(r.Spec.RunLimit, j.RunLimit))
		m.given, m.awaiting, m.restored = 0, true, true
		m.left = j.State != backends.Running
		for _, t := range r.core.Open() {
			if w := r.tasks[t.N]; w.Worker == m.N {
				m.give(t.N, time.Now())
			}
		}
	}
	r.stood = nil
	if len(r.crew.members) > 0 {
		r.openWorkers(ctx)
	}
	return nil
}

// tend reads what workers said, and tells them what is due.
func (r *runner) tend(ctx context.Context) error {
	if !r.workersOpen {
		return nil
	}
	now := time.Now()
	var changed []*row
	for n, s := range r.inbox.take() {
		v := r.crew.hear(n, s)
		if v.answer.Take != 0 {
			r.crew.members[n].sentAt = now
		}
		r.send(n, v.answer)
		if v.back != 0 {
			w, err := r.handedBack(v.back, r.crew.members[n])
			if err != nil {
				return err
			}
			changed = append(changed, w...)
		}
	}
	for n, o := range r.crew.orders(now) {
		r.send(n, o)
	}
	for _, m := range r.crew.ordered() {
		if w := r.tasks[m.given]; m.given != 0 && !m.left && m.state.Done >= m.given && r.overdue(w, now) {
			changed = append(changed, w)
		}
	}
	for _, m := range r.crew.late(now) {
		r.log(fmt.Sprintf("the worker on %s does not answer: its job is killed, and its task has a job of its own", shown(m.Host)))
		r.Queue.Kill(ctx, []backends.ID{{Job: m.Job}})
		if w := r.tasks[m.given]; w != nil && w.State == Open {
			r.takeAway(w)
			changed = append(changed, w)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return r.save(ctx, changed...)
}

// send sends an order. If it is lost the worker repeats its state, or the order is repeated.
func (r *runner) send(n int64, o WorkerOrder) { _ = r.Standing.Workers.Send(n, o) }

// overdue ends a task that its worker ended long ago without a result.
func (r *runner) overdue(w *row, now time.Time) bool {
	if w == nil || w.State != Open {
		return false
	}
	switch since := r.late[w.N]; {
	case since.IsZero():
		r.late[w.N] = now
		return false
	case now.Sub(since) < resultTime:
		return false
	}
	r.log(fmt.Sprintf("task %d ended on %s and left no result: is %s on a file system that all hosts share?", w.N, shown(w.Host), shown(r.dir.Path)))
	r.end(w, Failed, 0)
	return true
}

// handedBack ends a task that a worker gave back, because the queue ends its job. What it has
// executed counts; the rest goes to another host. The task can't be executed again: its job may
// be one that the queue runs again.
func (r *runner) handedBack(n int64, m *member) ([]*row, error) {
	w := r.tasks[n]
	if w == nil || w.State != Open {
		return nil, nil
	}
	result, err := r.result(&w.Task)
	if err != nil || result {
		return []*row{w}, err
	}
	if err := r.takeBack(n); err != nil {
		return nil, err
	}
	if !r.withdrawn[n] {
		r.log(fmt.Sprintf("task %d was handed back by %s: job %d is preempted or killed there; its items go on elsewhere%s", n, shown(m.Host), m.Job, r.logTail(m.N)))
		if len(r.core.Hosts) > 1 {
			r.hosts.rest(m.Host, time.Now())
		}
	}
	r.end(w, Withdrawn, 0)
	return []*row{w}, nil
}

// takeBack removes the order of a task: what has not begun it can not any more.
func (r *runner) takeBack(n int64) error {
	if err := os.Remove(task.File(r.dir.Path, n, task.KindOrder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back task %d: %w", n, err)
	}
	return nil
}

// takeAway takes a task from a worker that has not begun it, and is of no use any more. The task
// gets a job of its own: should the worker execute it after all, its items are executed once.
func (r *runner) takeAway(w *row) {
	if m := r.crew.members[w.Worker]; m != nil && r.crew.lost(m, time.Now()) {
		r.sayUnreachable(m)
	}
	w.Job, w.Worker, w.Submitted = 0, 0, time.Time{}
}

// sayUnreachable says once that workers can't reach asplit.
func (r *runner) sayUnreachable(m *member) {
	if r.unreachableTold {
		return
	}
	r.unreachableTold = true
	r.log(fmt.Sprintf("standing workers can't reach asplit from %s: rounds go there by jobs for now%s", shown(m.Host), r.logTail(m.N)))
}

// notBegun reports whether a task was given to a worker that has not begun it.
func (r *runner) notBegun(w *row) bool {
	m := r.crew.members[w.Worker]
	if w.Worker == 0 || w.Worker == w.N || m != nil && m.state.has(w.N) {
		return false
	}
	_, err := os.Lstat(task.File(r.dir.Path, w.N, task.KindNew))
	return errors.Is(err, fs.ErrNotExist)
}

// leftUndone reports whether a task was given to a worker that did not take it, though an earlier
// run of the worker's job may have begun it.
func (r *runner) leftUndone(w *row) bool {
	m := r.crew.members[w.Worker]
	return m != nil && w.Worker != w.N && !m.state.has(w.N)
}

// jobEnded notes that the job of a task has ended.
func (r *runner) jobEnded(w *row) {
	if m := r.crew.members[w.Worker]; m != nil && w.Job == m.Job {
		m.left, m.ended, m.awaiting = true, true, false
	}
}

// jobRuns notes what the queue says of a job that runs.
func (r *runner) jobRuns(w *row, j *backends.Job) {
	m := r.crew.members[w.Worker]
	if m == nil || w.Job != m.Job {
		return
	}
	if !j.Started.IsZero() {
		m.began = j.Started
	}
	if j.RunLimit > 0 && (m.limit == 0 || j.RunLimit < m.limit) {
		m.limit = j.RunLimit
	}
}

// place finds a worker for a task, which is given it, or decides whether its job stays.
func (r *runner) place(w *row, more bool) (given bool) {
	w.Worker = 0
	m, stays := r.crew.place(w.Host, more, time.Now())
	switch {
	case m != nil:
		m.give(w.N, time.Now())
		w.Worker, w.Job, w.Slots, w.Submitted = m.N, m.Job, m.Slots, time.Now()
		return true
	case stays:
		w.Worker = w.N
	}
	return false
}

// giveAll has workers take the tasks that they are given, once that is stored.
func (r *runner) giveAll(ctx context.Context, given []*row) error {
	if len(given) == 0 {
		return nil
	}
	if err := r.save(ctx, given...); err != nil {
		return err
	}
	for _, w := range given {
		delete(r.fresh, w.N)
	}
	for n, o := range r.crew.orders(time.Now()) {
		r.send(n, o)
	}
	return nil
}

// releaseWorkers tells workers to end that have nothing to do.
func (r *runner) releaseWorkers(more bool) {
	if !r.workersOpen {
		return
	}
	n := need{more: more, hosts: map[string]struct{}{}, slots: func(host string) int {
		if r.def.Slots != FreeSlots {
			return 0
		}
		return r.hosts.slotsOf(host)
	}}
	for _, host := range r.core.Hosts {
		n.hosts[host] = struct{}{}
	}
	for _, m := range r.crew.release(n, time.Now()) {
		r.send(m.N, WorkerOrder{Run: m.state.Run, Seq: m.state.Seq, End: true, Drop: m.drop})
	}
}

// slotsOn returns the slots of a host's next task: a worker's, if one stands there.
func (r *runner) slotsOn(host string) int {
	slots := r.hosts.slotsOf(host)
	if m := r.crew.on(host); m != nil && !m.outgrown(slots) {
		return m.Slots
	}
	return slots
}

// endWorkers ends all workers, and closes the bus. With wait it returns when the queue says that
// their jobs have ended.
func (r *runner) endWorkers(wait bool) {
	if !r.workersOpen {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), byeTime)
	defer cancel()
	again := time.NewTicker(dropTime)
	defer again.Stop()
	for ctx.Err() == nil {
		wait := false
		for _, m := range r.crew.ordered() {
			if !m.ended && !m.awaiting {
				now := time.Now()
				m.left = true
				m.ask(now)
				r.send(m.N, WorkerOrder{Run: m.state.Run, Seq: m.state.Seq, End: true, Drop: m.drop})
				wait = wait || m.mayAnswer(now)
			}
		}
		if !wait {
			break
		}
		select {
		case <-r.inbox.news:
		case <-again.C:
		case <-ctx.Done():
		}
		for n, s := range r.inbox.take() {
			r.send(n, r.crew.hear(n, s).answer)
		}
	}
	r.Standing.Workers.Close()
	r.workersOpen = false
	r.killWorkers(wait)
}

// killWorkers kills the jobs of workers that are not known to end. With wait it returns when the
// jobs of all workers have ended, within stopTime.
func (r *runner) killWorkers(wait bool) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	changed := WatchQueue(ctx, r.Queue)
	for killed := false; ; {
		jobs, kill := map[int64]bool{}, []backends.ID{}
		for _, m := range r.crew.ordered() {
			if m.Job != 0 && (wait || !m.ended) {
				jobs[m.Job] = !m.ended
			}
		}
		if len(jobs) == 0 {
			return
		}
		left, err := r.standingJobs(ctx, slices.Sorted(maps.Keys(jobs)))
		if err != nil {
			r.log("some workers may stand for a while: they end by themselves: " + oneLine(err.Error()))
			return
		}
		for _, id := range left {
			if jobs[id.Job] && !killed {
				kill = append(kill, id)
			}
		}
		if len(kill) > 0 {
			r.Queue.Kill(ctx, kill)
			killed = true
		}
		if !wait || len(left) == 0 {
			return
		}
		select {
		case <-changed:
		case <-time.After(pollInterval):
		case <-ctx.Done():
		}
	}
}

// standingJobs returns those of the jobs that have not ended.
func (r *runner) standingJobs(ctx context.Context, numbers []int64) (left []backends.ID, err error) {
	var ids []backends.ID
	for _, n := range numbers {
		ids = append(ids, backends.ID{Job: n})
	}
	jobs, err := r.Queue.Jobs(ctx, ids)
	for i := range jobs {
		if !jobs[i].State.Ended() {
			left = append(left, jobs[i].ID)
		}
	}
	return left, err
}
