package lsfstandin

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// machine is the queue alone, in virtual time.
type machine struct {
	*queue
	t   *testing.T
	now time.Time
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{newQueue(Options{Hosts: 1, Slots: 1, Second: time.Second}.config().withDefaults()), t, time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)}
	m.start(m.now)
	return m
}

// step lets time pass and then gives an input.
func (m *machine) step(after time.Duration, in input) []effect {
	m.t.Helper()
	m.now = m.now.Add(after)
	in.At, in.By = m.now, caller{Name: "alice"}
	r, effects := m.queue.step(in)
	if r.Err != "" || len(r.Results) > 0 && r.Results[0].Err != "" {
		m.t.Fatalf("%+v", r)
	}
	return effects
}

func (m *machine) submit(options ...param) *job {
	m.t.Helper()
	m.step(0, input{Submit: &submission{Command: "x", CWD: "/", Params: options}})
	return m.order[len(m.order)-1]
}

func acting(v verb, job string) input { return input{Act: &act{Verb: v, Jobs: []string{job}}} }

func TestRequeueGapInSeconds(t *testing.T) {
	m := newMachine(t)
	j, other := m.submit(), m.submit()
	effects := m.step(time.Minute, acting(verbRequeue, "1"))
	if len(effects) != 1 || effects[0].do != doKill {
		t.Fatalf("%+v", effects)
	}
	want := func(stat Stat, gone bool, due time.Duration) {
		t.Helper()
		at := m.nextWake()
		if j.Stat != stat || j.Gone != gone || due == 0 != at.IsZero() || due != 0 && !at.Equal(m.now.Add(due)) {
			t.Fatalf("%s, gone %v, due %v from now; want %s, %v, %v", j.Stat, j.Gone, at.Sub(m.now), stat, gone, due)
		}
	}
	want(RUN, false, time.Second)
	m.step(5*time.Second, input{}) // its processes take their time
	want(RUN, false, 0)
	if other.Stat != PEND {
		t.Error("its slot was given away while its processes were there")
	}
	m.step(time.Second, input{Ended: &ended{ID: j.id, Run: 1, Code: 0}})
	want(EXIT, true, 2*time.Second)
	if j.ExitCode != 130 || other.Stat != RUN {
		t.Errorf("exit code %d; the other job is %s", j.ExitCode, other.Stat)
	}
	m.step(2*time.Second, input{})
	want(PEND, false, time.Second)
	m.step(time.Second, input{})
	want(PEND, false, 0)
	m.step(0, input{Ended: &ended{ID: other.id, Run: 1}})
	want(RUN, false, 0)
	if j.run != 2 || j.Requeued != 1 {
		t.Errorf("run %d, requeued %d", j.run, j.Requeued)
	}

	// A job can be killed during its requeue.
	m.step(0, acting(verbRequeue, "1"))
	m.step(0, input{Ended: &ended{ID: j.id, Run: 2, Code: 130}})
	want(RUN, false, time.Second)
	m.step(0, acting(verbKill, "1"))
	want(EXIT, false, 0)
	if j.ExitCode != 130 || j.Ended.IsZero() {
		t.Errorf("killed: %+v", j.Job)
	}
}

// brequeue -e brings a job back that has ended as EXIT, with its ID, until it is forgotten.
func TestRequeueExited(t *testing.T) {
	m := newMachine(t)
	refused := func(sentence string) {
		t.Helper()
		r, _ := m.queue.step(input{At: m.now, By: caller{Name: "alice"}, Act: &act{Verb: verbRequeue, Jobs: []string{"1"}, Exited: true}})
		if r.Results[0].Err != sentence {
			t.Errorf("%+v, want %s", r.Results, sentence)
		}
	}
	j, next := m.submit(), m.submit()
	refused(errStarted)
	m.step(time.Minute, input{Ended: &ended{ID: j.id, Run: 1, Code: 85}})
	if j.Stat != EXIT || j.ExitCode != 85 || next.Stat != RUN {
		t.Fatalf("%+v", j.Job)
	}
	back := acting(verbRequeue, "1")
	back.Act.Exited, back.Act.Hold = true, true
	m.step(time.Second, back)
	if j.Stat != EXIT || j.ExitCode != 85 {
		t.Errorf("%+v", j.Job)
	}
	m.step(time.Second, input{})
	refused(errNotStarted)
	if j.Stat != PSUSP || j.ID != 1 || j.Requeued != 1 || !j.Started.IsZero() || !j.Ended.IsZero() || j.ExitCode != 0 {
		t.Errorf("%+v", j.Job)
	}
	m.step(2*time.Second, acting(verbResume, "1"))
	m.step(time.Second, input{Ended: &ended{ID: next.id, Run: 1}})
	m.step(0, input{})
	if j.Stat != RUN {
		t.Fatalf("%+v", j.Job)
	}
	if later := m.submit(); later.ID == j.ID || later.ID == next.ID {
		t.Errorf("another job gets the ID %d", later.ID)
	}
	m.step(time.Second, input{Ended: &ended{ID: j.id, Run: 1}})
	if j.Stat != DONE {
		t.Fatalf("%+v", j.Job)
	}
	refused(errAction)
	m.step(2*time.Hour, input{})
	refused(errNoJob)
}

// A queue's REQUEUE_EXIT_VALUES bring a job back at once, by nobody's command.
func TestRequeueExitValues(t *testing.T) {
	m := newMachine(t)
	m.cfg.Queues[1].Requeues = []int{85, 99}
	j := m.submit()
	m.step(time.Minute, input{Ended: &ended{ID: j.id, Run: 1, Code: 85}})
	if j.Stat != PEND || j.Requeued != 1 {
		t.Fatalf("%+v", j.Job)
	}
	m.step(time.Second, input{})
	if j.Stat != RUN || j.run != 2 {
		t.Fatalf("run %d: %+v", j.run, j.Job)
	}
	m.step(time.Second, input{Ended: &ended{ID: j.id, Run: 2, Code: 3}})
	if j.Stat != EXIT || j.ExitCode != 3 {
		t.Fatalf("%+v", j.Job)
	}
}

func TestRunLimitCountsRunningTimeOnly(t *testing.T) {
	m := newMachine(t)
	m.cfg.Unkind.ResumedBySSUSP = false // it would run a second later
	j := m.submit(param{"LSB_SUB_RLIMIT_RUN", "60", true})
	m.step(40*time.Second, acting(verbStop, "1"))
	if at := m.nextWake(); !at.IsZero() {
		t.Errorf("while it is stopped something is due at %v", at)
	}
	m.step(time.Hour, acting(verbResume, "1"))
	if at := m.nextWake(); !at.Equal(m.now.Add(20 * time.Second)) {
		t.Errorf("its limit is due at %v, want in 20 s of %v", at, m.now)
	}
	if effects := m.step(19*time.Second, input{}); len(effects) != 0 {
		t.Errorf("too early: %v", effects)
	}
	effects := m.step(time.Second, input{})
	if len(effects) != 1 || effects[0].do != doKill {
		t.Fatalf("at its limit: %v", effects)
	}
	m.step(0, input{Ended: &ended{ID: j.id, Run: 1, Code: 130}})
	if j.Stat != EXIT || j.Termed != "TERM_RUNLIMIT" || j.ExitCode != 130 {
		t.Errorf("it ended as %s, %s, %d", j.Stat, j.Termed, j.ExitCode)
	}
}

func TestBkillChoosesAndSignals(t *testing.T) {
	c := small(t, 1, 4)
	ready := filepath.Join(t.TempDir(), "ready")
	a := c.submit("-J", "one", "trap 'exit 3' USR1; touch "+ready+"; while :; do sleep 0.02; done")
	b, d := c.submit("-q", "low", "sleep", "300"), c.submit("-H", "true")
	awaitFile(t, ready)
	c.refused("Job <"+d+">: Job has not started yet", "bkill", "-s", "USR1", d)
	if got := c.ok("bkill", "-s", "USR1", a); got != "Job <"+a+"> is being signaled\n" {
		t.Errorf("%q", got)
	}
	if j := c.awaitStat(a, EXIT); j.ExitCode != 3 {
		t.Errorf("it ended with %d", j.ExitCode)
	}
	if got := c.ok("bkill", "-q", "low", "0"); got != "Job <"+b+"> is being terminated\n" {
		t.Errorf("%q", got)
	}
	c.awaitStat(b, EXIT)
	array := c.submit("-J", "a[1-2]", "-m", "h1+2 h1", "sleep", "300")
	c.refused("Job <"+array+">: Operation is in progress", "bkill", array)
	for _, element := range []string{"[1]", "[2]"} {
		if j := c.awaitStat(array+element, EXIT); !slices.Equal(j.Asked, []string{"h1+2", "h1"}) {
			t.Errorf("-m 'h1+2 h1' asks for %v", j.Asked)
		}
	}
	c.refused("Illegal signal value", "bkill", "-s", "NONE", d)
	c.refused("No matching job found", "bkill", "-J", "one", "0")
	stdout, _, rc := c.Run("bsub", "-I", "echo to the screen; exit 6")
	if rc != 6 || !strings.Contains(stdout, "\nto the screen\n") {
		t.Errorf("bsub -I: %d %q", rc, stdout)
	}
}

func TestJobGroupsAndProfiles(t *testing.T) {
	c := New(t, Options{RootMaySubmit: true, Hosts: 1, Slots: 4, Second: 30 * time.Millisecond, Flavour: LSF10})
	a, b := c.submit("-g", "/x", "-H", "true"), c.submit("-g", "/x/y", "-app", "solver", "-H", "true")
	c.submit("-H", "true")
	for option, want := range map[string]string{"-g /x": a, "-g /x/y": b, "-app solver": b} {
		if got := c.ok(strings.Fields("bjobs -noheader -o jobid " + option)...); strings.TrimSpace(got) != want {
			t.Errorf("bjobs %s: %q, want %s", option, got, want)
		}
	}
	if stdout, message, _ := c.Run("bjobs", "-g", "/none"); stdout != "" || !strings.Contains(message, "No unfinished job found") {
		t.Errorf("of a group without jobs: %q %q", stdout, message)
	}
}

// bkill -r: the job has ended at once, though its processes take their time.
func TestBkillRemoves(t *testing.T) {
	c := small(t, 1, 1)
	ready := filepath.Join(t.TempDir(), "ready")
	id := c.submit("trap '' INT TERM; touch " + ready + "; while :; do sleep 0.02; done")
	awaitFile(t, ready)
	c.ok("bkill", "-r", id)
	if j := c.findJob(id); j.Stat != EXIT {
		t.Errorf("it is %s", j.Stat)
	}
}

func TestStoppedWhilePending(t *testing.T) {
	c := small(t, 1, 1)
	c.submit("sleep", "300")
	id := c.submit("true")
	c.ok("bstop", id)
	if j := c.findJob(id); j.Stat != PSUSP || !strings.Contains(j.Reasons[0].Text, "suspended by the user while pending") {
		t.Errorf("%s %v", j.Stat, j.Reasons)
	}
	c.ok("bresume", id)
	if j := c.findJob(id); j.Stat != PEND {
		t.Errorf("%s", j.Stat)
	}
}

func TestModifyChangesPendingJobsOnly(t *testing.T) {
	c := small(t, 2, 2)
	runs, id := c.submit("sleep", "300"), c.submit("-H", "-J", "old", "true")
	c.refused("non-repetitive job is running. Job not modified.", "bmod", "-Jd", "x", runs)
	c.ok("bmod", "-R", "rusage[mem=7]", runs)
	c.refused("No such queue. Job not modified.", "bmod", "-q", "none", id)
	c.refused("h9: Bad host name", "bmod", "-m", "h9", id)
	c.refused("77: No matching job found. Job not modified.", "bmod", "-sp", "3", "77")
	c.ok("bmod", "-P", "other:step", "-q", "low", "-m", "h2 h1", "-n", "2", "-W", "1:30", "-J", "new", "-Jd", "a text", "-M", "10", "-b", "23:59", "-Z", "echo hi", id)
	j := c.findJob(id)
	if j.Project != "other:step" || j.Queue != "low" || !slices.Equal(j.Asked, []string{"h2", "h1"}) || j.Slots != 2 || j.RunLimit != 90*time.Minute ||
		j.Name != "new" || j.Description != "a text" || j.MemLimit != 10<<10 || j.Begin.IsZero() || j.Command != "echo hi" {
		t.Errorf("%+v", j)
	}
	c.ok("bmod", "-mn", "-Wn", "-Jdn", "-nn", "-Pn", "-qn", id)
	c.ok("bmod", "-bn", id)
	if j := c.findJob(id); j.Asked != nil || j.Begin.Year() != 2106 || j.RunLimit != 0 || j.Description != "" || j.Slots != 1 || j.Project != "default" || j.Queue != "normal" {
		t.Errorf("taken back: %+v", j)
	}
	c.ok("bresume", id)
	c.ok("brun", "-m", "h1", id) // nothing else starts it now
	c.awaitStat(id, DONE)
	c.refused("Job has already finished. Job not modified.", "bmod", "-sp", "3", id)
}

// A clock that was ahead is put back: what was written stays dated as it was, and the
// queue follows the new clock, as mbatchd does.
func TestClockStepsBack(t *testing.T) {
	m := newMachine(t)
	const years = 87600 * time.Hour
	m.now = m.now.Add(years)
	j, other := m.submit(), m.submit()
	m.step(time.Minute, acting(verbRequeue, "1"))
	m.step(time.Second, input{Ended: &ended{ID: j.id, Run: 1}})
	m.step(-years, input{})
	if !m.queue.now.Equal(m.now) || other.Stat != RUN || other.Started.Before(m.now.Add(years/2)) {
		t.Errorf("the queue's time is %v, the clock's %v; the other job is %s since %v", m.queue.now, m.now, other.Stat, other.Started)
	}
	if at := m.nextWake(); at.Sub(m.now) > time.Minute {
		t.Errorf("the requeue goes on at %v", at)
	}
	m.step(2*time.Second, input{})
	m.step(time.Second, input{Ended: &ended{ID: other.id, Run: 1}})
	if third := m.submit(); j.Stat == EXIT || other.Stat != DONE || other.Ended.After(m.now) || third.Submitted.After(m.now) {
		t.Errorf("%s, %s since %v; submitted at %v", j.Stat, other.Stat, other.Ended, third.Submitted)
	}
}
