package backends

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is where a job is in its life.
type State uint8

// The states. A held job must be released, by its owner or an administrator, before it
// can start; a job that waits for a time or for another job is pending.
const (
	Pending State = iota + 1
	Running
	Suspended
	Held
	Done   // ended with exit status 0
	Exited // ended otherwise, killed ones included
)

var stateNames = [...]string{Pending: "pending", Running: "running", Suspended: "suspended", Held: "held", Done: "done", Exited: "exited"}

func (s State) String() string {
	if int(s) < len(stateNames) && stateNames[s] != "" {
		return stateNames[s]
	}
	return "unknown"
}

// Ended reports whether a job in this state will never run again by itself.
func (s State) Ended() bool { return s == Done || s == Exited }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes; another name is an error.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name != "" && name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return &UnknownStateError{Text: string(text)}
}

// Wait says what a pending job waits for, as far as its queue knows.
type Wait uint8

// What a pending job waits for. Only WaitResources makes a job eligible in
// R14's sense: a backend maps to it the reasons that it knows to mean "would
// start if slots were free or its priority higher", and nothing else.
const (
	WaitOther      Wait = iota // licence, limit, anything unknown: not eligible
	WaitResources              // for slots, memory or its turn
	WaitTime                   // for its begin time or the end of a requeue delay
	WaitDependency             // for another job
	WaitThrottle               // for another element of its array
)

// Mode is what may be done to a running job that loses its slots.
type Mode uint8

// The preempt modes; the zero Mode is the default, requeue.
const (
	PreemptRequeue Mode = iota
	PreemptSuspend
)

func (m Mode) String() string {
	if m == PreemptSuspend {
		return "suspend"
	}
	return "requeue"
}

// Placement is a number of slots on one host.
type Placement struct {
	Host  string `json:"host"`
	Slots int    `json:"slots"`
}

// SlotsOn returns the slots of placements on a host.
func SlotsOn(at []Placement, host string) int {
	n := 0
	for _, p := range at {
		if p.Host == host {
			n += p.Slots
		}
	}
	return n
}

// ShareHost reports whether a host is among both placements.
func ShareHost(a, b []Placement) bool {
	return slices.ContainsFunc(a, func(p Placement) bool {
		return slices.ContainsFunc(b, func(q Placement) bool { return p.Host == q.Host })
	})
}

// Job is what a queue shows of one job. Array elements are jobs of their own. Times are
// the queue's clock; a zero time means "not yet" or "none".
type Job struct {
	ID      ID
	Name    string // the user's text: hostile
	User    string // from the queue's own record of who submitted
	Project string // without its step
	Step    string
	Queue   string
	Group   string // its job group (see CheckGroup), where the queue's jobs show it; "": none
	Tag     string // the submit filter's tag (see ParseTag), "" if it has none; a hint, never a credential
	State   State
	Wait    Wait   // of a pending job
	Reason  string // why it pends, is held or suspended, in the queue's words

	Priority Priority // as it orders the queue now, ageing included
	Slots    int
	Memory   int64 // bytes that the job asks for, over all its slots; 0 if it asked for none
	OneHost  bool  // its slots must be on one host; true for one-slot jobs
	Hosts    []Placement
	Asked    []string  // its owner's own host list; empty: any host
	Pinned   []string  // the engine's host list, in force instead of Asked; empty: none
	Shares   []int     // slots on each host of Pinned; empty: as they come
	PinEnds  time.Time // the queue takes the pin back then; zero: it does not
	Planned  []string  // of a pending job: hosts where the queue plans to start it; nothing starts there that could still run then
	Keeps    []string  // of a pending job: hosts where the queue by itself keeps what is free for it from jobs that rank below it

	Submitted   time.Time
	Started     time.Time // of this run; a resumed job: of its resume
	Ended       time.Time
	RunLimit    time.Duration // wall time that a run may take; 0: no limit
	RanFor      time.Duration // run time that would be lost now: of this run up to its last suspension or resume
	BeginTime   time.Time     // its owner's; it does not start before
	HeldUntil   time.Time     // the engine's hold: it does not start, or is not resumed, before
	Requeues    int           // how often the queue requeued it, by any user's request
	Awaited     bool          // other jobs wait for its end, for which the queue would take that of a run that saved itself: it is not asked to (R33)
	FailedSaves int           // how many of its checkpoints on demand failed in a row (R33)
	Mark        string        // the engine's mark from its last Requeue or Suspend (see Act)
	DummyFor    ID            // of a dummy job: the job that it holds a slot for, of a standby job its own, or its array's; zero: it is none (see Dummy)
	ExitCode    int           // of an ended job; 128 + signal for a killed one
	Progress    string        // how far it is by its own words: 40 step 3 of 7 (percent, then the user's text); "": it says nothing

	// Where it may run and what it needs there (R32).
	Unserved   string    // what of its request the backend does not understand, for people; "": all is understood. No job is preempted for such a job
	Suits      *HostSet  // hosts that its queue, features and exclusions leave to it; nil: every host. Asked and Pinned are narrower
	MinHosts   int       // least number of hosts that its slots lie on; 0: 1
	MaxHosts   int       // most of them; 0: no limit. OneHost is true if it is 1
	PerHost    int       // slots on each of its hosts, the last one may have fewer; 0: as they come
	Unit       int       // its slots on a host are a multiple of this (the CPUs of one task); 0: 1
	Needs      []Amount  // resources that it takes of each of its hosts beside slots and memory, by name
	Component  bool      // starts together with other jobs (a part of Slurm's heterogeneous jobs): never served or preempted by itself
	HostNumber int64     // the number by which its hosts know it, of an element of one of Slurm's arrays that has started; 0: they know it by its ID (see OnHosts)
	ArrayLimit int       // elements of its array that may run at a time; 0: no limit (see Throttle)
	Considered time.Time // when the queue's scheduler last decided that it can't start yet; zero: not known (see ForEngine.Considers)

	NoRequeue   bool // its owner forbids to requeue it
	Interactive bool
	Exclusive   bool // has its hosts for itself
	Ending      bool // runs, but is being ended: its processes are not gone yet
	Lost        bool // ended in the midst of a requeue of the engine's, which the queue did not finish
	Resuming    bool // suspended, and the queue will resume it as soon as it fits
}

// Eligible reports whether a job would start if there were slots for it (R14).
func (j *Job) Eligible() bool { return j.State == Pending && j.Wait == WaitResources }

// OnHosts returns the ID by which the job's hosts know it: that of its control groups, and of
// what agents report. Slurm gives each element of an array that starts a number of its own;
// one element keeps its array's.
func (j *Job) OnHosts() ID {
	if j.HostNumber == 0 {
		return j.ID
	}
	return ID{Job: j.HostNumber}
}

// IsDummy reports whether it is a dummy job, which holds a slot and does nothing.
func (j *Job) IsDummy() bool { return j.DummyFor != (ID{}) }

// IsStandby reports whether it is a dummy job that keeps a slot for the next jobs of its Project.
// Standby jobs that were submitted as one array are each other's.
func (j *Job) IsStandby() bool { return j.IsDummy() && j.DummyFor.Job == j.ID.Job }

// SplitProject parts what follows -P into a project and a step: "chipA:synthesis"
// is project chipA, step synthesis.
func SplitProject(s string) (project, step string) {
	project, step, _ = strings.Cut(s, ":")
	return project, step
}

// JoinProject is the inverse of SplitProject.
func JoinProject(project, step string) string {
	if step == "" {
		return project
	}
	return project + ":" + step
}

// HostState says whether a host takes jobs.
type HostState uint8

// The host states. Jobs on a closed host run on; a down host counts for nothing.
const (
	HostUp HostState = iota
	HostClosed
	HostDown
)

func (s HostState) String() string {
	switch s {
	case HostUp:
		return "ok"
	case HostClosed:
		return "closed"
	case HostDown:
	}
	return "down"
}

// Host is one machine of the farm, or one miniq node.
type Host struct {
	Name   string
	Slots  int
	Memory int64 // bytes, managed by the queue or not (Abilities.ManagesMemory); 0: not known
	State  HostState
	Has    []Amount `json:",omitempty"` // countable resources beside slots and memory, by name

	Features []string `json:",omitempty"` // by name, for people: what a job asks for is in its Suits
	Reason   string   `json:",omitempty"` // why it is closed, for people, as far as that is known
}

// HostSet is a set of hosts. The jobs of one snapshot that may run on the same hosts refer
// to the same HostSet.
type HostSet struct {
	Hosts []string // by name, each once
}

// Contains reports whether a host is in the set. A nil set has every host.
func (s *HostSet) Contains(host string) bool {
	if s == nil {
		return true
	}
	_, found := slices.BinarySearch(s.Hosts, host)
	return found
}

// Amount is a number of units of one countable resource, such as GPUs. The unit is the
// queue's. Where a queue counts types of a resource, both the type and the resource are
// listed: a job that asks for any GPU needs gpu, one that asks for a type needs gpu:a100
// and gpu, and a host has both.
type Amount struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// IsResourceName reports whether a text can be the name of a resource or a feature: a letter,
// then letters, digits and underscores, 64 at most.
func IsResourceName(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= 64 && strings.Trim(s[:1], letters) == "" && strings.Trim(s, letters+"0123456789_") == ""
}

// FormatAmounts is a list for people: gpu=2 net=1.
func FormatAmounts(list []Amount) string {
	var b strings.Builder
	for i, a := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.Name + "=" + strconv.Itoa(a.Count))
	}
	return b.String()
}

// Snapshot is one consistent snapshot of a queue.
type Snapshot struct {
	At    time.Time // by the queue's clock
	Hosts []Host
	Jobs  []Job // all that have not ended, in order of submission (a total order: the queue's FIFO)
	Ended []Job // those that ended at or after the time that was asked for

	// Unlisted counts pending jobs that Jobs leaves out: as they were submitted, with no rank,
	// pin or hold of the engine. A queue leaves out none; the simulator does.
	Unlisted []Unlisted

	Guaranteed []Guaranteed // from ForEngine.Guarantee, those that still count

	Preempting []string // queues where the queuing system itself preempts running jobs for others
}

// Unlisted is a number of jobs of a project's step and a user.
type Unlisted struct {
	Project, Step, User string
	Jobs                int
}
