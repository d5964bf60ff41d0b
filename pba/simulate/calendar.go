package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/heap"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// PlanEntry is an allocation over some time.
type PlanEntry struct {
	plan.Allocation           // its ID is given by the simulator
	From, To        time.Time // half-open; zero: from ever, for ever
}

// calendar is the plan by time.
type calendar struct {
	entries  []PlanEntry
	projects []string    // with an allocation at some time, by name
	changes  []time.Time // when the plan changes, ascending

	current []plan.Allocation // in force up to until
	since   time.Time
	until   time.Time // zero: for ever
	valid   bool
}

// newCalendar gives each pool its number, which is the same in every week.
func newCalendar(entries []PlanEntry) *calendar {
	c := &calendar{entries: slices.Clone(entries)}
	ids := map[string]int64{}
	for i := range c.entries {
		p := &c.entries[i]
		if ids[p.Key()] == 0 {
			ids[p.Key()] = int64(len(ids) + 1)
		}
		p.ID = ids[p.Key()]
		if p.Begin.IsZero() {
			p.Begin, p.End = p.From, p.To
		}
		c.projects = append(c.projects, p.Project)
		for _, at := range []time.Time{p.From, p.To} {
			if !at.IsZero() {
				c.changes = append(c.changes, at)
			}
		}
	}
	slices.Sort(c.projects)
	c.projects = slices.Compact(c.projects)
	slices.SortFunc(c.changes, time.Time.Compare)
	c.changes = slices.CompactFunc(c.changes, time.Time.Equal)
	return c
}

// inForce returns the allocations in force at a time, and when they change next (zero: never).
func (c *calendar) inForce(t time.Time) ([]plan.Allocation, time.Time) {
	if c.valid && !t.Before(c.since) && (c.until.IsZero() || t.Before(c.until)) {
		return c.current, c.until
	}
	c.valid, c.current, c.since, c.until = true, nil, time.Time{}, time.Time{}
	for _, change := range c.changes {
		if change.After(t) {
			c.until = change
			break
		}
		c.since = change
	}
	for i := range c.entries {
		if p := &c.entries[i]; !t.Before(p.From) && (p.To.IsZero() || t.Before(p.To)) {
			c.current = append(c.current, p.Allocation)
		}
	}
	return c.current, c.until
}

// slots returns a project's guarantee at a time.
func (c *calendar) slots(project string, t time.Time) int {
	n := 0
	allocations, _ := c.inForce(t)
	for i := range allocations {
		if allocations[i].Project == project {
			n += allocations[i].Guarantee
		}
	}
	return n
}

// maxSlots returns a project's largest guarantee.
func (c *calendar) maxSlots(project string) int {
	most := 0
	for _, t := range append(slices.Clone(c.changes), time.Time{}) {
		most = max(most, c.slots(project, t))
	}
	return most
}

// guarantees lists the pools, each with its largest guarantee.
func (c *calendar) guarantees() []Guarantee {
	most := map[Guarantee]int{}
	for i := range c.entries {
		p := &c.entries[i]
		g := Guarantee{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
		most[g] = max(most[g], p.Guarantee)
	}
	all := make([]Guarantee, 0, len(most))
	for g, slots := range most {
		g.Slots = slots
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Guarantee) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Hosts, b.Hosts))
	})
	return all
}

// Who names whose guarantee it is.
func (g *Guarantee) Who() string {
	text := g.Project
	if g.Step != "" {
		text += ":" + g.Step
	}
	if g.User != "" {
		text += " (" + g.User + ")"
	}
	if g.Hosts != "" {
		text += " on " + g.Hosts
	}
	return text
}

// covers reports whether a job is one of those that the guarantee is for.
func (g *Guarantee) covers(a *arrival) bool {
	return g.Project == a.project && (g.User == "" || g.User == a.user) && (g.Step == "" || g.Step == a.step)
}

// throughput reports whether a pool's guarantee follows its jobs, and so the time.
func (c *calendar) throughput() bool {
	return slices.ContainsFunc(c.entries, func(p PlanEntry) bool { return p.SLA == plan.Throughput })
}

// fence is a project's ideal fence: as many slots as its guarantee, for its jobs only,
// first come first served. A job that starts there at once is within the
// guarantee.
type fence struct {
	project string
	used    int
	ends    *heap.Heap[fenceEnd] // by time
	queue   []fencedJob
}

func newFence(project string) fence {
	return fence{project: project, ends: heap.New(func(a, b fenceEnd) bool { return a.at.Before(b.at) }, nil)}
}

type fencedJob struct {
	slots int
	takes time.Duration
}

type fenceEnd struct {
	at    time.Time
	slots int
}

// submit submits a job and reports whether it starts at once.
func (f *fence) submit(c *calendar, t time.Time, slots int, takes time.Duration) bool {
	f.advance(c, t)
	if len(f.queue) == 0 && f.used+slots <= c.slots(f.project, t) {
		f.start(t, fencedJob{slots, takes})
		return true
	}
	f.queue = append(f.queue, fencedJob{slots, takes})
	return false
}

func (f *fence) advance(c *calendar, t time.Time) {
	for f.ends.Len() > 0 && !f.ends.Top().at.After(t) {
		e := f.ends.Pop()
		f.used -= e.slots
		f.serve(c, e.at)
	}
	f.serve(c, t)
}

// serve starts the waiting jobs that fit, strictly in their order. A job that is
// wider than the guarantee is dropped once the fence is empty.
func (f *fence) serve(c *calendar, t time.Time) {
	if len(f.queue) == 0 {
		return
	}
	room := c.slots(f.project, t)
	for len(f.queue) > 0 {
		first := f.queue[0]
		if first.slots <= room && f.used+first.slots > room || first.slots > room && f.used > 0 {
			return
		}
		f.queue = f.queue[1:]
		if first.slots <= room {
			f.start(t, first)
		}
	}
}

func (f *fence) start(t time.Time, j fencedJob) {
	f.used += j.slots
	f.ends.Push(fenceEnd{t.Add(j.takes), j.slots})
}
