// Package simulate is a farm under virtual time: miniq's own manager, and jobs
// that do nothing but take their time. The law tests, the golden transcripts
// and pba simulate run the real engine on it.
package simulate

import (
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/heap"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// Work is what a job does, seen from outside. A requeued job starts over, or goes on from its
// last checkpoint; a suspended one has its remainder left.
type Work struct {
	Takes     time.Duration // of one undisturbed run; 0: until it is killed or World.End ends it
	ExitCode  int           // of a run that ends by itself
	KillDelay time.Duration // from SIGTERM to its end; its grace bounds it
	Save      time.Duration // that it needs to save its work when it is asked to; 0: it can't
	Every     time.Duration // it saves its work each such time of work; 0: it does not
	Restore   time.Duration // that a run needs before it goes on from a checkpoint
}

// RunEnd is a run whose processes are gone.
type RunEnd struct {
	ID   backends.ID
	Run  int
	Ran  time.Duration // without times in which it was stopped
	Kept time.Duration // of Ran, the work that need not be done again
}

// How a killed run ends: 128 + one of these.
const (
	sigKill = 9
	sigTerm = 15
)

// Config configures a World.
type Config struct {
	Manager manager.Config
	Hosts   []backends.Host
	Start   time.Time // the first instant
	// Watch, unless nil, is called with every effect in order. It must not
	// call the World.
	Watch func(at time.Time, e manager.Effect)
	// WatchEnd, unless nil, is called for every run whose processes are gone,
	// before the manager learns of it. It must not call the World.
	WatchEnd func(at time.Time, end RunEnd)
}

// World is a queue and its hosts under virtual time. Time passes in Advance
// only, and the same calls at the same times always give the same world. Its
// backends.Backend acts as the administrator pba; As gives other users'.
type World struct {
	*Client

	mu      sync.Mutex
	manager *manager.Manager
	now     time.Time
	woken   time.Time // the last wake that was served
	watch   func(time.Time, manager.Effect)
	onEnd   func(time.Time, RunEnd)
	ages    time.Duration
	ageCap  int

	managesMemory bool

	work  map[backends.ID]Work          // by job, or by array for its elements
	saved map[backends.ID]time.Duration // work that is saved, by job
	runs  map[backends.ID]*run
	ends  *heap.Heap[*ending]
	order int64
}

// run is one run that is alive.
type run struct {
	number    int
	work      Work
	endless   bool
	base      time.Duration // of its work, saved by earlier runs
	remaining time.Duration // what was left of its work at since, the restoring included
	ran       time.Duration // up to since
	since     time.Time
	asked     bool // to save its work
	saving    bool // it does
	stopped   bool
	killAt    time.Time // zero: it is not being killed
	killed    int       // exit status then
	entry     *ending   // its entry in the heap of ends; nil: no end is known
}

// New makes a world with all its hosts up and no job.
func New(cfg Config) *World {
	w := &World{
		manager: manager.New(cfg.Manager), now: cfg.Start, watch: cfg.Watch, onEnd: cfg.WatchEnd,
		ages: cfg.Manager.AgeingInterval, ageCap: cfg.Manager.AgeingCap, managesMemory: !cfg.Manager.SlotsOnly,
		work: map[backends.ID]Work{}, saved: map[backends.ID]time.Duration{}, runs: map[backends.ID]*run{}, ends: newEnds(),
	}
	w.Client = w.As(manager.By{User: "pba", Admin: true})
	for _, h := range cfg.Hosts {
		w.step(manager.NodeUp{Name: h.Name, Slots: h.Slots, Memory: h.Memory, Closed: h.State == backends.HostClosed, Has: h.Has, Features: h.Features})
		if h.State == backends.HostDown {
			w.step(manager.NodeDown{Name: h.Name})
		}
	}
	return w
}

// Now returns the world's time.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Guaranteed returns what the queue counts as guaranteed.
func (w *World) Guaranteed() []backends.Guaranteed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.manager.Guaranteed(w.now)
}

// Step applies an event to the manager, now, and carries out its effects.
func (w *World) Step(e manager.Event) manager.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step(e)
}

// SubmitWork submits a job as a user; work is what it will do. Elements of an array
// all do the same.
func (w *World) SubmitWork(by manager.By, spec backends.Spec, work Work) (backends.ID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.submit(manager.Submit{By: by, Specs: []backends.Spec{spec}}, work)[0]
	return r.ID, r.Err
}

func (w *World) submit(e manager.Submit, work Work) []backends.Submitted {
	effects, result := w.manager.Step(w.now, e)
	for _, r := range result.Submitted {
		if r.Err == nil {
			w.work[r.ID] = work
		}
	}
	w.carryOut(effects)
	return result.Submitted
}

// End ends a job's run by itself, now, as its Work would have.
func (w *World) End(id backends.ID, exitCode int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[id]; r != nil {
		w.end(id, r, exitCode)
	}
}

// Next returns when something will happen by itself: a run ends, or the manager
// wants to be woken. false: nothing ever will.
func (w *World) Next() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, _, ok := w.next()
	return at, ok
}

// Advance lets time pass until to: runs end and the manager is woken, in order
// of time; at one instant runs end first, in the order in which their ends were
// scheduled.
func (w *World) Advance(to time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		at, wake, ok := w.next()
		if !ok || at.After(to) {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		if wake {
			w.woken = at
			w.step(manager.Tick{})
			continue
		}
		w.endFirst()
	}
	if to.After(w.now) {
		w.now = to
	}
}

// next returns when the next run ends or the manager is woken, and whether it is a wake.
// A wake that was served is not served again: a manager that asks for it twice would stop time.
func (w *World) next() (at time.Time, wake, ok bool) {
	if w.ends.Len() > 0 {
		at, ok = w.ends.Top().at, true
	}
	if t := w.manager.Wake(); !t.IsZero() && t.After(w.woken) && (!ok || t.Before(at)) {
		return t, true, true
	}
	return at, false, ok
}

func (w *World) endFirst() {
	first := w.ends.Top()
	r := w.runs[first.id]
	code := r.work.ExitCode
	if !r.killAt.IsZero() && !r.killAt.After(first.at) {
		code = r.killed
	}
	w.end(first.id, r, code)
}

func (w *World) end(id backends.ID, r *run, exitCode int) {
	w.unschedule(r)
	delete(w.runs, id)
	w.pause(r)
	kept := w.keep(id, r, exitCode)
	if w.onEnd != nil {
		w.onEnd(w.now, RunEnd{ID: id, Run: r.number, Ran: r.ran, Kept: kept})
	}
	w.step(manager.Ended{ID: id, Run: r.number, ExitCode: exitCode, Asked: r.asked})
}

// keep returns how much of its time a run that ends spent on work that need not be done
// again, and saves that.
func (w *World) keep(id backends.ID, r *run, exitCode int) time.Duration {
	restored := time.Duration(0)
	if r.base > 0 {
		restored = r.work.Restore
	}
	worked := max(0, r.ran-restored)
	switch {
	case r.saving && exitCode == backends.ExitSaved:
		worked = max(0, worked-r.work.Save)
	case r.killAt.IsZero() || w.now.Before(r.killAt): // it ended by itself
		return worked
	case r.work.Every > 0:
		worked -= worked % r.work.Every
	default:
		return 0
	}
	w.saved[id] = r.base + worked
	return worked
}

// pause counts the time up to now in which a run ran.
func (w *World) pause(r *run) {
	if !r.stopped {
		ran := w.now.Sub(r.since)
		r.ran += ran
		r.remaining -= ran
		r.since = w.now
	}
}

func (w *World) step(e manager.Event) manager.Result {
	effects, result := w.manager.Step(w.now, e)
	w.carryOut(effects)
	return result
}

func (w *World) carryOut(effects []manager.Effect) {
	for _, e := range effects {
		if w.watch != nil {
			w.watch(w.now, e)
		}
		switch e := e.(type) {
		case manager.StartRun:
			w.start(e)
		case manager.KillRun:
			w.kill(e)
		case manager.StopRun:
			w.stop(e)
		case manager.ContinueRun:
			w.resumeRun(e)
		case manager.Finished:
			delete(w.work, e.Job.ID)
			delete(w.saved, e.Job.ID)
		case manager.Forgotten:
			for _, id := range e.IDs {
				delete(w.work, id)
			}
		case manager.Notice, manager.WakeAt: // a Notice has no reader; next asks Wake
		}
	}
}

func (w *World) start(e manager.StartRun) {
	work, known := w.work[e.ID]
	if !known {
		work = w.work[backends.ID{Job: e.ID.Job}]
	}
	r := &run{number: e.Run, work: work, endless: work.Takes <= 0, base: w.saved[e.ID], remaining: work.Takes, since: w.now}
	if r.base > 0 {
		r.remaining += work.Restore - r.base
	}
	w.runs[e.ID] = r
	w.scheduleEnd(e.ID, r)
	w.step(manager.Started{ID: e.ID, Run: e.Run})
}

func (w *World) kill(e manager.KillRun) {
	r := w.findRun(e.ID, e.Run)
	if r == nil {
		return
	}
	at, status := w.now.Add(r.work.KillDelay), 128+sigTerm
	grace := e.Grace
	if e.Save.OnDemand() {
		at, status = w.save(r)
		grace = e.Save.Wait
	}
	if at.After(w.now.Add(grace)) {
		at, status = w.now.Add(grace), 128+sigKill
	}
	if r.killAt.IsZero() || at.Before(r.killAt) {
		r.killAt, r.killed = at, status
	}
	w.scheduleEnd(e.ID, r)
}

// save has a run save its work, and returns when it has. One that would be done before works
// on; one that can't save itself dies of the signal.
func (w *World) save(r *run) (at time.Time, status int) {
	r.asked = true
	if r.stopped {
		r.stopped, r.since = false, w.now
	}
	w.pause(r)
	switch {
	case r.work.Save <= 0:
		return w.now.Add(r.work.KillDelay), 128 + sigTerm
	case r.endless || r.remaining > r.work.Save:
		r.saving = true
	}
	return w.now.Add(r.work.Save), backends.ExitSaved
}

func (w *World) stop(e manager.StopRun) {
	if r := w.findRun(e.ID, e.Run); r != nil && !r.stopped {
		w.pause(r)
		r.stopped = true
		w.scheduleEnd(e.ID, r)
	}
}

func (w *World) resumeRun(e manager.ContinueRun) {
	if r := w.findRun(e.ID, e.Run); r != nil && r.stopped {
		r.since, r.stopped = w.now, false
		w.scheduleEnd(e.ID, r)
	}
}

func (w *World) findRun(id backends.ID, number int) *run {
	if r := w.runs[id]; r != nil && r.number == number {
		return r
	}
	return nil
}

// scheduleEnd schedules the end of a run, as far as it is known now.
func (w *World) scheduleEnd(id backends.ID, r *run) {
	w.unschedule(r)
	at := r.killAt
	if own := r.since.Add(max(r.remaining, 0)); !r.endless && !r.stopped && !r.saving && (at.IsZero() || own.Before(at)) {
		at = own
	}
	if at.IsZero() {
		return
	}
	w.order++
	r.entry = &ending{at: at, order: w.order, id: id}
	w.ends.Push(r.entry)
}

func (w *World) unschedule(r *run) {
	if r.entry != nil {
		w.ends.Remove(r.entry.index)
		r.entry = nil
	}
}

// ending is the end of a run, as far as it is known.
type ending struct {
	at    time.Time
	order int64
	id    backends.ID
	index int
}

// newEnds holds the ends to come: by time, then in the order in which they were scheduled.
func newEnds() *heap.Heap[*ending] {
	return heap.New(func(a, b *ending) bool {
		c := a.at.Compare(b.at)
		return c < 0 || c == 0 && a.order < b.order
	}, func(e *ending, i int) { e.index = i })
}
