package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// lsbRecords reads LSF's lsb.acct: one record a line, its fields parted by
// blanks, texts in quotes with "" for one quote. Of a JOB_FINISH the fields are,
// from 1 (IBM Spectrum LSF 10.1, configuration reference, lsb.acct; readJobFinish
// of lava's lsbatch/lib/lsb.log.c reads the same ones):
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
//	   19 fields of resource usage
//	   mailUser        projectName      exitStatus        maxNumProcessors …
//
// What comes after projectName differs between versions and is not read. Records
// of other types are passed over.
func lsbRecords(r io.Reader) iter.Seq2[Record, error] {
	return records(r, func(line []byte) (*Record, error) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			return nil, nil
		}
		f := lsbFields{rest: text}
		kind := f.text("event type")
		if f.err == nil && kind != "JOB_FINISH" {
			return nil, nil
		}
		return f.record()
	})
}

// lsbFields are the fields of a record that have not been read yet. After the
// first error all are empty.
type lsbFields struct {
	rest string
	n    int // of the last one
	err  error
}

func (f *lsbFields) record() (*Record, error) {
	f.text("version")
	ended := f.seconds("event time")
	f.skip("jobId", "userId", "options")
	slots := f.number("numProcessors")
	submitted := f.seconds("submitTime")
	f.skip("beginTime", "termTime")
	started := f.seconds("startTime")
	user := f.text("userName")
	queue := f.text("queue")
	f.skip("resReq", "dependCond", "preExecCmd", "fromHost", "cwd", "inFile", "outFile", "errFile", "jobFile")
	f.hosts("numAskedHosts")
	if n := f.hosts("numExHosts"); n > 0 {
		slots = n
	}
	f.skip("jStatus", "hostFactor", "jobName", "command")
	const usage = 19
	for range usage {
		f.skip("resource usage")
	}
	f.text("mailUser")
	project := f.text("projectName")
	if f.err != nil {
		return nil, f.err
	}
	r := &Record{User: user, Queue: queue, Slots: slots, Submitted: submitted, Run: ended.Sub(started)}
	r.Project, r.Step = backends.SplitProject(project)
	switch {
	case user == "":
		return nil, errors.New("field 12 (userName): empty")
	case started.Unix() == 0:
		r.LeftOut, r.Run = NeverRan, 0
		return r, nil
	case r.Run < 0 || r.Run > maxRun:
		return nil, fmt.Errorf("field 11 (startTime): %d is not possible for an end at %d", started.Unix(), ended.Unix())
	}
	return r.finalize(), nil
}

// next returns the next field, and whether it stood in quotes.
func (f *lsbFields) next(name string) (field string, quoted bool) {
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

func (f *lsbFields) skip(names ...string) {
	for _, name := range names {
		f.next(name)
	}
}

func (f *lsbFields) text(name string) string {
	text, quoted := f.next(name)
	if f.err == nil && !quoted {
		f.err = fmt.Errorf("field %d (%s): %q is not a text in quotes", f.n, name, text)
	}
	return text
}

func (f *lsbFields) number(name string) int {
	text, _ := f.next(name)
	n, err := strconv.Atoi(text)
	if f.err == nil && (err != nil || n < 0 || n > maxSlots) {
		f.err = fmt.Errorf("field %d (%s): %q is not a number from 0 to %d", f.n, name, text, maxSlots)
	}
	return n
}

func (f *lsbFields) seconds(name string) time.Time {
	text, _ := f.next(name)
	n, err := strconv.ParseInt(text, 10, 40)
	if f.err == nil && (err != nil || n < 0) {
		f.err = fmt.Errorf("field %d (%s): %q is not a number of seconds since 1970", f.n, name, text)
	}
	return time.Unix(n, 0).UTC()
}

// hosts reads a list of hosts and returns the number of their slots.
func (f *lsbFields) hosts(name string) int {
	slots := 0
	for range f.number(name) {
		host := f.text("host")
		if f.err != nil {
			return 0
		}
		n := 1
		if times, _, ok := strings.Cut(host, "*"); ok {
			var err error
			if n, err = strconv.Atoi(times); err != nil || n < 1 || n > maxSlots {
				f.err = fmt.Errorf("field %d (host): %q is not a host like 4*n1", f.n, host)
				return 0
			}
		}
		if slots += n; slots > maxSlots {
			f.err = fmt.Errorf("field %d (%s): too many slots", f.n, name)
			return 0
		}
	}
	return slots
}
