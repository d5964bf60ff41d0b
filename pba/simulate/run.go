package simulate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// ErrNothing means that no job is left to be simulated.
var ErrNothing = errors.New("no job is left to be simulated")

// heapLimit is the memory beyond which garbage is collected more often: else the heap of a
// simulation with a long queue would double before that. Below it the heap may grow by
// heapGrowth percent before it is: each cycle makes a plan and throws it away.
const (
	heapLimit  = 430 << 20
	heapGrowth = 400
)

// Run simulates a trace under each policy that is asked for. Memory does not
// grow with the trace, only with the jobs that are in the system at a time. The
// same setup always gives the same result.
func Run(ctx context.Context, s Setup) (*Result, error) {
	if was := debug.SetMemoryLimit(-1); was > heapLimit {
		debug.SetMemoryLimit(heapLimit)
		defer debug.SetMemoryLimit(was)
		defer debug.SetGCPercent(debug.SetGCPercent(heapGrowth))
	}
	c := newCalendar(s.Plan)
	var fences []Fence
	if slices.Contains(s.Policies, Dedicated) {
		fences = fencesOf(c)
	}
	slots := 0
	for _, h := range s.Hosts {
		slots += h.Slots
	}
	w := newWorkload(&s, c, fences)
	if slices.Contains(s.Policies, Dedicated) {
		if err := w.fence(fences); err != nil {
			return nil, err
		}
	}
	v, err := w.survey(ctx)
	if err != nil {
		return nil, err
	}
	w.jobs, w.widest = v.jobs, v.widest
	if v.jobs == 0 {
		return nil, fmt.Errorf("%s: %w", s.Name, ErrNothing)
	}
	r := &Result{
		Trace: Source{Name: s.Name, Format: string(s.Format), Jobs: v.jobs, Read: v.all.jobs, LeftOut: v.out, BadLines: s.Trace.Bad, Repeated: max(s.Repeat, 1), OneSlot: s.OneSlot},
		Farm:  FarmSize{Slots: slots, Hosts: len(s.Hosts), Fences: fences}, Guarantees: c.guarantees(), Settings: settingsOf(&s), Window: v.window, Widest: v.widest, Within: v.within, Idle: v.idle,
		Notes: w.places.notes(),
	}
	for _, policy := range s.Policies {
		d, err := newDriver(ctx, w, policy, v.window, fences)
		if err != nil {
			return nil, err
		}
		if policy == Dedicated {
			d.meter.out.CannotRun = v.noRoom
		}
		if err := d.run(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
		r.Policies = append(r.Policies, d.meter.outcome(policy, slots))
	}
	return r, nil
}

func settingsOf(s *Setup) Settings {
	scale := s.ScaleArrivals
	if scale == 0 {
		scale = 1
	}
	return Settings{
		Cycle: s.Policy.Cycle.Seconds(), PendingThreshold: s.Policy.PendingThreshold.Seconds(), MinRuntime: s.Policy.MinRuntime.Seconds(),
		OnDemand: s.OnDemand.result(), Periodic: s.Periodic.result(), Headroom: s.Policy.Headroom, ScaleArrivals: scale, Suspend: s.Suspend, KillSeconds: s.Kill.Seconds(), Promise: basePromise(s).Seconds(), Seed: s.Seed,
	}
}

func (s Saves) result() *Saving {
	if s.Share == 0 {
		return nil
	}
	return &Saving{Share: s.Share, Seconds: s.Time.Seconds(), Restore: s.Restore.Seconds()}
}

// driver is one policy's run. Under fifo and dedicated the engine only observes:
// so R14's clock, and which pools are below their guarantee, follow the very same
// rules under every policy.
type driver struct {
	*workload
	ctx    context.Context
	policy string
	world  *World
	meter  *meter
	ledger pba.MemoryLedger
	engine pba.Engine
	filter filter
	hosts  [][]string // by account: the only ones for its jobs; nil: any
	tags   [2]string  // of jobs that the filter does not change: requeue, suspend
	ended  int        // jobs that the queue still knows

	last      time.Time      // cycle
	first     time.Time      // cycle
	due       time.Time      // something happened then, or the plan changes then, that a cycle must see; zero: nothing
	snapshot  []backends.Job // memory of the last one, to be used again
	listing   *listing       // nil: each snapshot lists all jobs
	clocksRun bool           // PBA jobs wait
	quiet     bool           // the next cycle would do nothing if nothing happened
	marked    pba.Follow
	checker   *checker
}

func newDriver(ctx context.Context, w *workload, policy string, window Window, fences []Fence) (*driver, error) {
	d := &driver{workload: w, ctx: ctx, policy: policy, meter: newMeter(w.Setup, window, w.calendar)}
	d.meter.widest = w.widest
	hosts := w.hosts
	switch policy {
	case FIFO, PBA, Seconds:
	case Dedicated:
		var err error
		if hosts, d.hosts, err = fencedHosts(hosts, fences); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("policy %q is not known (known: %s, %s, %s, %s)", policy, FIFO, Dedicated, PBA, Seconds)
	}
	d.world = New(Config{
		Manager: manager.Config{AgeingInterval: w.Policy.Cycle, AgeingCap: 69, ReserveAfter: w.Reserve},
		Hosts:   hosts, Start: window.From, Watch: d.watch, WatchEnd: d.meter.runEnded,
	})
	if !w.listsAll() {
		d.listing = newListing(d.acts())
		d.meter.listing = d.listing
	}
	d.tags[0], d.tags[1] = backends.Tag{}.String(), backends.Tag{Preempt: backends.PreemptSuspend}.String()
	groups := map[string][]string{}
	everyGroup := slices.Clone(w.calendar.projects)
	d.engine = pba.Engine{
		Backend: &engineView{World: d.world, d: d}, Ledger: &d.ledger, Rules: d.rules, Publish: d.publish,
		// A user who had jobs of a project was in its group.
		Groups: func(_ context.Context, users []string) (map[string][]string, error) {
			for _, user := range users {
				groups[user] = everyGroup
			}
			return groups, nil
		},
	}
	if w.Check && policy == PBA {
		d.checker = &checker{lacked: map[int64]int{}}
	}
	return d, nil
}

func (d *driver) rules(_ context.Context, now time.Time) (pba.Rules, error) {
	p := d.Policy
	for _, name := range d.calendar.projects {
		p.Projects = append(p.Projects, plan.Project{Name: name, Group: name})
	}
	p.Allocations, _ = d.calendar.inForce(now)
	if !d.acts() { // none is preempted for, so the search for victims would be in vain
		p.PendingThreshold, p.Thresholds = never, nil
	}
	if d.policy == Seconds {
		p.Thresholds = map[string]time.Duration{}
		for _, name := range d.calendar.projects {
			p.Thresholds[name] = 0
		}
	}
	return pba.Rules{Policy: p, Observe: !d.acts()}, nil
}

// never is longer than any job waits.
const never = 100 * 365 * 24 * time.Hour

// acts reports whether Allotment runs the farm.
func (d *driver) acts() bool { return d.policy == PBA || d.policy == Seconds }

// run submits all jobs, and returns when all have ended.
func (d *driver) run() error {
	next, stop := iter.Pull2(d.startable())
	defer stop()
	a, err, more := next()
	d.first = d.nextGridTime(d.meter.window.From)
	d.last = d.first.Add(-d.Policy.Cycle)
	d.due = d.first
	for {
		if err != nil {
			return err
		}
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		cycle := d.nextCycle()
		event, happens := d.world.Next()
		switch {
		case more && (cycle.IsZero() || !a.at.After(cycle)) && (!happens || !a.at.After(event)):
			d.advance(a.at)
			if err := d.submit(&a); err != nil {
				return err
			}
			a, err, more = next()
		case happens && (cycle.IsZero() || !event.After(cycle)):
			d.advance(event)
		case !more && len(d.meter.jobs) == 0 && d.reclaimsRecorded():
			d.meter.out.Skipped = max(0, int(d.last.Sub(d.first)/d.Policy.Cycle)+1-d.meter.out.Cycles)
			return d.meter.firstErr
		case !cycle.IsZero():
			d.advance(cycle)
			if err := d.cycle(cycle); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%d jobs would wait for ever", len(d.meter.jobs))
		}
	}
}

// startable yields the jobs that can start under this policy.
func (d *driver) startable() iter.Seq2[arrival, error] {
	if d.policy != Dedicated {
		return d.arrivals(nil)
	}
	return func(yield func(arrival, error) bool) {
		for a, err := range d.arrivals(nil) {
			if a.noFence == "" && !yield(a, err) {
				return
			}
		}
	}
}

// advance lets time pass, and requests a cycle if it must see what happened.
func (d *driver) advance(to time.Time) {
	d.world.Advance(to)
	d.requestIfChanged(to)
}

func (d *driver) requestIfChanged(at time.Time) {
	if d.meter.changed {
		d.meter.changed = false
		d.requestCycle(at)
	}
}

func (d *driver) requestCycle(at time.Time) {
	if d.due.IsZero() || at.Before(d.due) {
		d.due = at
	}
}

// nextGridTime returns the first cycle at or after a time. Cycles are at multiples of the
// period since 1970, as the queue's ageing ticks are.
func (d *driver) nextGridTime(t time.Time) time.Time {
	at := t.Truncate(d.Policy.Cycle)
	if at.Before(t) {
		at = at.Add(d.Policy.Cycle)
	}
	return at
}

// nextCycle returns the next cycle that could change something, or that a mark of the
// filter asks for; zero if there is none.
func (d *driver) nextCycle() time.Time {
	next := d.nextBeat()
	if at := d.marked.Next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		return at
	}
	return next
}

func (d *driver) nextBeat() time.Time {
	next := d.last.Add(d.Policy.Cycle)
	if d.EveryCycle || !d.quiet {
		return next
	}
	if d.due.IsZero() {
		return time.Time{}
	}
	if at := d.nextGridTime(d.due); at.After(next) {
		return at
	}
	return next
}

// reclaimsRecorded reports whether all reclaims have ended and are recorded.
func (d *driver) reclaimsRecorded() bool { return len(d.meter.reclaims) == 0 }

// countSkipped adds to the clocks what the cycles that were skipped would have: under a
// policy that preempts no job, jobs may wait for weeks while nothing else happens.
func (d *driver) countSkipped(at time.Time) {
	skipped := (at.Sub(d.last) - 1) / d.Policy.Cycle * d.Policy.Cycle
	if !d.clocksRun || skipped <= 0 {
		return
	}
	m := &d.ledger.Memory
	for id, j := range m.Jobs { // in any order: each by itself
		if j.ClockSeen.Equal(m.LastCycle) {
			j.Clock += skipped
			j.ClockSeen = j.ClockSeen.Add(skipped)
			m.Jobs[id] = j
		}
	}
	m.LastCycle = m.LastCycle.Add(skipped)
}

const manyEnded = 4096

// cycle runs one of the engine's cycles, and updates the meter.
func (d *driver) cycle(at time.Time) error {
	d.due = time.Time{}
	d.countSkipped(at)
	if _, change := d.calendar.inForce(at); !change.IsZero() && len(d.meter.jobs) > 0 {
		d.requestCycle(change)
	}
	r, err := d.engine.Cycle(d.ctx, d.world.Now)
	if renew := plan.RenewGuaranteed(d.world.Guaranteed(), at); err == nil && !renew.IsZero() && len(d.meter.jobs) > 0 {
		d.requestCycle(renew)
	}
	if err == nil {
		err = r.Failed()
	}
	if err != nil {
		return fmt.Errorf("cycle of %s: %w", at.UTC().Format(time.RFC3339), err)
	}
	d.marked.Due(at)
	if beat := at.Truncate(d.Policy.Cycle); beat.Equal(at) {
		d.meter.out.Cycles++
		d.last = at
	} else if beat.After(d.last) {
		d.last = beat // which was skipped
	}
	d.noteActs(&r)
	d.observe(&r)
	if d.meter.changed {
		d.meter.changed, d.quiet = false, false
	}
	if d.ended >= manyEnded {
		d.world.Step(manager.Forget{EndedBefore: d.ledger.Memory.EndedSince})
		d.ended = 0
	}
	return nil
}

// observe reads clocks and reclaims from a plan, and finds out whether the next cycle could
// do anything if nothing happened meanwhile.
//
// A plan is a function of the farm, of what is remembered and of the time. Time
// alone moves only: the clocks of PBA jobs that wait, which countSkipped moves where
// they are all that matters; reclaims, holds,
// reservations and suspended jobs; backing off, min_runtime, run limits and caps,
// which concern only waiting beneficiaries; throughput pools, and standby jobs. Where
// there is none of these, and a plan had nothing to do, it has nothing to do
// until a job of some project with a pool comes, starts or ends.
func (d *driver) observe(r *pba.Result) {
	p := &r.Plan
	now := p.At
	for account := range d.calendar.projects { // by the clocks that ran until now
		d.meter.starve(account, now)
	}
	clear(d.meter.clocks)
	d.clocksRun = false
	quiet := (r.Rules.Observe || len(p.Actions) == 0) && p.Farm.Suspended == 0 && len(p.Skipped) == 0 && !d.calendar.throughput() && len(r.Rules.Policy.Standby) == 0
	for id, j := range p.Memory.Jobs {
		quiet = quiet && len(j.Reserved) == 0
		if j.Pool == 0 || j.Kept > 0 || !j.ClockSeen.Equal(now) {
			continue
		}
		quiet = quiet && r.Rules.Observe
		d.clocksRun = true
		if m := d.meter.jobs[id]; m != nil && m.state == backends.Running {
			// It started in this very cycle, by an act of it.
			m.clock = max(m.clock, j.Clock)
		} else if m != nil {
			d.meter.clocks[id] = clockReading{j.Clock, now, m.account}
		}
	}
	for i := range p.Skipped {
		if j := d.meter.jobs[p.Skipped[i].Job]; j != nil && d.acts() && strings.Contains(p.Skipped[i].Reason, "max_victims_per_project") {
			j.putOff = true
		}
	}
	if d.checker != nil {
		d.checker.check(d, r)
	}
	for i := range r.State.Farm.Ended { // it counts for the headroom from the next cycle on
		_, known := d.accounts[r.State.Farm.Ended[i].Project]
		quiet = quiet && !known
	}
	for i := range p.TooWide {
		d.requestCycle(p.TooWide[i].Renew(r.Rules.Policy.HoldLimit))
	}
	quiet = d.observeReclaims(p) && quiet
	d.quiet = quiet
}

// observeReclaims records the reclaims that have ended. It reports whether no reclaim
// has anything left to do.
func (d *driver) observeReclaims(p *plan.Plan) bool {
	quiet := true
	for i := range p.Memory.Reclaims {
		r := &p.Memory.Reclaims[i]
		if r.Phase.Open() {
			quiet = false
			continue
		}
		for _, v := range r.Victims {
			quiet = quiet && (v.Fate != plan.Taken || v.Released)
		}
		if seen := d.meter.reclaims[r.ID]; seen != nil {
			d.meter.recordReclaim(r, seen)
			delete(d.meter.reclaims, r.ID)
		}
	}
	return quiet
}

// recordReclaim adds up a reclaim that has ended.
func (m *meter) recordReclaim(r *plan.Reclaim, seen *reclaimed) {
	evicted, preempted := 0, 0
	for _, v := range r.Victims {
		if v.Fate == plan.Taken || v.Fate == plan.Lost {
			evicted += v.Slots
			preempted++
		}
	}
	if preempted == 0 {
		return
	}
	m.out.Reclaims++
	m.out.Requested += seen.lacked
	m.out.Evicted += evicted
	if r.Phase == plan.Expired {
		m.out.Expired++
	}
	used := seen.served
	for _, p := range r.Hosts { // another job that fits may start in a freed slot (R19)
		used = used || !m.lastStart[p.Host].Before(r.Planned)
	}
	if !used {
		m.out.Useless += preempted
	}
}

// submit submits a job as its user would: through the submit filter.
func (d *driver) submit(a *arrival) error {
	j := &metered{arrival: *a, since: a.at, state: backends.Pending}
	spec := backends.Spec{Slots: a.slots, Memory: a.memory, RunLimit: a.limit, Project: backends.JoinProject(a.project, a.step)}
	spec.Description = d.tagOf(a)
	spec.Needs, spec.OneHost = a.needs, a.oneHost
	if a.feature != "" {
		spec.Features = []string{a.feature}
	}
	if d.hosts != nil {
		spec.Hosts = d.hosts[a.account]
	}
	if a.account < len(d.calendar.projects) && d.acts() {
		marks, err := d.filter.decide(a, &spec)
		if err != nil {
			return err
		}
		if marks {
			d.marked.Mark(a.at)
		}
	}
	if err := keepCheckpoint(&spec, a); err != nil {
		return err
	}
	d.meter.arriving = j
	// What the filter wrote counts, as it does where miniqd knows the policy itself.
	id, err := d.world.SubmitWork(manager.By{User: a.user, Admin: true}, spec, Work{Takes: a.run, KillDelay: a.kill, Save: a.saves.Wait, Every: a.saves.Every, Restore: d.restore(a)})
	if err != nil {
		return fmt.Errorf("submit a job of %d slots: %w", a.slots, err)
	}
	d.meter.jobs[id] = j
	d.startListing(id, j, &spec)
	d.meter.markChanged(j)
	d.requestIfChanged(a.at)
	return nil
}

// tagOf returns the tag of a job that the filter does not change.
func (d *driver) tagOf(a *arrival) string {
	if a.suspend {
		return d.tags[1]
	}
	return d.tags[0]
}

// keepCheckpoint puts into a job's tag how it saves its work.
func keepCheckpoint(spec *backends.Spec, a *arrival) error {
	if a.saves == (backends.Checkpoint{}) {
		return nil
	}
	tag, text, err := backends.ParseTag(spec.Description)
	if err != nil {
		return fmt.Errorf("read the tag of a job: %w", err)
	}
	tag.Checkpoint = a.saves
	spec.Description = tag.String() + text
	return nil
}

// startListing decides whether snapshots list a job that was just submitted.
func (d *driver) startListing(id backends.ID, j *metered, spec *backends.Spec) {
	switch {
	case d.listing == nil || j.listed:
	case spec.Priority != 0: // the filter's
		d.listing.list(id, j)
	default:
		d.listing.wait(id, j, j.account < len(d.calendar.projects), spec.Queue)
	}
}

func (d *driver) watch(at time.Time, e manager.Effect) {
	d.meter.watch(at, e)
	if s, ok := e.(manager.StartRun); ok && d.Starts != nil {
		d.Starts(d.policy, s.ID, at)
	}
	if _, ok := e.(manager.Finished); ok {
		d.ended++
		if d.Progress != nil {
			d.Progress(d.policy, d.meter.finished, d.jobs)
		}
	}
}

// engineView is the world as the engine sees it. It records, right before the first
// act of a reclaim, what its beneficiary lacks.
type engineView struct {
	*World
	d *driver
}

// Requeue implements backends.Backend.
func (e *engineView) Requeue(ctx context.Context, acts []backends.Act) backends.Errors {
	e.d.recordLack(acts)
	return e.World.Requeue(ctx, acts)
}

// Abilities implements backends.Backend. The meter learns which jobs are standby jobs.
func (e *engineView) Abilities() backends.Abilities {
	able := e.World.Abilities()
	place := able.Place
	able.Place = func(ctx context.Context, dummies []backends.Dummy) []backends.Submitted {
		e.d.meter.placing = true
		all := place(ctx, dummies)
		e.d.meter.placing = false
		for i := range all {
			if all[i].Err == nil && !e.d.meter.isStandby(all[i].ID) {
				e.d.meter.standbys[all[i].ID] = nil // it waits
				e.d.meter.listStandby(all[i].ID)
			}
		}
		return all
	}
	return able
}

// Suspend implements backends.Backend.
func (e *engineView) Suspend(ctx context.Context, acts []backends.Act) backends.Errors {
	e.d.recordLack(acts)
	return e.World.Suspend(ctx, acts)
}

func (d *driver) recordLack(acts []backends.Act) {
	for i := range d.ledger.Memory.Reclaims {
		r := &d.ledger.Memory.Reclaims[i]
		if len(acts) == 0 || r.Mark() != acts[0].Mark || d.meter.reclaims[r.ID] != nil {
			continue
		}
		seen := &reclaimed{beneficiary: r.Beneficiary, hosts: r.Hosts, planned: r.Planned, lacked: d.lacked(r)}
		d.meter.reclaims[r.ID] = seen
		if d.checker != nil {
			d.checker.lacked[r.ID] = seen.lacked
		}
		return
	}
}

// lacked returns the number of slots that a reclaim's beneficiary lacks. Free slots, and
// those that victims of earlier reclaims are about to release, count first for the
// beneficiaries of those reclaims; free ones that suffice for a job of a pool without a reclaim,
// for that one.
func (d *driver) lacked(r *plan.Reclaim) int {
	lacked := 0
	for _, p := range r.Hosts {
		free := d.free(p.Host)
		free -= d.assigned(free)
		for i := range d.ledger.Memory.Reclaims {
			earlier := &d.ledger.Memory.Reclaims[i]
			if earlier.ID >= r.ID || !earlier.Phase.Open() {
				continue
			}
			if b := d.meter.jobs[earlier.Beneficiary]; b == nil || b.state == backends.Running {
				continue
			}
			free -= backends.SlotsOn(earlier.Hosts, p.Host)
			for _, v := range earlier.Victims {
				if j := d.meter.jobs[v.ID]; j != nil && j.state == backends.Running && j.killed {
					free += backends.SlotsOn(j.hosts, p.Host)
				}
			}
		}
		lacked += min(p.Slots, max(0, p.Slots-free))
	}
	return lacked
}

// assigned returns how many of the free slots of a farm of one host suffice for jobs of pools
// that wait without a reclaim, as where a beneficiary reserves the host.
func (d *driver) assigned(free int) int {
	if len(d.Hosts) != 1 {
		return 0
	}
	m := &d.ledger.Memory
	waiting := map[backends.ID]int{}
	for id, of := range m.Jobs {
		if j := d.meter.jobs[id]; j != nil && j.state == backends.Pending && of.Pool != 0 && of.Kept == 0 {
			waiting[id] = j.slots
		}
	}
	for i := range m.Reclaims {
		if m.Reclaims[i].Phase.Open() {
			delete(waiting, m.Reclaims[i].Beneficiary)
		}
	}
	used := 0
	for _, id := range slices.SortedFunc(maps.Keys(waiting), backends.ID.Compare) {
		if used+waiting[id] <= free {
			used += waiting[id]
		}
	}
	return used
}

func (d *driver) free(host string) int {
	for i := range d.Hosts {
		if d.Hosts[i].Name == host {
			return d.Hosts[i].Slots - d.meter.busy[host]
		}
	}
	return 0
}
