// Package plan decides what a cycle does. Make is a pure function from a snapshot of
// the farm and the memory of earlier cycles to actions, each with its reason, and to
// the next cycle's memory. Production, --dry-run, explain, the simulator and the tests
// run the same function.
package plan

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// State is the input of Make besides the policy and the time.
type State struct {
	Farm      *backends.Snapshot
	Abilities backends.ForEngine  // its booleans, and which functions are there; none is called
	Memory    Memory              // as the previous cycle left it
	Groups    map[string][]string // UNIX groups by user; a user who is missing is in none
	Pleas     []Plea              // of hosts
}

// Policy is what a site decided: the config file's pba section and the plan in
// the ledger.
type Policy struct {
	Projects    []Project
	Allocations []Allocation // those in force now

	Queues       []string  // managed queues; empty: every queue
	LowQueue     string    // where the filter sends what failed a test
	Hosts        []string  // managed hosts; empty: every host
	HostSets     []HostSet // disjoint
	NeverVictims Exempt

	Cycle                time.Duration // from one cycle to the next
	PendingThreshold     time.Duration
	Thresholds           map[string]time.Duration // instead of PendingThreshold, by project: see threshold
	Standby              map[string]int           // slots that are kept free for the next jobs of a project's pools, by project
	MinRuntime           time.Duration
	FreeTimeout          time.Duration
	HandOverTimeout      time.Duration
	HoldLimit            time.Duration
	GracePeriod          time.Duration
	StartBucket          time.Duration
	Headroom             float64 // factor of R12, 1.5; 0 turns next in line off
	MaxRequeues          int
	UnpreemptableShare   float64       // 0…1 of the farm's slots
	HoldFixed            bool          // jobs that can't be preempted wait beyond that share (see HoldsFixed)
	CheckpointMax        time.Duration // what a job may need to save itself (R33): one that asks for more is not asked
	MaxVictims           int           // jobs a cycle, after the first beneficiary's; at least 5 % of the farm's slots are allowed
	MaxVictimsPerProject int           // jobs an hour; at least the sum of the others' guarantees is allowed
	VictimOrder          []Criterion
	MaxLost              time.Duration // of work a slot that a job may lose before it is protected (R35); 0: its run limit, or 4 h
	HoldTooWide          bool          // one that is too wide besides waits while pools send jobs (R35)
	LoweredGrace         time.Duration // how long a pool's surplus is spared after it was lowered (R25)
	Dummies              dummy.Policy
}

// Exempt names whose jobs are never victims (R16).
type Exempt struct{ Users, Projects, Queues []string }

// Criterion is one key of the order in which jobs are preempted (R17).
type Criterion string

// The criteria; the highest job ID always decides last.
const (
	ByStart          Criterion = "started_most_recently"
	ByOverSubscribed Criterion = "most_over_subscribed" // in buckets: 1, 2 to 3, 4 to 7 slots and so on
	ByLost           Criterion = "least_work_lost"
	ByPending        Criterion = "most_pending"
)

// Project may name steps; the members of its group may submit for it.
type Project struct {
	Name   string
	Group  string
	Steps  []string // that its jobs may name, by its flow; empty: any
	Former []string // names that it had, for the queue and the filter: State has none of them
}

// Allocation is an allocation in force: a pool. An empty User or Step matches
// every user or step.
type Allocation struct {
	ID        int64
	Project   string
	User      string
	Step      string
	Hosts     string // the host set that it is limited to; "": the hosts in no set
	Guarantee int    // slots planned for the week that now lies in

	Begin, End time.Time // of that week (R24)
	SLA        SLA       // "": velocity
	Jobs       int       // to be done in the week, for a throughput
	Lowered    int       // slots that were taken off in mid-week (R25)
	LoweredAt  time.Time // when; zero: never
}

// Key names what an allocation is for, the same in every week.
func (a Allocation) Key() string {
	key := a.Project + "\x00" + a.User + "\x00" + a.Step
	if a.Hosts != "" {
		key += "\x00" + a.Hosts
	}
	return key
}

// Memory is what one cycle hands to the next. It is stored by the ledger and
// changed by Make alone.
type Memory struct {
	LastCycle  time.Time // when Make ran last; zero: never
	LastAction time.Time // by the queue's clock: no snapshot older than this is acted upon (R8)
	PoolsSent  time.Time // when a cycle saw jobs of a pool last, running or waiting; zero: never
	NextID     int64     // of the next reclaim
	Jobs       map[backends.ID]JobMemory
	Reclaims   []Reclaim                  // all open ones, and closed ones for an hour (R22); by ID
	RunTimes   map[string][]RunEnd        // by Allocation.Key: the pool's last 30 ended jobs, oldest first
	Throughput map[int64]ThroughputMemory // by allocation, of those with that SLA
	EndedSince time.Time                  // jobs that ended before have been counted
	Dummies    dummy.Memory
	Trials     map[backends.ID]Trial // of jobs that the queue is asked about, and of those that it refused
	Clock      clock.Reading         // the queue's clock at the last cycle, beside the clock since boot of the machine that it ran on
	ClockSet   ClockSet              // the last setting of it that was noticed
}

// RunEnd is an ended job, for the mean run time of R12.
type RunEnd struct {
	ID  backends.ID
	Ran time.Duration
}

// JobMemory is what is remembered of a job that is, or was, more than an
// ordinary one. What the queue itself reports (pins, holds) is not repeated here.
type JobMemory struct {
	Pool    int64     // allocation that it is charged to or holds room in; 0: none
	Entered time.Time // since when it holds that room
	Kept    int       // of a head: slots of room that it keeps although it needs more (R12); 0: not a head

	Clock     time.Duration // waited within the allocation and eligible, as R14 counts
	ClockSeen time.Time     // the cycle that counted last; zero: the clock stands still

	Requeues int       // reclaims that it was a victim of, requeued or suspended
	Lost     float64   // slot-seconds of its work that these threw away
	GaveWay  bool      // the last of them threw nothing away: it saved itself, or was suspended
	Grew     int64     // what it should ask for of memory, in bytes over all slots, as it was requeued for that (R47); 0: it was not
	GrewAt   time.Time // when it was
	Expired  int       // reclaims for it that expired (R19)
	Backoff  time.Time // no reclaim for it before

	Written       backends.Priority // what the engine wrote last
	WrittenAt     time.Time         // zero: never
	Reserved      []string          // hosts that it reserves (R15)
	ReservedUntil time.Time
	History       []Point // of its priority, newest last, at most 20
}

// Point is one change of a job's priority.
type Point struct {
	At       time.Time         `json:"at"`
	Priority backends.Priority `json:"priority"`
	Why      string            `json:"why"`
}

// Phase is where a reclaim is in its life (R18).
type Phase string

// The phases. The last three are ends.
const (
	Planned    Phase = "planned"     // intended; nothing is known to be done
	Acted      Phase = "acted"       // its acts were done; its victims may still run
	Freed      Phase = "freed"       // their slots are free
	HandedOver Phase = "handed over" // its beneficiary runs
	Expired    Phase = "expired"     // it took too long
	Cancelled  Phase = "cancelled"   // its beneficiary needs it no more, or it could not be done
)

// Open reports whether a reclaim in this phase still has something to do.
func (p Phase) Open() bool { return p == Planned || p == Acted || p == Freed }

// Reclaim is the record of one preemption, durable from before its first act.
type Reclaim struct {
	ID          int64
	Beneficiary backends.ID
	Pool        int64                // that its room is in; 0: not known, it is older than that record
	Project     string               // the beneficiary's
	User        string               // "": it keeps a slot free for the project's next jobs
	Need        int                  // slots that the beneficiary lacked; its victims may leave more, jobs go as a whole
	Hosts       []backends.Placement // where the beneficiary shall run
	Victims     []Victim
	Phase       Phase
	Why         string // what ended it, or moved it to its phase
	Planned     time.Time
	Acted       time.Time
	Freed       time.Time
	Ended       time.Time
}

// Victim is a job that loses its slots to a reclaim.
type Victim struct {
	ID       backends.ID
	Project  string // project it counts under; "" for a user's
	User     string
	Started  time.Time // the run that is meant
	Slots    int
	Mode     backends.Mode
	RanFor   time.Duration // since its last known checkpoint; lost, if it is requeued and did not save itself
	Save     time.Duration // it was asked to save itself within this (R33); 0: it was not
	Saved    SaveResult
	Fate     Fate
	Released bool // free of the engine's hold, or never held
}

// Loss returns the slot-seconds of work that a victim lost.
func (v *Victim) Loss() float64 {
	if v.Mode == backends.PreemptSuspend || v.Saved == Saved || v.Fate != Taken && v.Fate != Lost {
		return 0
	}
	return float64(v.Slots) * v.RanFor.Seconds()
}

// Fate is what became of a victim.
type Fate string

// The fates.
const (
	Intended Fate = ""         // still in the run that is meant
	Taken    Fate = "taken"    // requeued or suspended by the engine
	Lost     Fate = "lost"     // ended by the engine's requeue, which the queue did not finish
	Gone     Fate = "gone"     // ended, or left that run, for another reason
	Spared   Fate = "spared"   // the reclaim ended before its turn came
	Finished Fate = "finished" // was asked to save itself, and ended with exit status 0: its work was done
)

// SaveResult is what became of a victim's checkpoint.
type SaveResult string

// The results.
const (
	NotSaved   SaveResult = ""       // it was not asked, or has not left its run yet
	Saved      SaveResult = "saved"  // nothing is lost
	SaveFailed SaveResult = "failed" // it ended without, or took too long
)

// Verb is what an action does.
type Verb string

// The verbs.
const (
	Rank      Verb = "rank"
	Move      Verb = "move"
	PinTo     Verb = "pin"
	Unpin     Verb = "unpin"
	Reserve   Verb = "reserve"
	Unreserve Verb = "unreserve"
	Requeue   Verb = "requeue"
	Suspend   Verb = "suspend"
	Hold      Verb = "hold" // or renew
	Release   Verb = "release"
	Resume    Verb = "resume"
	Start     Verb = "start" // straight into its slots
	Place     Verb = "place" // dummy jobs for it
	Drop      Verb = "drop"  // dummy jobs of it
	Kill      Verb = "kill"
	Enlarge   Verb = "enlarge" // what it asks for of memory
)

// Preempts reports whether the verb takes a job's slots.
func (v Verb) Preempts() bool { return v == Requeue || v == Suspend || v == Kill }

// Action is one thing to do to one job. Actions are done in the order of the
// plan; those of one reclaim depend on each other: where one fails, the later
// ones of the same reclaim are left out.
type Action struct {
	Verb     Verb
	Job      backends.ID
	For      backends.ID // beneficiary; zero: none
	Reclaim  int64       // 0: belongs to none
	Hosts    []string
	Slots    []int         // on each of Hosts; of a PinTo: none, as they come; of a Place: dummy jobs
	Dummies  []backends.ID // of a Drop
	Queue    string        // of a Move; of a Place of standby jobs: backends.Dummy.Queues
	Project  string        // of a Place of standby jobs, which are for no Job
	Priority backends.Priority
	Until    time.Time
	Started  time.Time // the run that is meant
	Mark     string
	Grace    time.Duration       // of a Requeue
	Save     backends.Checkpoint // of a Requeue
	Limit    time.Duration       // run limit, of a Place
	Memory   int64               // of an Enlarge: bytes over all slots
	Notice   string
	Reason   string
}

// Skipped is something that was not done, and why.
type Skipped struct {
	Job    backends.ID
	Reason string
}

// Plan is what Make decided.
type Plan struct {
	At        time.Time
	Actions   []Action
	Skipped   []Skipped
	Warnings  []string
	Memory    Memory // for the next cycle; valid whether or not the actions succeed
	Pools     []PoolStatus
	Farm      FarmStatus
	Sets      []SetStatus // the hosts in no host set first; one where there are no sets
	Unserved  []Unserved  // at most 11
	Beyond    []Beyond    // by project, user and step
	Uses      []Use       // what runs, by pool, project, user and step
	TooWide   []TooWide   // jobs that wait as they are too wide (R35), at most 20
	Nominated []Nominee
	Looks     bool // a job that is served before the site's threshold waits for the queue to consider it: another cycle soon is of use
	Heavy     []HeavyStatus
	Shortages []Shortage // what keeps jobs from starting, by cause; of LackResource at most 21

	SendGuaranteed bool                  // the queue is to be sent Guaranteed
	Guaranteed     []backends.Guaranteed // see backends.ForEngine.Guarantee
}

// HeavyStatus is the status of a heavy job that has dummies or waits for some. A
// dummy job that belongs to none of these is not needed.
type HeavyStatus struct {
	Job     backends.ID
	Host    string // "": none was chosen yet
	Need    int    // slots in all, its own and those of its dummies
	Dummies int    // that run
	Gathers bool   // it is held until they are in place
}

// Beyond is an account's over-subscription: what it runs that no pool is charged for.
type Beyond struct {
	Project string // "": the jobs count under their user, whose membership in a known project is not proven
	User    string
	Step    string // of a project without an allocation
	Slots   int
}

// PoolStatus is the status of a pool.
type PoolStatus struct {
	Allocation
	Charged   int  // slots of running jobs
	Held      int  // slots of pending jobs that hold room
	Waiting   int  // slots of entitled pending jobs beyond the room
	Below     bool // it has room: the filter submits its jobs next in line (R12); false for a pool on a host set, as the filter does not know where a job may run
	Reachable int  // of its unmet slots, how many could be preempted now
	Standby   int  // slots to be kept free for its next jobs
	Kept      int  // of them, how many are
	Undone    int  // jobs of a throughput that can't be done in the week any more with the pool's slots, at the mean of those that ended
	Early     int  // slots that may still be preempted for it before the site's threshold, within this hour; see threshold
}

// FarmStatus is the farm in figures, all in slots of managed hosts that are up.
type FarmStatus struct {
	Slots         int
	Down          int
	Running       int
	PBA           int
	Normal        int
	Suspended     int
	Kept          int // of Running: slots that are kept free for pools' next jobs
	Guaranteed    int
	TakeBack      int  // could be preempted now
	Unmet         int  // of guarantees, with jobs waiting for them
	Unpreemptable int  // held by normal jobs that can't be preempted
	FixedShare    int  // slots that they may hold
	LowerThem     bool // beyond unpreemptable.max_share: the filter lowers such jobs where the queue does not count them (R22)
}

// SetStatus is what is guaranteed on the hosts of a host set, or on those in none, and what
// is there for it, in slots of managed hosts that are up.
type SetStatus struct {
	Hosts      string // name of the set; "": the hosts in none
	Whole      bool   // there are no host sets: it is the farm
	Guaranteed int
	Unmet      int // of it, with jobs waiting for them
	Free       int
	TakeBack   int // could be preempted now
}

// Short reports whether jobs wait for more guaranteed slots than are free or could be
// preempted.
func (s SetStatus) Short() bool { return s.TakeBack+s.Free < s.Unmet }

// Where names the hosts at the beginning of a sentence; "": the farm.
func (s SetStatus) Where() string {
	switch {
	case s.Whole:
		return ""
	case s.Hosts == "":
		return "hosts in no host set: "
	}
	return "host set " + s.Hosts + ": "
}
