package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Record is one job of a trace, whatever format it was read from.
type Record struct {
	Submitted time.Time
	Run       time.Duration // that it took, above zero
	Slots     int
	User      string
	Project   string // in SWF, which knows none: the user
	Step      string
	Memory    int64             // bytes over all slots that it asked for; 0: not stated
	RunLimit  time.Duration     // that it asked for; 0: none
	Group     string            // UNIX group; "": not stated
	Queue     string            // "": not stated
	Partition string            // that it ran in; "": not stated
	Nodes     int               // that it ran on; 0: not stated
	Units     []backends.Amount // resources that it had in all beside slots and memory, by name
	LeftOut   string            // why it can't be simulated; "": it can be
}

// LineError is what is wrong with one line of a trace. The lines after it can
// still be read.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// Format is how a trace is written.
type Format string

// The formats that Read knows.
const (
	SWF    Format = "swf"      // Standard Workload Format
	SAcct  Format = "sacct"    // sacct --parsable2
	LSBAcc Format = "lsb.acct" // LSF's accounting file
)

// ErrFormat is wrapped by Open for an unknown format.
var ErrFormat = errors.New("it is neither SWF, nor the output of sacct --parsable2, nor an lsb.acct")

// Why a job can't be simulated.
const (
	NeverRan = "it never ran"
	NotEnded = "it had not ended"
	NoLength = "its run time is not known"
	NoSlots  = "its slots are not known"
)

// Open finds out a trace's format, packed by gzip or not, and reads its records as
// they are asked for, in the order of the file. A *LineError is yielded in place
// of a record; any other error is the last value. Times without a zone are in zone.
func Open(r io.Reader, zone *time.Location) (Format, iter.Seq2[Record, error], error) {
	in := bufio.NewReaderSize(r, maxLine)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return "", nil, fmt.Errorf("unpack: %w", err)
		}
		in = bufio.NewReaderSize(unpacked, maxLine)
	}
	head, err := in.Peek(maxLine)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil, err
	}
	format := formatOf(head)
	switch format {
	case SWF:
		return format, swfRecords(in), nil
	case SAcct:
		return format, sacctRecords(in, zone), nil
	case LSBAcc:
		return format, lsbRecords(in), nil
	}
	return "", nil, ErrFormat
}

// formatOf recognizes the format by the first line that is not empty.
func formatOf(head []byte) Format {
	for line := range bytes.Lines(head) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case line[0] == ';':
			return SWF
		case line[0] == '"' || line[0] == '#':
			return LSBAcc
		case bytes.Contains(line, []byte("|")):
			return SAcct
		case isColumn(string(line)):
			return SAcct
		case '0' <= line[0] && line[0] <= '9' || line[0] == '-':
			return SWF
		default:
			return ""
		}
	}
	return ""
}

// lines reads line by line and numbers them from 1. A line that can't be read
// ends it with an error.
func lines(r io.Reader) iter.Seq2[[]byte, *position] {
	return func(yield func([]byte, *position) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, maxLine)
		at := &position{}
		for in.Scan() {
			at.line++
			if !yield(in.Bytes(), at) {
				return
			}
		}
		if err := in.Err(); err != nil {
			at.line++
			at.err = fmt.Errorf("line %d: %w", at.line, err)
			yield(nil, at)
		}
	}
}

type position struct {
	line int
	err  error // why the file could not be read on
}

// records turns lines into records. A parser that returns neither skips the line.
func records(r io.Reader, parse func(line []byte) (*Record, error)) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for line, at := range lines(r) {
			if at.err != nil {
				yield(Record{}, at.err)
				return
			}
			record, err := parse(line)
			switch {
			case err != nil:
				if !yield(Record{}, &LineError{at.line, err}) {
					return
				}
			case record != nil:
				if !yield(*record, nil) {
					return
				}
			}
		}
	}
}

// finalize decides whether a record can be simulated.
func (r *Record) finalize() *Record {
	const least = time.Second // formats that count seconds write 0 for less
	switch {
	case r.LeftOut != "":
	case r.Slots < 1:
		r.LeftOut = NoSlots
	case r.Run < 0:
		r.LeftOut = NoLength
	case r.Run == 0:
		r.Run = least
	}
	if r.RunLimit <= r.Run || r.LeftOut != "" { // it was not enforced, or is rounded
		r.RunLimit = 0
	}
	return r
}
