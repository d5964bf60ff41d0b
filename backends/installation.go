package backends

import "time"

// Installation is who will use a queue, and what of it.
type Installation struct {
	UID    int      // of the user who runs the engine
	Queues []string // the managed ones; empty: all
	Low    string   // the lowest one; "": none
	// FreeTimeout is how long a job may take to go when its slots are taken back.
	FreeTimeout time.Duration
}

// Finding is something in a queue's own set-up that keeps it from what will be
// asked of it, and what to do about it; a line each.
type Finding struct{ What, Remedy string }

// Examination is what came of looking at a queue's own set-up.
type Examination struct {
	Findings []Finding
	Hook     *Hook // nil: submissions don't pass through a script of the queue's
}

// Hook is the script that the queue itself asks at each submission.
type Hook struct {
	File   string // where the queue reads it
	User   string // who reads it, and what it needs
	UID    int    // of that user
	Named  bool   // the queue's config turns it on
	Remedy string // how to turn it on
	Answer string // what it says to a job whose name has a control character; "": it lets that through
}
