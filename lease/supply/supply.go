// Package supply decides how many jobs of a user's queue bring slots to a resource manager (package
// lease): as many as waiting requests would fill, and not one more (R50).
//
// The package is pure: what is wanted, the jobs as the queue lists them and the time go in, what is to
// be submitted and killed comes out.
package supply

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Job is one that was submitted, and that the queue has not reported as ended.
type Job struct {
	ID     backends.ID
	Began  bool // the queue started it
	Joined bool // its worker is there, and counts in what is wanted
}

// State is what is known at a time.
type State struct {
	Want int   // workers more that would be of use, as lease.Want says
	Most int   // jobs at a time
	Jobs []Job // in the order of their submission

	Fruitless int       // jobs in a row that ended and had not joined
	Refused   int       // submissions in a row that the queue refused, or that did not reach it
	Failed    time.Time // the last of these
}

// Decision is what to do now.
type Decision struct {
	Submit int           // jobs
	Kill   []backends.ID // that wait in the queue and are not wanted: the last ones first
	Wake   time.Time     // when to decide again if nothing happens; the zero time: never
}

// The pauses after failures. A job may end by bad luck: its host may be down. The third one in a row
// has a cause that the next one would find, too.
const (
	Lenient    = 3 // jobs that may end in a row before they joined
	firstPause = time.Second
	mostPause  = 5 * time.Minute
)

// pause returns how long nothing is submitted after the last failure.
func (s *State) pause() time.Duration {
	n := max(s.Refused, s.Fruitless-Lenient+1)
	if n <= 0 {
		return 0
	}
	const doublings = 9 // more would exceed mostPause
	return min(firstPause<<min(n-1, doublings), mostPause)
}

// Decide decides. Jobs that have not joined count as workers to come. Those of them that run are
// not killed: they are about to join, and are released when they are idle.
func Decide(s State, now time.Time) (d Decision) {
	coming := 0
	for _, j := range s.Jobs {
		if !j.Joined {
			coming++
		}
	}
	surplus := coming - s.Want
	for _, j := range slices.Backward(s.Jobs) {
		if surplus <= 0 {
			break
		}
		if !j.Joined && !j.Began {
			d.Kill = append(d.Kill, j.ID)
			surplus--
		}
	}
	submit := min(s.Want-coming, s.Most-len(s.Jobs))
	if submit <= 0 {
		return d
	}
	if pause := s.pause(); pause > 0 && now.Before(s.Failed.Add(pause)) {
		d.Wake = s.Failed.Add(pause)
		return d
	}
	if s.Refused > 0 || s.Fruitless >= Lenient {
		submit = 1 // one finds out whether the cause is gone
	}
	d.Submit = submit
	return d
}
