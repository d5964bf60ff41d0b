package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/test/judge"
)

// preemption means that a job lost its slot before its end.
type preemption struct {
	job     *job
	host    string
	at      time.Time // its last line before
	suspend bool      // it went on later, in the same process
}

// evidence has the diaries of all jobs.
type evidence struct {
	a, b        []*job
	noNumbers   bool          // runs get no number of requeues from the queue
	preemptions []preemption  // in order of time
	cycle       time.Duration // the longest between two of pba's snapshots while A waited
}

func collect(a, b []*job) *evidence {
	e := &evidence{a: a, b: b}
	for _, j := range e.all() {
		for i, r := range j.Runs {
			for k := range len(r.Stretches) - 1 {
				e.preemptions = append(e.preemptions, preemption{job: j, host: r.Host, at: r.Stretches[k].To, suspend: true})
			}
			if r.End.IsZero() && i < len(j.Runs)-1 {
				e.preemptions = append(e.preemptions, preemption{job: j, host: r.Host, at: r.Last})
			}
		}
	}
	slices.SortStableFunc(e.preemptions, func(x, y preemption) int { return x.at.Compare(y.at) })
	return e
}

func (e *evidence) all() []*job { return append(e.a[:len(e.a):len(e.a)], e.b...) }

// checks returns the checks of what the demo must show, by the diaries alone.
func (e *evidence) checks() []judge.Check {
	return []judge.Check{e.inTime(), e.beforeEndsOfB(), e.exactlyTheNeed(), e.suspended(), e.saved(), e.endedOnce(), e.numbered(), e.neverOverfilled()}
}

// inTime checks R14's promise. The time to free the slots runs from the moment when the
// first victim wrote its last line.
// On a busy machine a cycle takes longer than pba waits between two.
func (e *evidence) inTime() judge.Check {
	bound := threshold + 2*max(cycle, e.cycle)
	c := judge.Check{What: fmt.Sprintf("A's %d jobs ran within threshold %v + 2 cycles of %v (+ freeing)", len(e.a), threshold, cycle), OK: len(e.preemptions) > 0}
	if !c.OK {
		c.Found = "no slot was freed for them"
		return c
	}
	var longest, freeing time.Duration
	for _, j := range e.a {
		if len(j.Runs) == 0 {
			c.OK = false
			c.Found = j.Name + " never ran"
			return c
		}
		longest = max(longest, e.preemptions[0].at.Sub(j.submitted))
		freeing = max(freeing, j.First().Sub(e.preemptions[0].at))
	}
	c.OK = longest <= bound && e.cycle <= longestCycle
	c.Found = fmt.Sprintf("slots were preempted after at most %s, free and in use %s later", seconds(longest), seconds(freeing))
	if e.cycle > cycle+tick {
		c.Found += fmt.Sprintf("; cycles took up to %s here", seconds(e.cycle))
	}
	return c
}

func (e *evidence) beforeEndsOfB() judge.Check {
	var last, end time.Time
	for _, j := range e.a {
		if j.First().IsZero() || j.First().After(last) {
			last = j.First()
		}
	}
	for _, j := range e.b {
		if at := endOf(j); !at.IsZero() && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	c := judge.Check{What: "they ran before any job of B ended by itself", OK: !last.IsZero() && !end.IsZero() && last.Before(end)}
	c.Found = fmt.Sprintf("A's last start %s before B's first end", seconds(end.Sub(last)))
	if last.After(end) {
		c.Found = fmt.Sprintf("A's last start %s after B's first end", seconds(last.Sub(end)))
	}
	return c
}

func endOf(j *job) time.Time {
	if !j.Ended() {
		return time.Time{}
	}
	return j.Runs[len(j.Runs)-1].End
}

// exactlyTheNeed checks that the victims have as many slots as A needed beyond the free
// ones.
func (e *evidence) exactlyTheNeed() judge.Check {
	free := nodes * slots
	if len(e.a) > 0 {
		for _, j := range e.b {
			if !j.First().IsZero() && j.First().Before(e.a[0].submitted) {
				free--
			}
		}
	}
	need := max(0, len(e.a)-free)
	var requeued, suspended, ofA int
	for _, s := range e.preemptions {
		switch {
		case slices.Contains(e.a, s.job):
			ofA++
		case s.suspend:
			suspended++
		default:
			requeued++
		}
	}
	return judge.Check{
		What:  "evictions = exactly the need, all of B",
		OK:    requeued+suspended == need && ofA == 0,
		Found: fmt.Sprintf("needed %d (%d free); %d started again, %d were suspended, %d of A", need, free, requeued, suspended, ofA),
	}
}

// lastStarted returns B's job that was started last when the farm was full.
func (e *evidence) lastStarted() *job { return e.b[indexOfStopped] }

func (e *evidence) suspended() judge.Check {
	j := e.lastStarted()
	c := judge.Check{
		What:  fmt.Sprintf("%s, which chose suspend, was a victim, resumed and ended", j.Name),
		OK:    len(j.Runs) == 1 && j.Suspensions() == 1 && j.Ended(),
		Found: fmt.Sprintf("%d start(s), stopped %d time(s), ended %d time(s)", len(j.Runs), j.Suspensions(), j.Ends),
	}
	if c.OK {
		r := j.Runs[0]
		c.Found += fmt.Sprintf("; silent for %s", seconds(r.Stretches[1].From.Sub(r.Stretches[0].To)))
	}
	return c
}

// saved checks that the job which saves itself lost nothing by making way.
func (e *evidence) saved() judge.Check {
	j := e.b[indexOfSaver]
	c := judge.Check{
		What:  fmt.Sprintf("%s, which saves itself, was a victim and went on where it was", j.Name),
		OK:    len(j.Runs) == 2 && j.Runs[0].Saved > 0 && j.Runs[1].From == j.Runs[0].Saved && j.Ended(),
		Found: fmt.Sprintf("%d start(s), ended %d time(s)", len(j.Runs), j.Ends),
	}
	for _, r := range j.Runs {
		if r.Saved > 0 {
			c.Found += fmt.Sprintf("; saved after step %d", r.Saved)
		}
		if r.From > 0 {
			c.Found += fmt.Sprintf("; went on at step %d", r.From+1)
		}
	}
	return c
}

func (e *evidence) endedOnce() judge.Check {
	all := e.all()
	var tallies []judge.Tally
	for _, j := range all {
		tallies = append(tallies, j.Tally())
	}
	wrong := judge.EndedOnce(tallies)
	for _, j := range all {
		if j.Ends == 1 && !j.Ended() {
			wrong = append(wrong, j.Name+" ran on after its end")
		}
	}
	return judge.Check{
		What:  fmt.Sprintf("each of the %d jobs ended exactly once", jobsOfA+jobsOfB),
		OK:    len(wrong) == 0 && len(all) == jobsOfA+jobsOfB,
		Found: fmt.Sprintf("%d did; %s", len(all)-len(wrong), judge.ButList(wrong, "none was different")),
	}
}

func (e *evidence) numbered() judge.Check {
	if e.noNumbers {
		return judge.Check{What: "each run has the number of its requeues", OK: true, Found: "not checked: LSF gives a run no such number (docs/lsf.md)"}
	}
	var wrong []string
	for _, j := range e.all() {
		for i, r := range j.Runs {
			if r.Requeues != strconv.Itoa(i) {
				wrong = append(wrong, fmt.Sprintf("%s's run %d: %q", j.Name, i+1, r.Requeues))
			}
		}
	}
	return judge.Check{What: "each run has the number of its requeues", OK: len(wrong) == 0, Found: judge.ButList(wrong, "none was different")}
}

// neverOverfilled counts the jobs that worked on a host at the same time.
func (e *evidence) neverOverfilled() judge.Check {
	var spans []judge.Span[*job]
	for _, j := range e.all() {
		for _, r := range j.Runs {
			for _, s := range r.Stretches {
				spans = append(spans, judge.Span[*job]{Host: r.Host, From: s.From, To: s.To, Job: j})
			}
		}
	}
	most, hosts := 0, map[string]bool{}
	for _, m := range judge.Moments(spans) {
		most, hosts[m.Host] = max(most, len(m.Running)), true
	}
	return judge.Check{
		What:  fmt.Sprintf("no host ever had more than %d jobs at work", slots),
		OK:    most <= slots,
		Found: fmt.Sprintf("at most %d on %d hosts", most, len(hosts)),
	}
}

// usage returns the slot time worked, the part of it that was lost with requeued runs, and
// the slot time available from the first start to the last end.
func (e *evidence) usage() (worked, lost, available time.Duration) {
	var first, last time.Time
	for _, j := range e.all() {
		for _, r := range j.Runs {
			if first.IsZero() || r.Start.Before(first) {
				first = r.Start
			}
			if r.Last.After(last) {
				last = r.Last
			}
			worked += r.Total()
			if r.End.IsZero() && r.Saved == 0 {
				lost += r.Total()
			}
		}
	}
	return worked, lost, last.Sub(first) * nodes * slots
}

// longestCycle returns the longest time between two of pba's snapshots of the queue, from
// the last before A's first submission to the first after all of A's jobs ran.
func (s *story) longestCycle() (longest time.Duration) {
	var running time.Time
	for _, j := range s.a {
		if at := j.First(); at.After(running) {
			running = at
		}
	}
	for i := 1; i < len(s.snapshots); i++ {
		if s.snapshots[i].After(s.a[0].submitted) && s.snapshots[i-1].Before(running) {
			longest = max(longest, s.snapshots[i].Sub(s.snapshots[i-1]))
		}
	}
	return longest
}

// printWaits prints the parts of each of A's waits.
func (s *story) printWaits(e *evidence) {
	s.log("how long A's jobs waited, and for what:")
	freed := slices.Clone(e.preemptions)
	for _, j := range e.a {
		if len(j.Runs) == 0 {
			s.log("  %-3s never ran", j.Name)
			continue
		}
		text := fmt.Sprintf("  %-3s %s", j.Name, seconds(j.First().Sub(j.submitted)))
		i := slices.IndexFunc(freed, func(x preemption) bool { return x.host == j.Runs[0].Host && x.at.Before(j.First()) })
		if i >= 0 {
			x := freed[i]
			freed = slices.Delete(freed, i, i+1)
			text += fmt.Sprintf(" = %s until %s on %s wrote its last line + %s until its slot was free and in use",
				seconds(x.at.Sub(j.submitted)), x.job.Name, x.host, seconds(j.First().Sub(x.at)))
		}
		s.log("%s", text)
	}
}

// judge prints the checks. It returns an error unless all pass.
func (s *story) judge() error {
	for _, j := range s.all() {
		if err := j.Update(); err != nil {
			return err
		}
	}
	e := collect(s.a, s.b)
	e.noNumbers = s.options.LSF != nil
	e.cycle = s.longestCycle()
	s.title("What the jobs themselves wrote")
	s.printWaits(e)
	worked, lost, available := e.usage()
	s.log("utilization: %.0f of %.0f slot-seconds worked, %.0f %%; %.0f of them are lost with the runs that were requeued",
		worked.Seconds(), available.Seconds(), 100*worked.Seconds()/available.Seconds(), lost.Seconds())
	s.title("Checks")
	return judge.Print(s.out, e.checks())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
