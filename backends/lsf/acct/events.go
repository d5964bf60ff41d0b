package acct

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// maxLogged bounds the jobs, and the runs, of one lsb.events.
const maxLogged = 1_000_000

// Log puts the records of lsb.events together, one after the other: the runs of jobs that have
// ended. LSF writes it as things happen, and leaves out old jobs when it begins a new one. The records are
// (IBM Spectrum LSF 10.1, configuration reference, lsb.events; lava's lsbatch/lib/lsb.log.c reads the same
// fields, but for those in brackets), behind type, version and time:
//
//	JOB_NEW      jobId userId options numProcessors submitTime beginTime termTime sigValue chkpntPeriod restartPid
//	             userName, numbers, hostSpec hostFactor umask queue resReq fromHost cwd chkpntDir inFile outFile errFile
//	             subHomeDir jobFile numAskedHosts, hosts, dependCond preExecCmd jobName command nxf, 3 fields for
//	             each, mailUser projectName …
//	JOB_START    jobId jStatus jobPid jobPGid hostFactor numExHosts, hosts, queuePreCmd queuePostCmd jFlags
//	             [userGroup] idx …
//	JOB_STATUS   jobId jStatus reason subreasons cpuTime endTime ru, if that is 1 the 19 fields of JOB_FINISH,
//	             exitStatus idx [exitInfo] …
//	JOB_REQUEUE  jobId idx …
//	JOB_SIGNAL   jobId userId runCount signalSymbol idx userName …
type Log struct {
	jobs    map[int64]*Finish       // what JOB_NEW says
	runs    map[backends.ID]*Finish // that have not ended
	ended   []Finish
	last    map[backends.ID]int // the last one in ended
	signals map[backends.ID]signal
}

// signal is the last one that a user had LSF send to a job.
type signal struct {
	at     time.Time
	symbol string
	user   string
}

// NewLog returns a Log of no records.
func NewLog() *Log {
	return &Log{jobs: map[int64]*Finish{}, runs: map[backends.ID]*Finish{}, last: map[backends.ID]int{}, signals: map[backends.ID]signal{}}
}

// Finishes returns the runs that have ended, and the jobs that ended before they ran, in the order
// of their ends.
func (l *Log) Finishes() []Finish { return l.ended }

// Take takes the next record. One that is not understood changes nothing.
func (l *Log) Take(line string) error {
	line = strings.TrimSpace(line)
	kind, _, _ := strings.Cut(line, " ")
	read, known := map[string]func(*Log, *record) error{
		`"JOB_NEW"`: (*Log).submitted, `"JOB_START"`: (*Log).started, `"JOB_STATUS"`: (*Log).changed,
		`"JOB_REQUEUE"`: (*Log).requeued, `"JOB_SIGNAL"`: (*Log).signalled,
	}[kind]
	if !known {
		return nil
	}
	if len(l.jobs) > maxLogged || len(l.ended) > maxLogged || len(l.signals) > maxLogged {
		return fmt.Errorf("more than %d jobs or runs", maxLogged)
	}
	r := record{fields: fields{rest: line}}
	r.skip("event type")
	r.version, r.at = r.text("version"), r.seconds("event time")
	r.job = r.id("jobId")
	return read(l, &r)
}

// record is one of lsb.events.
type record struct {
	fields
	version string
	at      time.Time
	job     int64
}

// lsf reports whether LSF wrote it: lava's versions are whole numbers.
func (r *record) lsf() bool { return strings.Contains(r.version, ".") }

func (l *Log) submitted(r *record) error {
	var j Finish
	r.skip("userId", "options")
	j.Slots = r.number("numProcessors")
	j.Submitted = r.seconds("submitTime")
	r.skip("beginTime", "termTime", "sigValue", "chkpntPeriod", "restartPid")
	j.User = r.text("userName")
	const limits = 32 // LSF 10.1 has one more than lava
	for n := 0; r.err == nil; n++ {
		if _, quoted := r.next("rLimits or hostSpec"); quoted {
			break
		}
		if n == limits {
			return fmt.Errorf("field %d (hostSpec): missing", r.n)
		}
	}
	r.skip("hostFactor", "umask")
	j.Queue = r.text("queue")
	r.skip("resReq", "fromHost", "cwd", "chkpntDir", "inFile", "outFile", "errFile", "subHomeDir", "jobFile")
	r.hosts("numAskedHosts")
	r.skip("dependCond", "preExecCmd")
	j.Name = r.text("jobName")
	r.skip("command")
	for range r.number("nxf") {
		r.skip("subFn", "execFn", "options")
		if r.err != nil {
			break
		}
	}
	r.skip("mailUser")
	j.Project = r.text("projectName")
	if r.err != nil {
		return r.err
	}
	if old := l.jobs[r.job]; old != nil && !old.Submitted.Equal(j.Submitted) { // LSF gives numbers out again
		for id := range l.runs {
			if id.Job == r.job {
				delete(l.runs, id)
			}
		}
	}
	l.jobs[r.job] = &j
	return nil
}

func (l *Log) started(r *record) error {
	r.skip("jStatus", "jobPid", "jobPGid", "hostFactor")
	hosts, slots := r.hosts("numExHosts")
	r.skip("queuePreCmd", "queuePostCmd", "jFlags")
	index := r.index(r.lsf())
	j := l.jobs[r.job]
	if r.err != nil || j == nil {
		return r.err
	}
	run := *j
	run.ID = backends.ID{Job: r.job, Index: index}
	run.Started, run.Hosts = r.at, hosts
	if slots > 0 {
		run.Slots = slots
	}
	l.runs[run.ID] = &run
	return nil
}

// States of a job, as jStatus has them (lsbatch.h, JOB_STAT_…).
const (
	statPend     = 0x01
	statPSusp    = 0x02
	statExit     = 0x20
	statDone     = 0x40
	statPostDone = 0x80
	statPostErr  = 0x100
)

func (l *Log) changed(r *record) error {
	state := r.number("jStatus")
	r.skip("reason", "subreasons", "cpuTime")
	ended := r.seconds("endTime")
	var used Finish
	if usage, _ := r.next("ru"); usage != "0" {
		r.usage(&used)
	}
	status := r.number("exitStatus")
	index := r.index(false)
	term := 0
	if r.err == nil && r.lsf() {
		term = r.maybe("exitInfo", 1<<10)
	}
	j := l.jobs[r.job]
	if r.err != nil && r.rest != "" || j == nil || state&(statPostDone|statPostErr) != 0 {
		return r.err
	}
	id := backends.ID{Job: r.job, Index: index}
	run := l.runs[id]
	switch {
	case state&(statExit|statDone) != 0:
		if run == nil { // it never ran
			run = &Finish{}
			*run = *j
			run.ID = id
		}
		run.Done, run.Status, run.Term = state&statDone != 0, status, term
		run.CPUUser, run.CPUSystem, run.Memory = used.CPUUser, used.CPUSystem, used.Memory
		run.Ended = r.at
		if ended.Unix() > 0 && !ended.Before(run.Started) {
			run.Ended = ended
		}
	case state&(statPend|statPSusp) != 0 && run != nil: // its host was lost, and it waits again
		run.Ended, run.Requeued = r.at, true
	default:
		return nil
	}
	if run.Ended.Before(run.Started) {
		run.Ended = run.Started
	}
	if !run.Started.IsZero() && run.Ended.Sub(run.Started) > maxRun {
		delete(l.runs, id)
		return fmt.Errorf("field 3 (event time): %d is not possible for a start at %d", r.at.Unix(), run.Started.Unix())
	}
	if run.Term == 0 && !run.Done && !run.Requeued {
		run.Term = l.termOf(run)
	}
	delete(l.runs, id)
	l.last[id] = len(l.ended)
	l.ended = append(l.ended, *run)
	return nil
}

// requeued is written when a run has ended and its job waits again.
func (l *Log) requeued(r *record) error {
	id := backends.ID{Job: r.job, Index: r.index(false)}
	if at, known := l.last[id]; r.err == nil && known {
		l.ended[at].Requeued = true
	}
	return r.err
}

func (l *Log) signalled(r *record) error {
	r.skip("userId", "runCount")
	s := signal{at: r.at, symbol: r.text("signalSymbol")}
	id := backends.ID{Job: r.job, Index: r.index(false)}
	s.user = r.text("userName")
	if r.err == nil {
		l.signals[id] = s
	}
	return r.err
}

// termOf returns why a run ended by what users had LSF send to its job, or to all of its array.
func (l *Log) termOf(run *Finish) int {
	s, sent := l.signals[run.ID]
	if all, every := l.signals[backends.ID{Job: run.ID.Job}]; every && (!sent || all.at.After(s.at)) {
		s, sent = all, true
	}
	if !sent || s.at.Before(run.Started) || s.at.Before(run.Submitted) {
		return 0
	}
	own := s.user == run.User
	switch {
	case strings.HasPrefix(s.symbol, "REQUEUE_") && own:
		return TermRequeueOwner
	case strings.HasPrefix(s.symbol, "REQUEUE_"):
		return TermRequeueAdmin
	case s.symbol == "KILL" && own:
		return termOwner
	case s.symbol == "KILL":
		return termAdmin
	}
	return 0
}

// Merge returns the runs of lsb.acct and those of lsb.events that it does not have, in the order of
// their ends. What lsb.acct does not say of a run is taken from the other.
func Merge(finishes, logged []Finish) []Finish {
	type job struct {
		id        backends.ID
		submitted int64
	}
	keyOf := func(f *Finish) job { return job{f.ID, f.Submitted.Unix()} }
	all := slices.Clone(finishes)
	of := map[job][]int{}
	for i := range all {
		key := keyOf(&all[i])
		of[key] = append(of[key], i)
	}
	for _, f := range logged {
		key := keyOf(&f)
		at := slices.IndexFunc(of[key], func(i int) bool { return sameRun(&all[i], &f) })
		if at < 0 {
			of[key] = append(of[key], len(all))
			all = append(all, f)
			continue
		}
		known := &all[of[key][at]]
		known.Requeued = known.Requeued || f.Requeued
		if known.Term == 0 {
			known.Term = f.Term
		}
	}
	slices.SortStableFunc(all, func(a, b Finish) int { return a.Ended.Compare(b.Ended) })
	return all
}

// sameRun reports whether two records of a job are about one run: a job has one run at a time, and
// the two files may have its times a few seconds apart.
func sameRun(a, b *Finish) bool {
	if a.Started.IsZero() || b.Started.IsZero() {
		return a.Started.IsZero() == b.Started.IsZero()
	}
	return a.Started.Equal(b.Started) || a.Ended.Equal(b.Ended) || a.Started.Before(b.Ended) && b.Started.Before(a.Ended)
}
