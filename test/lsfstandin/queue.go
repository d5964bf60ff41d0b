package lsfstandin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
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
	Hosts  string // brun -m
	Signal int    // bkill -s
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
	Code int // 128 + signal
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
}

type doing uint8

const (
	doStart doing = iota
	doKill        // SIGINT, SIGTERM, SIGKILL, with a pause after each
	doStop
	doContinue
	doSignal
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
	gone         // shows EXIT
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
	if before := q.now.Add(-q.cfg.Params.CleanPeriod); slices.ContainsFunc(q.order, func(j *job) bool { return !j.Ended.IsZero() && j.Ended.Before(before) }) {
		q.feed(manager.Forget{EndedBefore: before})
	}
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

// submit is bsub.
func (q *queue) submit(b caller, s *submission) reply {
	p := q.cfg.Params
	want := Job{
		User: b.Name, Home: b.Home, Project: p.DefaultProject, Queue: p.DefaultQueue, Stat: PEND, Command: s.Command,
		FromHost: q.cfg.Master, RunCWD: s.CWD, Slots: 1, Submitted: q.now.Truncate(time.Second), Priority: p.DefaultPriority(),
	}
	if s.Script {
		want.Command = scriptLine(s.Command)
	}
	for _, option := range s.Params {
		if subject, sentence := q.applyOption(&want, option); sentence != "" {
			return reply{Subject: subject, Err: sentence}
		}
	}
	if cwd, ok := s.Params.get("LSB_SUB3_CWD"); ok && cwd != "" {
		want.RunCWD = cwd
		if !strings.HasPrefix(cwd, "/") {
			want.RunCWD = strings.TrimSuffix(s.CWD, "/") + "/" + cwd
		}
	}
	want.CWD = listedDir(want.RunCWD, b.Home)
	base, array, err := bsub.ParseName(want.Name)
	if err != nil || array != nil && len(array.Indices) > p.MaxArraySize {
		return reply{Err: errName}
	}
	given := base
	if base == "" {
		base = want.Command // by which others may depend on it
	}
	spec := q.spec(&want)
	spec.Name, spec.Array = base, array
	if want.Held {
		want.Stat = PSUSP
		spec.Hold = true
	}
	w := &work{command: s.Command, script: s.Script, dir: want.RunCWD, env: s.Env, umask: s.Umask, truncate: s.Truncate, screen: s.Screen}
	spec.Hold = true // until it is in q.jobs, too: the step that starts it looks for it
	submitted := q.feed(manager.Submit{By: by(b.Name), Specs: []backends.Spec{spec}}).Submitted[0]
	if submitted.Err != nil {
		return q.refusal(&want, submitted.Err)
	}
	indices, limit := []int{0}, 0
	if array != nil {
		indices, limit = array.Indices, array.Limit
	}
	for _, index := range indices {
		j := &job{Job: want, id: backends.ID{Job: submitted.ID.Job, Index: index}, base: base, limit: limit, by: b, work: w}
		j.ID, j.Index, j.Elements = j.id.Job, index, len(indices)
		if index != 0 {
			j.Name = fmt.Sprintf("%s[%d]", given, index)
		}
		q.jobs[j.id] = j
		q.order = append(q.order, j)
	}
	q.fitResources()
	if !want.Held {
		q.feed(manager.Release{By: by(b.Name), IDs: []backends.ID{submitted.ID}})
	}
	_, named := s.Params.get("LSB_SUB_QUEUE")
	return reply{Job: submitted.ID.Job, Queue: want.Queue, Default: !named}
}

// scriptLine returns how a job whose script came on standard input is listed.
func scriptLine(script string) string {
	return strings.Join(strings.Split(strings.TrimSpace(script), "\n"), ";")
}

// listedDir returns how LSF lists a directory: below the home as $HOME.
func listedDir(dir, home string) string {
	rest, below := strings.CutPrefix(dir, home)
	if home != "" && home != "/" && below && (rest == "" || rest[0] == '/') {
		return "$HOME" + rest
	}
	return dir
}

// spec returns what the manager schedules a job by.
func (q *queue) spec(j *Job) backends.Spec {
	hosts := q.suits(j)
	if len(hosts) == len(q.cfg.Hosts) {
		hosts = nil
	}
	return backends.Spec{
		Project: j.Project, Queue: j.Queue, Priority: backends.At(backends.LevelNormal, j.Priority), Slots: j.Slots,
		Memory: j.Memory, OneHost: oneHost(j.ResReq), Hosts: hosts, BeginTime: j.Begin,
		Exclusive: j.Exclusive, After: j.Depend,
	}
}

// refusal returns LSF's sentence for what the manager does not take.
func (q *queue) refusal(j *Job, err error) reply {
	switch {
	case errors.Is(err, backends.ErrUnknownJob):
		return reply{Subject: j.Depend, Err: errNoJob}
	case j.Depend != "" && strings.Contains(err.Error(), "dependency"):
		return reply{Subject: j.Depend, Err: errSyntax}
	case strings.Contains(err.Error(), "slots"):
		if j.Memory > 0 && j.Slots <= q.mostSlots() {
			return reply{Err: errUsage}
		}
		return reply{Err: errTooMany}
	}
	return reply{Err: errArgument}
}

func (q *queue) mostSlots() int {
	most := 0
	for _, h := range q.cfg.Hosts {
		most = max(most, h.Slots)
	}
	return most
}

// applyOption applies one option to a job. A sentence says what is wrong, subject with what.
func (q *queue) applyOption(j *Job, p param) (subject, sentence string) {
	reset := p.Bare && p.Value == subReset
	value := p.Value
	if reset {
		value = ""
	}
	yes := value == "Y" || value == "y"
	switch p.Key {
	case "LSB_SUB_JOB_NAME":
		j.Name = value
	case "LSB_SUB_QUEUE":
		if j.Queue = value; value == "" {
			j.Queue = q.cfg.Params.DefaultQueue
		}
		// bsub -q takes a list; of queues that are all alike LSF takes the first.
		j.Queue, _, _ = strings.Cut(strings.TrimSpace(j.Queue), " ")
		if !slices.ContainsFunc(q.cfg.Queues, func(c QueueConfig) bool { return c.Name == j.Queue }) {
			return value, errNoQueue
		}
	case "LSB_SUB_IN_FILE":
		j.Input = value
	case "LSB_SUB_OUT_FILE":
		j.Output = value
	case "LSB_SUB_ERR_FILE":
		j.ErrorFile = value
	case "LSB_SUB_EXCLUSIVE":
		j.Exclusive = yes
	case "LSB_SUB_RERUNNABLE":
		j.Rerunnable = yes
	case "LSB_SUB_INTERACTIVE", "LSB_SUB_PTY":
		j.Interactive = yes
	case "LSB_SUB_HOLD":
		j.Held = yes
	case "LSB_SUB_DEPEND_COND":
		j.Depend = value
	case "LSB_SUB_RES_REQ":
		memory, ok := q.rusage(value)
		if !ok {
			return "", errResReq
		}
		j.ResReq, j.Memory = value, memory
	case "LSB_SUB_PROJECT_NAME":
		if j.Project = value; value == "" {
			j.Project = q.cfg.Params.DefaultProject
		}
	case "LSB_SUB_JOB_DESCRIPTION":
		j.Description = value
	case "LSB_SUB2_JOB_PRIORITY":
		return "", q.applyPriority(j, value, reset)
	case "LSB_SUB_HOSTS":
		j.Asked = nil
		for _, name := range strings.Fields(value) {
			name = strings.TrimSuffix(name, "!")
			if _, wrong := q.hostsListed([]string{name}); wrong != "" {
				return wrong, errHost
			}
			j.Asked = append(j.Asked, name)
		}
	case "LSB_SUB_BEGIN_TIME":
		if reset && q.cfg.Unkind.BeginNeverClears {
			value = strconv.FormatInt(neverClears, 10)
		}
		return "", q.applyNumber(j, p.Key, value)
	default:
		return "", q.applyNumber(j, p.Key, value)
	}
	return "", ""
}

// neverClears is the begin time that bmod -bn leaves (Unkind.BeginNeverClears).
const neverClears = 1<<32 - 2

// applyPriority is -sp.
func (q *queue) applyPriority(j *Job, value string, reset bool) string {
	most := q.cfg.Params.MaxUserPriority
	if reset {
		j.Priority, j.UserPriority = q.cfg.Params.DefaultPriority(), 0
		return ""
	}
	if most == 0 {
		return errNoPriority
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return errPriority
	}
	j.Priority, j.UserPriority = n, n
	return ""
}

// applyNumber applies the options that are numbers; "" is 0. Others are accepted
// and mean nothing here.
func (q *queue) applyNumber(j *Job, key, value string) string {
	switch key {
	case "LSB_SUB_NUM_PROCESSORS", "LSB_SUB_MAX_NUM_PROCESSORS", "LSB_SUB_BEGIN_TIME", "LSB_SUB_RLIMIT_RUN", "LSB_SUB_RLIMIT_RSS":
	default:
		return ""
	}
	if key == "LSB_SUB_RLIMIT_RSS" {
		bytes, ok := parseSize(value, q.limitUnit())
		if !ok {
			return errArgument
		}
		j.MemLimit = bytes >> 10
		return ""
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if value != "" && (err != nil || n < 0) {
		return errArgument
	}
	switch key {
	case "LSB_SUB_NUM_PROCESSORS":
		j.Slots = max(1, int(n))
	case "LSB_SUB_MAX_NUM_PROCESSORS":
		j.MaxSlots = int(n)
	case "LSB_SUB_BEGIN_TIME":
		j.Begin = time.Time{}
		if n > 0 {
			j.Begin = time.Unix(n, 0)
		}
	case "LSB_SUB_RLIMIT_RUN":
		j.RunLimit = time.Duration(n) * time.Second
	}
	return ""
}

// limitUnit is what a plain -M counts in: MB on lava, and KB on LSF 10.1 unless
// LSF_UNIT_FOR_LIMITS says otherwise (IBM: lsf_config_ref, LSF_UNIT_FOR_LIMITS).
func (q *queue) limitUnit() int64 {
	if q.cfg.Flavour == Lava {
		return 1 << 20
	}
	return unitOf(q.cfg.Params.LimitUnit, 1<<10)
}

func unitOf(name string, without int64) int64 {
	if i := strings.IndexAny("KMGTPE", strings.ToUpper(name)+" "); name != "" && i >= 0 {
		i = strings.Index("KMGTPE", strings.ToUpper(name[:1]))
		if i >= 0 {
			return 1 << (10 * (i + 1))
		}
	}
	return without
}

// parseSize reads a number with a unit of its own, or in the given one; "" is 0.
func parseSize(s string, unit int64) (bytes int64, ok bool) {
	if s == "" {
		return 0, true
	}
	s = strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B")
	if s == "" {
		return 0, false
	}
	if i := strings.IndexByte("KMGTPE", s[len(s)-1]); i >= 0 {
		unit, s = 1<<(10*(i+1)), s[:len(s)-1]
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n < 0 || n*float64(unit) >= 1<<62 {
		return 0, false
	}
	return int64(n * float64(unit)), true
}

// rusage is the memory that a resource requirement reserves; plain numbers are MB,
// on LSF 10.1 in LSF_UNIT_FOR_LIMITS where that is set.
func (q *queue) rusage(req string) (bytes int64, ok bool) {
	if strings.Count(req, "[") != strings.Count(req, "]") {
		return 0, false
	}
	unit := int64(1 << 20)
	if q.cfg.Flavour == LSF10 {
		unit = unitOf(q.cfg.Params.LimitUnit, unit)
	}
	_, rest, found := strings.Cut(req, "rusage[")
	if !found {
		return 0, true
	}
	section, _, _ := strings.Cut(rest, "]")
	for item := range strings.FieldsFuncSeq(section, func(r rune) bool { return strings.ContainsRune(",:&| ", r) }) {
		if value, is := strings.CutPrefix(item, "mem="); is {
			value, _, _ = strings.Cut(value, "/")
			return parseSize(value, unit)
		}
	}
	return 0, true
}

func oneHost(req string) bool {
	return strings.Contains(strings.ReplaceAll(req, " ", ""), "span[hosts=1]")
}
