package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// metered is a job that is in the system.
type metered struct {
	arrival
	hosts    []backends.Placement // of its run, or its last one
	since    time.Time            // it waits, runs or is suspended
	state    backends.State
	killed   bool          // its run is being ended by the engine
	inWindow float64       // slot-seconds of its run so far that lie in the window
	wait     time.Duration // from submission to the start of its last run
	clock    time.Duration // R14's when it started; the longest, if it did so more than once
	putOff   bool          // by max_victims_per_project

	listed  bool   // see listing
	counted bool   // among those that are not
	class   *class // of a job of a project with a guarantee that had to wait
	inFront bool   // of it
}

// clockReading is a PBA job's clock, as the last cycle left it.
type clockReading struct {
	clock   time.Duration
	seen    time.Time
	account int
}

// meter observes the world's effects and adds up the figures.
type meter struct {
	window    Window
	threshold time.Duration
	promise   time.Duration
	cycle     time.Duration
	perCycle  int // most jobs that a cycle preempts, by max_victims

	jobs      map[backends.ID]*metered
	arriving  *metered // being submitted; its ID is not known yet
	clocks    map[backends.ID]clockReading
	standbys  map[backends.ID][]backends.Placement // and where they run
	placing   bool                                 // dummy jobs are being placed: a job that is not known is a standby job
	starved   []time.Time                          // by account: its starving is counted up to then
	busy      map[string]int
	changed   bool // something happened to a job of a project with a guarantee
	reclaims  map[int64]*reclaimed
	lastStart map[string]time.Time // of a PBA job, by host

	finished int // jobs
	widest   int // slots of the widest 1 % of the jobs, at least
	out      Outcome
	within   tally
	rest     tally
	accounts []tally
	others   map[other]*tally // of the last account; nil: not asked for
	useful   float64
	used     float64
	series   *series
	listing  *listing // nil: each snapshot lists all jobs
	firstErr error
}

// reclaimed is a reclaim that is open, as the world saw it.
type reclaimed struct {
	beneficiary backends.ID
	hosts       []backends.Placement
	planned     time.Time
	lacked      int
	served      bool // its beneficiary started there
}

type tally struct {
	Group
	wait, widest, clock, slowdown sketch
}

func newMeter(s *Setup, window Window, c *calendar) *meter {
	m := &meter{
		window: window, threshold: s.Policy.PendingThreshold, promise: basePromise(s), cycle: s.Policy.Cycle, perCycle: perCycle(s),
		jobs: map[backends.ID]*metered{}, clocks: map[backends.ID]clockReading{}, standbys: map[backends.ID][]backends.Placement{}, busy: map[string]int{}, reclaims: map[int64]*reclaimed{},
		lastStart: map[string]time.Time{}, starved: make([]time.Time, len(c.projects)),
		accounts: make([]tally, len(c.projects)+1),
	}
	for i, name := range c.projects {
		m.accounts[i].Project = name
	}
	if s.Everyone {
		m.others = map[other]*tally{}
	}
	if s.Buckets > 0 {
		m.series = newSeries(window, s.Buckets, c)
	}
	return m
}

// basePromise returns R14's bound on a wait, without the cycles that a need beyond max_victims
// adds: the threshold, two cycles and the time that killed jobs take to end.
func basePromise(s *Setup) time.Duration {
	return s.Policy.PendingThreshold + 2*s.Policy.Cycle + s.Kill
}

// perCycle returns the number of jobs that one cycle may preempt (R22).
func perCycle(s *Setup) int {
	slots := 0
	for _, h := range s.Hosts {
		slots += h.Slots
	}
	return max(1, s.Policy.MaxVictims, (slots+19)/20)
}

// promiseTo returns R14's bound on a job's wait. If the job needs more slots than max_victims
// allows jobs, which may have one slot each, more cycles are added.
func (m *meter) promiseTo(j *metered) time.Duration {
	return m.promise + time.Duration((j.slots+m.perCycle-1)/m.perCycle-1)*m.cycle
}

// watch counts an effect in the world.
func (m *meter) watch(at time.Time, e manager.Effect) {
	if m.watchStandby(e) {
		return
	}
	switch e := e.(type) {
	case manager.StartRun:
		j := m.jobs[e.ID]
		if j == nil {
			j = m.arriving
			m.jobs[e.ID] = j
		}
		m.start(at, e.ID, j, e.Hosts)
	case manager.KillRun:
		j := m.jobs[e.ID]
		j.killed = true
		m.out.Preemptions++
		m.eachTally(j, func(g *tally) { g.Preempted++ })
		m.markChanged(j)
	case manager.StopRun:
		j := m.jobs[e.ID]
		m.pause(at, j)
		j.state, j.since = backends.Suspended, at
		m.out.Preemptions++
		m.out.Suspensions++
		m.eachTally(j, func(g *tally) { g.Preempted++ })
	case manager.ContinueRun:
		j := m.jobs[e.ID]
		m.occupy(j.hosts, 1)
		j.state, j.since = backends.Running, at
		m.markChanged(j)
	case manager.Finished:
		m.finish(at, e.Job.ID)
	case manager.Forgotten, manager.Notice, manager.WakeAt:
	}
}

// watchStandby reports whether an effect concerns a standby job, which does no work: it occupies the
// slot that it keeps free, and no figure counts it.
func (m *meter) watchStandby(e manager.Effect) bool {
	switch e := e.(type) {
	case manager.StartRun:
		if !m.isStandby(e.ID) && (m.jobs[e.ID] != nil || !m.placing) {
			return false
		}
		m.standbys[e.ID] = e.Hosts
		m.listStandby(e.ID)
		m.occupy(e.Hosts, 1)
		m.serve(e.ID, e.Hosts)
		return true
	case manager.KillRun:
		return m.isStandby(e.ID)
	case manager.Finished:
		if !m.isStandby(e.Job.ID) {
			return false
		}
		delete(m.standbys, e.Job.ID)
		if m.listing != nil {
			m.listing.drop(e.Job.ID)
		}
		m.changed = true // another one may follow it
		return true
	}
	return false
}

func (m *meter) listStandby(id backends.ID) {
	if m.listing != nil {
		m.listing.insert(id)
	}
}

func (m *meter) isStandby(id backends.ID) bool {
	_, is := m.standbys[id]
	return is
}

func (m *meter) markChanged(j *metered) {
	if j.account < len(m.accounts)-1 {
		m.changed = true
	}
}

func (m *meter) eachTally(j *metered, do func(*tally)) {
	if j.within {
		do(&m.within)
	} else {
		do(&m.rest)
	}
	do(&m.accounts[j.account])
	if m.others != nil && j.account == len(m.accounts)-1 {
		do(m.other(j))
	}
}

// other is a project without a guarantee, or a user whose jobs have no project.
type other struct{ project, user string }

// maxOthers is the number of others that are kept apart; the rest is in one tally.
const maxOthers = 2000

// other returns the tally of a job's project or user.
func (m *meter) other(j *metered) *tally {
	who := other{project: j.project}
	if who.project == "" {
		who.user = j.user
	}
	if m.others[who] == nil && len(m.others) >= maxOthers {
		who = other{}
	}
	t := m.others[who]
	if t == nil {
		t = &tally{Group: Group{Project: who.project, User: who.user}}
		m.others[who] = t
	}
	return t
}

func (m *meter) occupy(hosts []backends.Placement, sign int) {
	for _, p := range hosts {
		m.busy[p.Host] += sign * p.Slots
	}
}

func (m *meter) start(at time.Time, id backends.ID, j *metered, hosts []backends.Placement) {
	if m.listing != nil {
		m.listing.start(id, j, j.account < len(m.accounts)-1)
	}
	m.series.waited(j, at)
	j.hosts, j.state, j.since, j.killed, j.inWindow = hosts, backends.Running, at, false, 0
	j.wait = at.Sub(j.at)
	m.occupy(hosts, 1)
	m.markChanged(j)
	if c, ok := m.clocks[id]; ok {
		j.clock = max(j.clock, c.clock+at.Sub(c.seen))
		m.starve(c.account, at)
		delete(m.clocks, id)
		for _, p := range hosts {
			m.lastStart[p.Host] = at
		}
	}
	m.serve(id, hosts)
}

// serve notes that a beneficiary starts.
func (m *meter) serve(id backends.ID, hosts []backends.Placement) {
	for _, r := range m.reclaims {
		if r.beneficiary == id && backends.ShareHost(r.hosts, hosts) {
			r.served = true
		}
	}
}

// starve counts the time up to now in which a job of a pool waited beyond the
// threshold, once for all that did so at the same time. A PBA job that waits holds
// room: its pool is under its guarantee. A clock that stood still and goes on
// counts from the cycle that found it going on.
func (m *meter) starve(account int, to time.Time) {
	from := to
	for _, c := range m.clocks {
		if crossed := c.seen.Add(m.threshold - c.clock); c.account == account && crossed.Before(from) {
			from = crossed
		}
	}
	if from.Before(m.starved[account]) {
		from = m.starved[account]
	}
	if to.After(from) {
		m.out.StarvedSeconds += to.Sub(from).Seconds()
	}
	m.starved[account] = to
}

// pause ends a stretch of running.
func (m *meter) pause(at time.Time, j *metered) {
	m.occupy(j.hosts, -1)
	j.inWindow += m.window.clip(j.since, at).Seconds() * float64(j.slots)
	m.series.ran(j, at)
	m.markChanged(j)
}

// clip returns the part of a time that lies in the window.
func (w *Window) clip(from, to time.Time) time.Duration {
	if from.Before(w.From) {
		from = w.From
	}
	if to.After(w.To) {
		to = w.To
	}
	return max(0, to.Sub(from))
}

// runEnded counts a run whose processes are gone, before the queue learns of it.
func (m *meter) runEnded(at time.Time, end RunEnd) {
	id := end.ID
	if m.isStandby(id) {
		m.occupy(m.standbys[id], -1)
		m.standbys[id] = nil
		return
	}
	j := m.jobs[id]
	if j.state == backends.Running {
		m.pause(at, j)
	}
	m.used += j.inWindow
	if m.others != nil {
		used := j.inWindow
		m.eachTally(j, func(g *tally) { g.Used += used })
	}
	lost := 0.0
	if end.Kept < end.Ran { // what it saved is not lost; to save and to restore it is
		lost = j.inWindow * (end.Ran - end.Kept).Seconds() / end.Ran.Seconds()
		m.out.LostSeconds += lost
		m.eachTally(j, func(g *tally) { g.Lost += lost })
	}
	if j.killed && end.Kept > 0 {
		m.out.Saved++
	}
	m.useful += j.inWindow - lost
	j.inWindow, j.state, j.since = 0, backends.Pending, at
}

// tooShort is what bounds the slowdown of short jobs, as usual 10 s.
const tooShort = 10 * time.Second

func (m *meter) finish(at time.Time, id backends.ID) {
	j := m.jobs[id]
	delete(m.jobs, id)
	delete(m.clocks, id)
	m.finished++
	if m.listing != nil {
		m.listing.end(id, j)
	}
	slowdown := max(1, at.Sub(j.at).Seconds()/max(j.run, tooShort).Seconds())
	m.eachTally(j, func(g *tally) {
		g.Jobs++
		g.wait.add(j.wait.Seconds())
		if j.slots >= m.widest {
			g.widest.add(j.wait.Seconds())
		}
		g.clock.add(j.clock.Seconds())
		g.slowdown.add(slowdown)
		if j.clock > m.promiseTo(j) {
			g.OverPromise++
			if j.putOff {
				g.PutOff++
			}
		}
	})
	m.series.count(j)
}

func (g *tally) group() Group {
	g.Wait, g.Widest, g.Clock, g.Slowdown = g.wait.spread(), g.widest.spread(), g.clock.spread(), g.slowdown.spread()
	return g.Group
}

// outcome sums up.
func (m *meter) outcome(policy string, slots int) Outcome {
	o := m.out
	o.Policy, o.Within, o.Rest = policy, m.within.group(), m.rest.group()
	for i := range m.accounts {
		o.Projects = append(o.Projects, m.accounts[i].group())
	}
	for _, t := range m.others {
		o.Others = append(o.Others, t.group())
	}
	slices.SortFunc(o.Others, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	if all := float64(slots) * m.window.Seconds; all > 0 {
		o.Utilization, o.Useful, o.LostShare = m.used/all, m.useful/all, o.LostSeconds/all
	}
	if o.Requested > 0 {
		o.Ratio = float64(o.Evicted) / float64(o.Requested)
	}
	if m.series != nil {
		o.Series = m.series.result(slots)
	}
	return o
}
