package desk

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/report"
)

// Now is the farm now: its hosts and slots by class, projects against their pools, what waits,
// what the last cycles did, and which users lost slots to which projects.
type Now struct {
	*Status
	HostSets []SlotsNow           `json:"host_sets"` // by name, those in none first; one without a name where there are no sets
	Hosts    []HostNow            `json:"hosts"`     // by name, as numbers are read
	Projects []ProjectNow         `json:"projects"`  // those that wait within their guarantee first, then by guarantee
	Waits    WaitsNow             `json:"waits"`
	Cycles   []ledger.ActiveCycle `json:"cycles"` // the last ones that had something to do
	Losses   []report.Loss        `json:"losses"` // within the last LossTime, most work lost first
	Ends     []report.End         `json:"ends"`   // of the reclaims of that time
}

// Bounds of what Now lists.
const (
	LossTime    = 24 * time.Hour
	shownCycles = 12
	cycleActs   = 12
)

// SlotsNow is what some hosts' slots are used for now. Those of hosts that are down or closed
// count as Down, with what runs there.
type SlotsNow struct {
	Name      string `json:"name"`
	Hosts     int    `json:"hosts"`
	Slots     int    `json:"slots"`
	Within    int    `json:"within"`    // of jobs within guarantees
	Beyond    int    `json:"beyond"`    // of all other jobs
	Kept      int    `json:"kept"`      // kept free by standby and dummy jobs
	Suspended int    `json:"suspended"` // of suspended jobs, where the queue does not free them
	Down      int    `json:"down"`
}

// Free is the number of slots that are not in use.
func (s *SlotsNow) Free() int { return max(0, s.Slots-s.Within-s.Beyond-s.Kept-s.Suspended-s.Down) }

func (s *SlotsNow) add(o *SlotsNow) {
	s.Hosts += o.Hosts
	s.Slots += o.Slots
	s.Within += o.Within
	s.Beyond += o.Beyond
	s.Kept += o.Kept
	s.Suspended += o.Suspended
	s.Down += o.Down
}

// HostNow is one managed host.
type HostNow struct {
	SlotsNow
	Set   string `json:"set,omitempty"` // the host set that it is in
	State string `json:"state"`
	Jobs  int    `json:"jobs"` // that run there
}

// ProjectNow is a project's slots.
type ProjectNow struct {
	Project    string `json:"project"` // "": jobs that name no project that is known
	Planned    int    `json:"planned"`
	Guarantee  int    `json:"guarantee"`
	Within     int    `json:"within"` // used, of the guarantee
	Beyond     int    `json:"beyond"` // used beside it
	WaitWithin int    `json:"waiting_within"`
	WaitBeyond int    `json:"waiting_beyond"`
	Jobs       int    `json:"pending_jobs"` // that wait for slots
	Pools      int    `json:"pools"`
}

// WaitsNow is what waits, in jobs and slots.
type WaitsNow struct {
	Within   Waiting `json:"within"`   // for slots, within the guarantee
	Entitled Waiting `json:"entitled"` // for slots, as their pools are full
	Normal   Waiting `json:"normal"`   // for slots, of no pool
	Other    Waiting `json:"other"`    // for something else: a time, another job, a release
}

// Waiting is a number of jobs and their slots.
type Waiting struct {
	Jobs  int `json:"jobs"`
	Slots int `json:"slots"`
}

func (w *Waiting) add(j *backends.Job) {
	w.Jobs++
	w.Slots += j.Slots
}

// FarmNow returns the farm now.
func (d *Desk) FarmNow(ctx context.Context) (*Now, error) {
	if d.view == nil {
		r, err := d.preview(ctx)
		if err != nil {
			return nil, err
		}
		return d.farmNow(ctx, &r)
	}
	v, err := d.view()
	if err != nil {
		return nil, err
	}
	shared, err := d.shared.now.get(v, d.Now(), func() (*Now, error) {
		r, err := d.seen(ctx)
		if err != nil {
			return nil, err
		}
		return d.farmNow(ctx, &r)
	})
	if err != nil {
		return nil, err
	}
	own, status := *shared, *shared.Status
	own.Status = &status
	if status.Paused, err = d.ledger.Paused(ctx); err != nil {
		return nil, err
	}
	status.Requests, err = d.requestsToAnswer(ctx)
	return &own, err
}

func (d *Desk) farmNow(ctx context.Context, r *pba.Result) (*Now, error) {
	status, err := d.statusOf(ctx, r)
	if err != nil {
		return nil, err
	}
	n := &Now{Status: status}
	n.fill(r, d.Hosts, d.PBA.HostSets.ByHost())
	if n.Cycles, err = d.ledger.ActiveCycles(ctx, 0, shownCycles, cycleActs); err != nil {
		return nil, err
	}
	reclaims, err := d.ledger.PastReclaims(ctx, d.Now().Add(-LossTime), d.Now())
	if err != nil {
		return nil, err
	}
	n.Losses, n.Ends = report.Victims(reclaims, "", nil, d.zone())
	return n, nil
}

// fill adds up hosts, projects and what waits.
func (n *Now) fill(r *pba.Result, managed []string, sets map[string]string) {
	farm := r.State.Farm
	classes := plan.Classes(r.State, r.Rules.Policy, farm.At)
	hosts, ours := map[string]*HostNow{}, map[string]bool{}
	for _, name := range managed {
		ours[name] = true
	}
	for i := range farm.Hosts {
		h := &farm.Hosts[i]
		if h.Slots <= 0 || len(managed) > 0 && !ours[h.Name] {
			continue
		}
		s := &HostNow{SlotsNow: SlotsNow{Name: h.Name, Hosts: 1, Slots: h.Slots}, Set: sets[h.Name], State: h.State.String()}
		if h.State != backends.HostUp {
			s.Down = h.Slots
		}
		hosts[h.Name] = s
	}
	projects := n.addPools(r)
	for i := range farm.Jobs {
		j, class := &farm.Jobs[i], classes[i]
		p := projects[j.Project]
		if p == nil {
			p = projects[""]
		}
		switch {
		case j.State == backends.Running || j.State == backends.Suspended:
			for _, at := range j.Hosts {
				if h := hosts[at.Host]; h != nil {
					h.place(j, class, at.Slots, r.State.Abilities.SuspendFrees)
				}
			}
			if j.State == backends.Running && !class.Within && !j.IsDummy() {
				p.Beyond += j.Slots
			}
		case j.IsDummy():
		case class.Within:
			n.Waits.Within.add(j)
			p.Jobs++
		case j.Eligible():
			p.WaitBeyond += j.Slots
			p.Jobs++
			if class.Entitled {
				n.Waits.Entitled.add(j)
			} else {
				n.Waits.Normal.add(j)
			}
		default:
			n.Waits.Other.add(j)
		}
	}
	for _, u := range farm.Unlisted {
		n.Waits.Normal.Jobs += u.Jobs
	}
	n.sum(hosts, projects)
}

// addPools returns the known projects, with their pools, and "".
func (n *Now) addPools(r *pba.Result) map[string]*ProjectNow {
	projects := map[string]*ProjectNow{"": {}}
	for _, p := range r.Rules.Policy.Projects {
		projects[p.Name] = &ProjectNow{Project: p.Name}
	}
	for i := range n.Pools {
		pool := &n.Pools[i]
		p := projects[pool.Project]
		if p == nil {
			p = &ProjectNow{Project: pool.Project}
			projects[pool.Project] = p
		}
		p.Pools++
		p.Planned += pool.Planned
		p.Guarantee += pool.Guarantee
		p.Within += pool.Charged
		p.WaitWithin += pool.Held
	}
	return projects
}

// place adds a job that has slots of the host.
func (h *HostNow) place(j *backends.Job, class plan.Class, slots int, suspendFrees bool) {
	h.Jobs++
	switch {
	case h.Down > 0:
	case j.State == backends.Suspended && suspendFrees:
	case j.State == backends.Suspended:
		h.Suspended += slots
	case j.IsDummy():
		h.Kept += slots
	case class.Within:
		h.Within += slots
	default:
		h.Beyond += slots
	}
}

// sum puts hosts and projects in order, and adds up the host sets.
func (n *Now) sum(hosts map[string]*HostNow, projects map[string]*ProjectNow) {
	sets := map[string]*SlotsNow{"": {}}
	for _, h := range hosts {
		n.Hosts = append(n.Hosts, *h)
		if sets[h.Set] == nil {
			sets[h.Set] = &SlotsNow{}
		}
		sets[h.Set].add(&h.SlotsNow)
	}
	slices.SortFunc(n.Hosts, func(a, b HostNow) int { return cmp.Or(cmp.Compare(a.Set, b.Set), byNumber(a.Name, b.Name)) })
	for name, s := range sets {
		if s.Name = name; name != "" || s.Hosts > 0 {
			n.HostSets = append(n.HostSets, *s)
		}
	}
	slices.SortFunc(n.HostSets, func(a, b SlotsNow) int { return cmp.Compare(a.Name, b.Name) })
	for name, p := range projects {
		if name != "" || p.Beyond+p.Jobs > 0 {
			n.Projects = append(n.Projects, *p)
		}
	}
	slices.SortFunc(n.Projects, func(a, b ProjectNow) int {
		waits := func(p *ProjectNow) int { return min(p.WaitWithin, 1) }
		return cmp.Or(cmp.Compare(waits(&b), waits(&a)), cmp.Compare(b.Guarantee, a.Guarantee), cmp.Compare(b.Beyond, a.Beyond), cmp.Compare(a.Project, b.Project))
	})
}

// byNumber compares names as people read them: n2 comes before n10.
func byNumber(a, b string) int {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	number := func(s string) (digits, rest string) {
		n := 0
		for n < len(s) && digit(s[n]) {
			n++
		}
		return s[:n], s[n:]
	}
	for a != "" && b != "" {
		if digit(a[0]) && digit(b[0]) {
			x, restA := number(a)
			y, restB := number(b)
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = restA, restB
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// shared is what the desks of a service compute once for all visitors.
type shared struct {
	now     once[*Now]
	classes once[[]plan.Class]
	trends  onceEach[*Trend]
}

// sharedTime is for how long a value is shared that is made of the same view: cycles that
// publish nothing, and edits, change what it was made from.
const sharedTime = time.Minute

// once makes a value for each view, or after a while, once.
type once[T any] struct {
	mu   sync.Mutex
	of   *view
	at   time.Time
	made T
}

// get returns the value, or reads it: meanwhile others wait for the same.
func (o *once[T]) get(v *view, now time.Time, read func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == v && now.Sub(o.at) < sharedTime && !now.Before(o.at) {
		return o.made, nil
	}
	made, err := read()
	if err == nil {
		o.of, o.at, o.made = v, now, made
	}
	return made, err
}

// onceEach makes a value for each key once in a while. It keeps a bounded number.
type onceEach[T any] struct {
	mu   sync.Mutex
	made map[string]*once[T]
}

const maxShared = 256

func (o *onceEach[T]) get(key string, now time.Time, read func() (T, error)) (T, error) {
	o.mu.Lock()
	one := o.made[key]
	if one == nil {
		if len(o.made) >= maxShared || o.made == nil {
			o.made = map[string]*once[T]{}
		}
		one = &once[T]{}
		o.made[key] = one
	}
	o.mu.Unlock()
	return one.get(nil, now, read)
}
