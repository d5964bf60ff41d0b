package dummy

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Input is what Plan decides from.
type Input struct {
	Farm         *backends.Snapshot
	Able         backends.ForEngine     // its booleans, and which functions are there
	Memory       Memory                 // as the previous cycle left it
	ReclaimHosts map[backends.ID]string // beneficiaries of open reclaims, and the host that each will run on
	Barred       map[backends.ID]bool   // victims that an open reclaim keeps from starting

	// OfPool reports whether a host is one of the pool that a job holds room in, or the job
	// holds none. nil: pools are not limited to hosts.
	OfPool func(id backends.ID, host string) bool
}

// Verb is what a step does.
type Verb string

// The verbs, which are also those of an action of a plan.
const (
	Place   Verb = "place"   // Count dummy jobs for Job on Host
	Drop    Verb = "drop"    // Dummies of Job
	Rank    Verb = "rank"    // Job
	Pin     Verb = "pin"     // Job to Host
	Hold    Verb = "hold"    // Job until Until
	Release Verb = "release" // Job
)

// Step is one thing to do, and why.
type Step struct {
	Do       Verb
	Job      backends.ID // heavy or light; of a Rank: a dummy job, too
	For      backends.ID // of what is done to a light job: whose dummy's place it has
	Host     string
	Count    int
	Dummies  []backends.ID
	Priority backends.Priority
	Until    time.Time
	Reason   string
}

// Result is what Plan decided: the rest of the cycle is planned with it, then Finish
// returns what to do.
type Result struct {
	// Farm is the snapshot as the allocation's rules see it: no dummy jobs; a heavy job
	// is one job with the slots of its dummies, and waits for slots while it gathers.
	Farm   *backends.Snapshot
	Units  []*Unit                     // heavy jobs, in mode reserve in the order in which they gather
	Lights map[backends.ID]backends.ID // running light jobs in a dummy's place, and the heavy job that it is a dummy of

	byJob   map[backends.ID]*Unit
	steps   Steps    // so far; see Finish
	planner *planner // nil: there is nothing to decide
}

// Steps are what is to be done about dummy jobs in a cycle, and what is to be remembered.
type Steps struct {
	First  []Step // before everything else in the cycle
	Last   []Step // after everything else
	Memory Memory
}

// Stage is how far a unit is.
type Stage uint8

// The stages.
const (
	Waits   Stage = iota // does not gather now: Unit.Why
	Gathers              // waits for its dummies
	Ready                // they are there, it may start
	Runs
)

// Unit is a heavy job with its dummies.
type Unit struct {
	Job     backends.ID
	Stage   Stage
	Host    string        // where it runs or gathers; "": nowhere
	Own     int           // slots of the job itself
	Slots   int           // its own and those of its dummies, once complete
	Dummies []backends.ID // that hold a slot there
	Coming  []backends.ID // that wait for one there
	All     []backends.ID // both, before this plan
	Normal  bool          // it gathers as a normal job
	Why     string

	job       *backends.Job
	need      int64 // bytes
	least     int   // of a pending one: Slots where it needs fewest
	elsewhere []backends.ID
	expiring  int   // of Dummies: their run limit ends them soon
	lights    int   // that have, or are about to have, a place here
	light     int64 // bytes that they need
}

// Unit returns the unit of a heavy job, nil for every other job.
func (r *Result) Unit(id backends.ID) *Unit { return r.byJob[id] }

// Holds reports whether a job is kept from starting until its dummies are in place: no
// other rule may release it.
func (r *Result) Holds(id backends.ID) bool {
	u := r.byJob[id]
	return u != nil && (u.Stage == Gathers || u.Stage == Waits)
}

// top is the highest value of a level.
const top = 999

// Priorities of dummy jobs. Those that a running heavy job lacks go before all jobs: its
// memory is in use. Those of a job that gathers have the level at which it will start.
var (
	urgent     = backends.At(backends.LevelHandOver, top)
	gathersPBA = backends.At(backends.LevelPBA, top)
	gathers    = backends.At(backends.LevelPlaceholder, top)
)

// host is a managed host that is up.
type host struct {
	backends.Host
	free  int // slots that no job has
	units int // slots of heavy jobs with their dummies that run there
	stuck int // slots' worth of memory that suspended jobs hold
	// gathering: a job gathers there. Others may only if they find all that they need free:
	// else they would keep each other waiting for ever.
	gathering bool
	wanted    int // slots that the jobs that gather there lack
}

// planner holds the working state of one call of Plan.
type planner struct {
	in     Input
	policy Policy
	now    time.Time

	hosts      []*host
	byName     map[string]*host
	slots      int
	queues     map[string]bool
	leastShare int64

	dummies map[backends.ID][]*backends.Job
	heavy   []*Unit
	light   []*backends.Job // pending ones that may have a dummy's place
	waiting []*backends.Job // of them, those that have none yet
	r       *Result
}

// Plan decides which dummy jobs should exist. It is pure, and changes nothing that it
// is given.
func Plan(in Input, policy Policy, now time.Time) *Result {
	r := &Result{Farm: in.Farm, steps: Steps{Memory: in.Memory}, byJob: map[backends.ID]*Unit{}, Lights: map[backends.ID]backends.ID{}}
	if in.Able.Place == nil || in.Able.ManagesMemory {
		policy.Mode = Off
	}
	if policy.Mode == Off && !in.Memory.Placed && len(in.Memory.Gathers) == 0 {
		return r
	}
	if policy.Mode == Reserve && (in.Able.Pin == nil || in.Able.HoldUntil == nil) {
		policy.Mode = Surround
	}
	p := &planner{in: in, policy: policy, now: now, byName: map[string]*host{}, dummies: map[backends.ID][]*backends.Job{}, r: r}
	r.planner = p
	p.readHosts()
	p.readJobs()
	r.steps.Memory = Memory{Gathers: map[backends.ID]Gather{}, Lights: map[backends.ID]Light{}, Placed: len(p.dummies) > 0}
	p.clean()
	p.surround()
	if policy.Mode == Reserve {
		p.gather()
	}
	p.releaseHeld()
	p.readLights()
	p.fold()
	for _, s := range r.steps.Last {
		r.steps.Memory.Placed = r.steps.Memory.Placed || s.Do == Place
	}
	return r
}

func (p *planner) readHosts() {
	p.queues = map[string]bool{}
	for _, name := range p.policy.Queues {
		p.queues[name] = true
	}
	hosts, _, _ := p.in.Farm.Managed(p.policy.Hosts)
	for _, h := range hosts {
		if h.Slots <= 0 || h.Memory <= 0 {
			continue
		}
		mine := &host{Host: h, free: h.Slots}
		p.hosts = append(p.hosts, mine)
		p.byName[h.Name] = mine
		p.slots += h.Slots
		if share := h.Memory / int64(h.Slots); p.leastShare == 0 || share < p.leastShare {
			p.leastShare = share
		}
	}
}

// worth returns how many slots' worth of a host's memory a need is, rounded up; one more
// than the host has if it exceeds them.
func (h *host) worth(need int64) int {
	high, low := bits.Mul64(uint64(max(need, 0)), uint64(h.Slots))
	if high >= uint64(h.Memory) {
		return h.Slots + 1
	}
	n, rest := bits.Div64(high, low, uint64(h.Memory))
	if rest > 0 {
		n++
	}
	return int(min(n, uint64(h.Slots)+1))
}

// needs returns the bytes that a job needs: what it asks for, what its tag says, or what
// the site says of such jobs, whichever is most.
func (p *planner) needs(j *backends.Job) int64 {
	need := j.Memory
	if tag, _, err := backends.ParseTag(j.Tag); err == nil {
		need = max(need, tag.Memory)
	}
	for _, r := range p.policy.Rules {
		if (r.Project == "" || r.Project == j.Project) && (r.Step == "" || r.Step == j.Step) && (r.Queue == "" || r.Queue == j.Queue) {
			need = max(need, r.Memory)
		}
	}
	return need
}

func (p *planner) readJobs() {
	for i := range p.in.Farm.Jobs {
		j := &p.in.Farm.Jobs[i]
		if j.State.Ended() {
			continue
		}
		if j.IsStandby() {
			p.occupy(j, 0)
			continue
		}
		if j.IsDummy() {
			p.dummies[j.DummyFor] = append(p.dummies[j.DummyFor], j)
			p.occupy(j, 0)
			continue
		}
		need := p.needs(j)
		p.occupy(j, need)
		u := p.unitOf(j, need)
		if u != nil {
			p.heavy = append(p.heavy, u)
			p.r.byJob[j.ID] = u
			continue
		}
		if _, was := p.in.Memory.Lights[j.ID]; was || j.State == backends.Pending && p.couldBeLight(j, need) {
			p.light = append(p.light, j)
		}
	}
	for _, u := range p.heavy {
		p.countDummies(u)
	}
}

// occupy subtracts a job's slots from its hosts' free ones. Of a suspended job whose
// slots the queue frees, it counts the memory instead.
func (p *planner) occupy(j *backends.Job, need int64) {
	suspended := j.State == backends.Suspended
	if j.State != backends.Running && !suspended {
		return
	}
	for _, at := range j.Hosts {
		h := p.byName[at.Host]
		switch {
		case h == nil:
		case suspended && p.in.Able.SuspendFrees:
			h.stuck += max(h.worth(need/int64(max(len(j.Hosts), 1))), 0)
		default:
			h.free -= at.Slots
		}
	}
}

// unitOf returns the unit of a heavy job (R28), nil for every other job. A job that
// spans hosts is not heavy: it does not have all of its memory on one of them.
func (p *planner) unitOf(j *backends.Job, need int64) *Unit {
	if need <= p.leastShare*int64(max(j.Slots, 1)) || j.Exclusive || len(j.Hosts) > 1 {
		return nil
	}
	u := &Unit{Job: j.ID, Own: max(j.Slots, 1), job: j, need: need, Normal: j.Priority.Level() < backends.LevelPBA}
	switch j.State {
	case backends.Running, backends.Suspended:
		if len(j.Hosts) != 1 || p.byName[j.Hosts[0].Host] == nil {
			return nil
		}
		h := p.byName[j.Hosts[0].Host]
		u.Slots = min(max(h.worth(need), u.Own), h.Slots)
		if u.Slots <= u.Own {
			return nil
		}
		u.Host = h.Name
		if j.State == backends.Running {
			u.Stage = Runs
			h.units += u.Slots
		} else {
			u.Why = "it is suspended"
		}
		return u
	case backends.Pending, backends.Held:
		if len(p.queues) > 0 && !p.queues[j.Queue] {
			return nil
		}
		allowed := p.allowed(u)
		if !slices.ContainsFunc(allowed, func(h *host) bool { return h.worth(need) > u.Own }) {
			return nil
		}
		for _, h := range p.suitable(u) {
			if n := h.slotsFor(u); u.least == 0 || n < u.least {
				u.least = n
			}
		}
		u.least = max(u.least, u.Own)
		u.Slots = u.least
		return u
	case backends.Done, backends.Exited:
	}
	return nil
}

// allowed returns the hosts that a pending job may start on.
func (p *planner) allowed(u *Unit) []*host {
	if len(u.job.Asked) == 0 && u.job.Suits == nil {
		return p.hosts
	}
	names := u.job.Asked
	if len(names) == 0 {
		names = u.job.Suits.Hosts
	}
	var hosts []*host
	for _, name := range names {
		if h := p.byName[name]; h != nil && u.job.Suits.Contains(name) && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// suitable returns those of them that it fits on if they are empty.
func (p *planner) suitable(u *Unit) []*host {
	return slices.DeleteFunc(slices.Clone(p.allowed(u)), func(h *host) bool { return h.slotsFor(u) > h.Slots })
}

// slotsFor returns how many slots a unit needs on a host.
func (h *host) slotsFor(u *Unit) int { return max(h.worth(u.need), u.Own) }

// countDummies sorts a unit's dummies by their state and place.
func (p *planner) countDummies(u *Unit) {
	if u.Stage != Runs {
		u.Host = p.gatheringHost(u)
	}
	for _, d := range p.dummies[u.Job] {
		at := ""
		switch {
		case len(d.Hosts) > 0:
			at = d.Hosts[0].Host
		case len(d.Pinned) > 0:
			at = d.Pinned[0]
		case len(d.Asked) > 0:
			at = d.Asked[0]
		}
		switch {
		case d.Ending:
		case at != u.Host || d.State == backends.Suspended:
			u.elsewhere = append(u.elsewhere, d.ID)
		case d.State != backends.Running:
			u.Coming = append(u.Coming, d.ID)
		default:
			if p.expires(d) {
				u.expiring++
				u.Dummies = append([]backends.ID{d.ID}, u.Dummies...)
			} else {
				u.Dummies = append(u.Dummies, d.ID)
			}
		}
	}
	u.All = slices.Concat(u.Coming, u.Dummies)
}

// gatheringHost returns where a pending heavy job's dummies are to be: on its open
// reclaim's host, else on the one that is remembered, if that is up; else "".
func (p *planner) gatheringHost(u *Unit) string {
	if at := p.in.ReclaimHosts[u.Job]; at != "" {
		return at
	}
	if g, ok := p.in.Memory.Gathers[u.Job]; ok && p.byName[g.Host] != nil {
		return g.Host
	}
	return ""
}

// expires reports whether a dummy job's run limit ends it before the next cycles could
// replace it.
func (p *planner) expires(d *backends.Job) bool {
	if d.RunLimit <= 0 || d.Started.IsZero() {
		return false
	}
	return d.Started.Add(d.RunLimit).Sub(p.now) < max(2*p.policy.Cycle, p.policy.Limit/10)
}

func (p *planner) addFirst(s Step) { p.r.steps.First = append(p.r.steps.First, s) }
func (p *planner) addLast(s Step)  { p.r.steps.Last = append(p.r.steps.Last, s) }

func (p *planner) drop(job backends.ID, dummies []backends.ID, why string) {
	if len(dummies) > 0 {
		p.addFirst(Step{Do: Drop, Job: job, Dummies: dummies, Reason: why})
	}
}

// clean ends dummies that are not needed (R31).
func (p *planner) clean() {
	owners := slices.SortedFunc(maps.Keys(p.dummies), backends.ID.Compare)
	for _, id := range owners {
		u := p.r.byJob[id]
		if u != nil && p.policy.Mode != Off {
			p.drop(id, u.elsewhere, "its dummies belong on "+orNowhere(u.Host))
			continue
		}
		var all []backends.ID
		for _, d := range p.dummies[id] {
			if !d.Ending {
				all = append(all, d.ID)
			}
		}
		why := "it ended, or needs no dummies any more"
		if p.policy.Mode == Off {
			why = "dummy jobs are switched off"
		}
		p.drop(id, all, why)
		if u != nil {
			u.Dummies, u.Coming, u.expiring = nil, nil, 0
		}
	}
}

// dropAll ends all dummies of a unit.
func (p *planner) dropAll(u *Unit, why string) {
	p.drop(u.Job, slices.Concat(u.Coming, u.Dummies), why)
	u.Dummies, u.Coming, u.expiring = nil, nil, 0
}

func orNowhere(host string) string {
	if host == "" {
		return "no host now"
	}
	return host
}

// surround places the dummies that running heavy jobs lack, and ends those beyond need.
func (p *planner) surround() {
	for _, u := range p.heavy {
		switch {
		case p.policy.Mode == Off:
		case u.Stage == Runs && (u.job.Ending || p.in.Barred[u.Job]): // it gets no more dummies
		case u.Stage == Runs:
			p.complete(u, u.Slots-u.Own, urgent, "it runs and has "+slotCount(u.Slots-u.Own)+" worth of memory beyond its own")
		case u.job.State == backends.Suspended:
			p.dropAll(u, "it is suspended")
		}
	}
}

// complete brings the number of a unit's dummies, the coming ones included, to want.
func (p *planner) complete(u *Unit, want int, rank backends.Priority, why string) {
	have := len(u.Dummies) - u.expiring + len(u.Coming)
	if have < want {
		p.addLast(Step{Do: Place, Job: u.Job, Host: u.Host, Count: want - have, Priority: rank, Reason: why})
	}
	if much := have - want; much > 0 {
		p.dropSome(u, much, "it has more dummies than it needs")
	}
	for _, id := range u.Coming {
		if d := p.dummy(u, id); d != nil && d.Priority != rank {
			p.addLast(Step{Do: Rank, Job: id, Priority: rank, Reason: "dummy of " + u.Job.String()})
		}
	}
}

func (p *planner) dummy(u *Unit, id backends.ID) *backends.Job {
	for _, d := range p.dummies[u.Job] {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// dropSome ends some dummies of a unit, first those that have no slot yet.
func (p *planner) dropSome(u *Unit, much int, why string) {
	var out []backends.ID
	for ; much > 0 && len(u.Coming) > 0; much-- {
		out = append(out, u.Coming[len(u.Coming)-1])
		u.Coming = u.Coming[:len(u.Coming)-1]
	}
	for ; much > 0 && len(u.Dummies) > u.expiring; much-- {
		out = append(out, u.Dummies[len(u.Dummies)-1])
		u.Dummies = u.Dummies[:len(u.Dummies)-1]
	}
	if len(out) > 0 {
		p.addLast(Step{Do: Drop, Job: u.Job, Dummies: out, Reason: why})
	}
}

func slotCount(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}
