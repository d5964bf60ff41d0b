package simulate

import (
	"cmp"
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
	ByUser  bool          // a job's project is its user's name, instead of the recorded one
	Reserve time.Duration // miniq's reserve_after

	Policies      []string
	ScaleArrivals float64 // factor by which the time between submissions is divided; 0: 1
	Repeat        int     // number of times that the trace is played, end to end; 0: 1
	First         int     // number of the trace's jobs, from its first one; 0: all
	OneSlot       bool    // each job of n slots becomes n jobs of one
	Suspend       float64 // share of the jobs whose users chose to be suspended
	Kill          time.Duration
	Seed          uint64

	EveryCycle bool // run also the cycles that can't change anything
	Buckets    int  // of the series; 0: none
	Check      bool // search all sets of victims for cheaper ones (one host only)
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
	kill    time.Duration // that it takes to end when killed

	feature string            // of the hosts of its partition; "": any host
	nowhere bool              // no host is in its partition
	needs   []backends.Amount // on each of its hosts
	oneHost bool
}

// workload is a trace as it meets a farm.
type workload struct {
	*Setup
	calendar *calendar
	accounts map[string]int
	most     []int // slots that each account could ever use at once under the policies asked for
	why      []string
	start    time.Time
	period   time.Duration // from one repetition to the next
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
	all := 0
	for _, h := range s.Hosts {
		all += h.Slots
	}
	rest := all
	for range c.projects {
		w.most, w.why = append(w.most, all), append(w.why, wider(all, "the farm"))
	}
	for _, f := range fences {
		rest -= f.Slots
		i := w.accounts[f.Project]
		w.most[i], w.why[i] = f.Slots, wider(f.Slots, "what dedicated fences off for project "+f.Project)
	}
	if len(fences) == 0 {
		w.most, w.why = append(w.most, all), append(w.why, wider(all, "the farm"))
	} else {
		w.most, w.why = append(w.most, rest), append(w.why, wider(rest, "what dedicated leaves the others"))
	}
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

// arrivals yields the jobs in order, the same ones each time. It calls out, unless nil,
// for jobs that some policy could never run. An error is the last value.
func (w *workload) arrivals(out func(why string, r *trace.Record)) iter.Seq2[arrival, error] {
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
				if a.slots > w.most[a.account] {
					if out != nil {
						out(w.why[a.account], &r)
					}
					continue
				}
				if why := w.places.whyNever(&a); why != "" {
					if out != nil {
						out(why, &r)
					}
					continue
				}
				if out != nil {
					w.places.note(&r)
				}
				copies := 1
				if w.OneSlot { // of those that are not too wide: the same work as else
					copies, a.slots, a.memory, a.needs = r.Slots, 1, r.Memory/int64(r.Slots), nil
				}
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
	if w.ByUser {
		a.project, a.step = r.User, ""
	}
	if i, ok := w.accounts[a.project]; ok {
		a.account = i
	}
	if w.Suspend > 0 || w.Kill > 0 {
		draw := rand.New(rand.NewPCG(w.Seed, number))
		a.suspend = draw.Float64() < w.Suspend
		a.kill = time.Duration(draw.Float64() * float64(w.Kill))
	}
	return a
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
	jobs   int
	within int
	window Window
	out    []LeftOut
}

func (w *workload) survey() (survey, error) {
	var s survey
	left := map[string]*LeftOut{}
	for why, n := range w.Trace.Out {
		left[why] = &LeftOut{Why: why, Jobs: n * max(w.Repeat, 1)}
	}
	for a, err := range w.arrivals(func(why string, r *trace.Record) {
		if left[why] == nil {
			left[why] = &LeftOut{Why: why}
		}
		left[why].Jobs++
		left[why].SlotSeconds += float64(r.Slots) * r.Run.Seconds()
	}) {
		if err != nil {
			return s, err
		}
		if s.jobs == 0 {
			s.window.From = a.at
		}
		s.window.To = a.at
		if s.jobs++; a.within {
			s.within++
		}
	}
	s.window.Seconds = s.window.To.Sub(s.window.From).Seconds()
	for _, why := range slices.Sorted(maps.Keys(left)) {
		s.out = append(s.out, *left[why])
	}
	return s, nil
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
