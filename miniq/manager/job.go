package manager

import (
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// work is what all runs of a job, and all elements of an array, have in common.
type work struct {
	spec    *backends.Spec
	project string
	step    string
	tag     string
	perSlot int64      // memory for one slot, rounded up
	needs   *condition // nil: none
	wants   string     // its resources, features and conditions (see wantsOf); "": none
	selects selection
	kept    int // jobs in memory that have it and have ended
}

func newWork(spec *backends.Spec) *work {
	w := &work{spec: spec}
	w.project, w.step = backends.SplitProject(spec.Project)
	w.perSlot = (spec.Memory + int64(spec.Slots) - 1) / int64(spec.Slots)
	w.wants = wantsOf(spec)
	w.selects = selectionOf(spec)
	if _, _, err := backends.ParseTag(spec.Description); err == nil && strings.HasPrefix(spec.Description, backends.TagPrefix) {
		w.tag, _, _ = strings.Cut(spec.Description, " ")
	}
	return w
}

func (w *work) oneHost() bool {
	return w.spec.OneHost || w.spec.Slots == 1 || w.spec.PerHost >= w.spec.Slots
}

// perHost returns the slots on each of its hosts, the last one may have fewer; 0: as they come.
func (w *work) perHost() int {
	if w.oneHost() {
		return 0
	}
	return w.spec.PerHost
}

// ending is why a live run is being ended.
type ending uint8

const (
	notEnding ending = iota
	requeued         // and its job will be pending again
	killed           // by a Kill
	overLimit        // of its run time
)

// waitList is where the manager keeps a job that waits.
type waitList uint8

const (
	notWaiting waitList = iota // it runs, has ended, or waits for something else than resources
	inThrottle                 // of its array
	inShape                    // it could start
)

// Indices into job.pos: the heaps that a job can be in at the same time.
const (
	posRank  = iota // of its shape, growing or grown; or its array's throttle
	posCap          // of its shape
	posDue          // of the manager, by time
	posLimit        // of the manager, by run limit
	numberPos
)

// job is one job or array element. A job that its owner holds is Pending with
// ownerHold set; only the view says Held.
type job struct {
	id        backends.ID
	seq       int64 // number in the order of submission
	turn      int64 // place in the queue's FIFO: seq, unless its owner reordered jobs
	user      string
	work      *work
	array     *array
	queue     string
	dummyFor  backends.ID // zero: it is no dummy job
	state     backends.State
	submitted time.Time
	bytes     int64 // that it was submitted with; an element: its part

	base    backends.Priority // as last written, and what it gained before it last waited
	aged    int               // ticks gained over its life, up to when it last waited
	ageing  bool
	ageFrom int64 // tick since when it gains

	ownerHold bool
	heldUntil time.Time // the engine's hold
	retryAt   time.Time // after a failed start
	failures  int       // starts that failed in a row

	preFailures int // pre-execution commands that failed in a row
	pinned      []string
	shares      []int // slots on each host of pinned; empty: as they come
	pinEnds     time.Time
	reserve     *reservation
	mark        string
	requeues    int
	notes       *notes // nil: none

	failedSaves int  // checkpoints on demand that failed in a row
	restarted   bool // the run before ended with a checkpoint
	run         int  // number of the last run
	hosts       []backends.Placement
	started     time.Time // of the last run or resume
	ranBefore   time.Duration
	confirmed   bool
	parked      bool                // suspended until a Resume
	early       *overdueReservation // that counts it among the runs that end in time
	stopBy      time.Time           // suspended, and its slots are taken until it has stopped, or until then; zero: they are free
	ending      ending
	grace       time.Duration
	save        backends.Checkpoint // by which a run that is being requeued was asked to save itself; zero: it was not
	killedAt    time.Time

	ended    time.Time
	exitCode int
	reason   string
	endSeq   int64  // place among all that ever ended
	frozen   uint64 // the last Freeze that copied it
	weight   int64  // of an ended job: see weigh

	waitList  waitList
	admitted  bool // by its array's throttle
	claims    bool // it is in Manager.resuming
	shape     *shape
	waitSince time.Time
	older     *job // in its shape, by waitSince
	younger   *job
	prev      *job // among all that have not ended, by seq
	next      *job
	due       time.Time
	pos       [numberPos]int
}

// array is what the elements of a job array share.
type array struct {
	limit     int
	elements  []*job // those not forgotten, by index
	size      int
	left      int      // that have not ended
	begun     int      // that have had a run
	failed    int      // that ended as Exited
	firstCode int      // exit code of the first of them
	active    int      // that have a run
	admitted  int      // that may start
	waiting   *jobHeap // that may not yet, by seq
}

func newArray(limit, size int) *array {
	return &array{limit: limit, size: size, left: size, waiting: newHeap(posRank, func(a, b *job) bool { return a.turn < b.turn })}
}

// reservation is the engine's, by Reserve.
type reservation struct {
	hosts []string
	until time.Time
}

// live reports whether a run of the job has processes, stopped ones too.
func (j *job) live() bool { return j.state == backends.Running || j.state == backends.Suspended }

// holdsSlots reports whether its slots are taken.
func (j *job) holdsSlots() bool { return j.state == backends.Running || !j.stopBy.IsZero() }

// resuming reports whether the job waits to be resumed by the queue.
func (j *job) resuming(now time.Time) bool {
	return j.state == backends.Suspended && !j.parked && j.ending == notEnding && !j.heldUntil.After(now)
}

// startAt returns the time from which a pending job may start: after its begin time, its
// hold and the pause after a failed start.
func (j *job) startAt() time.Time {
	at := j.work.spec.BeginTime
	for _, t := range []time.Time{j.heldUntil, j.retryAt} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// allowed returns the list of hosts in force; empty: any.
func (j *job) allowed() []string {
	if len(j.pinned) > 0 {
		return j.pinned
	}
	return j.work.spec.Hosts
}

// limitAt returns when the run reaches its run limit; zero: never.
func (j *job) limitAt() time.Time {
	if j.work.spec.RunLimit <= 0 || j.state != backends.Running {
		return time.Time{}
	}
	return j.started.Add(j.work.spec.RunLimit - j.ranBefore)
}
