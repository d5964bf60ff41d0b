// Package supervise decides which jobs of a host are limited, so that others have what they were promised:
// R47. It is pure: what is known of a host and the policy go in, limits with their reasons come out. It
// knows no clock, file or connection, and the same view gives the same limits.
//
// A limit is a lease: what applies it lifts it when the next decision does not have it, or when no
// decision comes. Jobs that no queue knows, and all else on the host, are never limited; what they use
// is not there for others.
package supervise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Resource is what a job uses so much of in each second.
type Resource int

// The resources.
const (
	CPU     Resource = iota // milli-cores
	Disk                    // bytes read and written
	Network                 // bytes sent
	resources
)

func (r Resource) String() string { return [...]string{"CPU", "disk", "network", "memory"}[r] }

// Resources returns all of them.
func Resources() []Resource { return []Resource{CPU, Disk, Network} }

// Amounts are amounts of the resources, in each second.
type Amounts [resources]int64

// Rung is a kind of limit. A higher rung does more harm.
type Rung int

// The rungs.
const (
	Weight Rung = iota + 1 // Limit.Value is the job's weight, in percent of the one that it has without
	Rate                   // Limit.Value is the amount that it has at most
	Duty                   // it is frozen for a part of each period: Limit.Value is the part in which it runs, in thousandths
	Freeze                 // it is frozen
)

func (r Rung) String() string { return [...]string{"", "weight", "rate", "duty", "freeze"}[r] }

// Works are the kinds of limits that take effect on a job, of each resource and of Memory.
type Works map[Resource][]Rung

// ladder returns the rungs that limit resources, mildest first.
func ladder() []Rung { return []Rung{Weight, Rate, Duty} }

// Memory stands for memory where a Limit has a Resource.
const Memory Resource = resources

// Host is what is known of a host.
type Host struct {
	Name     string
	Capacity Amounts // 0: not known: what is used now is what there is
	Others   Amounts // what all that is no job uses
	Memory   MemoryOf
	Jobs     []Job
	Limits   []Limit // in force
}

// MemoryOf is a host's memory.
type MemoryOf struct {
	Total, Available int64   // bytes
	Fell             int64   // by how much Available fell in the last interval
	Stalled          float64 // part of the last interval in which all tasks waited for memory, 0 to 1
}

// Job is a job on a host.
type Job struct {
	Name    string // unique on the host
	Slots   int
	Foreign bool    // no queue knows it: it is never touched
	Held    bool    // its queue has suspended it
	Minimum Amounts // what it was promised; 0: nothing
	Uses    Amounts
	Waits   [resources]float64 // part of the last interval in which some of its tasks waited, 0 to 1
	Works   Works

	Deadline time.Time // by which it should have ended; zero: it has none
	Most     Amounts   // what it may have as its own because of its deadline
	Done     float64   // the part of its work that is done, by its own word, 0 to 1
	Speed    float64   // the part that it does in a second, lately; 0: not known
	Had      Amounts   // what it used in each second while it had that speed

	Requested, Used int64 // bytes of memory; Requested 0: it asked for nothing, and is within it
	Requeues        bool  // it may be requeued, by its own choice
	Saving          bool  // it is to save itself before it is requeued
	Protected       bool  // it is not to be requeued or killed
}

// over is what it uses of memory beyond its request.
func (j *Job) over() int64 {
	if j.Requested == 0 {
		return 0
	}
	return max(0, j.Used-j.Requested)
}

// works reports whether a kind of limit takes effect on it.
func (j *Job) works(r Resource, rung Rung) bool { return slices.Contains(j.Works[r], rung) }

// hardest returns the hardest rung that takes effect on it and is no harder than this one; 0: there is none.
func (j *Job) hardest(r Resource, most Rung) (hardest Rung) {
	for _, rung := range ladder() {
		if rung <= most && j.works(r, rung) {
			hardest = rung
		}
	}
	return hardest
}

// Limit is one limit of a job.
type Limit struct {
	Job      string
	Resource Resource // or Memory
	Rung     Rung
	Value    int64
	For      string    // the job that needs it; "": the host
	Hastens  int64     // what that job has as its own because of its deadline; 0: the limit is for its promise
	Since    time.Time // from when on the limit was never looser
	Reason   string
}

// Verb is what is done to a job for good.
type Verb string

// The verbs.
const (
	Requeue Verb = "requeue"
	Kill    Verb = "kill"
)

// Act ends a job's run.
type Act struct {
	Job    string
	Verb   Verb
	Reason string
}

// Shortage is a promise that is not kept, though all that works there was done.
type Shortage struct {
	Job      string
	Resource Resource
	Reason   string
}

// Decision is what is to be done on a host. Limits are all that are in force from now on.
type Decision struct {
	Limits    []Limit
	Acts      []Act
	Shortages []Shortage
}

// Policy is how it is decided.
type Policy struct {
	Paused   bool          // nothing is limited
	Waiting  float64       // part of the time from which on a job counts as waiting
	Kept     float64       // part of a minimum that counts as the minimum
	Patience time.Duration // after which the next rung is tried
	Floor    float64       // part of what there is that each job keeps, whatever others were promised
	Stalled  float64       // part of the time from which on a host counts as thrashing, while it lacks memory
	Spare    float64       // part of a host's memory that is available unless it lacks memory
	Low      float64       // the part from which on it is about to thrash
	Kills    bool          // a job beyond its request may be killed, where nothing else helped
}

// DefaultPolicy returns the policy of sites that say nothing.
func DefaultPolicy() Policy {
	return Policy{Waiting: 0.1, Kept: 0.95, Patience: 4 * time.Second, Floor: 0.01, Stalled: 0.1, Spare: 0.1, Low: 0.05}
}

// Decide decides what is limited on a host from now on (R47).
func Decide(h *Host, p Policy, now time.Time) Decision {
	if p.Paused {
		return Decision{}
	}
	d := &decider{h: h, p: p, now: now, jobs: slices.Clone(h.Jobs)}
	slices.SortFunc(d.jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range Resources() {
		d.divide(r)
	}
	d.relieve()
	return d.Decision
}

// decider decides for one host.
type decider struct {
	Decision
	h    *Host
	p    Policy
	now  time.Time
	jobs []Job // by name
}

// limited returns a job's limit of a resource that is in force.
func (d *decider) limited(job string, r Resource) *Limit {
	for i := range d.h.Limits {
		if l := &d.h.Limits[i]; l.Job == job && l.Resource == r {
			return l
		}
	}
	return nil
}

// share is what a job has of a resource while it is divided.
type share struct {
	*Job
	claim int64 // of its minimum, that it has before others
	given int64 // beyond that
	wants int64 // beyond its claim; math.MaxInt64: as much as there is
	has   int64 // in the end
	short bool
	needs bool // others are limited for it

	hurries int64 // what it has as its own because of its deadline; 0: what it was promised
}

// divide divides a resource if a job does not get what it was promised.
func (d *decider) divide(r Resource) {
	shares := d.claims(r)
	d.hasten(r, shares, d.free(r, shares, d.most(r, true)))
	first := d.first(r, shares)
	if first == nil {
		return
	}
	most := d.most(r, first.short)
	free := d.free(r, shares, most)
	floor := max(1, int64(d.p.Floor*float64(most)))
	fill(shares, max(0, free))
	var less []share // have less from now on
	for _, s := range shares {
		s.has = s.claim + max(s.given, floor)
		if !s.needs && s.wants > s.given && s.has < most {
			less = append(less, s)
		}
	}
	top := d.rung(r, less, first.short)
	if len(less) > 0 && top == 0 {
		d.Shortages = append(d.Shortages, Shortage{first.Name, r, fmt.Sprintf("%s waits for its %s, and nothing on %s can limit others", first.Name, r, d.h.Name)})
		return
	}
	for i := range less {
		s, has := &less[i], less[i].has
		rung, full := s.hardest(r, top), d.full(s.Job, r)
		if rung == 0 || rung == Duty && has >= full {
			continue
		}
		l := Limit{Job: s.Name, Resource: r, Rung: rung, Value: value(rung, has, full, first.claim), For: first.Name, Hastens: first.hurries, Since: d.now}
		if was := d.limited(s.Name, r); was != nil && was.Rung == rung && l.Value <= was.Value {
			l.Since = was.Since
		}
		why := fmt.Sprintf("was promised %s of %d a second and had %d", r, first.Minimum[r], first.Uses[r])
		if p, known := d.paceOf(first.Job); known && first.hurries > 0 {
			why = fmt.Sprintf("%s, and needs %s of %d a second and had %d", p, r, first.Minimum[r], first.Uses[r])
		}
		l.Reason = fmt.Sprintf("%s %s: this job keeps %d", first.Name, why, has)
		d.Limits = append(d.Limits, l)
	}
	if first.short && len(less) == 0 {
		d.Shortages = append(d.Shortages, Shortage{first.Name, r, fmt.Sprintf("%s waits for its %s, and no other job on %s may have less", first.Name, r, d.h.Name)})
	}
}

// most returns what there is of a resource on the host.
func (d *decider) most(r Resource, short bool) int64 {
	if most := d.h.Capacity[r]; most > 0 {
		return most
	}
	return d.measured(r, short)
}

// free returns what is left of what there is beside the claims.
func (d *decider) free(r Resource, shares []share, most int64) int64 {
	free := most - d.h.Others[r]
	for i := range d.jobs {
		if d.jobs[i].Foreign {
			free -= d.jobs[i].Uses[r]
		}
	}
	for i := range shares {
		free -= shares[i].claim
	}
	return free
}

// measured returns what a host delivers of a resource, where its capacity is not known: what is used, or
// somewhat more while no promise suffers from it.
func (d *decider) measured(r Resource, short bool) int64 {
	sum := d.h.Others[r]
	for i := range d.jobs {
		j := &d.jobs[i]
		use := j.Uses[r]
		// Others get more step by step: each step may take from who was promised something, until the next decision.
		if l := d.limited(j.Name, r); !short && (l == nil || d.now.Sub(l.Since) >= d.p.Patience/2) {
			use = grown(max(use, d.value(j, r)))
		}
		sum += use
	}
	return sum
}

// claims returns the shares of the jobs that may be limited, or that were promised something.
func (d *decider) claims(r Resource) (shares []share) {
	for i := range d.jobs {
		if j := &d.jobs[i]; !j.Foreign && !j.Held {
			s := share{Job: j}
			d.claim(&s, r)
			shares = append(shares, s)
		}
	}
	return shares
}

// claim sets what a job has before others.
func (d *decider) claim(s *share, r Resource) {
	if s.claim = s.Minimum[r]; !d.waits(s.Job, r) { // what it does not use is lent
		s.claim = min(s.Minimum[r], grown(s.Uses[r]))
	}
}

// first sets what the jobs want beyond their claims, and returns the first one that others are limited for; nil:
// there is none.
func (d *decider) first(r Resource, shares []share) (first *share) {
	contended := map[string]bool{} // what the promise of a job has others limited, who wait for more
	for _, l := range d.h.Limits {
		i, found := slices.BinarySearchFunc(d.jobs, l.Job, func(j Job, name string) int { return cmp.Compare(j.Name, name) })
		// What is frozen does not say that it waits.
		if found && l.Resource == r && (l.Rung == Duty || d.waits(&d.jobs[i], r)) {
			contended[l.For] = true
		}
	}
	for i := range shares {
		s := &shares[i]
		j := s.Job
		waits := d.waits(j, r)
		s.short = waits && j.Uses[r] < int64(d.p.Kept*float64(j.Minimum[r]))
		// What it uses it may use because others are limited.
		s.needs = s.short || j.Minimum[r] > 0 && j.Uses[r] > 0 && contended[j.Name]
		s.wants = max(0, grown(j.Uses[r])-s.claim)
		if waits || d.limited(j.Name, r) != nil && 10*j.Uses[r] >= 9*d.value(j, r) {
			s.wants = math.MaxInt64
		}
		// Whether it wants more than its minimum will be seen when it has that. For its deadline it has what it needs,
		// and others have the rest.
		if s.short || s.needs && s.hurries > 0 {
			s.wants = 0
		}
	}
	for i := range shares {
		if s := &shares[i]; s.needs && (first == nil || !first.short && s.short) {
			first = s
		}
	}
	return first
}

// waits reports whether a job waits for more of a resource.
func (d *decider) waits(j *Job, r Resource) bool { return j.Waits[r] >= d.p.Waiting }

// value is the amount that a job is limited to; 0: its limit is none of an amount.
func (d *decider) value(j *Job, r Resource) int64 {
	if l := d.limited(j.Name, r); l != nil && l.Rung == Rate {
		return l.Value
	}
	return 0
}

// grown is a use with room to grow.
func grown(use int64) int64 { return use + use/10 }

// fill gives what is free to the shares, by their slots, none of them more than it wants.
func fill(shares []share, free int64) {
	open := make([]*share, 0, len(shares))
	for i := range shares {
		if shares[i].wants > 0 {
			open = append(open, &shares[i])
		}
	}
	// By what each wants for a slot: who wants least is content first.
	slices.SortStableFunc(open, func(a, b *share) int {
		return cmp.Compare(float64(a.wants)/float64(a.slots()), float64(b.wants)/float64(b.slots()))
	})
	slots := int64(0)
	for _, s := range open {
		slots += s.slots()
	}
	for _, s := range open {
		s.given = min(s.wants, part(free, s.slots(), slots))
		free -= s.given
		slots -= s.slots()
	}
}

func (j *Job) slots() int64 { return int64(max(1, j.Slots)) }

// part returns of ÷ all of an amount.
func part(amount, of, all int64) int64 {
	return int64(float64(amount) * float64(of) / float64(all))
}

// full is what a job would use if it ran all the time, by what it uses now.
func (d *decider) full(j *Job, r Resource) int64 {
	if l := d.limited(j.Name, r); l != nil && l.Rung == Duty {
		return part(j.Uses[r], 1000, max(1, l.Value))
	}
	return j.Uses[r]
}

// value returns a limit's value by its rung: a job that uses so much when it runs all the time is to have less.
func value(rung Rung, has, full, claim int64) int64 {
	switch rung {
	case Weight:
		return max(1, min(99, part(100, has, max(1, has+claim))))
	case Duty:
		return max(1, min(999, part(1000, has, max(1, has, full))))
	case Rate, Freeze:
	}
	return has
}

// rung returns the hardest rung by which these jobs may have less of a resource: the mildest one that works
// on one of them, and a harder one where it had time to help and did not; 0: none works.
func (d *decider) rung(r Resource, less []share, short bool) Rung {
	now, since := Rung(0), time.Time{}
	for _, l := range d.h.Limits {
		if l.Resource == r && l.Rung > now {
			now, since = l.Rung, l.Since
		}
	}
	var works []Rung
	for _, rung := range ladder() {
		if slices.ContainsFunc(less, func(s share) bool { return s.works(r, rung) }) {
			works = append(works, rung)
		}
	}
	for i, rung := range works {
		if rung < now {
			continue
		}
		if rung == now && short && i+1 < len(works) && d.now.Sub(since) >= d.p.Patience {
			return works[i+1]
		}
		return rung
	}
	if len(works) > 0 {
		return works[len(works)-1]
	}
	return 0
}

// relieve saves a host that lacks memory from thrashing: a job beyond its request is frozen, and ends where that
// does not free enough. A job that thrashes within a limit of its own, on a host that has memory, is left alone.
func (d *decider) relieve() {
	m := &d.h.Memory
	if float64(m.Available) >= d.p.Spare*float64(m.Total) {
		return
	}
	frozen := map[string]*Limit{}
	for i := range d.h.Limits {
		if l := &d.h.Limits[i]; l.Resource == Memory {
			frozen[l.Job] = l
		}
	}
	var beyond []*Job
	for i := range d.jobs {
		if j := &d.jobs[i]; !j.Foreign && !j.Held && j.over() > 0 && j.works(Memory, Freeze) {
			beyond = append(beyond, j)
		}
	}
	slices.SortStableFunc(beyond, func(a, b *Job) int { return cmp.Compare(b.over(), a.over()) })
	more := d.thrashes(len(frozen)) && !d.recent(frozen) // one at a time
	ended := false
	for _, j := range beyond {
		switch was := frozen[j.Name]; {
		case was != nil && !j.Saving:
			d.freeze(j, was.Since)
			ended = ended || d.now.Sub(was.Since) >= d.p.Patience && d.ends(j)
		case was == nil && more:
			more = false
			d.freeze(j, d.now)
		}
	}
}

// thrashes reports whether a host that lacks memory thrashes, or is about to, by what another interval like the
// last one leaves. What frozen jobs hold is still lacking: so more of them are frozen where little is left, or falls fast.
func (d *decider) thrashes(frozen int) bool {
	m := &d.h.Memory
	const fast = 0.005
	left, low := float64(m.Available-max(0, m.Fell)), d.p.Low*float64(m.Total)
	return m.Stalled >= d.p.Stalled || left < low/float64(int(1)<<min(frozen, 30)) ||
		left < low && float64(m.Fell) > fast*float64(m.Total)
}

// recent reports whether a job was frozen so short a time ago that it may help yet.
func (d *decider) recent(frozen map[string]*Limit) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(frozen)), func(l *Limit) bool { return d.now.Sub(l.Since) < d.p.Patience/4 })
}

func (d *decider) freeze(j *Job, since time.Time) {
	d.Limits = append(d.Limits, Limit{
		Job: j.Name, Resource: Memory, Rung: Freeze, Since: since,
		Reason: fmt.Sprintf("%s lacks memory, and this job uses %d MiB more than the %d that it asked for", d.h.Name, j.over()>>20, j.Requested>>20),
	})
}

// ends ends a job that is frozen and was of no help, and reports whether it may.
func (d *decider) ends(j *Job) bool {
	verb := Requeue
	switch {
	case j.Protected:
		return false
	case !j.Requeues && !d.p.Kills:
		return false
	case !j.Requeues:
		verb = Kill
	}
	d.Acts = append(d.Acts, Act{j.Name, verb, fmt.Sprintf("%s lacks memory though this job is frozen; it uses %d MiB more than the %d that it asked for", d.h.Name, j.over()>>20, j.Requested>>20)})
	return true
}
