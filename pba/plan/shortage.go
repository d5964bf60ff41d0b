package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Shortage is what kept jobs from starting in one cycle, for one cause (R46). Jobs count that
// wait for nothing but slots, memory or resources of managed hosts, and those that the engine
// holds. A job counts under one cause, and no free slot is a reason for two jobs: at most as many
// slots count under LackMemory and LackResource as are Free.
type Shortage struct {
	Cause   Cause
	Name    string // the resource's; "": hosts that suit the jobs; OtherNames: of those that are not listed
	Slots   int    // of the jobs
	Free    int    // slots that were free, and stay so for lack of memory or resources
	Lacking int64  // bytes of memory that the jobs would need beside these slots
	Hosts   int    // that lack it
}

// Cause is why jobs don't start.
type Cause string

// The causes.
const (
	LackSlots    Cause = "slots"
	LackMemory   Cause = "memory"   // there are free slots, and they could start there with more memory
	LackResource Cause = "resource" // there are free slots, and what else the jobs ask for of a host is taken, or not there
	ByRules      Cause = "rules"    // the engine holds them, or keeps the slots for other jobs
	Unexamined   Cause = "other"    // requests that are not understood, or more kinds of them than are examined
)

// Bounds of a cycle's shortages.
const (
	maxLackingNames = 20
	maxRequests     = 1000 // kinds of requests that are examined, those submitted first
	OtherNames      = "*"  // the name for all resources beyond maxLackingNames
)

// request is what a waiting job asks for, as far as it decides where the job could start.
type request struct {
	slots     int
	perSlot   int64 // bytes
	oneHost   bool
	exclusive bool
	unit      int // slots on a host are a multiple of it
	suits     *backends.HostSet
	special   string // of asked and needs: the same for the same ones
}

// requests are waiting jobs that ask for the same.
type requests struct {
	request
	asked []string
	needs []backends.Amount
	left  int // jobs
}

// waiters are the jobs whose start depends on the farm, by what they ask for.
type waiters struct {
	all   []*requests // in the order of submission of the first of each
	by    map[request]*requests
	last  *requests // many jobs ask for what the one before asked for
	held  int       // slots of jobs that the engine holds
	other int       // slots of jobs that are not examined
}

// countWaiter counts a job of a managed queue if it is one.
func (f *farm) countWaiter(j *backends.Job) {
	w := &f.waiters
	switch {
	case j.IsDummy():
	case (j.State == backends.Pending || j.State == backends.Held) && !j.HeldUntil.IsZero():
		w.held += max(j.Slots, 1)
	case !j.Eligible():
	case !understood(j):
		w.other += max(j.Slots, 1)
	default:
		if of := w.find(f.requestOf(j), j, true); of != nil {
			of.left++
		} else {
			w.other += max(j.Slots, 1)
		}
	}
}

// requestOf returns what a job asks for, without what is special.
func (f *farm) requestOf(j *backends.Job) request {
	r := request{slots: max(j.Slots, 1), perSlot: f.countsFor(j), oneHost: j.OneHost || j.MaxHosts == 1 || j.Slots <= 1, exclusive: j.Exclusive, unit: 1, suits: j.Suits}
	if !r.oneHost {
		r.unit = min(max(j.Unit, j.PerHost, 1), r.slots)
	}
	return r
}

// find returns the jobs that ask for the same as one, which it adds if there is a place; else nil.
func (w *waiters) find(r request, j *backends.Job, add bool) *requests {
	if l := w.last; l != nil {
		r.special = l.special
		if l.request == r && slices.Equal(l.asked, j.Asked) && slices.Equal(l.needs, j.Needs) {
			return l
		}
	}
	r.special = ""
	if len(j.Asked)+len(j.Needs) > 0 {
		var text strings.Builder
		for _, need := range j.Needs {
			text.WriteString(strconv.Itoa(need.Count) + " " + need.Name + "\x00")
		}
		r.special = text.String() + "\x00" + strings.Join(j.Asked, "\x00")
	}
	of := w.by[r]
	switch {
	case of != nil:
	case !add || len(w.all) == maxRequests:
		return nil
	default:
		of = &requests{request: r, asked: j.Asked, needs: j.Needs}
		if w.by == nil {
			w.by = map[request]*requests{}
		}
		w.by[r] = of
		w.all = append(w.all, of)
	}
	w.last = of
	return of
}

// spare is what of a host is free.
type spare struct {
	slots  int
	memory int64
	has    []int
}

// noteSpare notes what is free on the hosts by the queue's word, before this plan assigns it.
// Slots that are kept free for pools' next jobs are free.
func (f *farm) noteSpare() {
	f.spare = make([]spare, len(f.hosts))
	for i, h := range f.hosts {
		f.spare[i] = spare{h.free, h.freeMem, slices.Clone(h.freeHas)}
	}
	for _, j := range f.standbys {
		if j.State != backends.Running {
			continue
		}
		for _, p := range j.Hosts {
			if h := f.byName[p.Host]; h != nil {
				f.spare[h.at].slots += p.Slots
				f.spare[h.at].memory += j.perSlot * int64(p.Slots)
			}
		}
	}
}

// spot is a host with free slots.
type spot struct {
	*host
	now  spare // free for any job
	kept spare // free, but kept for other jobs: its slots; and what memory and resources go with them at most
	lack bool  // of memory
}

// survey is one cycle's search for causes.
type survey struct {
	hosts  int // all of them
	spots  []*spot
	suits  map[*backends.HostSet][]bool // by spot
	offers []int                        // by spot, in slots: of the last search
}

// shortages returns what keeps jobs from starting, by cause and name. Its time is linear in the
// hosts with free slots, for each kind of request.
//
// Jobs that can start, as far as is known, do: they are not counted, and what they take is not
// free for the others. The others are set against what is left: slots that are kept by rules,
// then slots without memory, then those without resources, then hosts that don't suit them. How
// slots lie on several hosts counts roughly.
func (b *books) shortages() []Shortage {
	w := &b.waiters
	s := b.survey()
	b.leaveNominated()

	for _, r := range w.all {
		s.place(r, look{of: unkept, memory: true, needs: true}, nil)
	}
	rules := w.held
	for _, r := range w.all {
		rules += s.place(r, look{of: keptFor, memory: true, needs: true}, nil)
	}
	free := 0
	for _, at := range s.spots {
		free += max(at.now.slots, 0)
	}
	memory := Shortage{Cause: LackMemory, Free: free}
	s.mostMemoryFirst()
	for _, r := range w.all {
		memory.Slots += s.place(r, look{of: unkept, needs: true}, func(at *spot, slots int) {
			if lacks := int64(slots)*r.perSlot - max(at.now.memory, 0); lacks > 0 {
				memory.Lacking += lacks
				if !at.lack {
					at.lack = true
					memory.Hosts++
				}
			}
		})
	}
	names := map[string]int{}
	for _, r := range w.all {
		if len(r.needs) > 0 {
			s.place(r, look{of: unkept}, func(at *spot, slots int) { names[at.lacks(r)] += slots })
		}
	}
	for _, r := range w.all {
		if r.suits != nil || len(r.asked) > 0 {
			if n := s.place(r, look{of: unkept, memory: true, elsewhere: true}, nil); n > 0 {
				names[""] += n
			}
		}
	}
	slotsAlone := 0
	for _, r := range w.all {
		slotsAlone += r.left * r.slots
	}

	var all []Shortage
	for _, one := range slices.Concat([]Shortage{{Cause: LackSlots, Slots: slotsAlone}, memory}, listNames(names, free), []Shortage{{Cause: ByRules, Slots: rules}, {Cause: Unexamined, Slots: w.other}}) {
		if one.Slots > 0 {
			all = append(all, one)
		}
	}
	return all
}

// listNames lists the resources that lack, most slots first.
func listNames(names map[string]int, free int) []Shortage {
	order := slices.SortedFunc(maps.Keys(names), func(x, y string) int { return cmp.Or(cmp.Compare(names[y], names[x]), cmp.Compare(x, y)) })
	var all []Shortage
	for i, name := range order {
		if i < maxLackingNames {
			all = append(all, Shortage{Cause: LackResource, Name: name, Slots: names[name], Free: free})
			continue
		}
		if i == maxLackingNames {
			all = append(all, Shortage{Cause: LackResource, Name: OtherNames, Free: free})
		}
		all[maxLackingNames].Slots += names[name]
	}
	return all
}

// survey returns the hosts with free slots. What this plan frees is not free yet.
func (b *books) survey() *survey {
	s := &survey{hosts: len(b.hosts), suits: map[*backends.HostSet][]bool{}}
	for i, h := range b.hosts {
		raw := &b.spare[i]
		if raw.slots <= 0 {
			continue
		}
		at := &spot{host: h, now: spare{slots: max(0, min(h.free, raw.slots)), memory: min(h.freeMem, raw.memory)}}
		for k, n := range raw.has {
			at.now.has = append(at.now.has, min(h.freeHas[k], n))
		}
		at.kept = spare{slots: raw.slots - at.now.slots, memory: raw.memory, has: raw.has}
		s.spots = append(s.spots, at)
	}
	return s
}

// leaveNominated leaves out the jobs that start in slots that are free and theirs.
func (b *books) leaveNominated() {
	for _, j := range b.resting {
		if len(j.nominated) == 0 || !j.Eligible() || !understood(j.Job) || j.standby || !j.HeldUntil.IsZero() || !j.managed {
			continue
		}
		if slices.ContainsFunc(j.nominated, func(p backends.Placement) bool {
			h := b.byName[p.Host]
			return h == nil || b.spare[h.at].slots < p.Slots
		}) {
			continue
		}
		if of := b.waiters.find(b.requestOf(j.Job), j.Job, false); of != nil && of.left > 0 {
			of.left--
		}
	}
}

func unkept(at *spot) *spare  { return &at.now }
func keptFor(at *spot) *spare { return &at.kept }

// look is what a search for slots looks at.
type look struct {
	of            func(*spot) *spare
	memory, needs bool // as well
	elsewhere     bool // on the hosts that don't suit, instead of those that do
}

// place gives as many of the jobs that wait free slots as fit, and returns how many slots these
// have. It calls a function for each host of them, before it takes the slots.
func (s *survey) place(r *requests, l look, each func(at *spot, slots int)) int {
	if r.left == 0 || len(s.spots) == 0 {
		return 0
	}
	s.offers = append(s.offers[:0], make([]int, len(s.spots))...)
	suits := s.suitsOf(r)
	total, most := 0, r.left*r.slots
	for i, at := range s.spots {
		if (suits == nil || suits[at.at]) != l.elsewhere && l.of(at).slots > 0 {
			s.offers[i] = at.offersTo(r, l)
			if total += s.offers[i]; total >= most {
				break
			}
		}
	}
	jobs := min(r.left, total/r.slots)
	r.left -= jobs
	wanted := jobs * r.slots
	for i, n := range s.offers {
		if n = min(n, wanted); n <= 0 {
			continue
		}
		if wanted -= n; each != nil {
			each(s.spots[i], n)
		}
		s.spots[i].take(r, l, n)
	}
	return jobs * r.slots
}

// suitsOf returns which hosts suit jobs, by their place among all hosts; nil: all do.
func (s *survey) suitsOf(r *requests) []bool {
	if r.suits == nil && len(r.asked) == 0 {
		return nil
	}
	of, known := s.suits[r.suits]
	if !known {
		of = make([]bool, s.hosts)
		for _, at := range s.spots {
			of[at.at] = r.suits.Contains(at.Name)
		}
		s.suits[r.suits] = of
	}
	if len(r.asked) == 0 {
		return of
	}
	asked := make([]bool, len(of))
	for _, at := range s.spots {
		asked[at.at] = of[at.at] && slices.Contains(r.asked, at.Name)
	}
	return asked
}

// offersTo returns how many slots a host has for jobs: those of whole jobs if these run on one
// host.
func (at *spot) offersTo(r *requests, l look) int {
	of := l.of(at)
	n := of.slots
	if r.exclusive && n < at.Slots {
		return 0
	}
	if l.memory && r.perSlot > 0 && at.Memory > 0 {
		n = min(n, int(max(of.memory, 0)/r.perSlot))
	}
	jobs := n
	if r.oneHost {
		jobs = n / r.slots
	}
	if l.needs {
		for _, need := range r.needs {
			if need.Count <= 0 {
				continue
			}
			i := at.resource(need.Name)
			if i < 0 {
				return 0
			}
			jobs = min(jobs, max(of.has[i], 0)/need.Count)
		}
	}
	switch {
	case jobs <= 0:
		return 0
	case r.oneHost && r.exclusive:
		return r.slots
	case r.oneHost:
		return jobs * r.slots
	}
	return n / r.unit * r.unit
}

// take takes slots of a host for jobs, with what goes with them as far as it is there.
func (at *spot) take(r *requests, l look, slots int) {
	of := l.of(at)
	if of.slots -= slots; r.exclusive {
		of.slots = 0
	}
	of.memory = max(0, of.memory-int64(slots)*r.perSlot)
	if !l.needs {
		return
	}
	jobs := 1
	if r.oneHost {
		jobs = slots / r.slots
	}
	for _, need := range r.needs {
		if i := at.resource(need.Name); i >= 0 {
			of.has[i] = max(0, of.has[i]-need.Count*jobs)
		}
	}
}

// lacks returns the first resource of which a host has too little for a job.
func (at *spot) lacks(r *requests) string {
	for _, need := range r.needs {
		if i := at.resource(need.Name); need.Count > 0 && (i < 0 || at.now.has[i] < need.Count) {
			return need.Name
		}
	}
	return r.needs[0].Name
}

// mostMemoryFirst orders the hosts by free memory: what lacks there is least.
func (s *survey) mostMemoryFirst() {
	slices.SortFunc(s.spots, func(x, y *spot) int { return cmp.Or(cmp.Compare(y.now.memory, x.now.memory), cmp.Compare(x.at, y.at)) })
}
