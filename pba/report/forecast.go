package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
)

// Outlook is what one coming week holds for one project, or for all.
type Outlook struct {
	Week         calendar.Week `json:"week"`
	Project      string        `json:"project"` // "": all of them
	Allocated    int           `json:"allocated"`
	Expected     *float64      `json:"expected_use,omitempty"`  // slots, if use goes on as it did; null: no history
	MaxAllocated *int          `json:"max_allocated,omitempty"` // of all; null: the farm's size is unknown
	Free         *int          `json:"free,omitempty"`          // of it; below zero: more is allocated than may be
}

// Trend is how a project's use went: by least squares over the weeks that ended,
// of which cycles saw at least an hour.
type Trend struct {
	Project string  `json:"project"`
	Weeks   int     `json:"weeks"`
	Last    float64 `json:"last_week_slots"`    // mean over the last of them
	Slope   float64 `json:"slots_per_week"`     // 0 for fewer than two weeks
	Next    float64 `json:"expected_this_week"` // where the line is now
}

// Plans are what a forecast looks ahead at.
type Plans struct {
	This        calendar.Week
	Horizon     int // weeks ahead
	Allocations []ledger.Allocation
	Limit       int // max_allocated in slots; negative: unknown
}

// LookBack is the number of weeks that trends are computed from.
const LookBack = 8

// Forecast sets what is allocated in the coming weeks against max_allocated, and
// against what projects would use if their use went on along its trend.
func Forecast(p Plans, farm []ledger.FarmHour, use []ledger.UseHour, zone *time.Location, project string) ([]Outlook, []Trend) {
	trends := trends(p.This, farm, use, zone)
	allocated := map[calendar.Week]map[string]int{}
	names := map[string]bool{}
	for _, a := range p.Allocations {
		if allocated[a.Week] == nil {
			allocated[a.Week] = map[string]int{}
		}
		allocated[a.Week][a.Project] += a.Slots
		allocated[a.Week][""] += a.Slots
		names[a.Project] = true
	}
	byProject := map[string]Trend{}
	for _, t := range trends {
		byProject[t.Project] = t
		names[t.Project] = true
	}
	var all []Outlook
	for i := range p.Horizon + 1 {
		w := calendar.AddWeeks(p.This, i)
		all = append(all, total(p, w, allocated[w][""], i, trends))
		for _, name := range slices.Sorted(maps.Keys(names)) {
			t, known := byProject[name]
			if !known && allocated[w][name] == 0 {
				continue
			}
			row := Outlook{Week: w, Project: name, Allocated: allocated[w][name]}
			if known {
				row.Expected = t.at(i)
			}
			all = append(all, row)
		}
	}
	if project != "" {
		all = slices.DeleteFunc(all, func(o Outlook) bool { return o.Project != project && o.Project != "" })
		trends = slices.DeleteFunc(trends, func(t Trend) bool { return t.Project != project })
	}
	return all, trends
}

func total(p Plans, w calendar.Week, allocated, ahead int, trends []Trend) Outlook {
	row := Outlook{Week: w, Allocated: allocated}
	if p.Limit >= 0 {
		free := p.Limit - allocated
		row.MaxAllocated, row.Free = &p.Limit, &free
	}
	if len(trends) > 0 {
		sum := 0.0
		for _, t := range trends {
			sum += *t.at(ahead)
		}
		sum = round(sum)
		row.Expected = &sum
	}
	return row
}

// at is the trend's value so many weeks from now, never below zero.
func (t Trend) at(ahead int) *float64 {
	x := round(max(0, t.Next+t.Slope*float64(ahead)))
	return &x
}

// trends are those of all projects, by name. Without a week that ended, this
// week's use so far is all that is known.
func trends(this calendar.Week, farm []ledger.FarmHour, use []ledger.UseHour, zone *time.Location) []Trend {
	seen := map[int]time.Duration{} // by weeks ago
	ago := func(hour time.Time) int { return calendar.WeeksBetween(calendar.WeekOf(hour, zone), this) }
	for _, h := range farm {
		seen[ago(h.Hour)] += h.Seen
	}
	used := map[string]map[int]ledger.SlotTime{}
	for _, u := range use {
		if u.Project == "" {
			continue
		}
		if used[u.Project] == nil {
			used[u.Project] = map[int]ledger.SlotTime{}
		}
		used[u.Project][ago(u.Hour)] += u.Used
	}
	var weeks []int // ago, oldest first
	for n := LookBack; n >= 1; n-- {
		if seen[n] >= time.Hour {
			weeks = append(weeks, n)
		}
	}
	if len(weeks) == 0 && seen[0] > 0 {
		weeks = []int{0}
	}
	all := []Trend{}
	if len(weeks) == 0 {
		return all
	}
	for name, byWeek := range used {
		points := make([]point, len(weeks))
		for i, n := range weeks {
			points[i] = point{x: float64(-n), y: byWeek[n].Hours() / seen[n].Hours()}
		}
		slope, now := fitLine(points)
		all = append(all, Trend{Project: name, Weeks: len(weeks), Last: round(points[len(points)-1].y), Slope: round(slope), Next: round(max(0, now))})
	}
	slices.SortFunc(all, func(a, b Trend) int { return cmp.Compare(a.Project, b.Project) })
	return all
}

type point struct{ x, y float64 }

// fitLine returns the straight line through points by least squares: its slope, and its
// value at 0.
func fitLine(points []point) (slope, at0 float64) {
	n := float64(len(points))
	var sx, sy, sxx, sxy float64
	for _, p := range points {
		sx, sy, sxx, sxy = sx+p.x, sy+p.y, sxx+p.x*p.x, sxy+p.x*p.y
	}
	if d := n*sxx - sx*sx; d > 0 {
		slope = (n*sxy - sx*sy) / d
	}
	return slope, (sy - slope*sx) / n
}
