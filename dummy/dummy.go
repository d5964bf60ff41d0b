// Package dummy decides which dummy jobs should exist now (R28–R31). A dummy job
// holds one slot and does nothing: the memory that goes with it is left to a heavy
// job, which asks for more than goes with its own slots. So on a queue that does not
// manage memory two heavy jobs never meet on a host that can't hold both.
//
// A heavy job of n slots that needs the memory of k has k − n dummies beside it. Until
// they are in place it is held: it gathers. Plan reads all of that from the queue and
// remembers only what the queue does not record.
package dummy

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Mode is how heavy jobs get their dummies.
type Mode string

// The modes.
const (
	Off      Mode = ""
	Reserve  Mode = "reserve"  // a heavy job starts once its dummies are in place
	Surround Mode = "surround" // dummies come beside it after it started
)

// Policy is what a site configures for heavy jobs.
type Policy struct {
	Mode          Mode
	Rules         []Rule
	MaxGathering  float64       // 0…1 of the farm's slots: what gathers for normal jobs, after the first one
	GatherTimeout time.Duration // a normal job's gathering gives way to others after so long
	LightFraction float64       // of a slot's share: a job that asks for no more is light
	Limit         time.Duration // run limit of a dummy job
	HoldLimit     time.Duration // after which the engine's hold ends by itself
	Cycle         time.Duration
	Queues        []string // managed queues; empty: every queue
	Hosts         []string // managed hosts; empty: every host
}

// Rule says that jobs need at least so much memory, whatever they ask for. What is
// empty matches every job.
type Rule struct {
	Project string
	Step    string
	Queue   string
	Memory  int64 // bytes, of a whole job
}

// Memory is what one cycle hands to the next.
type Memory struct {
	Gathers map[backends.ID]Gather
	Lights  map[backends.ID]Light
	Placed  bool // there are dummy jobs, or may be
}

// Gather is a heavy job that waits for its dummies.
type Gather struct {
	Host    string    // "": none now
	Since   time.Time // on that host
	Backoff time.Time // it does not gather before: it gave way to others
}

// Light is a light job that has the slot of a dummy assigned.
type Light struct {
	For  backends.ID // the heavy job
	Host string
	At   time.Time
}
