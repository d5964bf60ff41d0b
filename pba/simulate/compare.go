package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Yield compares what the jobs of a project, or of a user without a project, got under two
// plans.
type Yield struct {
	Project string   `json:"project,omitempty"`
	User    string   `json:"user,omitempty"`
	Jobs    int      `json:"jobs"`
	Before  Standing `json:"before"`
	After   Standing `json:"after"`
	Why     []string `json:"gives_way"` // what gets worse; empty: nothing
}

// Standing is what a project's jobs got.
type Standing struct {
	MeanWait float64 `json:"mean_wait_seconds"`
	P95Wait  float64 `json:"p95_wait_seconds"`
	Victims  int     `json:"victims"`             // times that a job was preempted
	Lost     float64 `json:"lost_slot_hours"`     // work of runs that were preempted
	Used     float64 `json:"used_slot_hours"`     // of runs, in the window
	Borrowed float64 `json:"borrowed_slot_hours"` // of these, beyond the guarantee
}

// Yields compares two outcomes of the same jobs, both of Setup.Everyone and with series. The
// first are those who give way, by what their jobs wait longer together; the last ones are
// those who gain most.
func Yields(before, after *Outcome) []Yield {
	type who struct{ project, user string }
	was, is := map[who]Group{}, map[who]Group{}
	for _, x := range []struct {
		o  *Outcome
		to map[who]Group
	}{{before, was}, {after, is}} {
		for _, g := range slices.Concat(x.o.Projects, x.o.Others) {
			x.to[who{g.Project, g.User}] = g
		}
		delete(x.to, who{}) // the sum of the others
	}
	for k, g := range was { // what is a project with a guarantee before may be another one after
		if _, ok := is[k]; !ok {
			is[k] = Group{Project: g.Project, User: g.User}
		}
	}
	var all []Yield
	for k, g := range is {
		old := was[k]
		y := Yield{Project: k.project, User: k.user, Jobs: max(g.Jobs, old.Jobs), Before: before.standing(&old), After: after.standing(&g), Why: []string{}}
		if y.Jobs > 0 {
			y.Why = worse(&y.Before, &y.After)
			all = append(all, y)
		}
	}
	slices.SortFunc(all, func(a, b Yield) int {
		return cmp.Or(
			cmp.Compare(min(1, len(b.Why)), min(1, len(a.Why))),
			cmp.Compare(b.waitsLonger(), a.waitsLonger()),
			cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return all
}

// waitsLonger returns the seconds that the jobs wait longer, together.
func (y *Yield) waitsLonger() float64 {
	return (y.After.MeanWait - y.Before.MeanWait) * float64(y.Jobs)
}

func (o *Outcome) standing(g *Group) Standing {
	return Standing{MeanWait: g.Wait.Mean, P95Wait: g.Wait.P95, Victims: g.Preempted, Lost: g.Lost / 3600, Used: g.Used / 3600, Borrowed: o.borrowed(g)}
}

// borrowed returns the slot-hours that a group's jobs ran on beyond its guarantee: all, if it
// has none.
func (o *Outcome) borrowed(g *Group) float64 {
	for i := range o.Series.Pools {
		p := &o.Series.Pools[i]
		if p.Project == "" || p.Project != g.Project {
			continue
		}
		hours := 0.0
		for k, held := range p.Held {
			hours += max(0, held-p.Allocated[k]) * o.Series.Bucket / 3600
		}
		return hours
	}
	return g.Used / 3600
}

// worse returns what gets worse by more than a hundredth.
func worse(before, after *Standing) []string {
	why := []string{}
	add := func(what string, was, is, least float64, show func(float64) string) {
		if is-was >= least && is-was > was/100 {
			why = append(why, fmt.Sprintf("%s %s, was %s", what, show(is), show(was)))
		}
	}
	add("waits", before.MeanWait, after.MeanWait, 1, inWords)
	add("95 % wait up to", before.P95Wait, after.P95Wait, 1, inWords)
	add("victims", float64(before.Victims), float64(after.Victims), 1, func(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) })
	add("loses", before.Lost, after.Lost, 0.05, slotHours)
	// What is guaranteed now, and was borrowed before, is no loss.
	if fell := min(before.Borrowed-after.Borrowed, before.Used-after.Used); fell >= 0.05 && fell > before.Borrowed/100 {
		why = append(why, fmt.Sprintf("borrows %s, was %s", slotHours(after.Borrowed), slotHours(before.Borrowed)))
	}
	return why
}

func inWords(seconds float64) string {
	return (time.Duration(seconds) * time.Second).String()
}

func slotHours(hours float64) string {
	return strconv.FormatFloat(hours, 'f', 1, 64) + " slot-hours"
}

// Spare returns the slots of a project's guarantee from one time to another that its jobs
// neither ran on nor waited for at any time: it could lend them. 0 if the series does not
// reach there.
func (o *Outcome) Spare(project string, from, to time.Time) int {
	for i := range o.Series.Pools {
		p := &o.Series.Pools[i]
		if p.Project != project || project == "" {
			continue
		}
		spare, seen := 0.0, false
		for k := range p.Allocated {
			at := o.Series.Start.Add(time.Duration(float64(k) * o.Series.Bucket * float64(time.Second)))
			if at.Before(from) || !at.Before(to) {
				continue
			}
			left := p.Allocated[k] - p.Held[k] - p.Waiting[k]
			if !seen || left < spare {
				spare, seen = left, true
			}
		}
		return max(0, int(spare+1e-9))
	}
	return 0
}
