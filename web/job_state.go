package web

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/state"
)

// Bounds of what a job's page shows of its state.
const (
	shownState = 100 // settings, and files
	stateTime  = 3 * time.Second
)

// ownState is what a job's hosts keep of it, as its page shows it.
type ownState struct {
	Host     string // that holds it
	Moving   bool
	Why      string   // it is not shown
	Limited  []string // what its hosts limit now, since when and why: in words
	Settings []settingRow
	Files    []fileRow
	More     int // that are left out
}

type settingRow struct {
	Key, Value string
	At         time.Time
}

type fileRow struct {
	Name, Size string
	Executable bool
	At         time.Time
}

// ownState reads a job's state from the host that holds it; nil: there is none, or it is not the
// caller's to read. The page does not wait long for it.
func (q *request) ownState(id backends.ID) *ownState {
	ctx, cancel := context.WithTimeout(q.Context(), stateTime)
	defer cancel()
	var refused *statusError
	v, _, err := q.server.stateOf(ctx, q.desk, &StateIn{q.desk.Config.Backend, id.String()})
	switch {
	case errors.Is(err, errNotHeard) || errors.Is(err, errNoState):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &ownState{Why: "its host has not answered in time"}
	case errors.As(err, &refused):
		return &ownState{Why: refused.Error()}
	case err != nil:
		q.server.Log.Error("read a job's state for its page", "job", id.String(), "error", err)
		return &ownState{Why: "the log of allotd says why"}
	case v.Denied:
		return nil
	case v.Record == nil:
		return &ownState{Moving: v.Moving, Why: v.Why}
	}
	return ownStateOf(v, q.server.Zone)
}

func ownStateOf(v *stateView, zone *time.Location) *ownState {
	o := &ownState{Host: v.Host, Moving: v.Moving, Limited: v.Record.Limited(zone)}
	r := v.Record
	for _, s := range r.Settings[:min(len(r.Settings), shownState)] {
		value := state.Brief(s.Value)
		if value != s.Value {
			value += "…"
		}
		o.Settings = append(o.Settings, settingRow{s.Key, value, s.At})
	}
	for _, f := range r.Files[:min(len(r.Files), shownState)] {
		o.Files = append(o.Files, fileRow{f.Name, unit.Size(min(max(f.Size, 0), math.MaxInt64)).Short(), f.Executable, f.At})
	}
	o.More = len(r.Settings) + len(r.Files) - len(o.Settings) - len(o.Files)
	return o
}
