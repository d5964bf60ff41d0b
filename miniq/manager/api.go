// Package manager is the scheduler of the bundled queue, as a pure state
// machine: Step takes an event and its time and returns what is to be done. It
// knows jobs, nodes and reservations; it knows no process, no file and no
// clock. The daemon runs it in real time, the simulator in virtual time.
//
// The same events at the same times always give the same state and effects, so
// that a journal of events is a journal of the queue.
package manager

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// Config is the policy of the queue.
type Config struct {
	SlotsOnly      bool          // schedule_by: slots; false: slots and memory
	ReserveAfter   time.Duration // a job that waited so long for resources reserves them; 0: never
	AgeingInterval time.Duration // a waiting job's value grows by one at each multiple of it since the Unix epoch; 0: never
	AgeingCap      int           // ticks that one job may gain over its life
	MaxJobs        int           // of one user who is no admin, elements each for itself, that have not ended; 0: any number
	MaxBytes       int64         // of what the jobs of one such user that have not ended were submitted with; 0: any
	MaxEnded       int           // ended jobs of one user that are kept, those that ended last; 0: any number
	MaxEndedBytes  int64         // memory that they may take; 0: any
	StopWait       time.Duration // a suspended job keeps its slots until Stopped says that its processes are stopped, at the latest for so long; 0: they are free at once
	KillGrace      time.Duration // between SIGTERM and SIGKILL of a killed job, or one over its run limit; 0: 10 s
	Queues         []Queue       // the first one is the default; empty: normal and low
}

// Queue is a name under which jobs are submitted, and the level they get there.
type Queue struct {
	Name  string
	Level backends.Level
}

// Event is something that happened: one of the types of this package that say so.
// Events hold plain values only; EncodeEvent and DecodeEvent write and read them.
type Event interface{ event() string }

// Result is the answer to an event. Submitted belongs to Submit; Errors to every event
// on jobs or runs, one for each element of its list (one for an event on a single job,
// run or node); both are nil for the others.
type Result struct {
	Submitted []backends.Submitted
	Again     []bool // which of Submitted had come before under their key; nil: none
	Errors    backends.Errors
}

// By is the user that asks. Permission is decided here: users may act upon their own
// jobs where no other job loses by it, an admin on all jobs in all ways.
type By struct {
	User  string
	Admin bool
}

// Submit hands jobs in. A Spec is kept as it is given and comes back in
// StartRun; the manager reads what it schedules by and never Command,
// Script, Dir, Env, Umask, Stdin, Stdout, Stderr: a caller that keeps those elsewhere
// leaves them out. A zero Priority means the queue's default.
//
// Jobs that come once more under the same Key are not taken twice: they get the
// IDs that they got, but for those that were refused, which are tried again. An
// empty Key is none.
//
// Next marks the Specs that may be next in line by the site's policy, which the writer
// of the event knows. Without it a user's job begins no higher than at its queue's
// level, whatever its Spec asks for.
//
// For, which is an admin's, makes each of Specs a dummy job for the job of the same
// place in it, or, where that is zero and the Spec has a project, a standby job; see Dummies.
type Submit struct {
	By    By
	Key   string `json:",omitempty"`
	Specs []backends.Spec
	Next  []bool        `json:",omitempty"`
	For   []backends.ID `json:",omitempty"`
	Bytes []int64       `json:",omitempty"` // what each is submitted with besides its Spec
	Past  []PastEnd     `json:",omitempty"` // by ID: those that conditions of Specs name
}

// submittedJob is one job of a Submit.
type submittedJob struct {
	by       By
	spec     *backends.Spec
	next     bool
	dummy    bool
	dummyFor backends.ID // of a dummy job: the job that it is for
	bytes    int64
	past     []PastEnd
}

// jobAt copies the Spec: what is left open in it is filled in on its way in.
func (e *Submit) jobAt(i int) submittedJob {
	spec := e.Specs[i]
	one := submittedJob{by: e.By, spec: &spec, next: i < len(e.Next) && e.Next[i], dummy: len(e.For) > 0, past: e.Past}
	if i < len(e.For) {
		one.dummyFor = e.For[i]
	}
	one.bytes = specBytes(&spec)
	if i < len(e.Bytes) {
		one.bytes += e.Bytes[i]
	}
	return one
}

// Kill ends jobs, pending ones at once.
type Kill struct {
	By  By
	IDs []backends.ID
}

// KillNow is Kill without a grace, also for jobs that are being ended with one.
type KillNow struct {
	By  By
	IDs []backends.ID
}

// Requeue puts running (or suspended) jobs back into the queue. Mark and Until
// are an admin's, and so is a grace beyond Config.KillGrace: a job that is being ended
// is not chosen as a victim. So is a longer Save.Wait. A second Requeue gets ErrWrongState.
// See Ended for a run that ends by itself meanwhile, or has saved its work.
type Requeue struct {
	By   By
	Acts []backends.Act
}

// Suspend stops running jobs. Their slots are free when they have stopped (see
// Config.StopWait), their memory is not.
type Suspend struct {
	By   By
	Acts []backends.Act
}

// Resume lets suspended jobs go on when they fit. A job that is held by
// HeldUntil is resumed after that; only an admin's Resume lifts it.
type Resume struct {
	By  By
	IDs []backends.ID
}

// Hold keeps pending jobs from starting, as their owner would.
type Hold struct {
	By  By
	IDs []backends.ID
}

// Release undoes Hold. It never lifts HoldUntil.
type Release struct {
	By  By
	IDs []backends.ID
}

// SetPriority gives jobs their place in the queue. Only an admin can raise it.
type SetPriority struct {
	By       By
	Rankings []backends.PriorityChange
}

// Pin binds pending jobs to hosts; an admin's.
type Pin struct {
	By   By
	Pins []backends.Pin
}

// HoldUntil sets the engine's hold; an admin's.
type HoldUntil struct {
	By    By
	Holds []backends.HoldUntil
}

// Reserve keeps what frees on hosts for a job; an admin's.
type Reserve struct {
	By           By
	Reservations []backends.Reservation
}

// Guarantee replaces what is guaranteed; an admin's. Hosts that are not known count for
// nothing.
type Guarantee struct {
	By         By
	Guaranteed []backends.Guaranteed
}

// Move puts pending jobs into another queue; they keep their value and get that
// queue's level. Only an admin moves them up.
type Move struct {
	By    By
	IDs   []backends.ID
	Queue string
}

// Reorder puts pending jobs before or behind other ones of their owner's (btop, bbot). Jobs change
// places only where that concerns no other user: in one queue, with the same priority now and
// later. Each job that is named goes to the position that counts, from 1, among the owner's jobs
// from the first one on, or with Bottom from the last one on; several keep their order.
type Reorder struct {
	By       By
	IDs      []backends.ID
	Position int
	Bottom   bool `json:",omitempty"`
}

// NodeUp says that a node offers its host, for the first time, again, or with
// other figures. Runs on it that the manager knows go on.
type NodeUp struct {
	Name   string
	Slots  int
	Memory int64 // bytes; 0: not managed there
	Closed bool  // it takes no new jobs

	Has      []backends.Amount `json:",omitempty"` // countable resources beside slots and memory
	Features []string          `json:",omitempty"`
}

// CloseHosts has hosts take no new jobs, or take them again. What runs there goes on to its end. It
// is an administrator's, and lasts, whatever becomes of nodes meanwhile, as long as the queue has the
// host. Reason is a line of text for people.
type CloseHosts struct {
	By     By
	Names  []string
	Open   bool
	Reason string `json:",omitempty"`
}

// NodeDown says that a node can't be asked. Its runs stay as they are, nothing
// starts there; only RunLost or Ended ends a run.
type NodeDown struct{ Name string }

// NodeGone takes a node out of the farm. ErrWrongState while it has runs.
type NodeGone struct{ Name string }

// Started confirms that a run has begun. It changes no time: a run counts from
// the step that decided it.
type Started struct {
	ID  backends.ID
	Run int
}

// Stopped confirms that a run's processes are stopped, as StopRun asked. One that comes
// for a run that goes on again is passed over.
type Stopped struct {
	ID  backends.ID
	Run int
}

// StartFailed says that a run could not be begun and has no process. The job is
// pending again and tried later, at most MaxStarts times in a row; then it ends.
type StartFailed struct {
	ID     backends.ID
	Run    int
	Reason string
	Again  bool `json:",omitempty"` // it is the host that had no room for it: this one does not count

	// PreExec is the exit status of the job's pre-execution command, which did not end with 0. Such
	// failures count for themselves, up to MaxPreExec; after ExitCancel the job ends at once.
	PreExec int `json:",omitempty"`
}

// MaxPreExec is how often a job's pre-execution command may fail in a row before the job ends, as
// MAX_PREEXEC_RETRY is by default in LSF 8.
const MaxPreExec = 5

// ExitCancel is the exit status by which a pre-execution command ends its job, as in LSF.
const ExitCancel = 99

// MaxStarts is how many starts in a row may fail before a job ends.
const MaxStarts = 3

// Ended says that a run's processes are gone. An event of another run than the
// job's own is passed over with ErrWrongState.
//
// A run that is being requeued puts its job back into the queue however it
// ends, but for one case: it ended by itself with status 0 before a signal of the
// queue reached it. Then the job is done: another run would waste its work. After the
// signal a 0 means nothing: programs that save their state on SIGTERM exit with it.
//
// A run that was asked by a signal to save itself ends with 0 if it has finished instead, and
// its job is done; with backends.ExitSaved, it has saved its work. Any other end is that
// of a checkpoint that failed.
type Ended struct {
	ID       backends.ID
	Run      int
	ExitCode int    // 128 + signal for a killed process
	Self     bool   // it ended before a signal of a KillRun was sent to it
	Reason   string `json:",omitempty"` // why it could not be executed, or was killed, if so
	Asked    bool   `json:",omitempty"` // it was asked to save itself, as KillRun.Save says
	Saved    bool   `json:",omitempty"` // the command of KillRun.Save ended with 0
	Unbegun  bool   `json:",omitempty"` // nothing of it was executed
}

// RunLost says that it is not known how a run ended and that nothing of it runs any
// more. A job that was being requeued, or that is rerunnable and was not being killed,
// is pending again; another one ends as Exited.
type RunLost struct {
	ID     backends.ID
	Run    int
	Reason string
}

// Tick says that time passed: due at WakeAt, harmless at any other time.
type Tick struct{}

// Forget drops jobs that ended before a time.
type Forget struct{ EndedBefore time.Time }

// Configure replaces the policy.
type Configure struct{ Config Config }

// ClockRead says what the clocks show when a daemon begins, and again when the wall
// clock was set. All that counts elapsed time goes on as if it had not been; a job's
// begin time is its owner's, and stays.
type ClockRead struct {
	Now  clock.Reading
	Jump time.Duration // by which the wall clock was set since the last one; 0: it was not
}

// Ahead is when the wall clock was last put ahead, and by how much. The zero Ahead:
// never.
type Ahead struct {
	At time.Time
	By time.Duration
}

// The events are written under these names.
func (Submit) event() string      { return "submit" }
func (Kill) event() string        { return "kill" }
func (KillNow) event() string     { return "kill_now" }
func (Requeue) event() string     { return "requeue" }
func (Suspend) event() string     { return "suspend" }
func (Resume) event() string      { return "resume" }
func (Hold) event() string        { return "hold" }
func (Release) event() string     { return "release" }
func (SetPriority) event() string { return "rank" }
func (Pin) event() string         { return "pin" }
func (HoldUntil) event() string   { return "hold_until" }
func (Reserve) event() string     { return "reserve" }
func (Guarantee) event() string   { return "guarantee" }
func (Move) event() string        { return "move" }
func (Reorder) event() string     { return "reorder" }
func (Reopen) event() string      { return "reopen" }
func (Note) event() string        { return "note" }
func (Modify) event() string      { return "modify" }
func (NodeUp) event() string      { return "node_up" }
func (CloseHosts) event() string  { return "close_hosts" }
func (NodeDown) event() string    { return "node_down" }
func (NodeGone) event() string    { return "node_gone" }
func (Started) event() string     { return "started" }
func (Stopped) event() string     { return "stopped" }
func (StartFailed) event() string { return "start_failed" }
func (Ended) event() string       { return "ended" }
func (RunLost) event() string     { return "run_lost" }
func (Tick) event() string        { return "tick" }
func (Forget) event() string      { return "forget" }
func (Configure) event() string   { return "configure" }
func (ClockRead) event() string   { return "clock_read" }

// events has one of each.
func events() []Event {
	return []Event{
		Submit{},
		Kill{},
		KillNow{},
		Requeue{},
		Suspend{},
		Resume{},
		Hold{},
		Release{},
		SetPriority{},
		Pin{},
		HoldUntil{},
		Reserve{},
		Guarantee{},
		Move{},
		Reorder{},
		Reopen{},
		Note{},
		Modify{},
		NodeUp{},
		CloseHosts{},
		NodeDown{},
		NodeGone{},
		Started{},
		Stopped{},
		StartFailed{},
		Ended{},
		RunLost{},
		Tick{},
		Forget{},
		Configure{},
		ClockRead{},
	}
}

// Effect is something to do, after the event is on disk and in the order given.
type Effect interface{ effect() }

// StartRun starts a run of a job. (ID, Run) never comes twice.
type StartRun struct {
	ID       backends.ID
	Run      int // 1, 2, … over the job's life
	User     string
	Hosts    []backends.Placement // at least one; the first is where its processes start
	Requeues int                  // ALLOTMENT_REQUEUES
	Queue    string
	At       time.Time      // Job.Started of this run
	Spec     *backends.Spec // as submitted, shared by an array's elements: don't change it

	Restarted bool // backends.RestartedVariable: the run before ended with a checkpoint
}

// KillRun ends a run: SIGTERM to all its processes (and SIGCONT, if they are
// stopped), SIGKILL after Grace. It may come again for the same run, with a
// shorter grace; the sooner end holds. A run that has not begun yet must not begin.
//
// With Save the run is asked to save its work, by Save.Signal instead of the SIGTERM or by
// Save.Command; when that has ended, the run is. A stopped one is continued for it.
type KillRun struct {
	ID    backends.ID
	Run   int
	Grace time.Duration // 0: SIGKILL at once
	Save  backends.Checkpoint

	Requeue bool // the job goes back into the queue
}

// StopRun stops all processes of a run (SIGSTOP).
type StopRun struct {
	ID  backends.ID
	Run int
}

// ContinueRun lets them go on (SIGCONT).
type ContinueRun struct {
	ID  backends.ID
	Run int
}

// Notice is a line for the job's own record, and for its output where a run is there.
type Notice struct {
	ID   backends.ID
	Run  int // 0: it has none now
	Text string
}

// Finished says that a job ended and how; it comes once in its life, and once more for each time
// that it was reopened. Array is the array as a whole, with the last of its elements: Exited if one of them is, with
// the exit code of the first of those.
type Finished struct {
	Job   backends.Job
	Array *backends.Job
}

// Reopened says that a job that had ended is in the queue again, as a user asked for.
type Reopened struct {
	ID backends.ID
	By string
}

// Forgotten says that nothing is known of these jobs any more.
type Forgotten struct{ IDs []backends.ID }

// WakeAt asks for a Tick at the one next instant at which something changes by
// itself; the zero time: nothing will. It replaces the one before and comes
// only when it differs from it.
type WakeAt struct{ At time.Time }

func (StartRun) effect()    {}
func (KillRun) effect()     {}
func (StopRun) effect()     {}
func (ContinueRun) effect() {}
func (Notice) effect()      {}
func (Finished) effect()    {}
func (Reopened) effect()    {}
func (Forgotten) effect()   {}
func (WakeAt) effect()      {}

// Run is a run that the manager believes alive, for a daemon that restarts:
// carrying out StartRun if it was never claimed, then KillRun if Killing, then
// StopRun if Stopped brings a node to what the manager believes.
type Run struct {
	StartRun
	Confirmed bool // Started was seen
	Stopped   bool
	Killing   bool          // a KillRun was given
	Requeued  bool          // so that the job goes back into the queue
	Grace     time.Duration // of that one
	Save      backends.Checkpoint
	KilledAt  time.Time // when it was given
}
