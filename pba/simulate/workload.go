package simulate

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/simulate/trace"
)

// Setup describes a simulation.
type Setup struct {
	Trace  *trace.Store
	Name   string // of the trace, as it is shown
	Format trace.Format

	Hosts   []backends.Host
	Plan    []PlanEntry
	Policy  plan.Policy   // projects and allocations come from Plan
	Filter  esub.Settings // of the submit filter
	Shift   time.Duration // added to all times of the trace, so that the plan's weeks meet them
	By      []Selector    // whose jobs are the projects' of Plan; nil: those that were recorded as theirs
	Reserve time.Duration // miniq's reserve_after

	Policies      []string
	ScaleArrivals float64 // factor by which the time between submissions is divided; 0: 1
	Repeat        int     // number of times that the trace is played, end to end; 0: 1
	First         int     // number of the trace's jobs, from its first one; 0: all
	OneSlot       bool    // each job of n slots becomes n jobs of one
	Suspend       float64 // share of the jobs whose users chose to be suspended
	OnDemand      Saves   // jobs that save their work within Time when they are asked to
	Periodic      Saves   // jobs that save their work each Time
	Kill          time.Duration
	Seed          uint64

	EveryJob   bool                                              // each cycle's snapshot lists also the jobs that the cycle can do nothing about
	Everyone   bool                                              // outcomes have the figures of each project without a guarantee, and of each user without a project
	EveryCycle bool                                              // run also the cycles that can't change anything
	Buckets    int                                               // of the series; 0: none
	Progress   func(policy string, done, jobs int)               `json:"-"` // called for each job that ends; nil: not at all
	Starts     func(policy string, id backends.ID, at time.Time) `json:"-"` // called for each start of a job; nil: not at all
	Check      bool                                              // search all sets of victims for cheaper ones (one host only)
}

// Saves is a part of the jobs, drawn by Seed, that save their work.
type Saves struct {
	Share   float64
	Time    time.Duration
	Restore time.Duration // that a run needs to go on from there
}

// Selector says whose jobs are a project's. The first that matches a job counts.
type Selector struct {
	Kind    Kind
	Name    string // of the user, group …
	Project string
}

// Kind is what a job is selected by.
type Kind string

// The kinds.
const (
	ByProject   Kind = "project"
	ByUser      Kind = "user"
	ByGroup     Kind = "group"
	ByQueue     Kind = "queue"
	ByPartition Kind = "partition"
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{ByUser, ByProject, ByGroup, ByQueue, ByPartition} }

// name returns what a record has of that kind.
func (s *Selector) name(r *trace.Record) string {
	switch s.Kind {
	case ByUser:
		return r.User
	case ByGroup:
		return r.Group
	case ByQueue:
		return r.Queue
	case ByPartition:
		return r.Partition
	case ByProject:
	}
	return r.Project
}

// arrival is one job on its way to the farm.
type arrival struct {
	at      time.Time
	run     time.Duration
	limit   time.Duration
	slots   int
	memory  int64
	user    string
	project string
	step    string
	account int // index of its project among those with a guarantee; their number: any other project
	within  bool
	suspend bool
	saves   backends.Checkpoint
	kill    time.Duration // that it takes to end when killed

	feature string            // of the hosts of its partition; "": any host
	nowhere bool              // no host is in its partition
	noFence string            // why dedicated can't run it; "": it can
	needs   []backends.Amount // on each of its hosts
	oneHost bool
}

// workload is a trace as it meets a farm.
type workload struct {
	*Setup
	calendar *calendar
	accounts map[string]int
	slots    int      // of the farm
	fenced   []int    // by account, the slots that dedicated leaves it; nil: that is not asked for
	why      []string // by account, how a job that is wider is described
	start    time.Time
	period   time.Duration // from one repetition to the next
	jobs     int           // that run
	widest   int           // slots of the widest 1 % of them, at least
	places   *places
	hosts    []backends.Host // as the queue sees them
}

func newWorkload(s *Setup, c *calendar, fences []Fence) *workload {
	w := &workload{Setup: s, calendar: c, accounts: map[string]int{}, start: s.Trace.First.Add(s.Shift)}
	w.places, w.hosts = newPlaces(s.Hosts)
	for i, name := range c.projects {
		w.accounts[name] = i
	}
	if s.Trace.Jobs > 1 {
		span := s.Trace.Last.Sub(s.Trace.First)
		w.period = scaled(span+span/time.Duration(s.Trace.Jobs-1), s.ScaleArrivals)
	}
	for _, h := range s.Hosts {
		w.slots += h.Slots
	}
	if len(fences) == 0 {
		return w
	}
	rest := w.slots
	w.fenced, w.why = make([]int, len(c.projects)+1), make([]string, len(c.projects)+1)
	for _, f := range fences {
		rest -= f.Slots
		i := w.accounts[f.Project]
		w.fenced[i], w.why[i] = f.Slots, wider(f.Slots, "what dedicated fences off for project "+f.Project)
	}
	w.fenced[len(c.projects)], w.why[len(c.projects)] = rest, wider(rest, "what dedicated leaves the others")
	return w
}

func wider(slots int, than string) string {
	return fmt.Sprintf("wider than %s (%d slots)", than, slots)
}

func scaled(d time.Duration, times float64) time.Duration {
	if times == 0 || times == 1 {
		return d
	}
	return time.Duration(float64(d) / times)
}

// arrivals yields the jobs in order, the same ones each time and for all policies. It calls
// seen, unless nil, for each record of the trace, with why the farm could never run it. An
// error is the last value.
func (w *workload) arrivals(seen func(why string, r *trace.Record)) iter.Seq2[arrival, error] {
	return func(yield func(arrival, error) bool) {
		fences := make([]fence, len(w.calendar.projects))
		for i, name := range w.calendar.projects {
			fences[i] = newFence(name)
		}
		for round := range max(w.Repeat, 1) {
			from := w.start.Add(time.Duration(round) * w.period)
			n := 0
			for r, err := range w.Trace.All() {
				if err != nil {
					yield(arrival{}, err)
					return
				}
				if n++; w.First > 0 && n > w.First {
					break
				}
				a := w.arrival(&r, from, uint64(round)<<40|uint64(n))
				copies := 1
				if w.OneSlot {
					copies, a.slots, a.memory, a.needs = r.Slots, 1, r.Memory/int64(r.Slots), nil
				}
				why := w.whyNever(&a)
				if seen != nil {
					seen(why, &r)
				}
				if why != "" {
					continue
				}
				a.noFence = w.whyNoFence(&a)
				for range copies {
					a.within = a.account < len(fences) && w.hasGuarantee(&a) && fences[a.account].submit(w.calendar, a.at, a.slots, a.run)
					if !yield(a, nil) {
						return
					}
				}
			}
		}
	}
}

func (w *workload) arrival(r *trace.Record, from time.Time, number uint64) arrival {
	a := arrival{
		at: from.Add(scaled(r.Submitted.Sub(w.Trace.First), w.ScaleArrivals)), run: r.Run, limit: r.RunLimit, slots: r.Slots, memory: r.Memory,
		user: r.User, project: r.Project, step: r.Step, account: len(w.calendar.projects), kill: w.Kill,
	}
	w.places.place(&a, r)
	if w.By != nil {
		a.project, a.step = w.selected(r), ""
	}
	if i, ok := w.accounts[a.project]; ok {
		a.account = i
	}
	if w.Suspend > 0 || w.Kill > 0 || w.OnDemand.Share > 0 || w.Periodic.Share > 0 {
		draw := rand.New(rand.NewPCG(w.Seed, number))
		a.suspend = draw.Float64() < w.Suspend
		a.kill = time.Duration(draw.Float64() * float64(w.Kill))
		if draw.Float64() < w.OnDemand.Share {
			a.saves.Signal, a.saves.Wait = "SIGUSR1", w.OnDemand.Time
		}
		if draw.Float64() < w.Periodic.Share {
			a.saves.Every = w.Periodic.Time
		}
	}
	return a
}

// restore returns how long a job takes to go on from its checkpoint.
func (w *workload) restore(a *arrival) time.Duration {
	switch {
	case a.saves.OnDemand():
		return w.OnDemand.Restore
	case a.saves.Every > 0:
		return w.Periodic.Restore
	}
	return 0
}

// selected returns the project that a job counts under by the selectors; "": none.
func (w *workload) selected(r *trace.Record) string {
	for i := range w.By {
		if w.By[i].name(r) == w.By[i].Name {
			return w.By[i].Project
		}
	}
	return ""
}

// whyNever returns why the farm could never run a job; "": it could.
func (w *workload) whyNever(a *arrival) string {
	if a.slots > w.slots {
		return wider(w.slots, "the farm")
	}
	return w.places.whyNever(a)
}

// whyNoFence returns why dedicated could never run a job that the farm could; "": it
// could, or that policy is not asked for.
func (w *workload) whyNoFence(a *arrival) string {
	switch {
	case w.fenced == nil:
		return ""
	case a.slots > w.fenced[a.account]:
		return w.why[a.account]
	}
	return w.places.whyNoFence(a)
}

// hasGuarantee reports whether a pool in force matches a job and is wide enough.
func (w *workload) hasGuarantee(a *arrival) bool {
	now, _ := w.calendar.inForce(a.at)
	return slices.ContainsFunc(now, func(p plan.Allocation) bool {
		return p.Project == a.project && (p.User == "" || p.User == a.user) && (p.Step == "" || p.Step == a.step) && p.Guarantee >= a.slots
	})
}

// survey is the result of a first reading of the workload.
type survey struct {
	jobs   int // that run, copies of a record counted one by one
	within int
	widest int // slots of the widest 1 %, at least
	window Window
	all    amount // that the trace has
	out    []LeftOut
	noRoom []LeftOut   // that dedicated can't run
	idle   []Guarantee // that no job is of
}

func (w *workload) survey(ctx context.Context) (survey, error) {
	var s survey
	out, noRoom := omissions{}, omissions{}
	idle := w.calendar.guarantees()
	bySlots := map[int]int{}
	for why, n := range w.Trace.Out {
		n *= max(w.Repeat, 1)
		out.of(why).Jobs = n
		out.of(why).Unknown = why != trace.NeverRan
		s.all.jobs += n
	}
	for a, err := range w.arrivals(func(why string, r *trace.Record) {
		work := float64(r.Slots) * r.Run.Seconds()
		s.all.add(1, work)
		if why != "" {
			out.of(why).add(1, work)
			return
		}
		w.places.note(r)
	}) {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return s, err
		}
		if s.jobs == 0 {
			s.window.From = a.at
		}
		s.window.To = a.at
		bySlots[a.slots]++
		if s.jobs++; a.within {
			s.within++
		}
		if a.account < len(w.calendar.projects) {
			idle = slices.DeleteFunc(idle, func(g Guarantee) bool { return g.covers(&a) })
		}
		if a.noFence != "" {
			noRoom.of(a.noFence).add(1, float64(a.slots)*a.run.Seconds())
		}
	}
	s.window.Seconds = s.window.To.Sub(s.window.From).Seconds()
	s.idle, s.widest = idle, widest(bySlots, s.jobs)
	s.out, s.noRoom = out.list(s.all), noRoom.list(s.all)
	return s, nil
}

// widest returns the slots from which on a job is one of the widest 1 %. Those of one width
// belong together: there may be fewer of them, or where the widest are more than that, more.
func widest(jobs map[int]int, all int) int {
	most, left := 0, max(1, all/100)
	for _, slots := range slices.Backward(slices.Sorted(maps.Keys(jobs))) {
		if left -= jobs[slots]; left < 0 && most > 0 {
			break
		}
		most = slots
	}
	return most
}

// fencedHosts splits the farm for the policy dedicated: for each project whole
// hosts in their order, and a part of one more where the project's slots end
// within it. It also returns each account's hosts.
func fencedHosts(hosts []backends.Host, fences []Fence) ([]backends.Host, [][]string, error) {
	left := slices.Clone(hosts)
	var all []backends.Host
	names := make([][]string, len(fences)+1)
	for i, f := range fences {
		need := f.Slots
		for need > 0 {
			at := slices.IndexFunc(left, func(h backends.Host) bool { return h.Slots > 0 && h.State == backends.HostUp })
			if at < 0 {
				return nil, nil, fmt.Errorf("project %s: the farm has no %d slots left to fence off", f.Project, f.Slots)
			}
			h := &left[at]
			part := *h
			part.Slots = min(need, h.Slots)
			if part.Slots < h.Slots {
				splitHas(h, &part)
				part.Name = h.Name + "." + shortHash(f.Project)
				part.Memory = h.Memory / int64(h.Slots) * int64(part.Slots)
			}
			h.Memory -= part.Memory
			h.Slots -= part.Slots
			need -= part.Slots
			all, names[i] = append(all, part), append(names[i], part.Name)
		}
	}
	for _, h := range left {
		if h.Slots > 0 {
			all, names[len(fences)] = append(all, h), append(names[len(fences)], h.Name)
		}
	}
	return all, names, nil
}

// fence finds out which hosts dedicated leaves to each account.
func (w *workload) fence(fences []Fence) error {
	hosts, names, err := fencedHosts(w.hosts, fences)
	if err != nil {
		return err
	}
	w.places.farms = make([][]backends.Host, len(w.calendar.projects)+1)
	for account, mine := range names {
		for _, h := range hosts {
			if slices.Contains(mine, h.Name) {
				w.places.farms[account] = append(w.places.farms[account], h)
			}
		}
	}
	return nil
}

// shortHash returns a part of a host's name for any text.
func shortHash(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // it never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

// fencesOf returns the fences that a site would set up for a plan: each project's largest
// guarantee.
func fencesOf(c *calendar) []Fence {
	var all []Fence
	for _, name := range c.projects {
		all = append(all, Fence{Project: name, Slots: c.maxSlots(name)})
	}
	slices.SortFunc(all, func(a, b Fence) int { return cmp.Compare(a.Project, b.Project) })
	return all
}
