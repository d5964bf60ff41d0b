package desk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Calendar is a plan for managers to edit: each project with its pools, by week, what is
// left, and what the caller may change.
type Calendar struct {
	This     calendar.Week     `json:"this_week"`
	Last     calendar.Week     `json:"last_week"` // that may be planned
	Weeks    []CalendarWeek    `json:"weeks"`
	Projects []CalendarProject `json:"projects"`
	HostSets []GridHosts       `json:"host_sets"` // those of the hosts in no set first
	Revision int64             `json:"revision"`  // of the plan; it grows with each edit
	MayPlan  bool              `json:"may_plan"`  // the caller may plan one of all projects, or more

	Away error `json:"-"` // why the capacity is not known; nil: it is
}

// CalendarWeek is a column of a calendar.
type CalendarWeek struct {
	Week  calendar.Week `json:"week"`
	Begin time.Time     `json:"begin"` // in the site's time zone
	Open  bool          `json:"open"`  // it may be planned
}

// CalendarProject is a project with its pools, by week.
type CalendarProject struct {
	Project  string         `json:"project"`
	Managers []string       `json:"managers"`
	Steps    []string       `json:"steps,omitempty"` // of its flow; none: it takes any
	MayPlan  bool           `json:"may_plan"`
	MayAsk   bool           `json:"may_ask"` // the caller may request slots
	Slots    []int          `json:"slots"`   // of all its pools
	Total    int            `json:"total"`   // in slot-weeks
	Pools    []CalendarPool `json:"pools"`   // one at least
}

// CalendarPool is what a pool has, by week.
type CalendarPool struct {
	Pool
	Terms []Terms `json:"terms"`
	Total int     `json:"total"`
}

// Plain reports whether a project has no pool but the one of all its jobs on any host
// that is in no set.
func (p *CalendarProject) Plain() bool {
	return len(p.Pools) == 1 && p.Pools[0].Pool == Pool{Project: p.Project}
}

// CalendarQuery selects the projects of a calendar.
type CalendarQuery struct {
	Own bool // only those that the caller may plan

	// Split are the projects that have a row for each step of their flow, too, also for those
	// without slots. All: each project.
	Split []string
	All   bool
}

// calendarInput is what a calendar is made of.
type calendarInput struct {
	grid             gridInput
	projects         []ledger.Project
	mayPlan, mayAsk  func(ledger.Project) bool
	zone             *time.Location
	firstOpen, final calendar.Week // that may be planned
}

// makeCalendar puts projects and what is planned together, by project, user, step in the
// flow's order and host set.
func makeCalendar(in calendarInput, q CalendarQuery) *Calendar {
	n := len(in.grid.weeks)
	c := &Calendar{This: in.grid.this, Last: in.final, Projects: []CalendarProject{}, HostSets: makeGrid(in.grid, GridQuery{}).HostSets}
	for _, w := range in.grid.weeks {
		c.Weeks = append(c.Weeks, CalendarWeek{
			Week: w, Begin: calendar.PeriodOf(w, in.zone).Begin.In(in.zone), Open: w.Compare(in.firstOpen) >= 0 && w.Compare(in.final) <= 0,
		})
	}
	pools := map[string]map[Pool]*CalendarPool{}
	at := func(pool Pool) *CalendarPool {
		of := pools[pool.Project]
		if of == nil {
			of = map[Pool]*CalendarPool{}
			pools[pool.Project] = of
		}
		if of[pool] == nil {
			of[pool] = &CalendarPool{Pool: pool, Terms: make([]Terms, n)}
		}
		return of[pool]
	}
	for _, a := range in.grid.planned {
		i := calendar.WeeksBetween(in.grid.weeks[0], a.Week)
		if i < 0 || i >= n {
			continue
		}
		p := at(a.Pool)
		p.Terms[i] = a.Terms
		p.Total += a.Slots
	}
	order := newStepOrder(in.grid.steps)
	for _, project := range in.projects {
		one := CalendarProject{
			Project: project.Name, Managers: project.Managers, Steps: in.grid.steps[project.Name],
			MayPlan: in.mayPlan(project), MayAsk: in.mayAsk(project), Slots: make([]int, n),
		}
		c.MayPlan = c.MayPlan || one.MayPlan
		if q.Own && !one.MayPlan {
			continue
		}
		split := q.All || slices.Contains(q.Split, project.Name)
		if split || pools[project.Name] == nil {
			at(Pool{Project: project.Name})
		}
		if split && one.MayPlan {
			for _, step := range one.Steps {
				at(Pool{Project: project.Name, Step: step})
			}
		}
		for _, p := range pools[project.Name] {
			one.Pools = append(one.Pools, *p)
			for i, t := range p.Terms {
				one.Slots[i] += t.Slots
			}
			one.Total += p.Total
		}
		slices.SortFunc(one.Pools, func(a, b CalendarPool) int {
			return cmp.Or(cmp.Compare(a.User, b.User), order.compare(a.Pool, b.Pool))
		})
		c.Projects = append(c.Projects, one)
	}
	return c
}

// Calendar returns the plan of weeks in a row, as Grid takes them, for editing.
func (d *Desk) Calendar(ctx context.Context, q CalendarQuery, when When) (*Calendar, error) {
	in := calendarInput{
		zone: d.zone(), firstOpen: d.thisWeek(), final: d.horizon(),
		mayPlan: func(p ledger.Project) bool { return d.mayPlan(p) == nil },
		mayAsk:  func(p ledger.Project) bool { return d.mayAsk(p) == nil },
	}
	var err error
	if in.grid, err = d.gridInput(ctx, GridQuery{}, when); err != nil {
		return nil, err
	}
	if in.projects, err = d.ledger.Projects(ctx); err != nil {
		return nil, err
	}
	away := d.addLimits(ctx, &in.grid)
	c := makeCalendar(in, q)
	c.Away, c.Revision = away, in.grid.revision
	return c, nil
}

// addLimits adds to a grid what may be allocated. It returns why that is not known.
func (d *Desk) addLimits(ctx context.Context, in *gridInput) error {
	farm, err := d.farm(ctx)
	if err != nil {
		return err
	}
	in.limits = map[string]int{}
	for set, has := range farm {
		in.limits[set] = d.allocatable(has.slots)
	}
	return nil
}

// HostSetNames lists the host sets of the config.
func (d *Desk) HostSetNames() []string {
	var all []string
	for name := range d.PBA.HostSets {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
