package laws

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// law names a law of docs/design.md (Laws), of the caps (R22) or of dummy jobs (R28–R31).
type law int

const (
	lawCharge law = iota
	lawTrigger
	lawBeyond
	lawUse
	lawLook
	lawEarly
	lawHosts
	lawOrder
	lawSame
	lawStable
	lawReleased
	lawCapacity
	lawCaps
	lawMemory
	lawFlow
	lawStray
	lawGiveWay
	lawUnit
	lawOdd
	lawThrottle
	lawPlace
	lawForm
	lawAlone
	lawSpared
	lawUnits
	lawUseless
	lawShare
	lawStandby
	lawKey
	lawSaves
	lawLeast
	lawProtected
	lawTooWide
	lawResume
	crash // in no document: nothing panics
	laws
)

// restsOn names the law without which another one means nothing: where a farm broke that, this
// one is not judged.
var restsOn = map[law]law{
	lawUse:    lawCapacity, // hosts have what they say
	lawBeyond: lawCharge,
	lawStable: lawPlace,
	lawLeast:  lawKey,
}

// share is an event that enough farms must have seen for the laws to mean much.
type share int

const (
	reclaimed share = iota
	suspended
	capped
	refused
	crossed // a pool's shrinking below what it held
	gathered
	lightened
	heavyPBA
	heavyPreempted
	gaveWay
	tried
	limited
	hurried
	metNeeds
	metSuits
	metAlone
	metForm
	metEven
	metThrottle
	metOdd
	metOutage
	metAway
	waited
	keptFree
	keptByPreempting
	tookKept
	metSaved
	metSaveFailed
	metFinished
	compared
	protectedOnes
	metTooWide
	metWideForADay
	metWideNoMore
	metResume
	shares
)

func (s share) String() string {
	return [...]string{
		"reclaimed", "suspended", "hit a cap", "refused all or nothing", "crossed a pool's shrinking",
		"gathered dummies", "assigned a dummy's place to a light job", "charged a heavy job", "preempted a heavy job", "had gathering give way",
		"preempted for a job that the queue had considered",
		"charged a job on a host set",
		"preempted before the site's threshold",
		"preempted for a job that needs a resource", "preempted for a job that some hosts suit", "emptied a host for a job", "preempted for a job of some form", "preempted for a job with as many slots on each host",
		"let elements of an array with a limit hold room", "had a job that is not understood", "had a host go while a reclaim was open", "opened a reclaim while a host was away",
		"renewed the hold of a job that can't be preempted",
		"kept slots free", "preempted a job for a slot that is kept free", "had a standby job end for a job",
		"had a victim save itself", "had a victim fail to save itself", "had a victim that only had to end",
		"preempted the best of several sets", "preempted while a job had lost too much already",
		"held a job as too wide", "released one a day after the last job of a pool", "released one for another reason",
		"preempted for a job that waits to be resumed",
	}[s]
}

// outcome is the result of one farm.
type outcome struct {
	broken [laws]string // the first breach of each law; "": none
	met    [shares]bool
}

// drive runs one farm.
type drive struct {
	farm
	outcome

	world     *simulate.World
	ctx       context.Context
	groups    map[string][]string
	ledger    pba.MemoryLedger
	engine    pba.Engine
	at        int           // the cycle that runs
	ids       []backends.ID // by index of Jobs; zero: not submitted
	events    []happening
	usage     *usage
	preempted bool                    // the last plan's acts preempted jobs
	leftOut   bool                    // one of its acts that would have preempted a job was left out
	pinned    map[backends.ID]pinning // of a queue that says when it considers jobs
	pools     map[int64]int64         // by reclaim: the pool of its beneficiary
	raised    map[backends.ID]bool    // by their owners since the last cycle
	odd       map[backends.ID]bool    // jobs that are not understood
	shaken    bool                    // hosts came or went since the last cycle
	condemned map[int64]bool          // reclaims that broke a law as they were planned
	claims    map[string]time.Time    // by host: the last start of a job that had a priority of its owner's, or strayed
	strayed   bool                    // a job of a pool started on hosts that are not the pool's
	shook     time.Time               // when hosts came or went last
	orphans   map[backends.ID]bool    // dummies whose jobs were gone in the last cycle
	queue     []backends.Job          // pending jobs in the queue's order after the last cycle
	asked     map[runOf]bool          // to save themselves
	wide      wideBooks               // what makes jobs too wide
	story     *strings.Builder        // nil: none is written
}

// happening is an act of a user.
type happening struct {
	at   time.Time
	job  int
	what func(d *drive, job int)
}

func run(f farm) outcome { return runStory(f, nil) }

// runStory runs a farm and writes what its engine planned into the story.
func runStory(f farm, story *strings.Builder) (out outcome) {
	d := newDrive(f)
	d.story = story
	u := d.usage
	defer func() {
		out = d.outcome
		if why := recover(); why != nil {
			out.broken[crash] = fmt.Sprintf("%v after the start: %v\n%s", d.world.Now().Sub(start()), why, debug.Stack())
		}
		for l, on := range restsOn {
			if out.broken[on] != "" {
				out.broken[l] = ""
			}
		}
	}()
	d.schedule()
	for c := range f.Missed {
		d.advance(start().Add(time.Duration(c+1) * cycle))
		if !f.Missed[c] {
			d.cycle(c)
		}
	}
	d.finish()
	if u.broken != "" {
		d.breach(lawCapacity, "%s", u.broken)
	}
	if u.overHas != "" {
		d.breach(lawUnits, "%s", u.overHas)
	}
	if u.overfull != "" {
		d.breach(lawMemory, "%s", u.overfull)
	}
	return out
}

// breach records that a law is broken; only the first breach of a law is kept.
func (d *drive) breach(l law, format string, args ...any) {
	if d.broken[l] == "" {
		at := d.world.Now().Sub(start())
		d.broken[l] = fmt.Sprintf("%v after the start: ", at) + fmt.Sprintf(format, args...)
	}
}

func (d *drive) schedule() {
	add := func(at, job int, what func(*drive, int)) {
		d.events = append(d.events, happening{start().Add(seconds(at)), job, what})
	}
	for i, j := range d.Jobs {
		add(j.At, i, (*drive).submit)
		if j.Killed > 0 {
			add(j.At+j.Killed, i, func(d *drive, i int) { d.world.Kill(d.ctx, d.ids[i:i+1]) })
		}
		owner := func(d *drive) *simulate.Client { return d.world.As(manager.By{User: userName(j.User)}) }
		if j.Raised > 0 {
			add(j.At+j.Raised, i, func(d *drive, i int) {
				d.raised[d.ids[i]] = true
				d.world.As(manager.By{User: userName(j.User), Admin: true}).SetPriority(d.ctx, []backends.PriorityChange{{ID: d.ids[i], Priority: d.Jobs[i].Claim}})
			})
		}
		if j.Stopped > 0 {
			add(j.At+j.Stopped, i, func(d *drive, i int) { owner(d).Suspend(d.ctx, []backends.Act{{ID: d.ids[i]}}) })
			add(j.At+j.Stopped+100, i, func(d *drive, i int) { owner(d).Resume(d.ctx, d.ids[i:i+1]) })
		}
		if j.Hold {
			add(j.At+90, i, func(d *drive, i int) { d.world.Release(d.ctx, d.ids[i:i+1]) })
		}
	}
	d.scheduleOutages()
	slices.SortStableFunc(d.events, func(a, b happening) int { return a.at.Compare(b.at) })
}

func (d *drive) submit(i int) {
	j := &d.Jobs[i]
	work := simulate.Work{Takes: seconds(j.Takes), KillDelay: seconds(j.KillDelay), Save: seconds(j.SaveTakes), Every: seconds(j.Every)}
	spec := j.spec()
	d.held(&spec, d.world.Now())
	d.heldFixed(&spec, j)
	by := manager.By{User: userName(j.User)}
	if j.Claimed { // miniq allows it to administrators only, LSF to the job's owner
		spec.Priority, by.Admin = j.Claim, true
	}
	id, err := d.world.SubmitWork(by, spec, work)
	if err != nil {
		panic(fmt.Sprintf("submit job %d: %v\n%v", i+1, err, d.farm))
	}
	d.ids[i] = id
	for k := range j.Array {
		d.odd[backends.ID{Job: id.Job, Index: k + 1}] = j.Odd
	}
	d.odd[id] = j.Odd
}

// advance moves the clock to a time, and does what users do until then.
func (d *drive) advance(to time.Time) {
	for len(d.events) > 0 && !d.events[0].at.After(to) {
		e := d.events[0]
		d.events = d.events[1:]
		d.world.Advance(e.at)
		e.what(d, e.job)
	}
	d.world.Advance(to)
}

func (d *drive) snapshot() *backends.Snapshot {
	farm, err := d.engine.Backend.Snapshot(d.ctx, d.ledger.Memory.EndedSince)
	if err != nil {
		panic(err)
	}
	return farm
}

// cycle is one run of the engine, judged.
func (d *drive) cycle(c int) {
	d.recordShrinking(c)
	first := d.once(c)
	if !d.Again[c] {
		return
	}
	enough := 5
	if d.Heavy {
		enough += 4 * len(d.Jobs) // they gather and start one after the other
	}
	putOff := slices.ContainsFunc(first.Skipped, func(s plan.Skipped) bool { return strings.Contains(s.Reason, "max_victims") })
	partly := d.leftOut // a beneficiary had started, or other slots came free: the next plan sees another farm
	for n := 1; ; n++ {
		d.world.Advance(d.world.Now())
		next := d.once(c)
		if d.strayed {
			enough++ // its room in the pool is the next job's, which may start elsewhere, too
		}
		if d.preempted && !putOff && !partly && !d.Heavy && !d.strayed && !d.atOnce(next) { // a heavy job starts by two plans: other jobs start and end in between
			d.breach(lawStable, "plan %d at the same instant preempts again: %+v", n+1, next.Actions)
		}
		partly = partly || d.leftOut || entersAgain(next)
		switch {
		case len(next.Actions) == 0:
			return
		case n == enough:
			if !putOff {
				d.breach(lawStable, "plan %d at the same instant still acts: %+v", n+1, next.Actions)
			}
			return
		}
	}
}

// entersAgain reports whether a plan gives a job that was preempted at its instant a place in a
// pool: it may start where another job could be served then.
func entersAgain(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool {
		return a.Verb == plan.Rank && a.Reclaim == 0 && slices.ContainsFunc(p.Memory.Reclaims, func(r plan.Reclaim) bool {
			return r.Planned.Equal(p.At) && slices.ContainsFunc(r.Victims, func(v plan.Victim) bool { return v.ID == a.Job })
		})
	})
}

// once runs the engine's cycle and judges what it planned and did.
func (d *drive) once(c int) *plan.Plan {
	d.at = c
	r, err := d.engine.Cycle(d.ctx, d.world.Now)
	if err != nil || r.Note != "" {
		panic(fmt.Sprintf("cycle %d: %v; %s", c, err, r.Note))
	}
	d.write(&r)
	if !d.special() {
		d.judgeStarts(r.State.Farm)
		d.findClaims(r.State.Farm)
		d.findStrays(&r.State, &r.Rules.Policy)
	}
	g := newJudge(d, &r.State, &r.Rules.Policy, &r.Plan)
	switch {
	case d.Heavy:
		g.lawSame()
		d.judgeHeavy(r.State.Farm, &r.Plan)
	case d.Fixed:
		g.lawSame()
		d.judgeFixed(r.State.Farm, &r.Plan)
	case d.Standby != nil:
		g.lawSame()
		d.judgeStandby(&r.State, &r.Rules.Policy, &r.Plan)
	case d.Wide:
		g.lawSame()
	default:
		g.plan(c)
		d.lawUseless(&r.State, &r.Plan)
		if d.Forms && c%2 == 0 {
			d.judgeForms(&r.State, &r.Rules.Policy, r.Plan.At)
		}
	}
	d.met[capped] = d.met[capped] || skipped(&r.Plan, "max_victims")
	d.met[refused] = d.met[refused] || skipped(&r.Plan, "can't be met in full")
	d.preempted, d.leftOut = false, false
	for _, o := range r.Outcomes {
		verb := r.Plan.Actions[o.Action].Verb
		if verb != plan.Requeue && verb != plan.Suspend {
			continue
		}
		d.leftOut = d.leftOut || o.Result == ledger.LeftOut
		if o.Result == ledger.Done {
			d.met[reclaimed], d.preempted = true, true
			d.met[suspended] = d.met[suspended] || verb == plan.Suspend
		}
	}
	if !d.special() || d.Wide {
		d.countLost(&r)
		after := d.snapshot()
		d.lawTooWide(&r, after)
		if !d.Wide {
			d.judgeQueue(&r.Plan, after)
			d.lawSaves(&r, after)
		}
	}
	return &r.Plan
}

// special reports whether a farm has laws of its own.
func (f *farm) special() bool { return f.Heavy || f.Fixed || f.Standby != nil || f.Wide }

// write puts a cycle into the story: the queue as it was, and what was done.
func (d *drive) write(r *pba.Result) {
	if d.story == nil {
		return
	}
	fmt.Fprintf(d.story, "%v:", sinceStart(r.State.Farm.At))
	for i := range r.State.Farm.Jobs {
		j := &r.State.Farm.Jobs[i]
		m := r.Plan.Memory.Jobs[j.ID]
		state := j.State.String()
		if j.Resuming {
			state = "resuming"
		}
		fmt.Fprintf(d.story, " %v(%s %d", j.ID, state, j.Priority)
		if m.Pool != 0 {
			fmt.Fprintf(d.story, " pool %d kept %d clock %v", m.Pool, m.Kept, m.Clock)
		}
		for _, p := range j.Hosts {
			fmt.Fprintf(d.story, " %s:%d", p.Host, p.Slots)
		}
		if !j.HeldUntil.IsZero() {
			fmt.Fprintf(d.story, " until %v", sinceStart(j.HeldUntil))
		}
		d.story.WriteString(")")
	}
	for _, o := range r.Outcomes {
		a := r.Plan.Actions[o.Action]
		fmt.Fprintf(d.story, "\n    %s job %v for %v reclaim %d %v %d: %s %s; %s", a.Verb, a.Job, a.For, a.Reclaim, a.Hosts, a.Priority, o.Result, o.Error, a.Reason)
	}
	for _, s := range r.Plan.Skipped {
		fmt.Fprintf(d.story, "\n    not job %v: %s", s.Job, s.Reason)
	}
	d.story.WriteString("\n")
}

func skipped(p *plan.Plan, reason string) bool {
	return slices.ContainsFunc(p.Skipped, func(s plan.Skipped) bool { return strings.Contains(s.Reason, reason) })
}

// recordShrinking records that a pool falls below what is charged to it.
func (d *drive) recordShrinking(c int) {
	if c == 0 || d.met[crossed] || !slices.ContainsFunc(d.Shrinks, func(s shrinkCase) bool { return s.Cycle == c }) {
		return
	}
	held := map[int64]int{}
	farm := d.snapshot()
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if m := d.ledger.Memory.Jobs[j.ID]; m.Pool != 0 && m.Kept == 0 {
			held[m.Pool] += j.Slots
		}
	}
	before, after := d.policy(c-1), d.policy(c)
	for _, a := range before.Allocations {
		guarantee := 0
		for _, b := range after.Allocations {
			if a.ID == b.ID {
				guarantee = b.Guarantee
			}
		}
		if guarantee < a.Guarantee && held[a.ID] > guarantee {
			d.met[crossed] = true
		}
	}
}

// finish runs the farm until nothing happens any more, with the engine or without
// it, and checks that nothing is left behind (lawReleased). After a while an engine
// that is alive runs only when something happens, which saves most of the cycles.
func (d *drive) finish() {
	const (
		limit  = 20000 // a job that was too wide may run for a pool, and keep others waiting for one more day
		steady = 15
	)
	last := len(d.Missed) - 1
	if d.EngineDies {
		d.heldTooLong(d.snapshot())
		d.usage.apart, d.usage.alone = false, d.Heavy // memory is not managed any more
	}
	for n := range limit {
		at, ok := d.world.Next()
		if len(d.events) > 0 && (!ok || d.events[0].at.Before(at)) {
			at, ok = d.events[0].at, true
		}
		if !ok {
			break
		}
		if d.EngineDies {
			d.advance(at)
			continue
		}
		switch now := d.world.Now(); {
		case n < steady || d.special() && !d.idle() || at.Sub(now) < cycle: // holds of jobs that wait are renewed
			at = now.Add(cycle)
		case d.Wide:
			at = d.renewWide(at)
		}
		d.advance(at)
		d.once(last)
	}
	if !d.EngineDies {
		for range 3 { // the last reclaims are closed, and their jobs forgotten
			d.advance(d.world.Now().Add(cycle))
			d.once(last)
		}
	}
	d.checkLeftovers(d.snapshot())
	if d.Heavy {
		d.checkHeavyLeftovers(d.snapshot())
	}
}
