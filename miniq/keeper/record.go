package keeper

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/proc"
)

// Verb is what a node wants of a keeper.
type Verb string

// The verbs.
const (
	Stop     Verb = "stop"
	Continue Verb = "cont"
	Kill     Verb = "kill" // after what saves the run's work, if there is anything
	Note     Verb = "note" // a line for the job's standard output
	Signal   Verb = "sig"  // a signal to all its processes
)

// Want is one wish; Grace belongs to Kill, Text to Note, Signal to Signal. A Kill with a
// Signal, or with the path of a command in Text, asks the run by that to save its work.
type Want struct {
	Verb   Verb
	Grace  time.Duration
	Text   string
	Signal syscall.Signal

	Requeue bool // of a Kill: the job goes back into the queue
}

// Line is the wish as it is appended to a record.
func (w Want) Line() string {
	switch w.Verb {
	case Kill:
		line := "w kill " + strconv.FormatInt(w.Grace.Milliseconds(), 10) + "\n"
		if w.saves() { // a line of its own: keepers of earlier versions pass it over
			line = "w " + saveVerb + " " + strconv.Itoa(int(w.Signal)) + " " + strconv.Quote(w.Text) + "\n" + line
		}
		if w.Requeue { // as above
			line = "w " + backVerb + "\n" + line
		}
		return line
	case Note:
		return "w note " + strconv.Quote(w.Text) + "\n"
	case Signal:
		return "w sig " + strconv.Itoa(int(w.Signal)) + "\n"
	case Stop, Continue:
	}
	return "w " + string(w.Verb) + "\n"
}

// In lines before a kill: it asks the run to save its work; it is a requeue.
const (
	saveVerb = "save"
	backVerb = "back"
)

// End is how a run ended.
type End struct {
	Code   int // exit status, or 128 + signal
	At     time.Time
	User   time.Duration // processor time of the job's processes that were waited for
	System time.Duration
	MaxRSS int64  // bytes, of the largest process
	Text   string // why it could not be started, or was ended by its keeper
	Self   bool   `json:",omitempty"` // its first process had ended before its keeper was to kill it
	Asked  bool   `json:",omitempty"` // it was asked to save its work
	Saved  bool   `json:",omitempty"` // by a command, which ended with 0

	// Unbegun: its pre-execution command failed, with the status Code, or was killed.
	Unbegun bool `json:",omitempty"`
}

// maxText bounds the text of an end.
const maxText = 500

func (e End) line() string {
	kind := "x "
	if e.Self {
		kind = "s "
	}
	if e.Asked {
		kind = askedLine + "\n" + kind
	}
	if e.Saved {
		kind = savedLine + "\n" + kind
	}
	if e.Unbegun {
		kind = unbegunLine + "\n" + kind
	}
	return kind + strconv.Itoa(e.Code) + " " + strconv.FormatInt(e.At.UnixNano(), 10) + " " +
		strconv.FormatInt(e.User.Microseconds(), 10) + " " + strconv.FormatInt(e.System.Microseconds(), 10) + " " +
		strconv.FormatInt(e.MaxRSS/1024, 10) + " " + strconv.Quote(e.Text[:min(len(e.Text), maxText)]) + "\n"
}

const (
	haltedLine = "t" // the keeper has stopped the job, as it was wanted
	askedLine  = "a" // the job was asked to save its work
	savedLine  = "v" // by a command, which ended with 0

	unbegunLine = "p" // its pre-execution command did not end with 0
)

// Record is what stands in a record.
type Record struct {
	Run    string       // the run that it is of; "": it does not say
	Keeper proc.Process // zero: no keeper got as far
	Before Use          // processor time of the keeper's runs before this one
	User   int          // the user ID that the job runs as
	Job    proc.Process
	Wanted Wishes
	Halted bool // it was stopped after the last wish to stop it or to let it go on
	End    *End

	save         Want // of the kill that comes next
	back         bool // of the same: it is a requeue
	asked, saved bool
	unbegun      bool
}

func newRecord() Record { return Record{User: os.Getuid()} }

// Stopped reports whether the run is to be stopped: no continuation followed a stop.
func (r *Record) Stopped() bool { return r.Wanted.Has(Stop) }

// ParseRecord reads a record. Lines that it does not understand, and a last one
// without a newline, are passed over: the file belongs to a process that may
// have been killed while it wrote.
func ParseRecord(data []byte) Record {
	r := newRecord()
	r.consume(data)
	return r
}

// consume reads whole lines and returns their length in bytes.
func (r *Record) consume(data []byte) int {
	consumed := 0
	for {
		n := bytes.IndexByte(data[consumed:], '\n')
		if n < 0 {
			return consumed
		}
		r.add(string(data[consumed : consumed+n]))
		consumed += n + 1
	}
}

// Bounds of a record, in bytes. A node passes on nothing but kills, stops and
// continuations when a record has become so long (MaxRecord); of one that is longer still, such as a
// damaged one, its beginning and its end count. No line that is written is
// longer than maxLine.
const (
	MaxRecord = 16 << 20
	lastPart  = 64 << 10
	firstPart = 4 << 10
	maxLine   = 16 << 10
)

// Follower reads a record as it grows, each line once. Its memory is bounded
// whatever the file holds.
type Follower struct {
	Record
	at   int64 // what stands before this was read
	skip bool  // the line at that place is too long: what is left of it is passed over
}

// Size returns how many bytes were read, those passed over included.
func (f *Follower) Size() int64 { return f.at }

// Read reads what has been appended, whatever the file's position is.
func (f *Follower) Read(file *os.File) error {
	if f.at == 0 && !f.skip {
		f.Record = newRecord()
	}
	part := make([]byte, firstPart)
	for {
		if err := f.skipMiddle(file); err != nil {
			return err
		}
		n, err := file.ReadAt(part, f.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		consumed := f.read(part[:n])
		f.at += int64(consumed)
		switch {
		case err != nil:
			return nil
		case consumed > 0:
		case len(part) < maxLine:
			part = make([]byte, 2*len(part))
		default:
			f.skip = true
		}
	}
}

// read takes lines and returns how many bytes are done with.
func (f *Follower) read(data []byte) int {
	if !f.skip {
		return f.consume(data)
	}
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return len(data)
	}
	f.skip = false
	return end + 1 + f.consume(data[end+1:])
}

// skipMiddle passes over the middle of a file that is too long.
func (f *Follower) skipMiddle(file *os.File) error {
	if f.at < MaxRecord {
		return nil
	}
	info, err := file.Stat()
	if err == nil && info.Size()-f.at > lastPart {
		f.at, f.skip = info.Size()-lastPart, true
	}
	return err
}

func (r *Record) add(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	fields := strings.SplitN(rest, " ", 6)
	switch {
	case kind == "r": // what stands before it is another run's
		*r = newRecord()
		r.Run = rest
	case kind == "k" && len(fields) == 2:
		r.Keeper = parseProcess(fields)
	case kind == "b" && len(fields) == 2:
		r.Before = parseBefore(fields)
	case kind == "u" && len(fields) == 1:
		if uid, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
			r.User = int(uid)
		}
	case kind == "j" && len(fields) == 3:
		r.Job = parseProcess(fields)
	case kind == "w":
		r.addWant(rest)
	case line == haltedLine:
		r.Halted = true
	case line == askedLine:
		r.asked = true
	case line == savedLine:
		r.saved = true
	case line == unbegunLine:
		r.unbegun = true
	case (kind == "x" || kind == "s") && len(fields) == 6:
		r.end(fields, kind == "s")
	}
}

func parseProcess(fields []string) proc.Process {
	pid, err := strconv.Atoi(fields[0])
	start, err2 := strconv.ParseUint(fields[1], 10, 64)
	if err != nil || err2 != nil || pid < 2 {
		return proc.Process{}
	}
	return proc.Process{PID: pid, Start: start}
}

func (r *Record) addWant(rest string) {
	verb, argument, _ := strings.Cut(rest, " ")
	w := Want{Verb: Verb(verb)}
	var err error
	switch w.Verb {
	case Kill:
		var ms int64
		ms, err = strconv.ParseInt(argument, 10, 64)
		w.Grace = time.Duration(max(ms, 0)) * time.Millisecond
		w.Signal, w.Text, w.Requeue = r.save.Signal, r.save.Text, r.back
		r.save, r.back = Want{}, false
	case saveVerb:
		r.save = parseSave(argument)
		return
	case backVerb:
		r.back = true
		return
	case Note:
		w.Text, err = strconv.Unquote(argument)
	case Signal:
		var number int
		number, err = strconv.Atoi(argument)
		w.Signal = syscall.Signal(number)
	case Stop, Continue:
	default:
		return
	}
	if err == nil {
		r.Wanted.Add(w)
		r.Halted = r.Halted && w.Verb != Stop && w.Verb != Continue
	}
}

// parseSave reads how a run is to be asked to save its work; the zero Want: not at all.
func parseSave(text string) Want {
	number, quoted, _ := strings.Cut(text, " ")
	signal, err := strconv.Atoi(number)
	command, err2 := strconv.Unquote(quoted)
	if err != nil || err2 != nil || signal < 0 || signal > lastSignal {
		return Want{}
	}
	return Want{Signal: syscall.Signal(signal), Text: command}
}

func (r *Record) end(fields []string, self bool) {
	var n [5]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return
		}
	}
	text, err := strconv.Unquote(fields[5])
	if err != nil || n[0] < 0 || n[0] > 255 {
		return
	}
	r.End = &End{
		Code: int(n[0]), At: time.Unix(0, n[1]), User: time.Duration(n[2]) * time.Microsecond,
		System: time.Duration(n[3]) * time.Microsecond, MaxRSS: n[4] * 1024, Text: text, Self: self, Asked: r.asked, Saved: r.saved, Unbegun: r.unbegun,
	}
}

// recordStart records the start time of the process that is forked before the returned function
// is called. If the clock's tick is the same before and after, it is that tick; else
// /proc has it.
func (k *supervisor) recordStart(pid *int) func() {
	before := bootTicks()
	return func() {
		if *pid == 0 {
			return
		}
		if k.began = before; before == 0 || before != bootTicks() {
			k.began = proc.StartTime(*pid)
		}
	}
}

// bootTicks is the time since boot as /proc gives start times: in hundredths of a
// second, suspended times included (proc_pid_stat(5)).
func bootTicks() uint64 {
	const perSecond = 100
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return uint64(now.Nano() / (time.Second / perSecond).Nanoseconds())
}
