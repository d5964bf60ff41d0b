package split

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/quantile"
)

// slowFactor makes a straggler (R54): it has taken so many times the 95th percentile of its round's other
// tasks, and pace.slow at least. Its copy is on a host that would only wait: so it need not be 2, as in the
// source.
const slowFactor = 1.5

// running is a task that runs, as far as is known.
type running struct {
	N      int64
	Host   string
	For    time.Duration
	Copied bool // it is a copy, or has one
}

// stragglers decides which of the tasks that run get a copy, and where: the slowest ones first, on the
// hosts that ended their own task, the fastest first (R54). took are the times of the round's tasks
// that ended. next is how long it takes until there may be another one; 0: nothing would come of it.
func stragglers(open []running, took map[string]time.Duration, idle []string, least time.Duration) (copies map[int64]string, next time.Duration) {
	if len(took) == 0 {
		return nil, 0
	}
	limit := max(time.Duration(slowFactor*float64(quantile.Of(slices.Collect(maps.Values(took)), 95))), least)
	open, idle = slices.Clone(open), slices.Clone(idle)
	slices.SortStableFunc(open, func(a, b running) int { return cmp.Compare(b.For, a.For) })
	slices.SortStableFunc(idle, func(a, b string) int { return cmp.Compare(took[a], took[b]) })
	copies = map[int64]string{}
	for _, t := range open {
		if len(idle) == 0 {
			break
		}
		switch {
		case t.Copied:
		case t.For > limit:
			copies[t.N], idle = idle[0], idle[1:]
		case next == 0: // those that follow have run for less
			next = limit - t.For + time.Millisecond
		}
	}
	return copies, next
}

// speculate copies stragglers to hosts that wait for the end of the round.
func (r *runner) speculate(ctx context.Context) error {
	r.slowAt = time.Time{}
	if !r.def.Speculate || r.core.Idle() {
		return nil
	}
	now, tasks := time.Now(), r.core.Open()
	copied, busy := map[int64]bool{}, map[string]bool{}
	for _, t := range tasks {
		busy[t.Host] = true
		if t.CopyOf != 0 {
			copied[t.N], copied[t.CopyOf] = true, true
		}
	}
	var open []running
	for _, t := range tasks {
		if since := r.tasks[t.N].since(); !since.IsZero() {
			open = append(open, running{t.N, t.Host, now.Sub(since), copied[t.N]})
		}
	}
	took := map[string]time.Duration{}
	for _, w := range r.tasks {
		if w.State == Done && w.CopyOf == 0 && w.Round == r.core.Round {
			took[w.Host] = w.Took
		}
	}
	leave, _ := r.hosts.membership(r.core.Hosts, now)
	var idle []string
	for _, host := range r.core.Hosts {
		if _, ok := took[host]; ok && !busy[host] && !slices.Contains(leave, host) {
			idle = append(idle, host)
		}
	}
	copies, next := stragglers(open, took, idle, r.pace.slow)
	if next > 0 {
		r.slowAt = now.Add(next)
	}
	var rows []*row
	for _, t := range open {
		host, ok := copies[t.N]
		if !ok {
			continue
		}
		twin := r.core.Copy(t.N, host)
		if twin == nil {
			continue
		}
		w := &row{Task: *twin, Slots: r.slotsOn(host)}
		r.tasks[w.N], r.fresh[w.N] = w, true
		rows = append(rows, w)
		r.log(fmt.Sprintf("task %d takes long on %s: %s begins it, too, as task %d; the first result counts", t.N, shown(t.Host), shown(host), w.N))
	}
	if len(rows) == 0 {
		return nil
	}
	return r.save(ctx, rows...)
}

// since returns when a task began, as far as is known; the zero time: it has not.
func (w *row) since() time.Time {
	if w.Worker != 0 && w.Worker != w.N {
		return w.Submitted // it was given to its worker then
	}
	return w.ran
}

// lose notes that tasks were executed elsewhere. They end with endLost.
func (r *runner) lose(tasks []*Task) {
	for _, t := range tasks {
		if w := r.tasks[t.N]; w != nil {
			w.Task, w.Seen = *t, time.Now()
			r.lost = append(r.lost, w)
			if since := w.since(); !since.IsZero() {
				r.core.Slow(t, w.Seen.Sub(since))
			}
		}
	}
}

// endLost ends what works on tasks that were executed elsewhere.
func (r *runner) endLost(ctx context.Context) error {
	if len(r.lost) == 0 {
		return nil
	}
	var ids []backends.ID
	for _, w := range r.lost {
		if err := r.takeBack(w.N); err != nil {
			return err
		}
		r.forget(w)
		m := r.crew.members[w.Worker]
		if w.Job == 0 || m != nil && m.abandon(w.N) {
			continue
		}
		if m != nil {
			m.left = true
		}
		if r.def.Copies > 1 && w.waits { // its host takes no job while others execute the task
			r.hosts.rest(w.Host, time.Now())
		}
		ids = append(ids, backends.ID{Job: w.Job})
	}
	rows := r.lost
	r.lost = nil
	if len(ids) > 0 {
		r.Queue.Kill(ctx, ids) // one that is not killed ends by itself: its result is not read
	}
	for n, o := range r.crew.orders(time.Now()) {
		r.send(n, o)
	}
	return r.save(ctx, rows...)
}
