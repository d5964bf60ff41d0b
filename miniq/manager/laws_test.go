package manager

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// world drives a Manager by random events and keeps, from events and effects
// alone, what must be true of it.
type world struct {
	*rapid.T
	m       *Manager
	twin    *Manager // the same events through JSON, restored from its state now and then
	now     time.Time
	hosts   map[string]backends.Host
	runs    map[backends.ID]*liveRun
	lastRun map[backends.ID]int
	ids     []backends.ID
	ended   map[backends.ID]bool
	starts  []backends.ID // of the step that is looked at, so far
	shown   map[backends.ID]backends.Priority
	aged    map[backends.ID]int
	counts  map[string]int
	saves   map[backends.ID]*saves
}

type liveRun struct {
	StartRun
	stopped bool
	before  bool      // it began before its hosts got other resources
	stopBy  time.Time // its slots are taken until then; zero: they are not by this
	killed  bool

	save     backends.Checkpoint
	requeued bool // it is being ended to be requeued
}

const (
	lawTick = 20 * time.Second
	lawCap  = 9
)

func newWorld(t *rapid.T) *world {
	w := &world{
		T: t, now: time.Date(2026, 11, 23, 12, 0, 7, 0, time.UTC), hosts: map[string]backends.Host{}, runs: map[backends.ID]*liveRun{},
		lastRun: map[backends.ID]int{}, ended: map[backends.ID]bool{}, shown: map[backends.ID]backends.Priority{}, aged: map[backends.ID]int{},
		counts: map[string]int{}, saves: map[backends.ID]*saves{},
	}
	cfg := Config{
		StopWait:  rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "stopWait"),
		SlotsOnly: rapid.IntRange(0, 3).Draw(t, "slotsOnly") == 0, ReserveAfter: 20 * time.Second, AgeingInterval: lawTick, AgeingCap: lawCap,
	}
	w.m, w.twin = New(cfg), New(cfg)
	for i := range rapid.IntRange(1, 3).Draw(t, "hosts") {
		h := backends.Host{Name: fmt.Sprintf("n%d", i), Slots: rapid.IntRange(1, 6).Draw(t, "slots"), Memory: int64(rapid.SampledFrom([]int{0, 8, 16}).Draw(t, "memory"))}
		w.drawResources(&h)
		w.hosts[h.Name] = h
		w.step(nodeUpOf(h))
	}
	for range 6 {
		w.submit()
	}
	return w
}

// drawResources gives a host some resources and features.
func (w *world) drawResources(h *backends.Host) {
	h.Has, h.Features = nil, nil
	for _, name := range []string{"gpu", "net"} {
		if n := rapid.IntRange(0, 3).Draw(w.T, name); n > 0 {
			h.Has = append(h.Has, backends.Amount{Name: name, Count: n})
		}
	}
	if rapid.Bool().Draw(w.T, "big") {
		h.Features = []string{"big"}
	}
	if rack := rapid.IntRange(0, 3).Draw(w.T, "rack"); rack < 2 {
		h.Features = append(h.Features, fmt.Sprintf("rack=r%d", rack))
	}
}

func nodeUpOf(h backends.Host) NodeUp {
	return NodeUp{Name: h.Name, Slots: h.Slots, Memory: h.Memory, Closed: h.State == backends.HostClosed, Has: h.Has, Features: h.Features}
}

// step takes one event and checks the laws.
func (w *world) step(e Event) Result {
	before := w.eligible()
	effects, result := w.m.Step(w.now, e)
	line, err := EncodeEvent(e)
	if err != nil {
		w.Fatalf("encode %T: %v", e, err)
	}
	again, err := DecodeEvent(line)
	if err != nil {
		w.Fatalf("decode %s: %v", line, err)
	}
	// A tick that did nothing may be left out of the journal.
	var twins []Effect
	if _, tick := e.(Tick); !tick || len(effects) > 0 {
		twins, _ = w.twin.Step(w.now, again)
	}
	if diff := cmp.Diff(effects, twins); diff != "" {
		w.Fatalf("replay of %s differs (-live +replayed):\n%s", line, diff)
	}
	w.starts = nil
	for _, effect := range effects {
		w.follow(effect)
	}
	w.noteRequeue(e, result)
	w.written(e, result, before)
	w.checkHosts()
	w.checkQueue()
	w.count()
	return result
}

// count counts which situations the random events led to.
func (w *world) count() {
	if len(w.m.resuming) > 0 {
		w.counts["claimed"]++
	}
	free := 0
	for _, h := range w.m.hosts {
		free += w.m.room(h).slots
	}
	if free == 0 {
		return
	}
	if w.m.overdueJob != nil {
		w.counts["kept"]++
	}
	if len(w.m.reservers) > 0 {
		w.counts["reserved"]++
	}
	if !w.m.tickNext.IsZero() {
		w.counts["overtaking"]++
	}
}

// eligible is which jobs age between this step and the next.
func (w *world) eligible() map[backends.ID]bool {
	all := map[backends.ID]bool{}
	for _, j := range w.m.Snapshot(w.now, w.now).Jobs {
		all[j.ID] = j.Eligible()
	}
	return all
}

// follow books an effect.
func (w *world) follow(e Effect) {
	switch e := e.(type) {
	case StartRun:
		if w.runs[e.ID] != nil || w.ended[e.ID] || e.Run != w.lastRun[e.ID]+1 {
			w.Fatalf("run %d of job %s started: before it %d, ended %v", e.Run, e.ID, w.lastRun[e.ID], w.ended[e.ID])
		}
		if e.Restarted != w.savesOf(e.ID).restarted {
			w.Fatalf("run %d of job %s: told to go on from a checkpoint: %v", e.Run, e.ID, e.Restarted)
		}
		w.starts = append(w.starts, e.ID)
		w.checkStart(e)
		w.lastRun[e.ID] = e.Run
		w.runs[e.ID] = &liveRun{StartRun: e}
		w.counts["started"]++
	case StopRun:
		w.runs[e.ID].stopped, w.runs[e.ID].stopBy = true, w.now.Add(w.m.cfg.StopWait)
		w.counts["stopped"]++
	case ContinueRun:
		if r := w.runs[e.ID]; w.holds(r) {
			w.Fatalf("job %s goes on before it has stopped", e.ID)
		}
		w.runs[e.ID].stopped = false
		w.counts["continued"]++
	case KillRun:
		r := w.runs[e.ID]
		r.killed, r.save, r.requeued = true, e.Save, false
	case Reopened:
		if !w.ended[e.ID] || w.runs[e.ID] != nil {
			w.Fatalf("job %s is reopened, ended before: %v", e.ID, w.ended[e.ID])
		}
		w.ended[e.ID] = false
		w.shown[e.ID], w.aged[e.ID] = backends.At(backends.LevelNormal, backends.DefaultValue), 0
		delete(w.saves, e.ID)
	case Finished:
		if w.ended[e.Job.ID] || !e.Job.State.Ended() {
			w.Fatalf("job %s finished as %v, ended before: %v", e.Job.ID, e.Job.State, w.ended[e.Job.ID])
		}
		w.ended[e.Job.ID] = true
		delete(w.runs, e.Job.ID)
	}
}

// checkStart compares a start with what the job asked for.
func (w *world) checkStart(s StartRun) {
	slots := 0
	for _, p := range s.Hosts {
		slots += p.Slots
		h := w.hosts[p.Host]
		if h.State != backends.HostUp || p.Slots < 1 {
			w.Fatalf("job %s started with %d slots on %s, which is %v", s.ID, p.Slots, p.Host, h.State)
		}
		if !w.m.byName[p.Host].serve(s.Spec.Needs, s.Spec.Features) || !w.m.view(w.m.jobs[s.ID], w.now).Suits.Contains(p.Host) {
			w.Fatalf("job %s started on %s, which has %v %v; it asks for %v %v", s.ID, p.Host, h.Has, h.Features, s.Spec.Needs, s.Spec.Features)
		}
		if j := w.m.jobs[s.ID]; len(j.allowed()) > 0 && !slices.Contains(j.allowed(), p.Host) {
			w.Fatalf("job %s started on %s, allowed are %v", s.ID, p.Host, j.allowed())
		}
	}
	if slots != s.Spec.Slots || s.Spec.OneHost && len(s.Hosts) != 1 {
		w.Fatalf("job %s started on %v, asked for %d slots, on one host: %v", s.ID, s.Hosts, s.Spec.Slots, s.Spec.OneHost)
	}
	if why := w.misplaced(&s); why != "" {
		w.Fatalf("job %s started on %v: %s", s.ID, s.Hosts, why)
	}
	started := w.m.jobs[s.ID]
	for i, n := range started.shares {
		if w.m.keyOf(started).shares == "" { // it was changed since it was pinned
			break
		}
		if len(s.Hosts) != len(started.shares) || s.Hosts[i] != (backends.Placement{Host: started.pinned[i], Slots: n}) {
			w.Fatalf("job %s started on %v, its shares are %v of %v", s.ID, s.Hosts, started.shares, started.pinned)
		}
	}
	for _, j := range w.m.shapeMates(started) {
		if w.m.rank(j).before(rank{started.base, started.turn}) && j.state == backends.Pending && !w.waitedFor(j) {
			w.Fatalf("job %s started before %s of the same shape, which ranks higher", s.ID, j.id)
		}
	}
}

// misplaced says what of a run's hosts is not as its job asked; "": all is.
func (w *world) misplaced(s *StartRun) string {
	per, condition := s.Spec.PerHost, selectionOf(s.Spec)
	var rest []int // slots on hosts that have fewer
	shared := map[string]bool{}
	for _, p := range s.Hosts {
		h := w.hosts[p.Host]
		if per > 0 && !s.Spec.OneHost && per < s.Spec.Slots {
			if p.Slots > per {
				return fmt.Sprintf("want %d slots on each host", per)
			}
			if p.Slots < per {
				rest = append(rest, p.Slots)
			}
		}
		if condition.Selection != nil && !condition.Holds(&h) {
			return fmt.Sprintf("select[%s] does not hold on %v", s.Spec.Select, h)
		}
		for _, name := range s.Spec.Same {
			shared[fmt.Sprint(name, h.Value(name), h.HasFeature(name))] = true
		}
	}
	switch {
	case len(rest) > 1:
		return fmt.Sprintf("%v slots on hosts where %d are wanted", rest, per)
	case len(s.Hosts) > 1 && len(shared) > len(s.Spec.Same):
		return fmt.Sprintf("not the same %v: %v", s.Spec.Same, shared)
	case len(s.Hosts) > 1 && per > 0:
		w.counts["even"]++
	}
	if len(s.Hosts) > 1 && len(s.Spec.Same) > 0 {
		w.counts["alike"]++
	}
	return ""
}

// waitedFor reports whether a job waited for a start of this very step, which made it
// eligible.
func (w *world) waitedFor(j *job) bool {
	return slices.ContainsFunc(w.starts, func(id backends.ID) bool {
		whole := backends.ID{Job: id.Job}
		return j.work.spec.After == "started("+id.String()+")" || j.work.spec.After == "started("+whole.String()+")"
	})
}

func (m *Manager) shapeMates(j *job) []*job {
	var mates []*job
	if s := m.byKey[m.keyOf(j)]; s != nil {
		for mate := s.oldest; mate != nil; mate = mate.younger {
			mates = append(mates, mate)
		}
	}
	return mates
}

// holds reports whether a stopped run holds its slots.
func (w *world) holds(r *liveRun) bool { return r.stopped && r.stopBy.After(w.m.now) }

// checkHosts is the law that no host ever gives more than it has.
func (w *world) checkHosts() {
	for name, h := range w.hosts {
		used, memory, jobs, exclusive := 0, int64(0), 0, 0
		units, judged := map[string]int{}, true
		for _, r := range w.runs {
			for _, p := range r.Hosts {
				if p.Host != name {
					continue
				}
				for _, a := range r.Spec.Needs {
					units[a.Name] += a.Count
				}
				judged = judged && !r.before
				memory += (r.Spec.Memory + int64(r.Spec.Slots) - 1) / int64(r.Spec.Slots) * int64(p.Slots)
				if r.stopped && !w.holds(r) {
					continue
				}
				used += p.Slots
				jobs++
				if r.Spec.Exclusive {
					exclusive++
				}
			}
		}
		for i, a := range h.Has {
			if judged && units[a.Name] > a.Count {
				w.Fatalf("%s: %d of %d units of %s in use", name, units[a.Name], a.Count, a.Name)
			}
			if own := w.m.byName[name]; own.taken[i] != units[a.Name] || own.byRuns[i] > own.taken[i] || own.byRuns[i] < 0 {
				w.Fatalf("%s: the manager counts %v of %s, %d are in use", name, own.taken, a.Name, units[a.Name])
			}
		}
		if used > h.Slots {
			w.Fatalf("%s: %d of %d slots in use", name, used, h.Slots)
		}
		if h.Memory > 0 && !w.m.cfg.SlotsOnly && memory > h.Memory {
			w.Fatalf("%s: %d of %d bytes in use", name, memory, h.Memory)
		}
		if exclusive > 0 && jobs > 1 {
			w.Fatalf("%s: %d jobs beside an exclusive one", name, jobs-1)
		}
		if own := w.m.byName[name]; own.used != used || own.usedMem != memory || own.exclusive != exclusive {
			w.Fatalf("%s: the manager counts %+v; in use are %d slots, %d bytes", name, own, used, memory)
		}
	}
}

// checkQueue compares the queue with a walk over all jobs, without shapes.
func (w *world) checkQueue() {
	if e, what := w.m.wouldStart(); e != nil {
		w.Fatalf("job %s could %s: %s\n%s", e.id, what, w.m.view(e, w.now).Reason, w.dump())
	}
	for id, a := range w.m.arrays {
		active, admitted := 0, 0
		for _, j := range a.elements {
			if j.live() {
				active++
			}
			if j.admitted {
				admitted++
			}
			if a.limit > 0 && j.waitList == inShape != j.admitted {
				w.Fatalf("element %s: place %d, admitted %v", j.id, j.waitList, j.admitted)
			}
		}
		if active != a.active || admitted != a.admitted || a.limit > 0 && active+admitted > a.limit {
			w.Fatalf("array %d of limit %d: %d active, %d admitted; counted %d and %d", id, a.limit, active, admitted, a.active, a.admitted)
		}
	}
	for _, j := range w.m.Snapshot(w.now, w.now).Jobs {
		if j.Priority != w.shown[j.ID] {
			w.Fatalf("job %s (%v, waits for %d) shows %d, want %d", j.ID, j.State, j.Wait, j.Priority, w.shown[j.ID])
		}
		if j.State == backends.Pending && j.Reason == "" {
			w.Fatalf("job %s pends without a reason", j.ID)
		}
	}
}

// dump shows the queue for an error.
func (w *world) dump() string {
	text := fmt.Sprintf("now %v, tick %d, kept %+v\n", w.now, w.m.tick(w.now), w.m.overdueJob)
	if w.m.overdueJob != nil {
		text += fmt.Sprintf("kept for job %s\n", w.m.overdueJob.job.id)
	}
	for _, h := range w.m.hosts {
		text += fmt.Sprintf("host %+v\n", *h)
	}
	for j := w.m.first; j != nil; j = j.next {
		text += fmt.Sprintf("job %s seq %d %v place %d priority %d slots %d shape %v since %v hosts %v reserve %v\n",
			j.id, j.seq, j.state, j.waitList, w.m.priority(j, w.now), j.work.spec.Slots, w.m.keyOf(j), j.waitSince, j.hosts, j.reserve)
	}
	return text
}

// wouldStart is dispatch done naively: every job is tried, in order.
func (m *Manager) wouldStart() (*job, string) {
	r := &round{Manager: m}
	for _, h := range m.hosts {
		r.rooms = append(r.rooms, m.room(h))
	}
	var queue []*job
	for j := m.first; j != nil; j = j.next {
		if j.waitList == inShape || j.resuming(m.now) && !j.holdsSlots() {
			queue = append(queue, j)
		}
	}
	effective := func(j *job) (rank, bool) {
		if j.state == backends.Suspended && j.base.Level() < backends.LevelPBA {
			return rank{backends.At(backends.LevelPBA, 0), 1 << 62}, true
		}
		return m.rank(j), false
	}
	slices.SortFunc(queue, func(a, b *job) int {
		x, _ := effective(a)
		y, _ := effective(b)
		if x == y {
			x, y = m.rank(a), m.rank(b)
		}
		if x.before(y) {
			return -1
		}
		return 1
	})
	passed := map[*shape]bool{} // of one shape the first job decides
	for _, j := range queue {
		if j.state == backends.Suspended {
			fits := true
			for _, p := range j.hosts {
				room := r.lasting()[m.byName[p.Host].index]
				fits = fits && !m.byName[p.Host].down && room.slots >= p.Slots && (!j.work.spec.Exclusive || room.whole)
			}
			if fits {
				return j, "go on"
			}
			for _, p := range j.hosts {
				r.deduct(p, &shapeKey{exclusive: j.work.spec.Exclusive}, nil, true)
			}
			continue
		}
		if rooms, _ := r.roomsFor(j); !passed[j.shape] {
			if placed := m.fit(j.shape, rooms); placed != nil {
				return j, fmt.Sprint("start on ", placed)
			}
			passed[j.shape] = true
		}
		if j.reserve != nil {
			r.deductHosts(j)
		}
		if m.overdueJob != nil && m.overdueJob.job == j {
			r.deductReservation()
		}
	}
	return nil, ""
}

// written follows what shows of priorities.
func (w *world) written(e Event, result Result, _ map[backends.ID]bool) {
	switch e := e.(type) {
	case Submit:
		for i, s := range result.Submitted {
			if s.Err != nil {
				continue
			}
			for _, j := range w.m.find(s.ID) {
				w.ids = append(w.ids, j.id)
				w.shown[j.id] = backends.At(backends.LevelNormal, backends.DefaultValue)
				if e.Specs[i].Priority != 0 {
					w.shown[j.id] = e.Specs[i].Priority
				}
			}
		}
	case SetPriority:
		for i, r := range e.Rankings {
			if result.Errors[i] == nil {
				w.shown[r.ID] = r.Priority
			}
		}
	}
}

// lawTicks is how many multiples of lawTick lie after one instant and up to another.
// Truncate rounds down at all times; a quotient of UnixNano rounds up before 1970, where
// several jumps of -10 years lead.
func lawTicks(from, to time.Time) int {
	return int(to.Truncate(lawTick).Sub(from.Truncate(lawTick)) / lawTick)
}

// pass lets time go on to an instant, with the ticks that the queue asked for,
// and proves first that no earlier one would have changed anything.
func (w *world) pass(to time.Time) {
	for {
		next := to
		wake := w.m.Wake()
		if !wake.IsZero() && !wake.After(to) {
			next = wake
		}
		if next.After(w.now.Add(1)) {
			w.quiet(w.now.Add(time.Duration(rapid.Int64Range(1, int64(next.Sub(w.now))-1).Draw(w.T, "quiet"))))
		}
		eligible := w.eligible()
		ticks := lawTicks(w.now, next)
		for id, ages := range eligible {
			if n := min(ticks, lawCap-w.aged[id]); ages && n > 0 {
				w.aged[id] += n
				w.shown[id] += backends.Priority(n)
			}
		}
		w.now = next
		w.step(Tick{})
		if next.Equal(to) {
			return
		}
	}
}

// quiet is the law that nothing changes by itself before WakeAt.
func (w *world) quiet(at time.Time) {
	copied := w.clone(w.m)
	if effects, _ := copied.Step(at, Tick{}); len(effects) > 0 {
		w.Fatalf("at %v, before the wake at %v: %v", at, w.m.Wake(), effects)
	}
	want, got := w.m.Snapshot(at, at), copied.Snapshot(at, at)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("at %v, before the wake at %v, the farm changed:\n%s", at, w.m.Wake(), diff)
	}
}

func (w *world) clone(m *Manager) *Manager {
	state, err := m.State()
	if err != nil {
		w.Fatal(err)
	}
	copied, err := Restore(state)
	if err != nil {
		w.Fatal(err)
	}
	again, err := copied.State()
	if err != nil || !bytes.Equal(state, again) {
		w.Fatalf("state restored and written again differs: %v\n%s", err, cmp.Diff(string(state), string(again)))
	}
	return copied
}

// TestLaws: slots and memory of a host are never exceeded, each job ends once,
// equal needs go by (priority, FIFO), nothing that could start waits, the shown
// priorities are R10's, WakeAt is enough, and a replay gives the same.
func TestLaws(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(w.actions())
		for what, n := range w.counts {
			counts[what] += n
		}
	})
	t.Log(counts)
	if checks, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String()); err != nil || checks < 1000 {
		return // too few to say that something never happens
	}
	for _, what := range []string{"started", "stopped", "continued", "kept", "reserved", "claimed", "saved", "unsaved", "even", "alike"} {
		if counts[what] == 0 {
			t.Errorf("nothing was ever %s: %v", what, counts)
		}
	}
}
