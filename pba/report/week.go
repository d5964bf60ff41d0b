package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Reader is a kind of reader of a week's report.
type Reader string

// The readers. Each has parts of the report.
const (
	ForUser    Reader = "user"    // the user's own jobs
	ForLead    Reader = "lead"    // each project's users
	ForManager Reader = "manager" // projects against their promises, and advice
	ForAdmin   Reader = "admin"   // the farm, and how reclaims ended
)

// Readers lists the readers.
func Readers() []Reader { return []Reader{ForUser, ForLead, ForManager, ForAdmin} }

// Week is what one week was like. Amounts are slot-hours of the time that cycles saw.
type Week struct {
	Week     calendar.Week `json:"week"`
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"` // the end of the week, or now
	Project  string        `json:"project,omitempty"`
	User     string        `json:"user,omitempty"` // whose jobs Mine is of
	For      []Reader      `json:"for"`
	Seen     float64       `json:"seen_hours"`
	Projects []ProjectWeek `json:"projects"`
	Total    ProjectWeek   `json:"total"`
	Users    []UserWeek    `json:"users"` // of the projects; for leads
	Mine     []UserWeek    `json:"mine"`  // of the user, by project; for users
	Losses   []Loss        `json:"victims"`
	Ends     []End         `json:"ends"` // for admins
	Farm     *FarmWeek     `json:"farm,omitempty"`
	Advice   []Advice      `json:"advice"`
	Hours    Hours         `json:"hours"`
}

// Has reports whether the report has the parts for a reader.
func (w *Week) Has(r Reader) bool { return slices.Contains(w.For, r) }

// Waited sums up how long jobs had waited when they started.
type Waited struct {
	Jobs   int     `json:"jobs"`
	Median float64 `json:"median_seconds"`
	P95    float64 `json:"p95_seconds"`
	Max    float64 `json:"max_seconds"`
}

// InWords returns the waits as texts; none where no job waited.
func (w Waited) InWords(none string) (median, p95, longest string) {
	if w.Jobs == 0 {
		return none, none, none
	}
	return inSeconds(w.Median), inSeconds(w.P95), inSeconds(w.Max)
}

// Lost is what jobs lost to reclaims.
type Lost struct {
	Preempted int     `json:"preempted_jobs"`
	Work      float64 `json:"lost_slot_hours"`
}

// ProjectWeek is one project's week.
type ProjectWeek struct {
	Use
	Lent     float64 `json:"lent_slot_hours"` // of its guarantee, which it did not use and jobs beyond guarantees ran on
	Within   Waited  `json:"waits_within"`    // of jobs within the guarantee that ended
	Beyond   Waited  `json:"waits_beyond"`    // of the others
	Victims  Lost    `json:"victims"`         // of its jobs
	Reclaims Promise `json:"reclaims"`        // for its jobs
}

// UserWeek is one user's week in one project.
type UserWeek struct {
	Project  string  `json:"project"` // "": jobs that count under no project
	User     string  `json:"user"`
	Used     float64 `json:"used_slot_hours"`
	Borrowed float64 `json:"borrowed_slot_hours"`
	Waits    Waited  `json:"waits"` // of all jobs that ended
	Victims  Lost    `json:"victims"`
}

// FarmWeek is the farm's week.
type FarmWeek struct {
	Slots     float64 `json:"slot_hours"` // of hosts that were up
	Down      float64 `json:"down_slot_hours"`
	Pools     float64 `json:"pools_slot_hours"`  // run by jobs that are charged to pools
	Normal    float64 `json:"normal_slot_hours"` // run by the others
	Suspended float64 `json:"suspended_slot_hours"`
}

// Hours are mean slots by hour from Start on; 0 where no cycle ran.
type Hours struct {
	Start    time.Time     `json:"start"`
	Slots    []float64     `json:"slots"`
	Pools    []float64     `json:"pools"`
	Normal   []float64     `json:"normal"`
	Waiting  []float64     `json:"waiting"`  // that jobs waited for though guarantees had room
	Lost     []float64     `json:"lost"`     // slot-hours of work that preemptions threw away in the hour
	Projects []ProjectHour `json:"projects"` // those with a guarantee, the largest first
}

// ProjectHour is one project's slots by hour.
type ProjectHour struct {
	Project    string    `json:"project"`
	Guaranteed []float64 `json:"guaranteed"`
	Used       []float64 `json:"used"`
	Borrowed   []float64 `json:"borrowed"`
	Waiting    []float64 `json:"waiting"`
}

// Past is what a week's report is made of.
type Past struct {
	History
	Jobs     []ledger.PastJob
	Reclaims []ledger.PastReclaim
	Rates    Rates
}

// WeekOf reports a week, up to a time in it or to its end. Project "" means every project; the
// user is whose own jobs are reported.
func WeekOf(week calendar.Period, to time.Time, p Past, project, user string, readers []Reader) *Week {
	w := &Week{Week: week.Week, From: week.Begin, To: to, Project: project, User: user, For: readers, Users: []UserWeek{}, Mine: []UserWeek{}, Ends: []End{}, Advice: []Advice{}}
	var farm FarmWeek
	for _, h := range p.Farm {
		w.Seen += h.Seen.Hours()
		farm.Slots += h.Slots.Hours()
		farm.Down += h.Down.Hours()
		farm.Pools += h.PBA.Hours()
		farm.Normal += h.Normal.Hours()
		farm.Suspended += h.Suspended.Hours()
	}
	w.Seen = round(w.Seen)
	w.Projects, w.Total = projectWeeks(p, project)
	losses, ends := Victims(p.Reclaims, project, nil, p.Zone)
	w.Losses = losses
	if w.Has(ForLead) {
		w.Users = userWeeks(p, losses, func(_, of string) bool { return of != "" && (project == "" || of == project) })
	}
	if w.Has(ForUser) {
		w.Mine = userWeeks(p, losses, func(name, of string) bool { return name == user && (project == "" || of == project) })
	}
	if w.Has(ForAdmin) {
		w.Ends = ends
		w.Farm = &FarmWeek{round(farm.Slots), round(farm.Down), round(farm.Pools), round(farm.Normal), round(farm.Suspended)}
	}
	w.Hours = HoursOf(p, week.Begin, to, project)
	return w
}

// projectWeeks returns the projects, by name, and their sum.
func projectWeeks(p Past, project string) ([]ProjectWeek, ProjectWeek) {
	rows := map[string]*ProjectWeek{}
	row := func(name string) *ProjectWeek {
		if rows[name] == nil {
			zero, none := 0.0, 0.0
			rows[name] = &ProjectWeek{Use: Use{Key: Key{Project: name}, Guaranteed: &zero, Waiting: &none, NoPromise: name != ""}}
		}
		return rows[name]
	}
	uses, total := UsesBy(p.History, []By{ByProject}, project)
	for _, u := range uses {
		row(u.Project).Use = u
	}
	sum := ProjectWeek{Use: total}
	for name, lent := range lentBy(p.Farm, p.Use) {
		if project == "" || name == project {
			row(name).Lent = round(lent.Hours())
			sum.Lent += row(name).Lent
		}
	}
	losses, _ := Victims(p.Reclaims, project, nil, p.Zone)
	for _, l := range losses {
		if project != "" && l.Project != project {
			continue
		}
		row(l.Project).Victims.add(l)
		sum.Victims.add(l)
	}
	waits, _ := Waits(p.Jobs, p.Reclaims, p.Rates, project, nil, p.Zone)
	for _, x := range waits {
		to := &sum
		if x.Project != "" || project != "" {
			to = row(x.Project)
		}
		switch x.Of {
		case Within:
			to.Within = waited(x)
		case Beyond:
			to.Beyond = waited(x)
		}
	}
	names := make([]string, 0, len(rows))
	for name := range rows {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []ProjectWeek
	for _, name := range names {
		r := rows[name]
		if name != "" {
			_, r.Reclaims = Waits(nil, p.Reclaims, p.Rates, name, nil, p.Zone)
			sum.Reclaims.Reclaims += r.Reclaims.Reclaims
			sum.Reclaims.Kept += r.Reclaims.Kept
		}
		all = append(all, *r)
	}
	if project != "" && len(all) == 1 {
		sum.Within, sum.Beyond = all[0].Within, all[0].Beyond
	}
	sum.Lent, sum.Victims.Work = round(sum.Lent), round(sum.Victims.Work)
	return append([]ProjectWeek{}, all...), sum
}

func (l *Lost) add(x Loss) {
	l.Preempted += x.Requeued + x.Suspended
	l.Work = round(l.Work + x.Lost)
}

func waited(w Wait) Waited { return Waited{w.Count, w.Median, w.P95, w.Max} }

// lentBy returns what each project lent. Of what runs beyond guarantees, what does not fit into
// the slots that no pool is guaranteed runs on slots that pools don't use; each project lends
// in proportion to what it does not use.
func lentBy(farm []ledger.FarmHour, use []ledger.UseHour) map[string]ledger.SlotTime {
	type hour struct {
		free, beyond, unused ledger.SlotTime // free: guaranteed to no pool
		by                   map[string]ledger.SlotTime
	}
	hours := map[int64]*hour{}
	for _, h := range farm {
		hours[h.Hour.Unix()] = &hour{free: h.Slots, by: map[string]ledger.SlotTime{}}
	}
	for _, u := range use {
		h := hours[u.Hour.Unix()]
		if h == nil {
			continue
		}
		if u.PoolID == 0 {
			h.beyond += u.Used
			continue
		}
		h.free -= u.Guaranteed
		if unused := u.Guaranteed - u.Used; unused > 0 {
			h.unused += unused
			h.by[u.Project] += unused
		}
	}
	all := map[string]ledger.SlotTime{}
	for _, h := range hours {
		lent := min(h.unused, h.beyond-max(0, h.free))
		if lent <= 0 {
			continue
		}
		for name, unused := range h.by {
			all[name] += ledger.SlotTime(float64(lent) * float64(unused) / float64(h.unused))
		}
	}
	return all
}

// userWeeks returns the users of projects that are wanted, by project and user.
func userWeeks(p Past, losses []Loss, want func(user, project string) bool) []UserWeek {
	type key struct{ project, user string }
	rows := map[key]*UserWeek{}
	row := func(project, user string) *UserWeek {
		k := key{project, user}
		if rows[k] == nil {
			rows[k] = &UserWeek{Project: project, User: user}
		}
		return rows[k]
	}
	uses, _ := UsesBy(p.History, []By{ByProject, ByUser}, "")
	for _, u := range uses {
		if want(u.User, u.Project) {
			r := row(u.Project, u.User)
			r.Used, r.Borrowed = u.Used, u.Borrowed
		}
	}
	waits := map[key][]time.Duration{}
	for _, j := range p.Jobs {
		if !j.Started.IsZero() && want(j.User, j.Project) {
			waits[key{j.Project, j.User}] = append(waits[key{j.Project, j.User}], max(j.Waited, 0))
		}
	}
	for k, times := range waits {
		row(k.project, k.user).Waits = Waited{len(times), percentile(times, 50), percentile(times, 95), percentile(times, 100)}
	}
	for _, l := range losses {
		if want(l.User, l.Project) {
			row(l.Project, l.User).Victims.add(l)
		}
	}
	all := make([]UserWeek, 0, len(rows))
	for _, r := range rows {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b UserWeek) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return all
}

// HoursOf returns the mean slots by hour. A project unless "" limits projects, waits and
// losses to it.
func HoursOf(h Past, from, to time.Time, project string) Hours {
	n := max(1, int((to.Sub(from)+time.Hour-1)/time.Hour))
	all := Hours{Start: from, Slots: make([]float64, n), Pools: make([]float64, n), Normal: make([]float64, n), Waiting: make([]float64, n), Lost: make([]float64, n), Projects: []ProjectHour{}}
	seen := make([]float64, n)
	index := func(t time.Time) (int, bool) {
		i := int(t.Sub(from) / time.Hour)
		return i, !t.Before(from) && i < n
	}
	for _, f := range h.Farm {
		if i, ok := index(f.Hour); ok && f.Seen > 0 {
			seen[i] = f.Seen.Hours()
			all.Slots[i], all.Pools[i], all.Normal[i] = f.Slots.Hours()/seen[i], f.PBA.Hours()/seen[i], f.Normal.Hours()/seen[i]
		}
	}
	at := map[string]*ProjectHour{}
	for _, u := range h.Use {
		if u.Guaranteed > 0 && at[u.Project] == nil && (project == "" || u.Project == project) {
			at[u.Project] = &ProjectHour{u.Project, make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
		}
	}
	for _, r := range h.Reclaims {
		if i, ok := index(r.Acted); ok {
			for _, v := range r.Victims {
				if project == "" || v.Project == project {
					all.Lost[i] += v.Loss() / 3600
				}
			}
		}
	}
	for _, u := range h.Use {
		i, ok := index(u.Hour)
		p := at[u.Project]
		if !ok || p == nil || seen[i] == 0 {
			continue
		}
		if u.PoolID == 0 {
			p.Borrowed[i] += u.Used.Hours() / seen[i]
			continue
		}
		p.Guaranteed[i] += u.Guaranteed.Hours() / seen[i]
		p.Used[i] += u.Used.Hours() / seen[i]
		p.Waiting[i] += u.Waiting.Hours() / seen[i]
		all.Waiting[i] += u.Waiting.Hours() / seen[i]
	}
	for _, p := range at {
		for i := range n {
			p.Guaranteed[i], p.Used[i], p.Borrowed[i], p.Waiting[i] = round(p.Guaranteed[i]), round(p.Used[i]), round(p.Borrowed[i]), round(p.Waiting[i])
		}
		all.Projects = append(all.Projects, *p)
	}
	for i := range n {
		all.Slots[i], all.Pools[i], all.Normal[i] = round(all.Slots[i]), round(all.Pools[i]), round(all.Normal[i])
		all.Waiting[i], all.Lost[i] = round(all.Waiting[i]), round(all.Lost[i])
	}
	slices.SortFunc(all.Projects, func(a, b ProjectHour) int {
		return cmp.Or(cmp.Compare(slices.Max(b.Guaranteed), slices.Max(a.Guaranteed)), cmp.Compare(a.Project, b.Project))
	})
	return all
}
