package manager

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Manager is the queue. Its methods must not be called concurrently.
type Manager struct{ cfg Config }

// New gives an empty queue without nodes.
func New(cfg Config) *Manager { return &Manager{cfg: cfg} }

// Step takes one event. A time before the previous step's counts as that one.
func (m *Manager) Step(now time.Time, e Event) ([]Effect, Result) { return nil, Result{} }

// Farm is the picture that backends.Backend.Farm gives.
func (m *Manager) Farm(now, endedSince time.Time) *backends.Farm { return nil }

// Jobs is what backends.Backend.Jobs gives.
func (m *Manager) Jobs(now time.Time, ids []backends.ID) []backends.Job { return nil }

// Runs lists the runs that are alive, by ID.
func (m *Manager) Runs() []Run { return nil }

// Wake is the last WakeAt.
func (m *Manager) Wake() time.Time { return time.Time{} }

// State is the whole queue as bytes: deterministic, versioned.
func (m *Manager) State() ([]byte, error) { return nil, nil }

// Restore gives the queue that State wrote. It needs no Config: it is part of the state.
func Restore(state []byte) (*Manager, error) { return nil, nil }

// EncodeEvent writes an event as one line of JSON.
func EncodeEvent(e Event) ([]byte, error) { return nil, nil }

// DecodeEvent reads what EncodeEvent wrote.
func DecodeEvent(line []byte) (Event, error) { return nil, nil }
