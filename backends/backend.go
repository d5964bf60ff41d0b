package backends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Errors that callers branch on. A backend wraps them.
var (
	// ErrUnreachable: the queue did not answer, or not in time. Nothing is
	// known of what it did with the request; try again later (exit code 75).
	ErrUnreachable = errors.New("the queue can't be reached")
	// ErrHostAway: the job was not submitted, as the one host that it asks for
	// takes none for now.
	ErrHostAway = errors.New("the host takes no job for now")
	// ErrUnknownJob: the queue knows no job of this ID.
	ErrUnknownJob = errors.New("no such job")
	// ErrWrongState: the job is not, or no longer, in a state where this can be
	// done to it (also: an Act whose Started does not match).
	ErrWrongState = errors.New("not possible in the job's state")
	// ErrDenied: the queue refuses this to this user.
	ErrDenied = errors.New("permission denied")
	// ErrUnable: this backend cannot do it at all.
	ErrUnable = errors.New("not possible on this queue")
)

// UnknownStateError is a state that a backend does not know. Parsers never guess.
type UnknownStateError struct{ Text string }

func (e *UnknownStateError) Error() string { return fmt.Sprintf("unknown job state %q", e.Text) }

// Errors are the results of a batch call: one per element of the argument, in
// its order, nil where it succeeded.
type Errors []error

// First is the first failure, or nil.
func (e Errors) First() error {
	for _, err := range e {
		if err != nil {
			return err
		}
	}
	return nil
}

// Fail gives the same error to each of n elements.
func Fail(n int, err error) Errors {
	all := make(Errors, n)
	for i := range all {
		all[i] = err
	}
	return all
}

// Spec is a job to be submitted. Its JSON leaves out what is zero, most of it: a
// submission is encoded and decoded several times.
type Spec struct {
	Name        string   `json:",omitzero"`
	Project     string   `json:",omitzero"` // with its step, as the user typed it: chipA:synthesis
	Queue       string   `json:",omitzero"` // "": the queue's default
	Description string   `json:",omitzero"` // the filter's tag, if any, then the user's text
	Priority    Priority `json:",omitzero"`
	Slots       int      `json:",omitzero"`
	Memory      int64    `json:",omitzero"` // bytes over all slots
	MemoryLimit int64    `json:",omitzero"` // a run that uses more is ended; 0: none
	OneHost     bool     `json:",omitzero"`
	PerHost     int      `json:",omitzero"` // slots on each of its hosts, the last one may have fewer; 0: as they come
	Hosts       []string `json:",omitzero"` // run on one of these; empty: any
	Needs       []Amount `json:",omitzero"` // taken of each of its hosts beside slots and memory, each name once (see Abilities.Resources)
	Features    []string `json:",omitzero"` // that each of its hosts must have
	Select      string   `json:",omitzero"` // a condition that holds on each of its hosts (see ParseSelection); "": none
	Same        []string `json:",omitzero"` // names of features and resources that all its hosts have the same of

	Command     []string      `json:",omitzero"` // argv; never joined, never given to a shell by us
	Script      []byte        `json:",omitzero"` // instead of Command: a script for its own #! line, or /bin/sh
	Dir         string        `json:",omitzero"`
	Env         []string      `json:",omitzero"` // the whole environment, KEY=value
	Umask       uint32        `json:",omitzero"`
	Stdin       string        `json:",omitzero"` // files; %J and %I stand for the job's number and index
	Stdout      string        `json:",omitzero"`
	Stderr      string        `json:",omitzero"`
	Truncate    Truncate      `json:",omitzero"` // files that a run empties first; otherwise it appends
	RunLimit    time.Duration `json:",omitzero"`
	BeginTime   time.Time     `json:",omitzero"`
	HeldUntil   time.Time     `json:",omitzero"` // the engine's hold (see Job.HeldUntil), from the submit filter
	Hold        bool          `json:",omitzero"`
	NoRequeue   bool          `json:",omitzero"`
	Rerunnable  bool          `json:",omitzero"` // run it again if its host or keeper is lost
	Interactive bool          `json:",omitzero"` // its owner waits at a terminal
	Terminal    string        `json:",omitzero"` // of an interactive job: the socket at which it is given its standard files (see Abilities.Terminals)
	Exclusive   bool          `json:",omitzero"`
	After       string        `json:",omitzero"` // a dependency in LSF's grammar
	PreExec     string        `json:",omitzero"` // a line of its owner's, for /bin/sh, that is run before the job; unless it ends with 0 the job does not begin
	PostExec    string        `json:",omitzero"` // another one, run after each of its runs
	Mail        Mail          `json:",omitzero"`
	Group       string        `json:",omitzero"` // its job group (see CheckGroup); "": none. Only where Abilities.InGroup
	Notify      string        `json:",omitzero"` // a line of its owner's, for /bin/sh, that reads what became of the job when it begins, ends or is requeued
	Array       *Array        `json:",omitzero"`
}

// Equal reports whether two Specs are the same. Times must be in the same location.
func (s *Spec) Equal(o *Spec) bool {
	return s.Name == o.Name && s.Project == o.Project && s.Queue == o.Queue && s.Description == o.Description &&
		s.Priority == o.Priority && s.Slots == o.Slots && s.Memory == o.Memory && s.MemoryLimit == o.MemoryLimit && s.OneHost == o.OneHost && s.PerHost == o.PerHost &&
		slices.Equal(s.Hosts, o.Hosts) && slices.Equal(s.Needs, o.Needs) && slices.Equal(s.Features, o.Features) && s.Select == o.Select && slices.Equal(s.Same, o.Same) &&
		slices.Equal(s.Command, o.Command) && (s.Script == nil) == (o.Script == nil) && bytes.Equal(s.Script, o.Script) &&
		s.Dir == o.Dir && slices.Equal(s.Env, o.Env) && s.Umask == o.Umask &&
		s.Stdin == o.Stdin && s.Stdout == o.Stdout && s.Stderr == o.Stderr && s.Truncate == o.Truncate &&
		s.RunLimit == o.RunLimit && s.BeginTime == o.BeginTime && s.HeldUntil == o.HeldUntil && s.Hold == o.Hold &&
		s.NoRequeue == o.NoRequeue && s.Rerunnable == o.Rerunnable && s.Interactive == o.Interactive && s.Terminal == o.Terminal &&
		s.Exclusive == o.Exclusive && s.After == o.After && s.PreExec == o.PreExec && s.PostExec == o.PostExec && s.Mail == o.Mail && s.Notify == o.Notify && s.Group == o.Group && s.Array.equal(o.Array)
}

func (a *Array) equal(o *Array) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.Limit == o.Limit && slices.Equal(a.Indices, o.Indices)
}

// Output is where its standard output goes: JOB.out, or JOB.INDEX.out of an array, in its
// directory, where it names no file. (LSF would send mail.)
func (s *Spec) Output() string {
	switch {
	case s.Stdout != "":
		return s.Stdout
	case s.Array != nil:
		return "%J.%I.out"
	}
	return "%J.out"
}

// OutputFile is the path of that file, of a job or an element of an array. A Stdout that ends in /
// is a directory.
func (s *Spec) OutputFile(id ID) string {
	name := s.Stdout
	if name == "" || strings.HasSuffix(name, "/") {
		usual := "%J.out"
		if id.Index != 0 {
			usual = "%J.%I.out"
		}
		name += usual
	}
	if name = id.FileName(name); strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(s.Dir, "/") + "/" + name
}

// NotifyVariable is the variable in which a user names a command that reads what became of a job.
const NotifyVariable = "ALLOTMENT_NOTIFY"

// Mail is the events of a job that mails are sent about, and their recipient.
type Mail struct {
	Begin  bool
	End    bool
	Failed bool   // the end, but of a job that failed alone
	To     string // an address; "": its owner
}

// Truncate says which of a job's output files its runs overwrite (bsub -oo, -eo).
type Truncate struct{ Stdout, Stderr bool }

// Array makes a Spec a job array.
type Array struct {
	Indices []int // ascending, distinct, 1 or more
	Limit   int   // how many may run at a time; 0: no limit
}

// Submitted is the result of one submission: its ID (the array's own, with
// Index 0, for an array), or why it was refused.
type Submitted struct {
	ID       ID
	Queue    string // where it landed; "": not known
	Messages string // the queue's messages to the submitter, in lines; hostile
	Err      error
}

// Act is one forceful act upon a running job. It is conditional: a backend that can
// compare Started does so in one step and fails with ErrWrongState if the job is in
// another run by now, so that the new run is spared.
type Act struct {
	ID      ID
	Started time.Time     // the run that is meant; zero: whichever
	Until   time.Time     // requeued: it does not start before; suspended: not resumed by the queue before. Zero: no such limit
	Grace   time.Duration // between a SIGTERM and the end of a requeued job's run
	Save    Checkpoint    `json:",omitzero"` // of a requeue, instead of Grace, where the queue can ask the job in this way (see ForEngine.SavesBySignal): see Backend.Requeue
	Mark    string        // kept in Job.Mark until the next one
	Notice  string        // one line for the job's record and output, where the backend can
}

// PriorityChange gives a pending job its place in the queue.
type PriorityChange struct {
	ID       ID
	Priority Priority
}

// Pin binds a pending job to hosts. Empty hosts remove the pin: the owner's own list
// holds again.
type Pin struct {
	ID    ID
	Hosts []string
	// Slots, where there are any, are how many it takes of each of Hosts; only
	// where Abilities.PinShares.
	Slots []int `json:",omitempty"`
	// Until, where it is set, ends the pin; only where Abilities.PinEnds.
	Until time.Time `json:",omitzero"`
}

// HoldUntil keeps a pending job from starting (a suspended one, a Resuming one too, from
// being resumed) before a time; its owner can't lift it. A zero time releases.
type HoldUntil struct {
	ID    ID
	Until time.Time
}

// Reservation keeps what frees on hosts from jobs that rank below the job, until
// it starts or Until passes. A zero Until cancels the reservation.
type Reservation struct {
	ID    ID
	Hosts []string
	Until time.Time
}

// Guaranteed is how many slots of some hosts are guaranteed to projects, which may take them
// at any time.
type Guaranteed struct {
	Slots int
	Hosts []string  `json:",omitempty"` // empty: any
	Until time.Time // it no longer counts then
}

// Dummy is a dummy job: a job of the engine's own that holds one slot of a host and
// does nothing, so that the memory that goes with the slot is left to another job. With a
// Project it is a standby job: it keeps the slot for the project's next jobs, and is for no job.
type Dummy struct {
	For      ID     // the job that it leaves the memory to; of a standby job: zero
	Project  string // of a standby job
	Queues   string // of a standby job: those that it may be in, joined by commas, the first that has the host; "": any
	Host     string
	Priority Priority
	Limit    time.Duration // it ends by itself after so long
}

// DummyVariable stands in the environment in which the engine submits a dummy job by a
// queue's own command: our filter lets it through as it is, if it is the engine's user.
const DummyVariable = "ALLOTMENT_DUMMY"

// RankVariable stands in the environment of a queue's own command by which the engine
// ranks a job: our filter leaves the number as it is. Any user can set it, to no more
// gain than by bypassing the filter: the next cycle ranks the job again.
const RankVariable = "ALLOTMENT_RANK"

// Backend is a queuing system. Every method may be called concurrently, honours
// its context, and returns an error that wraps ErrUnreachable when the queue
// can't be asked. Batch calls never stop at the first failure: each element has
// its own error; after ErrUnreachable nothing is known of that element.
type Backend interface {
	// Snapshot takes one consistent snapshot. Jobs that ended before endedSince, or
	// that the queue has forgotten, are left out of Ended.
	Snapshot(ctx context.Context, endedSince time.Time) (*Snapshot, error)
	// Jobs reads some jobs again, ended ones too while the queue still knows them.
	// Unknown IDs are left out; the order is that of the argument. The ID of an array
	// stands for its elements.
	Jobs(ctx context.Context, ids []ID) ([]Job, error)
	// Submit submits jobs. A job that it acknowledged is never lost.
	Submit(ctx context.Context, specs []Spec) []Submitted
	// Kill ends jobs; pending ones too. Killing an ended job is ErrWrongState.
	Kill(ctx context.Context, ids []ID) Errors
	// Requeue puts running jobs back into the queue: same ID, same place,
	// Requeues + 1. It returns when that is certain, not when the run has ended.
	//
	// With Act.Save the job is asked to save itself and has Save.Wait for it (R33). A run
	// that ends with ExitSaved then, or whose Save.Command ended with 0, is requeued with
	// its Job.FailedSaves at 0, and the next run has RestartedVariable in its environment.
	// One that ends with 0 after a signal is Done and stays so. Any other end, and a run
	// that takes longer and is killed, is requeued with Job.FailedSaves + 1. The intent is on
	// disk before the job is asked, with Act.Mark, so that the job comes back even if the engine
	// ends then. A run that was asked already is ErrWrongState.
	Requeue(ctx context.Context, acts []Act) Errors
	// Suspend stops running jobs. Doing it twice is ErrWrongState.
	Suspend(ctx context.Context, acts []Act) Errors
	// Resume resumes suspended jobs, never beyond what their hosts offer:
	// where a job does not fit now it is resumed when it does. On a job that
	// is Resuming or running it does nothing and succeeds. What comes free on the
	// hosts of a Resuming job is kept for it from every job below LevelPBA (R20).
	Resume(ctx context.Context, ids []ID) Errors
	// Hold keeps pending jobs from starting until Release, as their owner would.
	Hold(ctx context.Context, ids []ID) Errors
	// Release undoes Hold, and only that.
	Release(ctx context.Context, ids []ID) Errors
	// SetPriority gives pending and suspended jobs their place in the queue.
	SetPriority(ctx context.Context, rankings []PriorityChange) Errors
	// Abilities says what this system can do; constant for an open backend.
	Abilities() Abilities
	// Close releases what Open acquired. No job is touched.
	Close() error
}
