package lease

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The laws: what holds whatever events come. Each is judged by a model that knows nothing of the
// manager but its events and actions.
const (
	withinWorkers = "no slot is held twice, and nothing beyond a worker's cores and memory"
	inOrderLaw    = "requests are served in their order"
	withinLimits  = "jobs and holders keep their limits, and are not refused within them"
	noneWaits     = "the first request does not wait while it fits"
	endOnce       = "each grant has one number, one lock and one end"
	allFreed      = "what a holder or job has ends with it"
	ownOnly       = "a lease, a request and a job are their holder's, once"
	freest        = "a grant goes to the host with the most free cores"
	goBack        = "workers go back when they are idle or withdrawn, and get nothing then"
	sameAgain     = "the same events give the same actions"
	bounded       = "hostile events are refused, change nothing, and leave the bounds"
)

func TestLawWorkersAreNeverOverfilled(t *testing.T)     { judge(t, withinWorkers) }
func TestLawRequestsAreServedInOrder(t *testing.T)      { judge(t, inOrderLaw) }
func TestLawLimitsAreKept(t *testing.T)                 { judge(t, withinLimits) }
func TestLawNoRequestWaitsWhileItFits(t *testing.T)     { judge(t, noneWaits) }
func TestLawEachGrantEndsOnce(t *testing.T)             { judge(t, endOnce) }
func TestLawEverythingIsFreed(t *testing.T)             { judge(t, allFreed) }
func TestLawOnlyHoldersFreeTheirOwn(t *testing.T)       { judge(t, ownOnly) }
func TestLawGrantsGoToTheFreestHost(t *testing.T)       { judge(t, freest) }
func TestLawIdleWorkersGoBack(t *testing.T)             { judge(t, goBack) }
func TestLawSameEventsSameActions(t *testing.T)         { judge(t, sameAgain) }
func TestLawHostileEventsStayWithinBounds(t *testing.T) { judge(t, bounded) }

func judge(t *testing.T, law string) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, law)
		t.Repeat(w.actions())
		w.drain()
		for what, n := range w.counts {
			counts[what] += n
		}
	})
	if checks, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String()); err != nil || checks < 1000 || t.Failed() {
		return // too few to say that something never happens
	}
	for _, what := range []string{"granted", "blocked", "impossible", "choice", "tie", "full", "shared", "not posted", "done", "withdrawn", "lost", "idle", "hostile", "over limit"} {
		if counts[what] == 0 {
			t.Errorf("never %s: %v", what, counts)
		}
	}
}

// world drives a manager by random events, and a twin by the same ones.
type world struct {
	*rapid.T
	law    string
	broken bool // another law is: what follows is not judged
	m      *Manager
	twin   *Manager
	limits Limits
	now    time.Time
	counts map[string]int

	workers  map[string]*seenWorker
	hosts    map[string]*seenHost
	jobs     map[uint64]*seenJob
	requests []*seenRequest // that wait, as they came
	leases   map[uint64]*seenLease
	ended    []uint64
	last     uint64 // the highest lease
	finished Unlock // of a task whose Result is to come
	names    int
}

type seenWorker struct {
	name, host    string
	milli, memory int64 // memory 0: not limited
	closed        Why
	released      bool
	empty         time.Time // it has no lease since then
}

type seenHost struct {
	shared       bool
	heard        bool
	free, memory int64
}

type seenJob struct {
	holder string
	number uint64
	limit  int
}

type seenRequest struct {
	Request
	left   int
	grants []uint64
}

type seenLease struct {
	Lock
	job    uint64
	posted bool
}

func newWorld(t *rapid.T, law string) *world {
	one := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
	limits := Limits{
		Workers: one("workers", 1, 6), Holders: one("holders", 1, 3), Jobs: one("jobs", 1, 3), Waiting: one("waiting", 4, 12),
		Each: one("each", 2, 8), Held: one("held", 3, 12), Slots: one("slots", 1, 5), Tasks: one("tasks", 4, 20),
		Idle: time.Duration(one("idle", 0, 2)) * 10 * time.Second, Milli: 1000 * one("milli", 1, 2),
	}
	w := &world{
		T: t, law: law, m: New(limits), twin: New(limits), limits: limits, now: begin, counts: map[string]int{},
		workers: map[string]*seenWorker{}, hosts: map[string]*seenHost{}, jobs: map[uint64]*seenJob{}, leases: map[uint64]*seenLease{},
	}
	for range 2 {
		w.create()
		w.step(OpenJob{w.holder(), w.number("limit", 0, 8)})
	}
	return w
}

func (w *world) fault(law, format string, args ...any) {
	if !w.broken && law == w.law {
		w.Fatalf("%s: "+format, append([]any{law}, args...)...)
	}
	w.broken = true
}

func (w *world) actions() map[string]func(*rapid.T) {
	acts := map[string]func(*rapid.T){
		"create": func(*rapid.T) { w.create() },
		"heartbeat": func(*rapid.T) {
			w.step(Heartbeat{w.worker(), 500 * w.number("free", 0, 8), int64(w.number("memory", 0, 4))})
		},
		"gone":     func(*rapid.T) { w.step(Gone{w.worker()}) },
		"withdraw": func(*rapid.T) { w.step(Withdraw{w.worker()}) },
		"open":     func(*rapid.T) { w.step(OpenJob{w.holder(), w.number("limit", 0, 8)}) },
		"close": func(*rapid.T) {
			if w.number("rarely", 0, 3) == 0 {
				w.step(CloseJob{w.holder(), w.job()})
			}
		},
		"holder gone": func(*rapid.T) {
			if w.number("rarely", 0, 3) == 0 {
				w.step(HolderGone{w.holder()})
			}
		},
		"cancel": func(*rapid.T) { w.step(Cancel{w.holder(), fmt.Sprint("r", w.number("id", 1, 9))}) },
		"posted": func(*rapid.T) { w.step(Posted{w.lease()}) },
		"not posted": func(*rapid.T) {
			if w.number("rarely", 0, 2) == 0 {
				w.step(PostFailed{w.lease()})
			}
		},
		"hostile": func(*rapid.T) { w.hostile() },
	}
	for _, n := range []string{"", " more", " and more"} {
		acts["time"+n] = func(*rapid.T) {
			w.now = w.now.Add(time.Duration(w.number("seconds", 0, 12)) * time.Second)
			w.step(Tick{})
		}
		acts["request"+n] = func(*rapid.T) { w.ask() }
		acts["free"+n] = func(*rapid.T) {
			holder, number := w.holder(), w.lease()
			if l := w.leases[number]; l != nil && w.number("own", 0, 3) > 0 {
				holder = l.Holder
			}
			w.step(Free{holder, number})
		}
	}
	acts["done"] = func(*rapid.T) {
		worker, number := w.worker(), w.lease()
		if l := w.leases[number]; l != nil && w.number("own", 0, 3) > 0 {
			worker = l.Worker
		}
		w.step(Done{worker, number, "result"})
	}
	for name, act := range acts {
		acts[name] = func(t *rapid.T) {
			if w.T = t; !w.broken {
				act(t)
			}
		}
	}
	return acts
}

func (w *world) number(name string, from, to int) int {
	return rapid.IntRange(from, to).Draw(w.T, name)
}

func (w *world) pick(name string, from []string) string {
	return rapid.SampledFrom(from).Draw(w.T, name)
}

func (w *world) holder() string { return w.pick("holder", []string{"ann", "bob", "cid", "dee"}) }

func (w *world) worker() string {
	return w.pick("worker", append(slices.Sorted(maps.Keys(w.workers)), "w0"))
}

func (w *world) job() uint64 {
	return rapid.SampledFrom(append(slices.Sorted(maps.Keys(w.jobs)), 0)).Draw(w.T, "job")
}

// lease is mostly one that is held, now and then one that has ended or never was.
func (w *world) lease() uint64 {
	if len(w.leases) == 0 || w.number("stale", 0, 5) == 0 {
		return rapid.SampledFrom(append(w.ended, w.last+1)).Draw(w.T, "lease")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(w.leases))).Draw(w.T, "lease")
}

func (w *world) create() {
	w.names++
	host := w.pick("host", []string{"h1", "h2", "h3", "h4"})
	w.step(Create{
		Worker: fmt.Sprint("w", w.names), Host: host, Milli: 500 * w.number("milli", 1, 8),
		Memory: int64(w.number("memory", 0, 4)), Shared: host >= "h3",
	})
}

func (w *world) ask() {
	e := Request{
		Holder: w.holder(), ID: fmt.Sprint("r", w.number("id", 1, 9)), Job: w.job(), Priority: w.number("priority", 0, 1),
		Slots: w.number("slots", 1, 4), Milli: 500 * w.number("milli", 1, 4), Memory: int64(w.number("memory", 0, 2)),
	}
	if w.number("large", 0, 5) == 0 {
		e.Milli, e.Memory = 500*w.number("milli", 1, 10), int64(w.number("memory", 0, 5))
	}
	if w.number("task", 0, 2) == 0 {
		e.Slots, e.Task = 1, strings.Repeat("t", w.number("bytes", 1, 3))
	}
	if j := w.jobs[e.Job]; j != nil && w.number("own", 0, 5) > 0 {
		e.Holder = j.holder
	}
	w.step(e)
}

// hostile sends what no honest worker or holder does.
func (w *world) hostile() {
	w.counts["hostile"]++
	number := rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, MaxMilli, MaxMilli + 1, 1 << 62, math.MaxInt}).Draw(w.T, "number")
	bytes := int64(rapid.SampledFrom([]int{math.MinInt, -1, 0, MaxMemory, MaxMemory + 1, math.MaxInt}).Draw(w.T, "bytes"))
	name := w.pick("name", []string{"", "\x00", "\x1b[2J", "\xff", strings.Repeat("x", MaxName), strings.Repeat("x", MaxName+1), "ann", "w1", "../.."})
	w.step(rapid.SampledFrom([]Event{
		Create{name, w.pick("host", []string{"h1", "h3", name}), number, bytes, w.number("shared", 0, 1) == 0},
		Heartbeat{w.worker(), number, bytes},
		Heartbeat{name, number, bytes},
		Gone{name},
		Withdraw{name},
		OpenJob{name, number},
		CloseJob{name, uint64(number)},
		Cancel{name, name},
		HolderGone{name},
		Posted{uint64(number)},
		PostFailed{uint64(bytes)},
		Free{name, uint64(number)},
		nil,
		Done{w.worker(), uint64(number), strings.Repeat("x", max(0, min(number, MaxResult+1)))},
		Request{w.holder(), "r1", w.job(), number, number, number, bytes, name, name},
		Request{w.holder(), name, w.job(), number, 1, 1000, bytes, name, ""},
		Request{w.holder(), "r2", w.job(), number, number, 1000, 0, strings.Repeat("x", max(0, min(number, MaxPostBack+1))), ""},
		Request{w.holder(), "r3", w.job(), number, 1, 1000, 0, "", strings.Repeat("x", max(0, min(number, MaxTask+1)))},
	}).Draw(w.T, "event"))
}

// step sends an event to both managers, and judges what comes of it.
func (w *world) step(e Event) {
	actions, err := w.m.Step(w.now, e)
	twins, twinErr := w.twin.Step(w.now, e)
	if d := diff.Diff(actions, twins); d != "" || (err == nil) != (twinErr == nil) {
		w.fault(sameAgain, "%T %v: %v, the other time %v: %s", e, e, err, twinErr, d)
	}
	w.before(e, err)
	for i, a := range actions {
		w.follow(e, err, actions, i, a)
	}
	w.after(e, err)
}

// before judges whether an event may be taken, and books what it says.
func (w *world) before(e Event, err error) {
	taken := err == nil
	switch e := e.(type) {
	case Create:
		h := w.hosts[e.Host]
		good := goodName(e.Worker) && goodName(e.Host) && e.Milli > 0 && e.Milli <= MaxMilli && e.Memory >= 0 && e.Memory <= MaxMemory &&
			w.workers[e.Worker] == nil && len(w.workers) < w.limits.Workers && (h == nil || h.shared == e.Shared)
		if good != taken {
			w.fault(bounded, "%.200v: %v", e, err)
		}
		if !taken {
			return
		}
		first := h == nil
		if first {
			h = &seenHost{shared: e.Shared, memory: math.MaxInt64}
			w.hosts[e.Host] = h
		}
		if !h.heard && (first || !h.shared) {
			h.free += int64(e.Milli)
		}
		w.workers[e.Worker] = &seenWorker{name: e.Worker, host: e.Host, milli: int64(e.Milli), memory: e.Memory, empty: w.now}
	case Heartbeat:
		at := w.workers[e.Worker]
		if good := at != nil && e.Free >= 0 && e.Free <= MaxMilli && e.Memory >= 0 && e.Memory <= MaxMemory; good != taken {
			w.fault(bounded, "%.200v: %v", e, err)
		}
		if taken {
			h := w.hosts[at.host]
			h.heard, h.free = true, int64(e.Free)
			if h.shared {
				h.memory = e.Memory
			}
		}
	case Gone:
		at := w.workers[e.Worker]
		if taken != (at != nil) {
			w.fault(bounded, "%.200v: %v", e, err)
		}
		if taken {
			at.closed, at.released = WorkerGone, true
			if h := w.hosts[at.host]; !h.heard && !h.shared {
				h.free -= at.milli
			}
		}
	case Withdraw:
		at := w.workers[e.Worker]
		if taken != (at != nil) {
			w.fault(bounded, "%.200v: %v", e, err)
		}
		if taken && at.closed == 0 {
			w.counts["withdrawn"]++
			at.closed = Withdrawn
		}
	case Request:
		w.beforeRequest(e, err)
	case Cancel:
		i := w.waiting(e.Holder, e.ID)
		if taken != (i >= 0) {
			w.fault(ownOnly, "%.200v: %v", e, err)
		}
		if taken {
			w.requests = slices.Delete(w.requests, i, i+1)
		}
	case CloseJob:
		j := w.jobs[e.Job]
		if taken != (j != nil && j.holder == e.Holder) {
			w.fault(ownOnly, "%.200v: %v", e, err)
		}
		if taken {
			w.endJob(e.Job)
		}
	case HolderGone:
		for number, j := range w.jobs {
			if j.holder == e.Holder {
				w.endJob(number)
			}
		}
	case OpenJob:
		holders, jobs := w.holdersAndJobs(e.Holder)
		if good := goodName(e.Holder) && e.Limit >= 0 && (jobs > 0 || holders < w.limits.Holders) && jobs < w.limits.Jobs; good != taken {
			w.fault(bounded, "%.200v: %v", e, err)
		}
	case Posted:
		l := w.leases[e.Lease]
		if taken != (l != nil && !l.posted) {
			w.fault(ownOnly, "%v: %v", e, err)
		}
		if taken {
			l.posted = true
		}
	case PostFailed:
		l := w.leases[e.Lease]
		if taken != (l != nil && !l.posted) {
			w.fault(ownOnly, "%v: %v", e, err)
		}
	case Done:
		l := w.leases[e.Lease]
		if taken != (l != nil && l.Worker == e.Worker && l.Task != "" && len(e.Result) <= MaxResult) {
			w.fault(ownOnly, "%.200v: %v", e, err)
		}
	case Free:
		l := w.leases[e.Lease]
		if taken != (l != nil && l.Holder == e.Holder) {
			w.fault(ownOnly, "%.200v: %v", e, err)
		}
	}
}

func goodName(name string) bool { return checkName("", name) == nil }

// beforeRequest judges whether a request may be taken.
func (w *world) beforeRequest(e Request, err error) {
	j := w.jobs[e.Job]
	if own := j != nil && j.holder == e.Holder; !own || w.waiting(e.Holder, e.ID) >= 0 {
		if err == nil {
			w.fault(ownOnly, "%.200v is taken", e)
		}
		return
	}
	if !goodName(e.ID) || e.Slots < 1 || e.Milli < 1 || e.Milli > MaxMilli || e.Memory < 0 || e.Memory > MaxMemory || len(e.PostBack) > MaxPostBack ||
		len(e.Task) > MaxTask || e.Task != "" && (e.Slots > 1 || e.PostBack != "") {
		if err == nil {
			w.fault(bounded, "%.200v is taken", e)
		}
		return
	}
	each, tasks := 0, len(e.Task)
	for _, r := range w.requests {
		if r.Holder == e.Holder {
			each++
		}
		tasks += len(r.Task)
	}
	good := e.Slots <= w.limits.Slots && w.held(func(job uint64) bool { return job == e.Job }) <= j.limit-e.Slots &&
		w.held(func(job uint64) bool { return w.jobs[job].holder == e.Holder }) <= w.limits.Held-e.Slots &&
		each < w.limits.Each && len(w.requests) < w.limits.Waiting && tasks <= w.limits.Tasks
	if !good {
		w.counts["over limit"]++
	}
	if good != (err == nil) {
		w.fault(withinLimits, "%.200v with %+v: %v", e, *j, err)
	}
}

// held returns the number of slots that jobs hold and wait for.
func (w *world) held(of func(job uint64) bool) (n int) {
	for _, l := range w.leases {
		if of(l.job) {
			n++
		}
	}
	for _, r := range w.requests {
		if of(r.Job) {
			n += r.left
		}
	}
	return n
}

func (w *world) holdersAndJobs(holder string) (holders, jobs int) {
	all := map[string]bool{}
	for _, j := range w.jobs {
		all[j.holder] = true
		if j.holder == holder {
			jobs++
		}
	}
	return len(all), jobs
}

func (w *world) waiting(holder, id string) int {
	return slices.IndexFunc(w.requests, func(r *seenRequest) bool { return r.Holder == holder && r.ID == id })
}

// endJob books that a job ended. Its leases are to end in this step.
func (w *world) endJob(number uint64) {
	delete(w.jobs, number)
	w.requests = slices.DeleteFunc(w.requests, func(r *seenRequest) bool { return r.Job == number })
}

// follow books an action.
func (w *world) follow(e Event, err error, actions []Action, i int, a Action) {
	switch a := a.(type) {
	case Release, Want:
	default:
		if err != nil {
			w.fault(bounded, "%T %.200v is refused with %v, and there is %T %v", e, e, err, a, a)
		}
	}
	switch a := a.(type) {
	case JobOpened:
		open, ok := e.(OpenJob)
		if !ok || open.Holder != a.Holder || w.jobs[a.Job] != nil {
			w.fault(ownOnly, "%T %.200v: %v", e, e, a)
		}
		j := &seenJob{a.Holder, a.Job, open.Limit}
		if j.limit == 0 || j.limit > w.limits.Held {
			j.limit = w.limits.Held
		}
		w.jobs[a.Job] = j
	case Acknowledge:
		r, ok := e.(Request)
		if !ok || r.Holder != a.Holder || r.ID != a.ID || i > 0 {
			w.fault(endOnce, "%T %.200v: action %d is %v", e, e, i, a)
		}
		w.requests = append(w.requests, &seenRequest{Request: r, left: r.Slots})
	case Lock:
		if a.Lease <= w.last {
			w.fault(endOnce, "lease %d comes after %d", a.Lease, w.last)
		}
		w.last = max(w.last, a.Lease)
		if i+1 == len(actions) {
			w.fault(endOnce, "%v has no Grant", a)
			return
		}
		g, ok := actions[i+1].(Grant)
		if !ok || g.Lease != a.Lease || g.Worker != a.Worker || g.Holder != a.Holder || g.Milli != a.Milli || g.Memory != a.Memory {
			w.fault(endOnce, "%v is followed by %v", a, actions[i+1])
			return
		}
		w.granted(a, g)
	case Grant:
		if w.leases[a.Lease] == nil {
			w.fault(endOnce, "%v has no Lock", a)
		}
	case Unlock:
		w.unlocked(e, a)
	case Result:
		d, ok := e.(Done)
		if !ok || d.Lease != a.Lease || d.Worker != a.Worker || d.Result != a.Result || w.finished.Lease != a.Lease || w.finished.Holder != a.Holder {
			w.fault(endOnce, "%T %.200v: %.200v of %+v", e, e, a, w.finished)
		}
		w.finished = Unlock{}
	case Revoke:
		l := w.leases[a.Lease]
		if a.Why == Withdrawn && (l == nil || l.Holder != a.Holder || w.workers[a.Worker].closed != Withdrawn) ||
			a.Why == WorkerGone && l != nil {
			w.fault(endOnce, "%v of %+v", a, l)
		}
	case Release:
		w.released(a)
	case Want:
		if a.Workers < 0 || a.Workers > w.limits.Workers-len(w.workers)+1 {
			w.fault(bounded, "%v with %d workers of %d", a, len(w.workers), w.limits.Workers)
		}
	}
}

// granted judges a grant, then books it.
func (w *world) granted(a Lock, g Grant) {
	w.counts["granted"]++
	at, i := w.workers[a.Worker], w.waiting(g.Holder, g.ID)
	if at == nil || at.closed != 0 {
		w.fault(goBack, "%v on %+v", g, at)
		return
	}
	if i < 0 || w.requests[i].Job != g.Job || w.requests[i].PostBack != g.PostBack || w.requests[i].Task != a.Task || g.Host != at.host {
		w.fault(endOnce, "%v is for no request that waits", g)
		return
	}
	r := w.requests[i]
	for _, other := range w.requests {
		if w.possible(other) && !w.aside(other) && other != r && w.goesBefore(other, r) {
			w.fault(inOrderLaw, "%.200v is served before %.200v", r, other)
		}
	}
	if !w.room(at, int64(a.Milli), a.Memory) || a.Milli != r.Milli || a.Memory != r.Memory {
		w.fault(withinWorkers, "%v on %+v", a, at)
		return
	}
	h := w.hosts[at.host]
	if h.shared {
		w.counts["shared"]++
	}
	if !w.fits(at, r) {
		w.fault(freest, "%v on %+v of the shared host %+v", a, at, h)
	}
	for _, other := range w.workers {
		if other == at || !w.fits(other, r) {
			continue
		}
		w.counts["choice"]++
		free := w.hosts[other.host].free
		if free == h.free {
			w.counts["tie"]++
		}
		if free > h.free || free == h.free && (other.host < at.host || other.host == at.host && other.name < at.name) {
			w.fault(freest, "%v on %s of %s with %d free, and %s of %s has %d", a, at.name, at.host, h.free, other.name, other.host, free)
		}
	}
	w.leases[a.Lease] = &seenLease{Lock: a, job: g.Job}
	h.take(int64(a.Milli), a.Memory)
	r.grants = append(r.grants, a.Lease)
	if r.left--; r.left == 0 {
		w.requests = slices.Delete(w.requests, i, i+1)
	}
}

func (h *seenHost) take(milli, memory int64) {
	h.free -= milli
	if h.memory != math.MaxInt64 {
		h.memory = min(MaxMemory, h.memory-memory)
	}
}

// room reports whether a worker has the cores and the memory, as all leases say.
func (w *world) room(at *seenWorker, milli, memory int64) bool {
	for _, l := range w.leases {
		if l.Worker == at.name {
			milli += int64(l.Milli)
			memory += l.Memory
		}
	}
	return milli <= at.milli && (at.memory == 0 || memory <= at.memory)
}

// fits reports whether a worker could be given a slot now.
func (w *world) fits(at *seenWorker, r *seenRequest) bool {
	h := w.hosts[at.host]
	return at.closed == 0 && w.room(at, int64(r.Milli), r.Memory) && (!h.shared || h.free >= int64(r.Milli) && h.memory >= r.Memory)
}

// possible reports whether some worker could hold a slot without leases.
func (w *world) possible(r *seenRequest) bool {
	for _, at := range w.workers {
		if at.closed == 0 && at.milli >= int64(r.Milli) && (at.memory == 0 || at.memory >= r.Memory) {
			return true
		}
	}
	return false
}

// goesBefore is the order of requests.
func (w *world) goesBefore(a, b *seenRequest) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Job, b.Job), cmp.Compare(slices.Index(w.requests, a), slices.Index(w.requests, b))) < 0
}

// aside reports whether the manager has set a request aside, as one that no worker could hold.
func (w *world) aside(r *seenRequest) bool {
	h := w.m.holders[r.Holder]
	return h != nil && h.requests[r.ID] != nil && h.requests[r.ID].parked
}

func (w *world) unlocked(e Event, a Unlock) {
	l := w.leases[a.Lease]
	if l == nil || l.Worker != a.Worker || l.Holder != a.Holder {
		w.fault(endOnce, "%v of %+v", a, l)
		return
	}
	asked := false
	switch e := e.(type) {
	case Free:
		asked = e.Lease == a.Lease && a.Why == Freed
	case Done:
		w.counts["done"]++
		asked = e.Lease == a.Lease && a.Why == Finished
		w.finished = a
	case PostFailed:
		w.counts["not posted"]++
		asked = e.Lease == a.Lease && a.Why == NotPosted
		if i := w.requestOf(l); i >= 0 { // the rest of its request is dropped
			w.requests = slices.Delete(w.requests, i, i+1)
		}
	case Gone:
		w.counts["lost"]++
		asked = e.Worker == a.Worker && a.Why == WorkerGone
	case CloseJob:
		asked = e.Job == l.job && a.Why == JobClosed
	case HolderGone:
		asked = e.Holder == a.Holder && a.Why == HolderLost
	}
	if !asked {
		w.fault(endOnce, "%T %.200v: %v", e, e, a)
	}
	delete(w.leases, a.Lease)
	w.ended = append(w.ended, a.Lease)
	at := w.workers[a.Worker]
	w.hosts[at.host].take(-int64(l.Milli), -l.Memory)
	if !w.busy(at) {
		at.empty = w.now
	}
}

// requestOf returns the place of the request that a lease is of, while it waits for more; -1: it does not.
func (w *world) requestOf(l *seenLease) int {
	return slices.IndexFunc(w.requests, func(r *seenRequest) bool { return slices.Contains(r.grants, l.Lease) })
}

func (w *world) busy(at *seenWorker) bool {
	for _, l := range w.leases {
		if l.Worker == at.name {
			return true
		}
	}
	return false
}

func (w *world) released(a Release) {
	at := w.workers[a.Worker]
	if at == nil || at.released || w.busy(at) {
		w.fault(goBack, "%v of %+v", a, at)
		return
	}
	if a.Why == Idle {
		w.counts["idle"]++
		waits := slices.ContainsFunc(w.requests, w.possible)
		if at.closed != 0 || w.limits.Idle == 0 || w.now.Sub(at.empty) < w.limits.Idle || waits {
			w.fault(goBack, "%v at %v of %+v, a request waits: %v", a, w.now, at, waits)
		}
	} else if a.Why != at.closed {
		w.fault(goBack, "%v of %+v", a, at)
	}
	at.closed, at.released = a.Why, true
}

// after judges the state that a step leaves.
func (w *world) after(e Event, err error) {
	if w.finished.Lease != 0 {
		w.fault(endOnce, "%T %.200v: no Result comes of %+v", e, e, w.finished)
	}
	if gone, ok := e.(Gone); ok && err == nil {
		at := w.workers[gone.Worker]
		if w.busy(at) {
			w.fault(endOnce, "a lease outlives %s", at.name)
		}
		delete(w.workers, at.name)
		w.forgetHost(at)
	}
	for _, l := range w.leases {
		if w.jobs[l.job] == nil {
			w.fault(allFreed, "%+v outlives its job", l)
		}
	}
	for _, at := range w.workers {
		if at.closed != 0 && !at.released && !w.busy(at) {
			w.fault(goBack, "%+v is empty, and not released", at)
		}
	}
	w.checkWaiting()
	w.checkBounds()
}

func (w *world) forgetHost(gone *seenWorker) {
	for _, at := range w.workers {
		if at.host == gone.host {
			return
		}
	}
	delete(w.hosts, gone.host)
}

// checkWaiting judges which request the manager would serve next.
func (w *world) checkWaiting() {
	top := w.m.waiting.Top()
	for _, r := range w.requests {
		aside := w.aside(r)
		if aside {
			w.counts["impossible"]++
		}
		if aside && w.possible(r) {
			w.fault(noneWaits, "%.200v is set aside", r)
		}
		if aside || top == nil {
			continue
		}
		if i := w.waiting(top.job.holder.name, top.id); i >= 0 && w.goesBefore(r, w.requests[i]) {
			w.fault(inOrderLaw, "%.200v waits behind %.200v", r, w.requests[i])
		}
	}
	if top == nil {
		return
	}
	w.counts["blocked"]++
	r := &seenRequest{Request: Request{Milli: int(top.milli), Memory: top.memory}}
	for _, at := range w.workers {
		if w.fits(at, r) {
			w.fault(noneWaits, "request %q waits, and fits %+v", top.id, at)
		}
	}
}

// checkBounds judges what the manager remembers.
func (w *world) checkBounds() {
	if len(w.requests) == w.limits.Waiting || len(w.workers) == w.limits.Workers {
		w.counts["full"]++
	}
	m := w.m
	if len(m.workers) != len(w.workers) || len(m.hosts) != len(w.hosts) || len(m.jobs) != len(w.jobs) || len(m.leases) != len(w.leases) ||
		m.waits != len(w.requests) || m.waiting.Len()+len(m.parked) != len(w.requests) || m.wanted < 0 ||
		len(m.workers) > w.limits.Workers || len(m.holders) > w.limits.Holders || m.waits > w.limits.Waiting || m.idle.Len() > len(m.workers) {
		w.fault(bounded, "the manager has %d workers, %d hosts, %d jobs, %d leases, %d requests", len(m.workers), len(m.hosts), len(m.jobs), len(m.leases), m.waits)
	}
}

// drain ends everything: nothing remains.
func (w *world) drain() {
	for _, h := range []string{"ann", "bob", "cid", "dee", "w1", "../..", strings.Repeat("x", MaxName)} {
		if !w.broken {
			w.step(HolderGone{h})
		}
	}
	if w.broken {
		return
	}
	for range 2 * len(w.workers) {
		if at := w.m.Wake(); !at.IsZero() {
			w.now = at
			w.step(Tick{})
		}
	}
	for _, at := range w.workers {
		if w.limits.Idle > 0 && !at.released {
			w.fault(goBack, "%+v is not released, though nothing is asked of it", at)
		}
	}
	for _, at := range w.m.workers {
		if at.freeMilli != at.milli || at.freeMemory != at.memory || len(at.leases) > 0 {
			w.fault(allFreed, "worker %s has %d of %d milli-cores free", at.name, at.freeMilli, at.milli)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.workers)) {
		w.step(Gone{name})
	}
	if m := w.m; len(m.leases)+len(m.workers)+len(m.hosts)+len(m.holders)+len(m.jobs)+m.waiting.Len()+len(m.parked)+m.idle.Len()+len(m.ranking.workers) > 0 || m.wanted != 0 || m.want != 0 {
		w.fault(allFreed, "%d leases, %d holders, %d requests remain, %d milli-cores are wanted", len(m.leases), len(m.holders), m.waits, m.wanted)
	}
}
