package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// By is what rows of a report are grouped by.
type By string

// What rows may be grouped by.
const (
	ByWeek    By = "week"
	ByDay     By = "day"
	ByProject By = "project"
	ByPool    By = "pool"
	ByUser    By = "user" // that the jobs belong to
	ByStep    By = "step" // that the jobs name

	ByDepartment By = "department" // that the project is in
	ByPlan       By = "plan"       // service plan, by whose price the project pays
)

// GroupsOf returns what rows are to be grouped by, each once. Known are what the report has.
func GroupsOf(words []string, known ...By) ([]By, error) {
	var all []By
	for _, word := range words {
		by := By(word)
		if !slices.Contains(known, by) {
			return nil, fmt.Errorf("%q: want some of %s, with commas between them", word, list(known))
		}
		if !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all, nil
}

func list(known []By) string {
	text := ""
	for i, by := range known {
		switch {
		case i == 0:
		case i == len(known)-1:
			text += " and "
		default:
			text += ", "
		}
		text += string(by)
	}
	return text
}

// Key is what a row is of. What rows are not grouped by is "".
type Key struct {
	Week    string `json:"week,omitempty"` // 2026-W48
	Day     string `json:"day,omitempty"`  // 2026-11-23
	Project string `json:"project,omitempty"`
	Pool    string `json:"pool,omitempty"` // as its project, step, user and host set name it; "": beyond the pools
	User    string `json:"user,omitempty"`
	Step    string `json:"step,omitempty"`

	Department string `json:"department,omitempty"`
	Plan       string `json:"plan,omitempty"`
}

// Cell returns the key's value of one kind.
func (k Key) Cell(by By) string {
	switch by {
	case ByWeek:
		return k.Week
	case ByDay:
		return k.Day
	case ByProject:
		return k.Project
	case ByPool:
		return k.Pool
	case ByUser:
		return k.User
	case ByStep:
		return k.Step
	case ByDepartment:
		return k.Department
	case ByPlan:
		return k.Plan
	}
	return ""
}

// Compare orders keys by week, day, department, project, pool, user, step and plan.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Week, o.Week), cmp.Compare(k.Day, o.Day), cmp.Compare(k.Department, o.Department), cmp.Compare(k.Project, o.Project),
		cmp.Compare(k.Pool, o.Pool), cmp.Compare(k.User, o.User), cmp.Compare(k.Step, o.Step), cmp.Compare(k.Plan, o.Plan))
}

// only returns the parts of a key that rows are grouped by.
func (k Key) only(by []By) Key {
	var o Key
	for _, b := range by {
		switch b {
		case ByWeek:
			o.Week = k.Week
		case ByDay:
			o.Day = k.Day
		case ByProject:
			o.Project = k.Project
		case ByPool:
			o.Pool = k.Pool
		case ByUser:
			o.User = k.User
		case ByStep:
			o.Step = k.Step
		case ByDepartment:
			o.Department = k.Department
		case ByPlan:
			o.Plan = k.Plan
		}
	}
	return o
}

// at returns a key of an instant.
func (k Key) at(t time.Time, zone *time.Location) Key {
	k.Week, k.Day = calendar.WeekOf(t, zone).String(), day(t, zone)
	return k
}

// Use is slot-hours of one group, of the time that cycles saw.
type Use struct {
	Key
	Guaranteed *float64 `json:"guaranteed_slot_hours,omitempty"` // null: users and steps of a pool share its guarantee
	Used       float64  `json:"used_slot_hours"`                 // within the guarantee
	Borrowed   float64  `json:"borrowed_slot_hours"`             // beyond it
	Waiting    *float64 `json:"waiting_slot_hours,omitempty"`    // of jobs that had room in the pool and did not run
	Percent    *float64 `json:"used_percent,omitempty"`          // of the guarantee; null: there was none
	Demand     *float64 `json:"demand_percent,omitempty"`        // used, borrowed and waiting, of the guarantee
	Share      *float64 `json:"share_percent,omitempty"`         // used and borrowed, of those of all groups
	NoPromise  bool     `json:"no_promise,omitempty"`            // of a project, to which nothing was allocated
}

// History is what cycles recorded of a time.
type History struct {
	Farm  []ledger.FarmHour
	Use   []ledger.UseHour
	Users []ledger.UserHour
	Zone  *time.Location
}

// sums are slot-time of a group.
type sums struct{ guaranteed, used, borrowed, waiting ledger.SlotTime }

// UsesBy sums up hours by groups, which it returns in their order, and all of them. Project
// "" means every project.
func UsesBy(h History, by []By, project string) ([]Use, Use) {
	groups, byJob := h.sumUp(by, project, func(k Key) Key { return k.only(by) })
	var total sums
	for _, s := range groups {
		total.guaranteed, total.used, total.borrowed, total.waiting = total.guaranteed+s.guaranteed, total.used+s.used, total.borrowed+s.borrowed, total.waiting+s.waiting
	}
	all := make([]Use, 0, len(groups))
	for k, s := range groups {
		all = append(all, s.use(k, byJob, total))
	}
	slices.SortFunc(all, func(a, b Use) int { return a.Key.Compare(b.Key) })
	return all, total.use(Key{}, byJob, total)
}

// sumUp sums up hours by what a function makes of their keys, and reports whether they are what
// users' jobs used: pools' guarantees are of no single user or step.
func (h History) sumUp(by []By, project string, keyOf func(Key) Key) (groups map[Key]*sums, byJob bool) {
	groups = map[Key]*sums{}
	group := func(k Key, hour time.Time) *sums {
		if k = keyOf(k.at(hour, h.Zone)); groups[k] == nil {
			groups[k] = &sums{}
		}
		return groups[k]
	}
	if slices.Contains(by, ByUser) || slices.Contains(by, ByStep) {
		for _, u := range h.Users {
			if project != "" && u.Project != project {
				continue
			}
			k := Key{Project: u.Project, User: u.User, Step: u.Step}
			if u.PoolID == 0 {
				group(k, u.Hour).borrowed += u.Used
				continue
			}
			k.Pool = u.In.String()
			group(k, u.Hour).used += u.Used
		}
		return groups, true
	}
	for _, u := range h.Use {
		if project != "" && u.Project != project {
			continue
		}
		k := Key{Project: u.Project}
		if u.PoolID == 0 {
			group(k, u.Hour).borrowed += u.Used
			continue
		}
		k.Pool = u.Pool.String()
		s := group(k, u.Hour)
		s.guaranteed, s.used, s.waiting = s.guaranteed+u.Guaranteed, s.used+u.Used, s.waiting+u.Waiting
	}
	return groups, false
}

func (s sums) use(k Key, byJob bool, total sums) Use {
	u := Use{Key: k, Used: round(s.used.Hours()), Borrowed: round(s.borrowed.Hours())}
	u.Share = percentOf(s.used+s.borrowed, total.used+total.borrowed)
	if byJob {
		return u
	}
	guaranteed, waiting := round(s.guaranteed.Hours()), round(s.waiting.Hours())
	u.Guaranteed, u.Waiting, u.NoPromise = &guaranteed, &waiting, k.Project != "" && k.Pool == "" && s.guaranteed == 0
	u.Percent, u.Demand = percentOf(s.used, s.guaranteed), percentOf(s.used+s.borrowed+s.waiting, s.guaranteed)
	return u
}

// percentOf returns a part in percent of a whole; nil without a whole.
func percentOf(part, whole ledger.SlotTime) *float64 {
	if whole == 0 {
		return nil
	}
	p := round(100 * part.Hours() / whole.Hours())
	return &p
}
