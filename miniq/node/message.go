// Package node offers one host: it starts keepers, passes on what they are to
// do, and reports how runs began and ended.
//
// A node is a process of its own, a child of the daemon, connected to it by a
// socket that it was started with. It holds nothing that is not in its
// directory: when the daemon goes, it goes too, and the next daemon's node finds
// the runs by their records (package keeper) and watches on. So attaching to
// runs after a restart, of the daemon, of the node or of both, is one and the
// same thing: the daemon sends what it believes (Attach), the node compares.
package node

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/keeper"
)

// RunID names one run of one job; it is the name of its record.
type RunID struct {
	ID  backends.ID
	Run int
}

// String is JOB.INDEX.RUN.
func (r RunID) String() string {
	return strconv.FormatInt(r.ID.Job, 10) + "." + strconv.Itoa(r.ID.Index) + "." + strconv.Itoa(r.Run)
}

// MarshalText writes String.
func (r RunID) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

var errRunID = errors.New("not the name of a run")

// UnmarshalText reads what String writes.
func (r *RunID) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ".")
	if len(parts) != 3 {
		return errRunID
	}
	var parsed RunID
	var err [3]error
	parsed.ID.Job, err[0] = strconv.ParseInt(parts[0], 10, 64)
	parsed.ID.Index, err[1] = strconv.Atoi(parts[1])
	parsed.Run, err[2] = strconv.Atoi(parts[2])
	if errors.Join(err[:]...) != nil || parsed.String() != string(text) {
		return errRunID
	}
	*r = parsed
	return nil
}

// Command is a message from the daemon to a node; one of its fields is set.
type Command struct {
	Attach *Attach `json:"attach,omitempty"` // the first one
	Start  *Start  `json:"start,omitempty"`
	Want   *Want   `json:"want,omitempty"`
	Forget *RunID  `json:"forget,omitempty"` // its end is on disk elsewhere
}

// Append appends a command as a frame.
func (c Command) Append(b []byte) ([]byte, error) {
	if c.Start == nil {
		return miniq.AppendFrame(b, c)
	}
	return miniq.AppendParts(b, c, c.Start.Order)
}

// ReadCommand reads what Append wrote.
func ReadCommand(r io.Reader) (Command, error) {
	var c Command
	order, err := miniq.ReadParts(r, &c)
	switch {
	case err != nil:
		return c, err
	case c.Start != nil:
		c.Start.Order = order
	case order != nil:
		return c, errOrder
	}
	return c, nil
}

// large reports whether a command takes so much memory that a node keeps one such at a
// time, beside the one that it reads. Of others it may keep some dozens.
func (c Command) large() bool {
	const much = 64 << 10
	return c.Start != nil && len(c.Start.Order)+len(c.Start.Script) > much
}

var errOrder = errors.New("an order without a start command")

// Attach lists the runs that the daemon believes alive on this node.
type Attach struct {
	Runs []Expected `json:"runs"`
	// Doubtful: the machine went down since the queue was last served. A record
	// that Runs does not name may be of that time.
	Doubtful bool `json:"doubtful,omitempty"`
}

// Expected is a run that the daemon believes alive.
type Expected struct {
	Run       RunID `json:"run"`
	Confirmed bool  `json:"confirmed,omitempty"` // it is known to have begun
	Stopped   bool  `json:"stopped,omitempty"`
	// Doubtful: the machine went down since it was ordered. Records are not
	// synced, so it may have begun though it has none.
	Doubtful bool `json:"doubtful,omitempty"`
}

// Start orders a run.
type Start struct {
	Run    RunID  `json:"run"`
	Order  []byte `json:"-"`                // encoded by keeper.Order; it stands behind the JSON, as it is
	Script []byte `json:"script,omitempty"` // put into a file, which goes before the order's Argv
	Hosts  []byte `json:"hosts,omitempty"`  // put into a file, whose path is in HostFileVariable
}

// Want is passed on to a run's keeper.
type Want struct {
	Run   RunID         `json:"run"`
	Verb  keeper.Verb   `json:"verb"`
	Grace time.Duration `json:"grace,omitempty"`
	Text  string        `json:"text,omitempty"`

	Signal syscall.Signal `json:"signal,omitempty"`

	Requeue bool `json:"requeue,omitempty"`
}

// Kind is the kind of a report.
type Kind string

// The reports.
const (
	Attached Kind = "attached" // all expected runs have been adopted or reported; it comes once
	Absent   Kind = "absent"   // an expected run never began: order it (again)
	Started  Kind = "started"
	Stopped  Kind = "stopped" // its keeper has stopped its processes, as it was wanted
	Failed   Kind = "failed"  // could not be begun, has no process
	Ended    Kind = "ended"
	Lost     Kind = "lost" // how it ended is not known; nothing of it is left
)

// Report is a message from a node to its daemon.
type Report struct {
	Kind Kind        `json:"kind"`
	Run  RunID       `json:"run,omitzero"`
	Text string      `json:"text,omitempty"`
	End  *keeper.End `json:"end,omitempty"`

	Again bool `json:"again,omitempty"` // of Failed: the host had no room for it, which will pass
}
