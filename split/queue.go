package split

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
)

// Queue has the methods of backends.Backend that a split needs. Submit goes through the
// submit filter.
type Queue interface {
	Snapshot(ctx context.Context, endedSince time.Time) (*backends.Snapshot, error)
	Jobs(ctx context.Context, ids []backends.ID) ([]backends.Job, error)
	Submit(ctx context.Context, specs []backends.Spec) []backends.Submitted
	Kill(ctx context.Context, ids []backends.ID) backends.Errors
	// Changes returns a function that waits until the queue has changed since its last
	// call, or may have.
	Changes() func(context.Context) error
}

// Reporter prints a split's messages and progress. Its methods are called from several
// goroutines, one at a time.
type Reporter interface {
	// Log prints a line for users; it is printable.
	Log(text string)
	// Progress shows the progress; it is called often.
	Progress(p Progress)
	// Round reports a round that has ended.
	Round(r RoundReport)
}

// Progress is the progress of a split.
type Progress struct {
	Items    int64 // that have ended
	Total    int64 // -1: not known yet
	Rate     float64
	Left     time.Duration // until the end; 0: not known
	Round    int
	Period   int64 // of a resident job: Items and Total are its blocks; 0: it is none
	Open     int   // tasks that have not ended
	Gap      float64
	HasGap   bool // a round has ended
	Shares   []metrics.Share
	LastSeen time.Time // when the last task ended
}

// RoundReport is a round that has ended. Times are this host's unless said otherwise.
type RoundReport struct {
	Round int          `json:"round"`
	Began time.Time    `json:"began"` // its first job was submitted
	Ended time.Time    `json:"ended"` // its last task's end was seen
	Gap   float64      `json:"gap"`
	First string       `json:"first,omitempty"` // host
	Last  string       `json:"last,omitempty"`
	Under bool         `json:"under"`
	Tasks []TaskReport `json:"tasks"`
}

// TaskReport is a task of a round.
type TaskReport struct {
	Task      int64       `json:"task"`
	Host      string      `json:"host"`
	First     int64       `json:"first"` // its first item's number, by Input.Number
	Items     int64       `json:"items"`
	Took      float64     `json:"took"`  // seconds, on the host
	State     string      `json:"state"` // done, back, killer
	Job       backends.ID `json:"job"`
	Submitted *time.Time  `json:"submitted,omitempty"`
	Started   *time.Time  `json:"started,omitempty"` // its first item, by its host's clock
	Ended     *time.Time  `json:"ended,omitempty"`   // its last item, by its host's clock
	Seen      *time.Time  `json:"seen,omitempty"`
	CopyOf    int64       `json:"copy_of,omitempty"` // the task whose items it executed, too; 0: it is no copy
	Lease     uint64      `json:"lease,omitempty"`   // of asplit serve, the last one that the task had; 0: none, or it is not known any more
	Worker    int64       `json:"worker,omitempty"`  // it was given to a standing worker: the task that its job began with; 0: it has a job of its own
}

// Report describes a split that has ended; its times are in UTC.
type Report struct {
	Name    string        `json:"name"`
	Items   int64         `json:"items"`
	Failed  int64         `json:"failed"`
	Killers int64         `json:"killers"` // items that killed their tasks; among those that failed
	Began   time.Time     `json:"began"`
	Ended   time.Time     `json:"ended"`
	Seconds float64       `json:"seconds"`
	Rounds  []RoundReport `json:"rounds"`
	Loads   []LoadReport  `json:"loads"` // at the end
	Trial   *TrialReport  `json:"trial,omitempty"`
}

// TrialReport is what a trial of settings found (R49).
type TrialReport struct {
	Best     string          `json:"best"`
	Sure     float64         `json:"sure"`  // the probability, at least, that no other setting is better
	Tried    int64           `json:"tried"` // items
	Over     bool            `json:"over"`  // the best one goes on
	Settings []SettingReport `json:"settings"`
	Text     string          `json:"text"`
}

// SettingReport is what was found of a setting while it was tried.
type SettingReport struct {
	Setting  string  `json:"setting"`
	Executed int64   `json:"executed"` // times
	Failed   int64   `json:"failed"`
	Ratio    float64 `json:"ratio"` // its time by that of the best one; 0: not known
}

// LoadReport is one element of a host's job load metric, in percent: see metrics.Load.
type LoadReport struct {
	Host      string  `json:"host"`
	Element   string  `json:"element"`
	Influence float64 `json:"influence_percent"`
	X         float64 `json:"x_percent"`
	CM        float64 `json:"cm_percent"`
	CU        float64 `json:"cu_points"`
	JL        float64 `json:"jl_percent"` // of all elements
}
