package miniq

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Version is the protocol's. A daemon refuses another one.
const Version = 2

// Op is what a request asks for.
type Op string

// The requests.
const (
	OpSubmit    Op = "submit"
	OpKill      Op = "kill"
	OpRequeue   Op = "requeue"
	OpSuspend   Op = "suspend"
	OpResume    Op = "resume"
	OpHold      Op = "hold"
	OpRelease   Op = "release"
	OpRank      Op = "rank"
	OpPin       Op = "pin"
	OpHoldUntil Op = "hold_until"
	OpReserve   Op = "reserve"
	OpGuarantee Op = "guarantee"
	OpPlace     Op = "place" // Dummies, under Key as OpSubmit
	OpMove      Op = "move"
	OpReorder   Op = "reorder" // IDs to Position among their owner's, from the last one if Bottom
	OpReopen    Op = "reopen"  // IDs, jobs that have ended
	OpSnapshot  Op = "farm"
	OpJobs      Op = "jobs"
	OpWait      Op = "wait"   // for all of IDs to end, or for the state to change after After
	OpRecord    Op = "record" // the state object of IDs[0]
	OpNote      Op = "note"   // Setting or File, into the state object of IDs[0]
	OpFile      Op = "file"   // the file named Name in that object
	OpQueues    Op = "queues"
	OpModify    Op = "modify"
	OpSignal    Op = "signal" // number Signal, to the running IDs
	OpHosts     Op = "hosts"  // close Hosts for new jobs, for Reason, or open them again: an administrator's
	OpStatus    Op = "status"
	OpStop      Op = "stop"
	OpCompact   Op = "compact" // forget what ended longer ago than Keep, and shorten the journal
)

// Request is one question or command. All text in it is escaped (backends.Escape).
type Request struct {
	Version      int                       `json:"v"`
	Op           Op                        `json:"op"`
	Specs        []Spec                    `json:"specs,omitempty"`
	Key          string                    `json:"key,omitempty"` // OpSubmit, OpPlace: the same jobs under the same key are taken once
	IDs          []backends.ID             `json:"ids,omitempty"`
	Acts         []backends.Act            `json:"acts,omitempty"`
	Rankings     []backends.PriorityChange `json:"rankings,omitempty"`
	Pins         []backends.Pin            `json:"pins,omitempty"`
	Holds        []backends.HoldUntil      `json:"holds,omitempty"`
	Reservations []backends.Reservation    `json:"reservations,omitempty"`
	Guaranteed   []backends.Guaranteed     `json:"guaranteed,omitempty"`
	Dummies      []backends.Dummy          `json:"dummies,omitempty"`
	Queue        string                    `json:"queue,omitempty"`
	EndedSince   time.Time                 `json:"ended_since,omitzero"`
	After        uint64                    `json:"after,omitempty"`   // OpWait
	Timeout      time.Duration             `json:"timeout,omitempty"` // OpWait: answer at the latest after this time
	KillJobs     bool                      `json:"kill_jobs,omitempty"`
	Now          bool                      `json:"now,omitempty"`    // OpKill: without a grace
	Change       *backends.Change          `json:"change,omitempty"` // OpModify
	Signal       int                       `json:"signal,omitempty"`
	Hosts        []string                  `json:"hosts,omitempty"`
	Position     int                       `json:"position,omitempty"`
	Bottom       bool                      `json:"bottom,omitempty"`
	OpenHosts    bool                      `json:"open_hosts,omitempty"`
	Reason       string                    `json:"reason,omitempty"`
	Keep         *time.Duration            `json:"keep,omitempty"` // OpCompact; nil: as the config says
	Setting      *Setting                  `json:"setting,omitempty"`
	File         *File                     `json:"file,omitempty"` // its data is not escaped
	Name         string                    `json:"name,omitempty"`
}

// submitted is a Response without what the answer to a submission never has; see
// submission.
type submitted struct {
	Version   int          `json:"v"`
	More      bool         `json:"more,omitempty"`
	Error     *Error       `json:"error,omitempty"`
	Submitted []Submission `json:"submitted,omitempty"`
}

// ReadResponse reads a part of the answer to a request.
func ReadResponse(from io.Reader, op Op) (*Response, error) {
	resp := new(Response)
	if op != OpSubmit {
		return resp, ReadFrame(from, resp)
	}
	body, err := readBody(from)
	if err != nil {
		return resp, err
	}
	if usual, ok := usualAnswer(body); ok {
		return usual, nil
	}
	var s submitted
	err = decode(body, &s)
	resp.Version, resp.More, resp.Error, resp.Submitted = s.Version, s.More, s.Error, s.Submitted
	return resp, err
}

// Response is one part of an answer; More says that another follows. All text in it
// is escaped.
type Response struct {
	Version   int                   `json:"v"`
	More      bool                  `json:"more,omitempty"`
	Error     *Error                `json:"error,omitempty"` // the request as a whole failed
	Submitted []Submission          `json:"submitted,omitempty"`
	Errors    []*Error              `json:"errors,omitempty"` // null: succeeded
	Snapshot  *SnapshotHead         `json:"farm,omitempty"`   // in the first part
	Jobs      []backends.CompactJob `json:"jobs,omitempty"`
	Ended     []backends.CompactJob `json:"ended,omitempty"`
	Sets      [][]string            `json:"sets,omitempty"`    // names of hosts: more of what CompactJob.Set counts, over all parts of an answer
	Changes   uint64                `json:"changes,omitempty"` // how often the state has changed
	Status    *Status               `json:"status,omitempty"`
	Record    *backends.Record      `json:"record,omitempty"`
	Compacted *Compacted            `json:"compacted,omitempty"`
	File      *File                 `json:"file,omitempty"` // its data is not escaped

	Queues []backends.Queue `json:"queues,omitempty"`
}

// Setting is a fact of a job's own.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// File is a file that travels with a job.
type File struct {
	Name       string `json:"name"`
	Executable bool   `json:"executable,omitempty"`
	Data       []byte `json:"data,omitempty"`
}

// HostSets are the sets of hosts that the parts of an answer have named so far.
type HostSets []*backends.HostSet

// Jobs returns jobs of an answer's part, with their texts unescaped. The part's sets have
// been added.
func (s HostSets) Jobs(list []backends.CompactJob) ([]backends.Job, error) {
	out := make([]backends.Job, len(list))
	for i := range list {
		out[i] = list[i].Job().MapTexts(backends.Unescape)
		switch n := list[i].Set; {
		case n < 0 || n > len(s):
			return nil, fmt.Errorf("job %s: hosts that the answer does not name", list[i].ID)
		case n > 0:
			out[i].Suits = s[n-1]
		}
	}
	return out, nil
}

// Add adds the sets of an answer's part.
func (s *HostSets) Add(names [][]string) {
	for _, hosts := range names {
		*s = append(*s, &backends.HostSet{Hosts: hosts})
	}
}

// SetList numbers sets of hosts for an answer.
type SetList struct {
	numbers map[*backends.HostSet]int
	unsent  [][]string
}

// Number returns the number for CompactJob.Set.
func (l *SetList) Number(s *backends.HostSet) int {
	if s == nil {
		return 0
	}
	n, known := l.numbers[s]
	if !known {
		if l.numbers == nil {
			l.numbers = make(map[*backends.HostSet]int)
		}
		n = len(l.numbers) + 1
		l.numbers[s] = n
		l.unsent = append(l.unsent, s.Hosts)
	}
	return n
}

// Pop returns the sets numbered since the last Pop, for Response.Sets.
func (l *SetList) Pop() [][]string {
	names := l.unsent
	l.unsent = nil
	return names
}

// Submission is backends.Submitted.
type Submission struct {
	ID    backends.ID `json:"id"`
	Queue string      `json:"queue,omitempty"`
	Error *Error      `json:"error,omitempty"`
}

// SnapshotHead is a snapshot without its jobs.
type SnapshotHead struct {
	At    int64           `json:"at"`
	Hosts []backends.Host `json:"hosts"`

	Guaranteed []backends.Guaranteed `json:"guaranteed,omitempty"`
}

// Compacted is the result of a compaction, in bytes of files.
type Compacted struct {
	Forgotten int   `json:"forgotten"`     // jobs that ended long ago
	Objects   int64 `json:"objects_bytes"` // that were freed by that
	Journal   int64 `json:"journal_bytes"` // and of the journal
	Left      int64 `json:"left_bytes"`    // that the state takes now
}

// Status is what a daemon reports about itself.
type Status struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	State   string    `json:"state"` // directory
	Socket  string    `json:"socket"`
	Since   time.Time `json:"since"`
	Pending int       `json:"pending"`
	Running int       `json:"running"`
	Ended   int       `json:"ended"`
	Hosts   []HostUse `json:"hosts"`
}

// HostUse is a host and how much of it is used.
type HostUse struct {
	backends.Host
	Used int // slots
}

// Error is an error on the wire. Code names the sentinel that it wraps.
type Error struct {
	Code string `json:"code,omitempty"`
	Text string `json:"text"`
}

// ErrBusy says that the daemon has no room for a client or its request, and that
// nothing of the request was done. Client asks again.
var ErrBusy = errors.New("miniqd is busy")

// sentinels returns the errors that survive the wire, by code.
func sentinels() map[string]error {
	return map[string]error{
		"unreachable": backends.ErrUnreachable, "unknown_job": backends.ErrUnknownJob, "wrong_state": backends.ErrWrongState,
		"denied": backends.ErrDenied, "unable": backends.ErrUnable, "busy": ErrBusy,
	}
}

// ToError makes an error ready for the wire; nil stays nil.
func ToError(err error) *Error {
	if err == nil {
		return nil
	}
	for code, sentinel := range sentinels() {
		if errors.Is(err, sentinel) {
			return &Error{Code: code, Text: backends.Escape(err.Error())}
		}
	}
	return &Error{Text: backends.Escape(err.Error())}
}

// Err returns the error that ToError was given, as to its text and sentinel.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return &remoteError{text: backends.Unescape(e.Text), is: sentinels()[e.Code]}
}

type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }
