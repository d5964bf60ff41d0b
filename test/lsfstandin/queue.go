package lsfstandin

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// queue is the cluster as a state machine: step takes an input and returns what is to be
// done to processes. The same inputs always give the same queue, so that a journal of
// them is all that a daemon has to keep.
type queue struct {
	cfg     Config
	m       *manager.Manager
	now     time.Time
	jobs    map[backends.ID]*job
	order   []*job // by submission
	closed  map[string]bool
	down    map[string]bool
	effects []effect
}

// input is one thing that happens. An empty one says that time passed.
type input struct {
	At     time.Time
	By     caller        `json:",omitzero"`
	Submit *submission   `json:",omitempty"`
	Modify *modification `json:",omitempty"`
	Act    *act          `json:",omitempty"`
	Ended  *ended        `json:",omitempty"`
	Host   *hostChange   `json:",omitempty"`
}

// caller is the user who runs a command, as the kernel reports.
type caller struct {
	Name     string
	UID, GID int
	Home     string
	Admin    bool
}

// submission is what bsub hands in.
type submission struct {
	Params   params
	Command  string // a line for /bin/sh
	Script   bool   // Command is a script that came on standard input
	CWD      string
	Env      []string
	Umask    int
	Truncate [2]bool // -oo, -eo
	Screen   string  // of -I: a file for what it writes, where it has no other
	Group    string  // -g
	Profile  string  // -app
}

// modification is what bmod hands in.
type modification struct {
	Job     string
	Params  params
	Command string // -Z; "": as it is
}

// act is what the other programs ask for, of each job by itself.
type act struct {
	Verb   verb
	Jobs   []string
	Hold   bool   // brequeue -H
	Exited bool   // brequeue -e: jobs that have ended as EXIT
	Done   bool   // brequeue -d: jobs that are DONE
	Hosts  string // brun -m
	Signal int    // bkill -s
	Now    bool   // bkill -r
	Queue  string // with job 0: of this queue only
	Name   string // with job 0: of this name only
	All    bool   // with job 0: of all users
}

type verb string

const (
	verbKill    verb = "kill"
	verbStop    verb = "stop"
	verbResume  verb = "resume"
	verbRequeue verb = "requeue"
	verbRun     verb = "run"
	verbTop     verb = "top"
)

// ended says that a run's processes are gone.
type ended struct {
	ID   backends.ID
	Run  int
	Code int // 128 + signal; shellKilled + signal: the shell in which LSF runs the job died of it
}

// hostChange is what badmin or a failure does to a host.
type hostChange struct {
	Name         string
	Closed, Down bool
}

// reply is the answer to an input.
type reply struct {
	Job     int64    `json:",omitempty"`
	Queue   string   `json:",omitempty"`
	Default bool     `json:",omitempty"` // the queue is the default one
	Results []result `json:",omitempty"`
	Err     string   `json:",omitempty"` // LSF's own sentence
	Subject string   `json:",omitempty"` // what Err is about, if LSF says so
	Listing *Listing `json:",omitempty"`
	User    caller   `json:",omitzero"`
}

// result is what became of one job of an act.
type result struct {
	Job string
	Err string `json:",omitempty"`
}

// effect is something to be done to a run's processes.
type effect struct {
	id    backends.ID
	run   int
	do    doing
	hosts []backends.Placement
	job   *job
	sig   int
	line  string // of lsb.acct
}

type doing uint8

const (
	doStart doing = iota
	doKill        // SIGINT, SIGTERM, SIGKILL, with a pause after each
	doStop
	doContinue
	doSignal
	doAccount
)

// job is one job or element.
type job struct {
	Job
	id       backends.ID
	base     string // name without an index
	limit    int    // of its array
	by       caller
	work     *work
	run      int
	gap      gap
	gapAt    time.Time // when its next part begins; zero: when its processes have ended
	left     bool      // a requeued run's processes have ended
	hold     bool      // brequeue -H
	cut      bool      // its host went down while it was leaving
	killed   bool
	kept     bool // held, as no host has what it needs
	adminHas bool // an administrator stopped it

	stoppedAt  time.Time
	stoppedFor time.Duration // of this run: it counts for no run limit
}

// work is what a job's runs, and an array's elements, have in common.
type work struct {
	command  string
	script   bool
	dir      string
	env      []string
	umask    int
	truncate [2]bool
	screen   string
}

// gap is where a requeued job is on its way back into the queue.
type gap uint8

const (
	noGap    gap = iota
	leaving      // shows RUN
	gone         // shows EXIT; brequeue -e of a job that has ended begins here
	settling     // shows PEND, and is not scheduled yet
	waking       // no requeue: a resumed run shows SSUSP
	lost         // shows EXIT, for good: its host was down
)

// LSF's sentences. Those that no transcript shows are the batch library's.
const (
	errNoJob      = "No matching job found"
	errNotStarted = "Job has not started yet"
	errStarted    = "Job has already started"
	errFinished   = "Job has already finished"
	errPermission = "User permission denied"
	errNoQueue    = "No such queue"
	errHost       = "Bad host name, host group name or cluster name"
	errTooMany    = "Too many processors requested"
	errPriority   = "Bad user priority"
	errNoPriority = "Job priority control undefined"
	errArgument   = "Bad argument"
	errSyntax     = "Dependency condition syntax error"
	errResReq     = "Bad resource requirement syntax"
	errUsage      = "Cannot exceed queue's resource reservation"
	errRunning    = "Job parameters cannot be changed now; non-repetitive job is running"
	errProgress   = "Operation is in progress"
	errName       = "Bad job name"
	errJobID      = "Illegal job ID."
	errAction     = "Bad or invalid action specification"
)

func newQueue(cfg Config) *queue {
	q := &queue{cfg: cfg, jobs: map[backends.ID]*job{}, closed: map[string]bool{}, down: map[string]bool{}}
	policy := manager.Config{Queues: []manager.Queue{}, KillGrace: time.Hour}
	levels := slices.Clone(cfg.Queues)
	slices.SortStableFunc(levels, func(a, b QueueConfig) int { return a.Priority - b.Priority })
	for _, c := range cfg.Queues {
		level := slices.IndexFunc(levels, func(l QueueConfig) bool { return l.Priority == c.Priority })
		policy.Queues = append(policy.Queues, manager.Queue{Name: c.Name, Level: backends.LevelLow + backends.Level(level)})
	}
	q.m = manager.New(policy)
	return q
}

// start offers the hosts, at the first input of a journal.
func (q *queue) start(now time.Time) {
	q.now = now
	for _, h := range q.cfg.Hosts {
		q.offer(h, h.Slots, h.Memory)
	}
}

// offer gives the manager what a host has.
func (q *queue) offer(h HostConfig, slots int, memory int64) {
	if q.down[h.Name] {
		q.feed(manager.NodeDown{Name: h.Name})
		return
	}
	q.feed(manager.NodeUp{Name: h.Name, Slots: slots, Memory: memory, Closed: q.closed[h.Name]})
}

// step takes an input.
func (q *queue) step(in input) (reply, []effect) {
	q.effects = nil
	q.setClockBack(in.At)
	q.advance(in.At)
	var r reply
	switch {
	case in.Submit != nil:
		r = q.submit(in.By, in.Submit)
	case in.Modify != nil:
		r = q.modify(in.By, in.Modify)
	case in.Act != nil:
		r = q.act(in.By, in.Act)
	case in.Ended != nil:
		q.runEnded(in.Ended)
	case in.Host != nil:
		r.Err = q.changeHost(in.Host)
	}
	q.fitResources()
	return r, q.effects
}

// setClockBack follows a clock that was put back: mbatchd knows only the wall clock, and what
// it wrote before stays dated as it was. Its own pauses move with the clock.
func (q *queue) setClockBack(now time.Time) {
	by := now.Sub(q.now)
	if by > -5*time.Second {
		return
	}
	for _, j := range q.order {
		if !j.gapAt.IsZero() {
			j.gapAt = j.gapAt.Add(by)
		}
	}
	q.now = now
	q.feed(manager.ClockRead{Now: clock.Reading{Wall: now}, Jump: by})
}

// advance lets time pass: what was due happens, in its order.
func (q *queue) advance(now time.Time) {
	for {
		var next *job
		for _, j := range q.order {
			if at := j.due(); !at.IsZero() && !at.After(now) && (next == nil || at.Before(next.due())) {
				next = j
			}
		}
		if next == nil {
			break
		}
		q.now = later(q.now, next.due())
		q.runDue(next)
	}
	q.now = later(q.now, now)
	q.feed(manager.Tick{})
	if before, some := q.outlived(q.now); some {
		q.feed(manager.Forget{EndedBefore: before})
	}
}

// outlived reports whether a job has been ended for longer than CLEAN_PERIOD: since before.
func (q *queue) outlived(now time.Time) (before time.Time, some bool) {
	before = now.Add(-q.cfg.Params.CleanPeriod)
	return before, slices.ContainsFunc(q.order, func(j *job) bool { return !j.Ended.IsZero() && j.Ended.Before(before) })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// nextWake returns when the next thing happens by itself; zero: nothing will.
func (q *queue) nextWake() time.Time {
	next := q.m.Wake()
	for _, j := range q.order {
		if at := j.due(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// due returns when something happens to a job by itself that the manager does not know
// of; zero: nothing will.
func (j *job) due() time.Time {
	if j.Stat == RUN && j.gap == noGap && !j.killed && j.RunLimit > 0 {
		return j.Started.Add(j.RunLimit + j.stoppedFor)
	}
	return j.gapAt
}

// runDue does what is due for a job.
func (q *queue) runDue(j *job) {
	if j.gap != noGap {
		q.gapStep(j)
		return
	}
	j.killed, j.Termed = true, "TERM_RUNLIMIT"
	q.feed(manager.Kill{By: by(j.User), IDs: []backends.ID{j.id}})
}

// feed gives the manager an event, and carries out what comes of it.
func (q *queue) feed(e manager.Event) manager.Result {
	effects, result := q.m.Step(q.now, e)
	for _, e := range effects {
		switch e := e.(type) {
		case manager.StartRun:
			q.started(e)
		case manager.KillRun:
			q.jobs[e.ID].killed = true
			q.effects = append(q.effects, effect{id: e.ID, run: e.Run, do: doKill})
		case manager.Finished:
			q.finished(e.Job)
		case manager.Forgotten:
			q.forget(e.IDs)
		}
	}
	return result
}

func (q *queue) started(e manager.StartRun) {
	j := q.jobs[e.ID]
	j.run, j.Stat, j.Started, j.killed, j.Termed, j.stoppedFor = e.Run, RUN, e.At, false, "", 0
	j.ExecHosts = nil
	for _, p := range e.Hosts {
		j.ExecHosts = append(j.ExecHosts, slices.Repeat([]string{p.Host}, p.Slots)...)
	}
	q.effects = append(q.effects, effect{id: e.ID, run: e.Run, do: doStart, hosts: e.Hosts, job: j})
}

func (q *queue) finished(b backends.Job) {
	j := q.jobs[b.ID]
	if j == nil {
		return // it ended in the very step that took it
	}
	j.gap, j.gapAt, j.Gone = noGap, time.Time{}, false
	j.Ended, j.ExitCode, j.Stat = b.Ended, b.ExitCode, EXIT
	if b.State == backends.Done {
		j.Stat = DONE
	}
	if j.run == 0 {
		j.ExitCode = 0 // a job that never ran has none
	}
	term := 0
	if j.killed || j.run == 0 {
		term = termOwner
	}
	q.account(j, j.Ended, j.ExitCode, term)
}

func (q *queue) forget(ids []backends.ID) {
	for _, id := range ids {
		delete(q.jobs, id)
	}
	q.order = slices.DeleteFunc(q.order, func(j *job) bool { return q.jobs[j.id] == nil })
}

// by returns how the manager is asked: permissions are checked here.
func by(name string) manager.By { return manager.By{User: name, Admin: true} }

// priority returns a job's place for the manager: its queue's, then its own.
func (q *queue) priority(queue string, own int) backends.Priority {
	for _, c := range q.m.Queues() {
		if c.Name == queue {
			return backends.At(c.Level, own)
		}
	}
	return backends.At(backends.LevelNormal, own)
}
