package lsf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// parseEvents reads lsb.events, the queue's own journal: records of fields that are
// parted by blanks, texts in quotes with "" for one. Texts may hold newlines (a job's
// name on lava does), so that a line is no record: quotes are counted over all of it.
// A record is, from 1 (IBM Spectrum LSF 10.1, configuration reference, lsb.events; the
// same in lava as far as it is read):
//
//	"JOB_NEW"     version time jobId userId options numProcessors submitTime beginTime termTime sigValue chkpntPeriod restartPid userName …
//	"JOB_START"   version time jobId jStatus jobPid jobPGid hostFactor numExHosts hosts… queuePreCmd queuePostCmd jFlags ["userGroup"] idx …
//	"JOB_STATUS"  version time jobId jStatus reason subreasons cpuTime endTime ru [19 of usage] exitStatus idx …
//	"JOB_SIGNAL"  version time jobId userId runCount signalSymbol idx userName
//	"JOB_REQUEUE" version time jobId idx
//	"JOB_CLEAN"   version time jobId idx
//	"JOB_MOVE"    version time userId jobId position base idx userName
//	"JOB_MODIFY2" version time "jobId" options options2 delOptions userId userName …
//
// Records of other types are passed over. What follows the last newline is still being
// written: rest is its length. A record that can't be read is an error that shows it;
// what was read before it is returned with the error.
func parseEvents(out []byte) (events []event, rest int, err error) {
	for text := string(out); text != ""; {
		record, length, ok := cutRecord(text)
		if !ok {
			return events, len(text), nil
		}
		e, known, err := parseEvent(record)
		if err != nil {
			return events, len(text), fmt.Errorf("lsb.events: %w, in the record %s", err, shown(record))
		}
		if known {
			events = append(events, e)
		}
		text = text[length:]
	}
	return events, 0, nil
}

// cutRecord is the record that a text begins with, and its length with the newline
// that ends it. A comment (#…) has no quotes to count.
func cutRecord(text string) (record string, length int, ok bool) {
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"' && text[0] != '#':
			quoted = !quoted
		case text[i] == '\n' && !quoted:
			return text[:i], i + 1, true
		}
	}
	return "", 0, false
}

// parseEvent reads one record; known is false for one of another type.
func parseEvent(record string) (e event, known bool, err error) {
	if record = strings.TrimSpace(record); record == "" || record[0] == '#' {
		return event{}, false, nil
	}
	f := eventFields{rest: record}
	kind := f.text()
	f.skip(1)
	e.at = f.seconds()
	switch kind {
	case "JOB_NEW":
		e.kind, e.id.Job = jobNew, f.number()
		f.skip(3)
		e.at = f.seconds() // of submission
		f.skip(5)
		e.user = f.text()
	case "JOB_START":
		e.kind, e.id.Job = jobStarted, f.number()
		f.status(&e, false)
		f.skip(3)
		f.places(&e)
		f.skip(3) // commands before and after it, flags
		if f.rest = strings.TrimLeft(f.rest, " "); strings.HasPrefix(f.rest, `"`) {
			f.skip(1) // LSF 10.1: the user's group
		}
		f.index(&e)
	case "JOB_STATUS":
		e.kind, e.id.Job = jobStatus, f.number()
		f.status(&e, true)
		f.skip(3) // subreasons, processor time, end
		if f.number() != 0 {
			const usage = 19
			f.skip(usage)
		}
		e.exit = int(f.number())
		f.index(&e)
	case "JOB_SIGNAL":
		e.kind, e.id.Job = jobSignalled, f.number()
		f.skip(2)
		e.signal = f.text()
		f.index(&e)
		e.user = f.text()
	case "JOB_REQUEUE", "JOB_CLEAN":
		if e.kind = jobRequeued; kind == "JOB_CLEAN" {
			e.kind = jobCleaned
		}
		e.id.Job = f.number()
		f.index(&e)
	case "JOB_MOVE":
		f.skip(1)
		e.kind, e.id.Job = jobMoved, f.number()
		f.skip(2)
		f.index(&e)
		e.user = f.text()
	case "JOB_MODIFY2":
		e.kind = jobModified
		id, failed := backends.ParseID(f.text())
		if failed != nil && f.err == nil { // of several elements at once
			return event{}, false, nil
		}
		e.id = id
		f.skip(4)
		e.user = f.text()
	default:
		return event{}, false, f.err
	}
	return e, true, f.err
}

// eventFields are the fields of a record that have not been read yet. After the first
// error all are empty.
type eventFields struct {
	rest string
	n    int // of the last one
	err  error
}

var errMissing = errors.New("it is missing")

func (f *eventFields) fail(err error) {
	if f.err == nil {
		f.err = fmt.Errorf("field %d: %w", f.n, err)
	}
	f.rest = ""
}

// next is the next field, and whether it stood in quotes.
func (f *eventFields) next() (field string, quoted bool) {
	if f.err != nil {
		return "", false
	}
	f.n++
	f.rest = strings.TrimLeft(f.rest, " ")
	switch {
	case f.rest == "":
		f.fail(errMissing)
		return "", false
	case f.rest[0] != '"':
		field, f.rest, _ = strings.Cut(f.rest, " ")
		return field, false
	}
	var b strings.Builder
	for rest := f.rest[1:]; ; {
		part, after, ok := strings.Cut(rest, `"`)
		if !ok {
			f.fail(errors.New("its closing quote is missing"))
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

func (f *eventFields) skip(n int) {
	for range n {
		f.next()
	}
}

func (f *eventFields) text() string {
	text, quoted := f.next()
	if f.err == nil && !quoted {
		f.fail(fmt.Errorf("%s is no text in quotes", shown(text)))
	}
	return text
}

func (f *eventFields) number() int64 {
	text, quoted := f.next()
	if f.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || quoted {
		f.fail(fmt.Errorf("%s is no number", shown(text)))
		return 0
	}
	return n
}

func (f *eventFields) seconds() time.Time {
	n := f.number()
	const latest = 1 << 40
	if n < 0 || n > latest {
		f.fail(fmt.Errorf("%d is no time", n))
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// index reads an array's index into the event's job.
func (f *eventFields) index(e *event) {
	n := f.number()
	if n < 0 || n > maxSlots || e.id.Job < 1 {
		f.fail(fmt.Errorf("%d[%d] is no job", e.id.Job, n))
		return
	}
	e.id.Index = int(n)
}

// The bits of a job's status and of the reasons for it (lsbatch.h).
const (
	bitPending, bitHeld, bitRunning = 0x01, 0x02, 0x04
	bitSystem, bitUser              = 0x08, 0x10
	bitExited, bitDone              = 0x20, 0x40
	bitUnknown                      = 0x10000
	reasonAdminStop                 = 0x4000 // SUSP_ADMIN_STOP
)

// status reads a job's status, and the reasons for it where they stand behind it.
func (f *eventFields) status(e *event, reasons bool) {
	bits, reason := f.number(), int64(0)
	if reasons {
		reason = f.number()
	}
	switch {
	case f.err != nil:
	case bits&bitUnknown != 0:
		e.stat = "UNKWN"
	case bits&bitDone != 0:
		e.stat = "DONE"
	case bits&bitExited != 0:
		e.stat = "EXIT"
	case bits&bitUser != 0:
		e.stat = "USUSP"
	case bits&bitSystem != 0:
		e.stat = "SSUSP"
	case bits&bitRunning != 0:
		e.stat = "RUN"
	case bits&bitHeld != 0:
		e.stat = "PSUSP"
	case bits&bitPending != 0:
		e.stat = "PEND"
	default:
		f.fail(&backends.UnknownStateError{Text: strconv.FormatInt(bits, 10)})
	}
	e.admin = e.stat == "USUSP" && reason&reasonAdminStop != 0
}

// places reads a list of hosts, its length first.
func (f *eventFields) places(e *event) {
	n := f.number()
	if n < 0 || n > maxHosts {
		f.fail(fmt.Errorf("%d hosts", n))
		return
	}
	var list []string
	for range n {
		if list = append(list, f.text()); f.err != nil {
			return
		}
	}
	var err error
	if e.hosts, err = placements(list); err != nil {
		f.fail(err)
	}
}
