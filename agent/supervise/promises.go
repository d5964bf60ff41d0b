package supervise

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// PromisesKind is the kind of message that has a host's promises.
const PromisesKind = "promises"

// Promises are what the jobs on a host were promised, by the last cycle of the engine.
type Promises struct {
	Paused bool      `json:"paused,omitempty"`
	Jobs   []Promise `json:"jobs"` // all that the queue has there
}

// Promise is what a job was promised on a host.
type Promise struct {
	Queue     string  `json:"queue"`
	Job       int64   `json:"job"`
	Index     int     `json:"index,omitempty"` // of an element of an array
	Slots     int     `json:"slots"`           // there
	Minimum   Amounts `json:"minimum,omitzero"`
	Memory    int64   `json:"memory,omitempty"` // bytes that it asked for, there; 0: none
	Held      bool    `json:"held,omitempty"`
	Requeues  bool    `json:"requeues,omitempty"`
	Saving    bool    `json:"saving,omitempty"` // it was asked to save itself, and is requeued then
	Protected bool    `json:"protected,omitempty"`
	Deadline  int64   `json:"deadline,omitempty"` // by which it should have ended, in UNIX seconds; 0: it has none that counts
	Most      Amounts `json:"most,omitzero"`      // what it may have as its own because of that
}

// maxPromises and maxBytes bound a message: the bus takes no larger one. Jobs beyond are not known to the host, and are
// never touched.
const (
	maxPromises = 1000
	maxBytes    = 256 << 10
)

// Encode returns the message, and how many jobs it has no room for.
func (p *Promises) Encode() (message []byte, left int, err error) {
	some := *p
	if len(some.Jobs) > maxPromises {
		left = len(some.Jobs) - maxPromises
		some.Jobs = some.Jobs[:maxPromises]
	}
	for {
		message, err = json.Marshal(&some)
		if err != nil || len(message) <= maxBytes {
			return message, left, err
		}
		n := len(some.Jobs) * maxBytes / len(message)
		left += len(some.Jobs) - n
		some.Jobs = some.Jobs[:n]
	}
}

// ParsePromises reads a message.
func ParsePromises(message []byte) (*Promises, error) {
	p := &Promises{}
	if err := json.Unmarshal(message, p); err != nil {
		return nil, fmt.Errorf("promises: %w", err)
	}
	if len(p.Jobs) > maxPromises {
		return nil, fmt.Errorf("promises of %d jobs: at most %d", len(p.Jobs), maxPromises)
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Job < 1 || j.Index < -1 || j.Slots < 0 || j.Memory < 0 || j.Deadline < 0 || slices.Min(j.Minimum[:]) < 0 || slices.Min(j.Most[:]) < 0 {
			return nil, fmt.Errorf("a promise of job %d is %+v", j.Job, *j)
		}
	}
	return p, nil
}

// PleasKind is the kind of message by which a host asks for acts on its jobs: the last one replaces those before.
const PleasKind = "pleas"

// Pleas are what a host that lacks memory asks for.
type Pleas struct {
	Jobs []Plea `json:"jobs"`
}

// Plea is an act on a job.
type Plea struct {
	Queue  string        `json:"queue"`
	Job    int64         `json:"job"`
	Index  int           `json:"index,omitempty"`
	Verb   Verb          `json:"verb"`
	Used   int64         `json:"used"`   // bytes of memory, on that host
	Frozen time.Duration `json:"frozen"` // for how long it has been
}

const maxPleas = 10

// Encode returns the message. The first pleas have room.
func (p *Pleas) Encode() ([]byte, error) {
	some := Pleas{p.Jobs[:min(len(p.Jobs), maxPleas)]}
	return json.Marshal(&some)
}

// ParsePleas reads a message.
func ParsePleas(message []byte) (*Pleas, error) {
	p := &Pleas{}
	if err := json.Unmarshal(message, p); err != nil {
		return nil, fmt.Errorf("pleas: %w", err)
	}
	if len(p.Jobs) > maxPleas {
		return nil, fmt.Errorf("pleas for %d jobs: at most %d", len(p.Jobs), maxPleas)
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Job < 1 || j.Index < -1 || j.Used < 1 || j.Frozen < 0 || j.Verb != Requeue && j.Verb != Kill {
			return nil, fmt.Errorf("a plea for job %d is %+v", j.Job, *j)
		}
	}
	return p, nil
}
