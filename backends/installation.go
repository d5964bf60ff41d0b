package backends

import (
	"slices"
	"time"
)

// Installation says which user will use a queue, and which parts of it.
type Installation struct {
	UID    int           // of the user who runs the engine
	Queues []string      // the managed ones; empty: all
	Low    string        // the lowest one; "": none
	Cycle  time.Duration // the engine's period
	// FreeTimeout is how long a job may take to leave its slots when they are reclaimed.
	FreeTimeout time.Duration
	Filter      string // our program esub, which the queue may run at each submission; "": not known
}

// Uses reports whether jobs of a queue are managed, or lowered ones go there.
func (i *Installation) Uses(queue string) bool {
	return len(i.Queues) == 0 || queue == i.Low || slices.Contains(i.Queues, queue)
}

// Finding is something in a queue's own set-up that prevents what Allotment needs of it,
// and what to do about it; a line each.
type Finding struct{ What, Remedy string }

// Examination is what was found in a queue's own set-up.
type Examination struct {
	Findings []Finding
	Hook     *Hook // nil: submissions don't pass through a script of the queue's
	// Settings are values for the queue's section of the config file, by key, that are
	// known from this process's environment alone: a program that has another one, as
	// those that cron starts, would not find the queue.
	Settings map[string]string
}

// Hook is the script that the queue itself runs at each submission.
type Hook struct {
	File    string // where the queue reads it
	User    string // the user who reads it, and the files that it needs
	UID     int    // of that user
	Enabled bool   // the queue's config turns it on
	Remedy  string // how to turn it on
	Answer  string // what it says to a job whose name has a control character; "": it lets that through
}

// FilterFacts are what our submit filter must know of a queue.
type FilterFacts struct {
	// NextInLine is the number, in the queue's own count of priorities, that a job
	// next in line is submitted with (R12); 0: there is no such place.
	NextInLine int64
	// MostRank is the highest number that is not above that of other normal jobs, on a
	// queue whose users give their jobs any; 0: on this one they can't.
	MostRank     int64
	DefaultQueue string // of jobs that name none; "": not known
	MemoryUnit   int64  // bytes that a plain number of -M stands for
	// TagNoRequeue: the queue does not show that a job's owner forbids to requeue it, so
	// that the filter records it.
	TagNoRequeue bool
}

// FixedShare is the limit, as the queue is configured, of the slots that jobs which can't be
// preempted hold together. The zero FixedShare: there is none.
type FixedShare struct {
	Slots     int
	Users     int // users are in so many groups, by the remainder of their numbers; 0: in none
	OfUser    int // of Slots, what one group may hold
	HostSlots int // of the largest host: an exclusive job has all of a host
}

// Bsub is a queue's own command to submit jobs, which takes LSF's options.
type Bsub struct {
	Program string
	Env     []string // KEY=value, in the place of the submitter's
	// Options are those that this very bsub treats in another way than package bsub
	// says, by name.
	Options map[string]OptionMeaning
	// Warnings are for the submitter to read.
	Warnings []string
}
