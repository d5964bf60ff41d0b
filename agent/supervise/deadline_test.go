package supervise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// race is a world in which a job has a deadline, and does its work by what it has of the resource.
type race struct {
	*world
	work     float64 // that it has to do, in amounts of the resource
	done     float64 // of it
	seconds  int     // until its deadline
	progress Progress
	second   int
	others   float64 // that they had in the seconds that count
	counted  int
	limits   []Limit // that were in force, one of each kind for each job
}

const (
	settled  = 20 // seconds after which a job's speed is known, and others are limited
	racer    = "racer"
	capacity = 100_000
)

// drawRace draws neighbours that take all they get, of a job that needs a part of what there is for its deadline, and
// may have another part as its own. What there is is known, and limits are exact: by weights, or where it is found step by
// step, others are limited now more, now less.
func drawRace(t *rapid.T, r Resource, hogs int, needs, most float64) *race {
	w := &world{r: r, real: capacity, wants: map[string]int64{racer: 2 * capacity}}
	w.h = Host{Name: "h1"}
	w.h.Capacity[r] = w.real
	works := Works{r: rapid.SampledFrom([][]Rung{{Rate}, {Duty}, {Rate, Duty}}).Draw(t, "works")}
	for i := range hogs {
		name := fmt.Sprint("hog", i)
		w.h.Jobs = append(w.h.Jobs, Job{Name: name, Slots: 1, Works: works}) // as the world divides
		w.wants[name] = rapid.Int64Range(capacity, 3*capacity).Draw(t, "wants")
	}
	seconds := rapid.IntRange(300, 500).Draw(t, "seconds")
	j := Job{Name: racer, Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Works: works, Deadline: now.Add(time.Duration(seconds) * time.Second)}
	j.Most[r] = int64(most * capacity)
	w.h.Jobs = append(w.h.Jobs, j)
	return &race{world: w, seconds: seconds, work: needs * capacity * float64(seconds)}
}

// run lets the job work until it has ended, or a deadline and a half have passed, and returns after how many seconds it
// ended. Its progress is seen once in a second, in thousandths.
func (w *race) run(judge func(*Job)) (ended int) {
	for w.second = 1; w.second <= 3*w.seconds/2; w.second++ {
		w.world.run()
		j := w.h.job(racer)
		w.done += float64(j.Uses[w.r])
		if w.done >= w.work {
			return w.second
		}
		at := now.Add(time.Duration(w.second) * time.Second)
		w.progress.See(math.Floor(1000*w.done/w.work)/1000, j.Uses, at)
		w.progress.Set(j)
		if w.second > settled {
			sum := int64(0)
			for i := range w.h.Jobs {
				if w.h.Jobs[i].Name != racer {
					sum += w.h.Jobs[i].Uses[w.r]
				}
			}
			w.others += float64(sum)
			w.counted++
		}
		judge(j)
		w.h.Limits = Decide(&w.h, DefaultPolicy(), at).Limits
		for _, l := range w.h.Limits {
			if !slices.ContainsFunc(w.limits, func(o Limit) bool { return o.Job == l.Job && o.Rung == l.Rung }) {
				w.limits = append(w.limits, l)
			}
		}
	}
	return math.MaxInt
}

// R48: a job whose progress is proportional to what it has makes a deadline that it would miss with its even part, and
// can make with what it may have as its own; and it has no more for that than a quarter more than it needs.
func TestLawDeadlinesAreMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hogs := rapid.IntRange(1, 5).Draw(t, "hogs")
		even := 1 / float64(hogs+1)
		needs := rapid.Float64Range(1.1*even, 0.75).Draw(t, "needs")
		w := drawRace(t, rapid.SampledFrom(Resources()).Draw(t, "resource"), hogs, needs, rapid.Float64Range(1.25*needs, 0.95).Draw(t, "most"))
		needed := 0.0 // from when its speed is known
		ended := w.run(func(*Job) {
			if w.second == settled {
				needed = (w.work - w.done) / float64(w.seconds-settled)
			}
		})
		if ended > w.seconds {
			t.Errorf("it needs %.0f of %d, and ended %d s after its deadline: %+v", needed, w.real, ended-w.seconds, w.h.Limits)
		}
		if had, least := w.others/float64(w.counted), float64(w.real)-1.25*needed; had < least {
			t.Errorf("it needs %.0f, and others had %.0f of %d: want %.0f at least", needed, had, w.real, least)
		}
		for _, l := range w.limits {
			if l.Hastens == 0 || !strings.Contains(l.Reason, "its deadline") {
				t.Errorf("%+v", l)
			}
		}
	})
}

// R48: for a job that makes its deadline anyway, or whose speed is not known, nothing is limited.
func TestLawEarlyJobsLimitNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hogs := rapid.IntRange(1, 5).Draw(t, "hogs")
		even := 1 / float64(hogs+1)
		silent := rapid.Bool().Draw(t, "silent")
		needs := rapid.Float64Range(0.1*even, 0.9*even).Draw(t, "needs")
		if silent {
			needs = 2 * even
		}
		w := drawRace(t, rapid.SampledFrom(Resources()).Draw(t, "resource"), hogs, needs, 0.95)
		w.run(func(j *Job) {
			if silent {
				j.Speed = 0
			}
		})
		if len(w.limits) > 0 {
			t.Errorf("%+v", w.limits)
		}
	})
}

// R48: of a deadline that can't be made a job has as much as it may, and no more.
func TestLawDeadlinesHaveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hogs := rapid.IntRange(1, 5).Draw(t, "hogs")
		even := 1 / float64(hogs+1)
		most := rapid.Float64Range(1.1*even, 0.9).Draw(t, "most")
		w := drawRace(t, rapid.SampledFrom(Resources()).Draw(t, "resource"), hogs, 1.5, most)
		w.seconds /= 3 // it suffices
		had, seconds := 0.0, 0.0
		w.run(func(j *Job) {
			if w.second > 2*settled {
				had, seconds = had+float64(j.Uses[w.r]), seconds+1
			}
		})
		if use := had / seconds / capacity; use < 0.95*most || use > 1.05*most+0.01 {
			t.Errorf("it had %.3f, want %.3f: %+v", use, most, w.limits)
		}
		for _, l := range w.limits {
			if l.Hastens > w.h.job(racer).Most[w.r] {
				t.Errorf("%+v", l)
			}
		}
	})
}

// R48: what others were promised comes first, and of two with deadlines the earlier one.
func TestDeadlinesLeavePromises(t *testing.T) {
	job := func(name string, minimum, uses int64, deadline int) Job {
		j := Job{Name: name, Slots: 1, Works: Works{Disk: {Rate}}, Minimum: Amounts{Disk: minimum}, Uses: Amounts{Disk: uses}}
		j.Waits[Disk] = 1
		if deadline > 0 { // it needs 60
			j.Deadline, j.Done, j.Speed = now.Add(time.Duration(deadline)*time.Second), 0.4, 0.6/float64(deadline)/2
			j.Had, j.Most = Amounts{Disk: 30}, Amounts{Disk: 90}
		}
		return j
	}
	for _, c := range []struct {
		what      string
		jobs      []Job
		limits    string
		shortages string
	}{
		{"alone", []Job{job("a", 0, 30, 100), job("b", 0, 70, 0)}, "b 34: a would end 100 s after its deadline, and needs disk of 66 a second and had 30: this job keeps 34;", ""},
		{"beside a promise", []Job{job("a", 0, 30, 100), job("b", 50, 50, 0), job("c", 0, 20, 0)}, "b 51: a would end 100 s after its deadline, and needs disk of 50 a second and had 30: this job keeps 51;c 1: a would end 100 s after its deadline, and needs disk of 50 a second and had 30: this job keeps 1;", "a would end after its deadline, and what others on h1 were promised leaves it no more disk;"},
		{"the earlier one first", []Job{job("a", 0, 30, 9000), job("b", 0, 30, 7200), job("c", 0, 40, 0)}, "c 1: a would end 2 h after its deadline, and needs disk of 34 a second and had 30: this job keeps 1;", "a would end after its deadline, and what others on h1 were promised leaves it no more disk;"},
		{"one that it has already", []Job{job("a", 80, 80, 100), job("b", 0, 20, 0)}, "", ""},
	} {
		h := &Host{Name: "h1", Capacity: Amounts{Disk: 100}, Jobs: c.jobs}
		d := Decide(h, DefaultPolicy(), now)
		limits, shortages := "", ""
		for _, l := range d.Limits {
			limits += fmt.Sprintf("%s %d: %s;", l.Job, l.Value, l.Reason)
		}
		for _, s := range d.Shortages {
			shortages += s.Reason + ";"
		}
		if limits != c.limits || shortages != c.shortages {
			t.Errorf("%s:\n%s %s\nwant\n%s %s", c.what, limits, shortages, c.limits, c.shortages)
		}
	}
}

// How fast a job is follows from changes of its progress that were seen 10 s apart; what can't be is not known.
func TestProgress(t *testing.T) {
	type seen struct {
		second int
		done   float64
	}
	for what, c := range map[string]struct {
		seen  []seen
		done  float64
		speed float64
	}{
		"once":                   {[]seen{{0, 0.1}, {100, 0.1}}, 0, 0},
		"too soon after":         {[]seen{{0, 0.1}, {9, 0.2}}, 0, 0},
		"twice":                  {[]seen{{0, 0.1}, {10, 0.2}}, 0.2, 0.01},
		"gone on since":          {[]seen{{0, 0.1}, {10, 0.2}, {15, 0.2}}, 0.25, 0.01},
		"no further than a step": {[]seen{{0, 0.1}, {10, 0.2}, {40, 0.2}}, 0.3, 0.01},
		"lately":                 {[]seen{{0, 0.1}, {20, 0.2}, {40, 0.6}, {60, 0.7}}, 0.7, 0.005},
		"too long ago":           {[]seen{{0, 0.1}, {10, 0.2}, {611, 0.2}}, 0, 0},
		"rarely":                 {[]seen{{0, 0.1}, {1000, 0.2}, {3500, 0.2}}, 0.3, 0.0001},
		"falls":                  {[]seen{{0, 0.1}, {10, 0.2}, {20, 0.1}}, 0, 0},
		"goes on after a fall":   {[]seen{{0, 0.8}, {10, 0.9}, {20, 0.1}, {30, 0.2}}, 0.2, 0.01},
		"no number":              {[]seen{{0, 0.1}, {10, 0.2}, {20, math.NaN()}}, 0, 0},
		"more than all":          {[]seen{{0, 0.1}, {10, 0.2}, {20, 1.1}, {30, 0.3}}, 0, 0},
		"less than nothing":      {[]seen{{0, -0.1}, {10, 0.2}}, 0, 0},
		"back in time":           {[]seen{{20, 0.1}, {40, 0.2}, {10, 0.3}}, 0, 0},
		"all":                    {[]seen{{0, 0.9}, {10, 1}, {20, 1}}, 1, 0.01},
	} {
		p, j := Progress{}, Job{}
		for _, s := range c.seen {
			p.See(s.done, Amounts{Disk: 7}, now.Add(time.Duration(s.second)*time.Second))
			p.Set(&j)
		}
		had := int64(0)
		if c.speed > 0 {
			had = 7
		}
		const exact = 1e-9
		if math.Abs(j.Done-c.done) > exact || math.Abs(j.Speed-c.speed) > exact || j.Had != (Amounts{Disk: had}) {
			t.Errorf("%s: it is at %v, with %v a second and %v", what, j.Done, j.Speed, j.Had)
		}
	}
}
