// Package trace reads recorded workloads, so that a farm's past can be played
// again: by real processes, or under virtual time.
package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"
)

// Unknown stands in every field that was not recorded, durations included.
const Unknown = -1

// Job is one job of a trace. Users, groups, programs, queues and partitions are
// numbers: traces are made anonymous.
type Job struct {
	Number      int
	Submitted   time.Duration // since the trace's beginning
	Wait        time.Duration // from submission to start
	Run         time.Duration
	Slots       int           // that it had
	CPU         time.Duration // mean over its slots
	Memory      int64         // bytes a slot, that it used
	AskedSlots  int
	AskedRun    time.Duration
	AskedMemory int64 // bytes a slot
	Status      int   // 1 completed, 0 failed, 5 cancelled, 2 to 4 parts of a job
	User        int
	Group       int
	Program     int
	Queue       int
	Partition   int
	After       int           // number of the job whose end it waited for
	ThinkTime   time.Duration // from that end to its submission
}

// maxLine is the longest line of a trace, in bytes.
const maxLine = 1 << 20

// ReadSWF reads a trace in the Standard Workload Format (version 2.2, Parallel
// Workloads Archive: 18 numbers a line, -1 where unknown, comments after ;). It
// reads as it is asked for jobs. A *LineError is yielded in place of a job; any other
// error is the last value.
func ReadSWF(r io.Reader) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for text, at := range lines(r) {
			if at.err != nil {
				yield(Job{}, at.err)
				return
			}
			line, _, _ := bytes.Cut(text, []byte(";"))
			words := bytes.Fields(line)
			if len(words) == 0 {
				continue
			}
			job, err := parse(words)
			if err != nil {
				err = &LineError{at.line, err}
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

// swfRecords reads jobs as records: since the beginning that the head names
// (UnixStartTime), or, where it names none, since 1970.
func swfRecords(r io.Reader) iter.Seq2[Record, error] {
	start := time.Unix(0, 0).UTC()
	return records(r, func(text []byte) (*Record, error) {
		line, comment, _ := bytes.Cut(text, []byte(";"))
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(comment), []byte("UnixStartTime:")); ok {
			seconds, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 40)
			if err != nil || seconds < 0 {
				return nil, fmt.Errorf("UnixStartTime: %q is not a number of seconds", bytes.TrimSpace(value))
			}
			start = time.Unix(seconds, 0).UTC()
		}
		words := bytes.Fields(line)
		if len(words) == 0 {
			return nil, nil
		}
		j, err := parse(words)
		if err != nil {
			return nil, err
		}
		return j.record(start)
	})
}

const cancelled = 5

func (j *Job) record(start time.Time) (*Record, error) {
	if j.Submitted < 0 {
		return nil, errors.New("field 2 (submit time): not known")
	}
	r := &Record{Submitted: start.Add(j.Submitted), Run: j.Run, Slots: j.Slots, User: "unknown"}
	if r.Slots < 1 {
		r.Slots = j.AskedSlots
	}
	if j.User >= 0 {
		r.User = strconv.Itoa(j.User)
	}
	r.Project = r.User
	r.Group, r.Queue, r.Partition = numberName(j.Group), numberName(j.Queue), numberName(j.Partition)
	if j.AskedMemory > 0 && r.Slots > 0 && j.AskedMemory < math.MaxInt64/int64(r.Slots) {
		r.Memory = j.AskedMemory * int64(r.Slots)
	}
	r.RunLimit = max(j.AskedRun, 0)
	if j.Status == cancelled && j.Run <= 0 {
		r.LeftOut = NeverRan
	}
	return r.finalize(), nil
}

// numberName returns the name of what a trace numbers; "" if it is not known.
func numberName(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func parse(words [][]byte) (Job, error) {
	const kilobyte = 1024
	var j Job
	fields := []struct {
		name string
		to   any
	}{
		{"job number", &j.Number},
		{"submit time", &j.Submitted},
		{"wait time", &j.Wait},
		{"run time", &j.Run},
		{"allocated processors", &j.Slots},
		{"CPU time", &j.CPU},
		{"used memory", &j.Memory},
		{"requested processors", &j.AskedSlots},
		{"requested time", &j.AskedRun},
		{"requested memory", &j.AskedMemory},
		{"status", &j.Status},
		{"user", &j.User},
		{"group", &j.Group},
		{"executable", &j.Program},
		{"queue", &j.Queue},
		{"partition", &j.Partition},
		{"preceding job", &j.After},
		{"think time", &j.ThinkTime},
	}
	if len(words) != len(fields) {
		return Job{}, fmt.Errorf("%d fields, want %d", len(words), len(fields))
	}
	for i, f := range fields {
		value, err := strconv.ParseFloat(string(words[i]), 64)
		if err != nil || math.IsNaN(value) || value < 0 && value != Unknown {
			return Job{}, fmt.Errorf("field %d (%s): %q is neither a number nor -1", i+1, f.name, words[i])
		}
		ok := true
		switch to := f.to.(type) {
		case *int:
			ok = value == math.Trunc(value) && value <= math.MaxInt32
			*to = int(value)
		case *int64: // kilobytes; some recorded fractions
			ok = value <= math.MaxInt64/(2*kilobyte)
			*to = Unknown
			if value >= 0 {
				*to = int64(value * kilobyte)
			}
		case *time.Duration: // seconds
			ok = value <= math.MaxInt64/(2*float64(time.Second))
			*to = Unknown
			if value >= 0 {
				*to = time.Duration(math.Round(value * float64(time.Second)))
			}
		}
		if !ok {
			return Job{}, fmt.Errorf("field %d (%s): %s is out of range", i+1, f.name, words[i])
		}
	}
	return j, nil
}
