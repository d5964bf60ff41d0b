// Package esub decides for the submit filter: from what a user submits and the site's
// policy snapshot it derives what becomes of the job. It is pure; cmd/esub reads the
// files and asks the kernel. Codecs of the queuing systems' file formats stand beside
// it (lsf.go).
package esub

import (
	"errors"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/unit"
)

// Answer is what becomes of a job that failed a test of the filter (R1).
type Answer uint8

// The answers.
const (
	Low    Answer = iota // it goes to the lowest queue
	Reject               // it is not submitted
	Pass                 // it goes through as it is
)

func (a Answer) String() string {
	switch a {
	case Low:
		return "low"
	case Reject:
		return "reject"
	case Pass:
	}
	return "pass"
}

// MarshalText writes the answer's name.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes; another name is an error.
func (a *Answer) UnmarshalText(text []byte) error {
	for _, known := range []Answer{Low, Reject, Pass} {
		if known.String() == string(text) {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("%q is no answer of the filter: want low, reject or pass", text)
}

// Config is the config file's section filter.
type Config struct {
	OnFailure  Answer        `yaml:"on_failure"`  // its project is unknown, or its user not in the project's group
	OnUntagged Answer        `yaml:"on_untagged"` // it names no project, though there are some
	OnNoPool   Answer        `yaml:"on_no_pool"`  // its project has no pool for it this week; Low or Pass
	LowQueue   string        `yaml:"low_queue"`   // "": a lowered job keeps its queue and is only marked
	StaleAfter unit.Duration `yaml:"stale_after"` // a snapshot whose engine has been silent for so long is not trusted
}

// DefaultConfig is the section of a config file that has none.
func DefaultConfig() Config {
	return Config{OnFailure: Low, OnUntagged: Low, OnNoPool: Pass, LowQueue: "low", StaleAfter: unit.Duration(10 * time.Minute)}
}

// Validate says what is wrong with the section, if anything.
func (c Config) Validate() error {
	if c.OnNoPool == Reject {
		return errors.New("filter.on_no_pool: want pass or low: a project without slots this week may still run normal jobs")
	}
	if c.StaleAfter <= 0 {
		return fmt.Errorf("filter.stale_after: %v: want a time above zero, such as 10m", c.StaleAfter)
	}
	return nil
}

// Settings is the part of a Policy that holds for every job.
type Settings struct {
	Config
	Observe       bool              // only tag: lower, reject and raise no job, print nothing
	NextInLine    backends.Priority // what a job next in line is submitted with (R12), in the queue's own count; 0: the queue has no such place
	MostRank      int64             // what a job's owner may submit it with, in the queue's own count; 0: the queue itself limits that
	DefaultQueue  string            // of jobs that name none
	MemoryUnit    int64             // bytes that one unit of -M stands for; 0: 1024
	SuspendFrees  bool              // a suspended job's slots are free for others there
	TagNoRequeue  bool              // the queue does not record that a job must not be requeued: its tag does
	Queues        []string          // managed queues; empty: every queue
	Heavy         Heavy
	CheckpointMax time.Duration // what a job may need to save itself (R33), in whole seconds; 0: not known
	HoldFixed     time.Duration // for so long a job that can't be preempted is held, should the engine never see it (R22); 0: none is held
}

// Heavy says which jobs wait for dummy jobs (R28): they are held from the start.
type Heavy struct {
	Hold  time.Duration // for so long, should the engine never see them; 0: no job is held
	Share int64         // bytes that go with a slot where it has least
	Rules []dummy.Rule
}

// Policy is all that the filter knows of the site, but for the pools' standing.
type Policy struct {
	Settings
	Projects []Project // names are distinct
}

// Unknown is a numeric ID that could not be looked up.
const Unknown int64 = -1

// Project is one that jobs may name.
type Project struct {
	Name  string
	Group string   // UNIX group of those who may submit for it
	GID   int64    // the group's number, or Unknown: then the test is left to the engine
	Steps []string // steps that its jobs may name; empty: any
	Pools []Pool   // in force now
	Mark  bool     // the filter leaves a mark when a job of a pool comes (R6); see MarkName
}

// MarkName is the name of an empty file in the state directory. The filter leaves its mark
// by opening it to read it, which needs no more rights than reading the policy does, and
// leaves nothing behind. An engine that waits hears the kernel's notice of that.
const MarkName = "submitted"

// Pool is an allocation in force. An empty User or Step matches every one.
type Pool struct {
	ID    int64 // of the allocation
	User  string
	UID   int64 // User's number, or Unknown: then the name decides; means nothing without a User
	Step  string
	Slots int // guaranteed now
}
