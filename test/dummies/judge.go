package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/test/judge"
)

// The checks use what the jobs wrote, and the dummy jobs that the queue listed after each
// cycle of the engine.

// job is what a job asked for, and its runs as it recorded them.
type job struct {
	name   string
	id     backends.ID
	memory int // GB
	runs   []run
	ends   int
}

type run struct {
	host     string
	from, to time.Time
}

// snapshot is the queue's state right after a cycle.
type snapshot struct {
	cycle     time.Time // when that cycle took its snapshot
	listed    time.Time // when the queue had answered
	mixed     bool      // the next cycle had begun before listed, or may have
	restarted bool      // it was the engine's first cycle since it was killed
	dummies   []dummyJob
	ended     map[backends.ID]bool   // jobs of the load that the queue does not list any more
	hosts     map[backends.ID]string // where a job of the load runs or is pinned
}

// dummyJob is a dummy job that had not ended.
type dummyJob struct {
	id, job backends.ID // its own, and that of the job that it is for
}

// evidence is all that is judged.
type evidence struct {
	jobs      []job
	snapshots []snapshot
	left      []string    // jobs that were in the queue in the end
	kills     []time.Time // of the engine
}

// notice is how long a queue may take to notice a job's end.
const notice = 2 * time.Second

// leastKills is how often the engine must be killed for a valid run.
const leastKills = 3

// without judges the run without dummy jobs: memory must be exceeded, or the load proves
// nothing.
func (e *evidence) without() []judge.Check {
	fits := e.fits()
	over := slices.ContainsFunc(e.moments(), func(a moment) bool { return memoryAt(&a) > hostMemory })
	return []judge.Check{e.once(), {What: "without dummy jobs the memory asked for on some host is over its own", OK: over, Found: fits.Found}}
}

// with judges a run with dummy jobs and an engine.
func (e *evidence) with() []judge.Check {
	return []judge.Check{e.once(), e.fits(), e.apart(), e.slots(), e.onDummies(), e.outlived(), e.covered(), e.noneLeft()}
}

// killed judges such a run whose engine was killed now and then.
func (e *evidence) killed() []judge.Check {
	restarted := 0
	for _, l := range e.snapshots {
		if l.restarted {
			restarted++
		}
	}
	c := judge.Check{What: fmt.Sprintf("the engine was killed %d times or more, and was restarted each time", leastKills), OK: len(e.kills) >= leastKills && restarted == len(e.kills)}
	c.Found = fmt.Sprintf("killed %d times, restarted %d times", len(e.kills), restarted)
	return append([]judge.Check{c}, e.with()...)
}

// gone judges a run whose engine was killed for good.
func (e *evidence) gone() []judge.Check {
	c := judge.Check{What: "when the engine was killed for good there were dummy jobs, and heavy jobs that waited"}
	if len(e.kills) == 1 && len(e.snapshots) > 0 {
		waiting := 0
		for _, j := range e.jobs {
			if j.memory == heavy && (len(j.runs) == 0 || j.runs[0].from.After(e.kills[0])) {
				waiting++
			}
		}
		n := len(e.snapshots[len(e.snapshots)-1].dummies)
		c.OK, c.Found = n > 0 && waiting > 0, fmt.Sprintf("%d dummy jobs, %d heavy jobs", n, waiting)
	} else {
		c.Found = fmt.Sprintf("it was killed %d times", len(e.kills))
	}
	return []judge.Check{c, e.once(), e.slots(), e.noneLeft()}
}

func (e *evidence) once() judge.Check {
	var tallies []judge.Tally
	for _, j := range e.jobs {
		tallies = append(tallies, judge.Tally{Name: j.name, Starts: len(j.runs), Ends: j.ends})
	}
	wrong := judge.EndedOnce(tallies)
	for _, t := range tallies {
		if t.Ends == 1 && t.Starts != 1 {
			wrong = append(wrong, fmt.Sprintf("%s ran %d times", t.Name, t.Starts))
		}
	}
	return judge.Check{What: fmt.Sprintf("each of the %d jobs ran once, to its end", len(e.jobs)), OK: len(wrong) == 0, Found: orAll(wrong)}
}

// moment is the jobs on a host when one of them had just started.
type moment = judge.Moment[*job]

func memoryAt(a *moment) (sum int) {
	for _, j := range a.Running {
		sum += j.memory
	}
	return sum
}

func heavyAt(a *moment) (n int) {
	for _, j := range a.Running {
		if j.memory == heavy {
			n++
		}
	}
	return n
}

// moments returns all starts, in order of time.
func (e *evidence) moments() []moment {
	var spans []judge.Span[*job]
	for i := range e.jobs {
		j := &e.jobs[i]
		for _, r := range j.runs {
			spans = append(spans, judge.Span[*job]{Host: r.host, From: r.from, To: r.to, Job: j})
		}
	}
	return judge.Moments(spans)
}

// most describes the moment at which of is largest, and how often it is over a limit. ok
// reports whether it never is.
func (e *evidence) most(limit int, unit string, of func(*moment) int) (ok bool, found string) {
	best, over, where := 0, 0, ""
	for _, a := range e.moments() {
		n := of(&a)
		if n > best {
			best, where = n, fmt.Sprintf("on %s at %.1f s", a.Host, a.Time.Sub(e.firstStart()).Seconds())
			if n > limit {
				where += ": " + names(a.Running)
			}
		}
		if n > limit {
			over++
		}
	}
	found = fmt.Sprintf("at most %d %s, %s", best, unit, where)
	if over > 0 {
		found = fmt.Sprintf("%d times more than %d %s; %s", over, limit, unit, found)
	}
	return best <= limit && best > 0, found
}

func (e *evidence) fits() judge.Check {
	ok, found := e.most(hostMemory, "GB", memoryAt)
	return judge.Check{What: fmt.Sprintf("the memory asked for on a host is never over %d GB", hostMemory), OK: ok, Found: found}
}

func (e *evidence) apart() judge.Check {
	ok, found := e.most(1, "heavy", heavyAt)
	return judge.Check{What: "two heavy jobs never run on one host", OK: ok, Found: found}
}

func (e *evidence) slots() judge.Check {
	ok, found := e.most(slots, "jobs", func(a *moment) int { return len(a.Running) })
	return judge.Check{What: fmt.Sprintf("a host never runs more than %d jobs", slots), OK: ok, Found: found}
}

// onDummies checks that light jobs ran in slots of dummy jobs. Beside a heavy job and its
// dummies one slot of the host is left: a second light job there has a dummy's slot.
func (e *evidence) onDummies() judge.Check {
	const left = slots - 1 - dummiesOfHeavy
	n := 0
	for _, a := range e.moments() {
		if a.Started.memory == light && heavyAt(&a) > 0 && len(a.Running)-1 > left {
			n++
		}
	}
	return judge.Check{What: "light jobs ran in slots of dummy jobs", OK: n > 0, Found: fmt.Sprintf("%d light jobs started there", n)}
}

// outlived checks R31's cycle: a job whose end the queue knew before a cycle has no dummy
// jobs after it.
func (e *evidence) outlived() judge.Check {
	jobs := map[backends.ID]*job{}
	for i := range e.jobs {
		jobs[e.jobs[i].id] = &e.jobs[i]
	}
	var wrong []string
	for i, l := range e.snapshots {
		for _, d := range l.dummies {
			j := jobs[d.job]
			switch {
			case j == nil:
				wrong = append(wrong, fmt.Sprintf("job %s is a dummy of %s, which is not a job of the load", d.id, d.job))
			case i > 0 && e.snapshots[i-1].ended[d.job]:
				wrong = append(wrong, fmt.Sprintf("at %.1f s job %s still exists for %s", l.cycle.Sub(e.firstStart()).Seconds(), d.id, j.name))
			}
		}
	}
	return judge.Check{What: "no dummy job outlived its job by more than a cycle", OK: len(wrong) == 0, Found: orAll(wrong)}
}

// covered checks that after each cycle, an engine's first included, a heavy job that runs
// has its dummies or light jobs in their slots, and no heavy job has more dummies.
func (e *evidence) covered() judge.Check {
	var wrong []string
	seen, restarted := 0, 0
	for k, l := range e.snapshots {
		if l.restarted {
			restarted++
		}
		if l.mixed {
			continue
		}
		of := map[backends.ID]int{}
		for _, d := range l.dummies {
			of[d.job]++
		}
		for i := range e.jobs {
			j, when := &e.jobs[i], fmt.Sprintf("at %.1f s ", l.cycle.Sub(e.firstStart()).Seconds())
			n := of[j.id]
			if n > dummiesOfHeavy || n > 0 && j.memory != heavy {
				wrong = append(wrong, fmt.Sprintf("%s%s has %d", when, j.name, n))
			}
			if j.memory != heavy || len(j.runs) != 1 || j.runs[0].from.After(l.cycle) || j.runs[0].to.Before(l.listed) {
				continue
			}
			seen++
			if beside := e.lightsOn(j.runs[0].host, k); n+beside < dummiesOfHeavy {
				wrong = append(wrong, fmt.Sprintf("%s%s has %d, and %d light jobs beside it", when, j.name, n, beside))
			}
		}
	}
	c := judge.Check{What: fmt.Sprintf("after each cycle a running heavy job has %d dummies, or light jobs in their slots; none has more", dummiesOfHeavy)}
	c.OK, c.Found = len(wrong) == 0 && seen > 0, orAll(wrong)
	if seen == 0 {
		c.Found = "no heavy job ran throughout the time from a cycle to its snapshot"
	}
	if c.OK {
		c.Found = fmt.Sprintf("seen %d times in %d cycles", seen, len(e.snapshots))
		if restarted > 0 {
			c.Found += fmt.Sprintf(", of which %d were the first of an engine", restarted)
		}
	}
	return c
}

// lightsOn counts the light jobs that had, or were given, a slot of a host when a cycle
// took its snapshot. On a busy machine the queue may notice late that one has started or
// ended: what it showed after the cycle before counts, too.
func (e *evidence) lightsOn(host string, k int) (n int) {
	l := e.snapshots[k]
	for _, j := range e.jobs {
		there := l.hosts[j.id] == host || k > 0 && e.snapshots[k-1].hosts[j.id] == host
		for _, r := range j.runs {
			there = there || r.host == host && !r.from.After(l.listed) && r.to.After(l.cycle.Add(-notice))
		}
		if there && j.memory == light {
			n++
		}
	}
	return n
}

func (e *evidence) noneLeft() judge.Check {
	return judge.Check{What: "nothing is left in the queue, no dummy job either", OK: len(e.left) == 0, Found: cmp.Or(strings.Join(e.left, ", "), "nothing is")}
}

// firstStart returns the first start of all.
func (e *evidence) firstStart() (first time.Time) {
	for _, j := range e.jobs {
		for _, r := range j.runs {
			if first.IsZero() || r.from.Before(first) {
				first = r.from
			}
		}
	}
	return first
}

// usage returns the slot time worked, and the time from the first start to the last end.
func (e *evidence) usage() (worked, took time.Duration) {
	first := e.firstStart()
	for _, j := range e.jobs {
		for _, r := range j.runs {
			worked += r.to.Sub(r.from)
			took = max(took, r.to.Sub(first))
		}
	}
	return worked, took
}

func names(jobs []*job) string {
	var all []string
	for _, j := range jobs {
		all = append(all, fmt.Sprintf("%s (%d GB)", j.name, j.memory))
	}
	return strings.Join(all, ", ")
}

func orAll(wrong []string) string { return judge.ButList(wrong, "as it should be") }
