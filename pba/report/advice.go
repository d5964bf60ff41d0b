package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Advice is something that a manager should look at, and why.
type Advice struct {
	Kind     AdviceKind `json:"kind"`
	Project  string     `json:"project"`
	What     string     `json:"what"`
	Evidence string     `json:"evidence"`
}

// AdviceKind is what advice is about.
type AdviceKind string

// The kinds of advice, the most urgent first.
const (
	Unattainable AdviceKind = "unattainable" // a throughput that can't be met any more
	PlanEnds     AdviceKind = "plan ends"
	WaitsGrow    AdviceKind = "waits grow"
	Unused       AdviceKind = "unused"
)

const (
	unusedPercent = 50             // of a guarantee
	leastSeen     = 24 * time.Hour // of a week that is evidence
	leastJobs     = 5              // of a week whose waits are evidence
	planAhead     = 2              // weeks
)

// AdviceWeeks is the number of weeks running before this one that advice on use and waits is from.
const AdviceWeeks = 3

// Evidence is what advice is from.
type Evidence struct {
	This        calendar.Week
	History                         // of the weeks before
	Jobs        []ledger.PastJob    // that ended in them
	Threshold   time.Duration       // waits up to it are as promised
	Allocations []ledger.Allocation // from this week on
	Pools       []plan.PoolStatus   // as they are now
}

// Advise returns what managers should look at, most urgent kinds first, then by project. The
// evidence of use and waits are the last three weeks, each of which cycles saw for a day.
func Advise(e Evidence, project string) []Advice {
	all := []Advice{}
	for _, more := range [][]Advice{unattainable(e.Pools), plansThatEnd(e), growingWaits(e), unused(e)} {
		for _, a := range more {
			if project == "" || a.Project == project {
				all = append(all, a)
			}
		}
	}
	return all
}

// unattainable advises of throughputs that can't be met any more.
func unattainable(pools []plan.PoolStatus) []Advice {
	var all []Advice
	for i := range pools {
		p := &pools[i]
		if p.Undone == 0 {
			continue
		}
		of := ledger.Pool{Project: p.Project, User: p.User, Step: p.Step, Hosts: p.Hosts}
		all = append(all, Advice{
			Kind: Unattainable, Project: p.Project,
			What:     fmt.Sprintf("%s can't be done with %s's slots this week: guarantee more, or promise fewer", printable.Count(p.Undone, "job"), of),
			Evidence: fmt.Sprintf("at the mean time of those that ended, %d of the week's %d jobs will be done when it ends", p.Jobs-p.Undone, p.Jobs),
		})
	}
	slices.SortFunc(all, func(a, b Advice) int { return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.What, b.What)) })
	return all
}

// plansThatEnd advises of projects that have slots now and none in two weeks.
func plansThatEnd(e Evidence) []Advice {
	now, then, last := map[string]int{}, map[string]bool{}, map[string]calendar.Week{}
	end := calendar.AddWeeks(e.This, planAhead)
	for _, a := range e.Allocations {
		switch {
		case a.Slots == 0:
			continue
		case a.Week == e.This:
			now[a.Project] += a.Slots
		case a.Week.Compare(end) >= 0:
			then[a.Project] = then[a.Project] || a.Week == end
		}
		if a.Week.Compare(end) < 0 && a.Week.Compare(last[a.Project]) > 0 {
			last[a.Project] = a.Week
		}
	}
	var all []Advice
	for name, slots := range now {
		if !then[name] {
			all = append(all, Advice{
				Kind: PlanEnds, Project: name,
				What:     fmt.Sprintf("%s has no slots in %s: plan them, if it goes on", name, end),
				Evidence: fmt.Sprintf("it has %s this week, and its plan goes up to %s", printable.Count(slots, "slot"), last[name]),
			})
		}
	}
	slices.SortFunc(all, func(a, b Advice) int { return cmp.Compare(a.Project, b.Project) })
	return all
}

// weeksSeen returns the last weeks if cycles saw each for long enough, oldest first.
func (e *Evidence) weeksSeen() []string {
	seen := map[string]time.Duration{}
	for _, h := range e.Farm {
		seen[calendar.WeekOf(h.Hour, e.Zone).String()] += h.Seen
	}
	var weeks []string
	for n := AdviceWeeks; n > 0; n-- {
		w := calendar.AddWeeks(e.This, -n).String()
		if seen[w] < leastSeen {
			return nil
		}
		weeks = append(weeks, w)
	}
	return weeks
}

// growingWaits advises of projects whose jobs within the guarantee waited longer each week, and
// twice as long in the end, and longer than is promised.
func growingWaits(e Evidence) []Advice {
	weeks := e.weeksSeen()
	if weeks == nil {
		return nil
	}
	rows, _ := Waits(e.Jobs, nil, Rates{}, "", []By{ByProject, ByWeek}, e.Zone)
	p95 := map[string]map[string]float64{}
	for _, r := range rows {
		if r.Of == Within && r.Count >= leastJobs && r.Project != "" && r.Week != "" {
			if p95[r.Project] == nil {
				p95[r.Project] = map[string]float64{}
			}
			p95[r.Project][r.Week] = r.P95
		}
	}
	var all []Advice
	for name, by := range p95 {
		grows := len(by) >= len(weeks)
		var shown []string
		for i, w := range weeks {
			grows = grows && by[w] > 0 && (i == 0 || by[w] > by[weeks[i-1]])
			shown = append(shown, fmt.Sprintf("%s in %s", inSeconds(by[w]), w))
		}
		first, last := by[weeks[0]], by[weeks[len(weeks)-1]]
		if grows && last >= 2*first && last > e.Threshold.Seconds() {
			all = append(all, Advice{
				Kind: WaitsGrow, Project: name,
				What:     fmt.Sprintf("%s's jobs wait longer each week within its guarantee", name),
				Evidence: "95 % of them started within " + strings.Join(shown, ", "),
			})
		}
	}
	slices.SortFunc(all, func(a, b Advice) int { return cmp.Compare(a.Project, b.Project) })
	return all
}

func inSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// unused advises of pools of which less than half was used, or waited for, in each week: once
// of each project.
func unused(e Evidence) []Advice {
	weeks := e.weeksSeen()
	if weeks == nil {
		return nil
	}
	type use struct {
		pool ledger.Pool
		by   map[string]*sums
	}
	pools := map[int64]*use{}
	for _, u := range e.Use {
		if u.PoolID == 0 {
			continue
		}
		p := pools[u.PoolID]
		if p == nil {
			p = &use{u.Pool, map[string]*sums{}}
			pools[u.PoolID] = p
		}
		w := calendar.WeekOf(u.Hour, e.Zone).String()
		if p.by[w] == nil {
			p.by[w] = &sums{}
		}
		s := p.by[w]
		s.guaranteed, s.used, s.waiting = s.guaranteed+u.Guaranteed, s.used+u.Used, s.waiting+u.Waiting
	}
	named := map[string][]string{}   // the pools of a project of which so little is used
	only := map[string]ledger.Pool{} // one of them
	low := map[string]map[string]*sums{}
	for _, p := range pools {
		if slices.ContainsFunc(weeks, func(w string) bool {
			s := p.by[w]
			return s == nil || s.guaranteed == 0 || *percentOf(s.used+s.waiting, s.guaranteed) >= unusedPercent
		}) {
			continue
		}
		name := p.pool.Project
		only[name] = p.pool
		named[name] = append(named[name], strings.TrimPrefix(p.pool.String(), name+":"))
		if low[name] == nil {
			low[name] = map[string]*sums{}
			for _, w := range weeks {
				low[name][w] = &sums{}
			}
		}
		for _, w := range weeks {
			s := low[name][w]
			s.guaranteed, s.used = s.guaranteed+p.by[w].guaranteed, s.used+p.by[w].used
		}
	}
	var all []Advice
	for _, project := range slices.Sorted(maps.Keys(named)) {
		var shown []string
		for _, w := range weeks {
			shown = append(shown, fmt.Sprintf("%.0f %% in %s", *percentOf(low[project][w].used, low[project][w].guaranteed), w))
		}
		a := Advice{
			Kind: Unused, Project: project,
			What:     fmt.Sprintf("%s uses less than half of its guarantee: others could have slots of it", only[project]),
			Evidence: fmt.Sprintf("of what was promised it used %s, and hardly more was waited for", strings.Join(shown, ", ")),
		}
		if n := len(named[project]); n > 1 {
			slices.Sort(named[project])
			a.What = fmt.Sprintf("%d pools of %s use less than half of their guarantees: others could have slots of them", n, project)
			a.Evidence = fmt.Sprintf("of what was promised they used %s, and hardly more was waited for: %s", strings.Join(shown, ", "), someOf(named[project]))
		}
		all = append(all, a)
	}
	return all
}

// maxPoolsNamed is the number of pools that advice names.
const maxPoolsNamed = 10

func someOf(names []string) string {
	if more := len(names) - maxPoolsNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxPoolsNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
