// Package acct reads LSF's accounting file, lsb.acct. It imports nothing that runs or stores, so
// that the simulator reads old jobs as ahist does.
package acct

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Bounds beyond what any farm knows; more is a mistake.
const (
	maxSlots = 1 << 24
	maxRun   = 10 * 366 * 24 * time.Hour
)

// Finish is one JOB_FINISH: a run of a job that has ended, or a job that never ran.
type Finish struct {
	ID        backends.ID
	User      string
	Queue     string
	Name      string
	Project   string // with its step
	Submitted time.Time
	Started   time.Time // zero: it never ran
	Ended     time.Time
	Slots     int
	Hosts     []backends.Placement // in the order of the list
	Done      bool                 // else it exited
	Status    int                  // as wait returns it
	CPUUser   time.Duration
	CPUSystem time.Duration
	Memory    int64 // bytes; 0: not known
	Term      int   // LSF's reason why the run ended (lsbatch.h, TERM_…); 0: none
	Requeued  bool  // lsb.events says that the job went back into the queue
}

// Reasons why LSF ended a run, of those that Finish.Term has.
const (
	TermRequeueOwner = 10
	TermRequeueAdmin = 11

	termOwner = 14
	termAdmin = 15
)

// terms are the others, for people (IBM Spectrum LSF 10.1, bacct, "Termination reasons").
var terms = map[int]string{
	1: "preempted by LSF", 2: "its queue's run window closed", 3: "the load of its host", 4: "ended by LSF", 5: "over its run limit",
	6: "it could not end before its deadline", 7: "over its process limit", 8: "killed by its owner, without a wait", 9: "killed by an administrator, without a wait",
	TermRequeueOwner: "requeued by its owner", TermRequeueAdmin: backends.RequeuedByAdmin, 12: "over its limit of processor time",
	13: "ended after its checkpoint", termOwner: "killed by its owner", termAdmin: "killed by an administrator", 16: "over its memory limit",
	17: "ended by a signal that LSF did not send", 19: "it was left on a host that could not be reached", 20: "over its swap limit", 21: "over its thread limit",
}

// Why returns why LSF ended the run; "": it is not known, or the run ended by itself.
func (f *Finish) Why() string { return terms[f.Term] }

// Parse reads one line; nil: it is no JOB_FINISH. The fields of a record are parted by
// blanks, texts in quotes with "" for one quote. Of a JOB_FINISH they are, from 1 (IBM Spectrum LSF 10.1, configuration reference,
// lsb.acct; readJobFinish of lava's lsbatch/lib/lsb.log.c reads the same ones up to projectName):
//
//	 1 "JOB_FINISH"     2 version        3 event time: of its end
//	 4 jobId            5 userId         6 options         7 numProcessors
//	 8 submitTime       9 beginTime     10 termTime       11 startTime; 0: it never ran
//	12 userName        13 queue         14 resReq         15 dependCond
//	16 preExecCmd      17 fromHost      18 cwd            19 inFile
//	20 outFile         21 errFile       22 jobFile
//	23 numAskedHosts, and so many hosts
//	   numExHosts, and so many hosts: one a slot, or N*host where the site shortens lists
//	   jStatus         hostFactor       jobName           command
//	   19 fields of resource usage, which begin with user time, system time (s) and memory (KB); -1: not known
//	   mailUser        projectName      exitStatus        maxNumProcessors  loginShell  timeEvent
//	   idx             maxRMem (KB)     maxRSwap          inFileSpool       commandSpool  rsvId
//	   sla             exceptMask       additionalInfo    exitInfo          …
//
// What comes after projectName differs between versions: what is missing or is no number there counts as
// not known.
func Parse(line string) (*Finish, error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil, nil
	}
	f := fields{rest: line}
	kind := f.text("event type")
	if f.err == nil && kind != "JOB_FINISH" {
		return nil, nil
	}
	return f.finish()
}

func (f *fields) finish() (*Finish, error) {
	var r Finish
	f.text("version")
	r.Ended = f.seconds("event time")
	number, _ := f.next("jobId")
	f.skip("userId", "options")
	r.Slots = f.number("numProcessors")
	r.Submitted = f.seconds("submitTime")
	f.skip("beginTime", "termTime")
	r.Started = f.seconds("startTime")
	r.User = f.text("userName")
	r.Queue = f.text("queue")
	f.skip("resReq", "dependCond", "preExecCmd", "fromHost", "cwd", "inFile", "outFile", "errFile", "jobFile")
	f.hosts("numAskedHosts")
	if hosts, n := f.hosts("numExHosts"); n > 0 {
		r.Slots, r.Hosts = n, hosts
	}
	state, _ := f.next("jStatus")
	f.skip("hostFactor")
	r.Name, _ = f.next("jobName")
	f.skip("command")
	f.usage(&r)
	f.text("mailUser")
	r.Project = f.text("projectName")
	if f.err != nil {
		return nil, f.err
	}
	const done = 64 // JOB_STAT_DONE
	bits, _ := strconv.Atoi(state)
	r.Done = bits&done != 0
	run := r.Ended.Sub(r.Started)
	switch {
	case r.User == "":
		return nil, errors.New("field 12 (userName): empty")
	case r.Started.Unix() == 0:
		r.Started = time.Time{}
	case run < 0 || run > maxRun:
		return nil, fmt.Errorf("field 11 (startTime): %d is not possible for an end at %d", r.Started.Unix(), r.Ended.Unix())
	}
	r.ID.Job, _ = strconv.ParseInt(number, 10, 64)
	f.optional(&r)
	return &r, nil
}

// usage reads what a run used.
func (f *fields) usage(r *Finish) {
	r.CPUUser, r.CPUSystem = f.used("ru_utime"), f.used("ru_stime")
	r.Memory = f.kilobytes("ru_maxrss")
	const usage = 19
	for range usage - 3 {
		f.skip("resource usage")
	}
}

// optional reads what not each version has.
func (f *fields) optional(r *Finish) {
	r.Status = f.maybe("exitStatus", 1<<16)
	f.skip("maxNumProcessors", "loginShell", "timeEvent")
	r.ID.Index = f.maybe("idx", 1<<31-1)
	r.Memory = max(r.Memory, int64(f.maybe("maxRMem", 1<<40))<<10)
	f.skip("maxRSwap", "inFileSpool", "commandSpool", "rsvId", "sla", "exceptMask", "additionalInfo")
	r.Term = f.maybe("exitInfo", 1<<10)
}

// fields are the fields of a record that have not been read yet. After the
// first error all are empty.
type fields struct {
	rest string
	n    int // of the last one
	err  error
}

// next returns the next field, and whether it stood in quotes.
func (f *fields) next(name string) (field string, quoted bool) {
	if f.err != nil {
		return "", false
	}
	f.n++
	f.rest = strings.TrimLeft(f.rest, " ")
	switch {
	case f.rest == "":
		f.err = fmt.Errorf("field %d (%s): missing", f.n, name)
		return "", false
	case f.rest[0] != '"':
		field, f.rest, _ = strings.Cut(f.rest, " ")
		return field, false
	}
	var b strings.Builder
	for rest := f.rest[1:]; ; {
		part, after, ok := strings.Cut(rest, `"`)
		if !ok {
			f.err = fmt.Errorf("field %d (%s): its closing quote is missing", f.n, name)
			return "", false
		}
		b.WriteString(part)
		if !strings.HasPrefix(after, `"`) {
			f.rest = after
			return b.String(), true
		}
		b.WriteByte('"')
		rest = after[1:]
	}
}

func (f *fields) skip(names ...string) {
	for _, name := range names {
		f.next(name)
	}
}

func (f *fields) text(name string) string {
	text, quoted := f.next(name)
	if f.err == nil && !quoted {
		f.err = fmt.Errorf("field %d (%s): %q is not a text in quotes", f.n, name, text)
	}
	return text
}

func (f *fields) number(name string) int {
	text, _ := f.next(name)
	n, err := strconv.Atoi(text)
	if f.err == nil && (err != nil || n < 0 || n > maxSlots) {
		f.err = fmt.Errorf("field %d (%s): %q is not a number from 0 to %d", f.n, name, text, maxSlots)
	}
	return n
}

// id returns a job's number.
func (f *fields) id(name string) int64 {
	text, _ := f.next(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if f.err == nil && (err != nil || n < 1) {
		f.err = fmt.Errorf("field %d (%s): %q is not the number of a job", f.n, name, text)
	}
	return n
}

// index returns an element's, behind a text that is passed over if there is one.
func (f *fields) index(behindText bool) int {
	text, quoted := f.next("idx")
	if quoted && behindText {
		text, _ = f.next("idx")
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if f.err == nil && (err != nil || n < 0) {
		f.err = fmt.Errorf("field %d (idx): %q is not the index of an element", f.n, text)
	}
	return int(n)
}

// maybe returns a number from 0 to most; 0: there is none.
func (f *fields) maybe(name string, most int64) int {
	text, quoted := f.next(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || quoted || n < 0 || n > most {
		return 0
	}
	return int(n)
}

func (f *fields) seconds(name string) time.Time {
	text, _ := f.next(name)
	n, err := strconv.ParseInt(text, 10, 40)
	if f.err == nil && (err != nil || n < 0) {
		f.err = fmt.Errorf("field %d (%s): %q is not a number of seconds since 1970", f.n, name, text)
	}
	return time.Unix(n, 0).UTC()
}

// used returns seconds of processor time; 0: not known.
func (f *fields) used(name string) time.Duration {
	text, _ := f.next(name)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n < maxRun.Seconds()*1000) { // also of not a number
		return 0
	}
	return time.Duration(n * float64(time.Second))
}

func (f *fields) kilobytes(name string) int64 {
	text, _ := f.next(name)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n < 1<<40) {
		return 0
	}
	return int64(n) << 10
}

// hosts reads a list of hosts and returns the number of their slots.
func (f *fields) hosts(name string) (list []backends.Placement, slots int) {
	for range f.number(name) {
		host := f.text("host")
		if f.err != nil {
			return nil, 0
		}
		n := 1
		if times, rest, ok := strings.Cut(host, "*"); ok {
			var err error
			if n, err = strconv.Atoi(times); err != nil || n < 1 || n > maxSlots {
				f.err = fmt.Errorf("field %d (host): %q is not a host like 4*n1", f.n, host)
				return nil, 0
			}
			host = rest
		}
		if slots += n; slots > maxSlots {
			f.err = fmt.Errorf("field %d (%s): too many slots", f.n, name)
			return nil, 0
		}
		if last := len(list) - 1; last >= 0 && list[last].Host == host {
			list[last].Slots += n
		} else {
			list = append(list, backends.Placement{Host: host, Slots: n})
		}
	}
	return list, slots
}
