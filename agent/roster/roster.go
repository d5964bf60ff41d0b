// Package roster knows the hosts of a farm by their agents' heartbeats, and what the jobs on
// them use by their agents' reports. It decides; it has no clock, file or connection: what was
// heard and when go in, the list of hosts and events with reasons come out.
//
// A host's name is given by who calls, that is by the bus, which has authenticated the host.
// It is never taken from a message.
package roster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/printable"
)

// State is how a host stands.
type State string

// The states.
const (
	Here      State = "here"
	Lost      State = "lost"      // three heartbeats were missed
	Returning State = "returning" // heard again, and not yet for long enough
	Flapping  State = "flapping"  // the same of a host that was lost more than once of late
	Gone      State = "gone"      // withdrawn
	Forgotten State = ""          // of events: the host is not in the list any more
)

// Every is from one heartbeat to the next.
const Every = 5 * time.Second

// missed is after how many missed heartbeats a host is lost, and late by how much a
// heartbeat may be late.
const (
	missed = 3
	late   = time.Second
)

// A lost host is here again when it was heard for hold without a gap; with each further
// loss within recent the time doubles, up to maxHold.
const (
	hold    = 15 * time.Second
	maxHold = 5 * time.Minute
	recent  = 30 * time.Minute
)

// How long hosts stay in the list that are lost, or gone.
const (
	keepLost = 7 * 24 * time.Hour
	keepGone = 24 * time.Hour
)

// Bounds. A loss beyond maxLosses adds nothing to the time.
const (
	MaxHosts  = 10_000
	MaxName   = 255
	maxLosses = 16
)

// silence is after what silence a host is lost.
const silence = missed*Every + late

// Host is a host as the list has it.
type Host struct {
	Name   string    `json:"host"`
	State  State     `json:"status"`
	Since  time.Time `json:"since"`  // of the state
	Reason string    `json:"reason"` // for it
	Heard  time.Time `json:"heard"`  // last
	Losses int       `json:"losses"` // of late
	Beat             // the last one
}

// Event is a change of a host's state.
type Event struct {
	At       time.Time
	Host     string
	From, To State
	Reason   string
}

// String is the event as a log has it.
func (e Event) String() string {
	return fmt.Sprintf("host %s: %s: %s", printable.Text(e.Host), cmp.Or(e.To, "forgotten"), e.Reason)
}

// Roster is the list of hosts. It is for one goroutine.
type Roster struct {
	hosts   map[string]*host
	leftOut map[string]bool // hosts beyond the bound; bounded itself
}

type host struct {
	Host
	losses []time.Time // of late
	back   time.Time   // since when it is heard without a gap, where it is Returning or Flapping
	before string      // the run of the agent before the present one
}

// New returns an empty list.
func New() *Roster { return &Roster{hosts: map[string]*host{}, leftOut: map[string]bool{}} }

// Heard takes a heartbeat of a host.
func (r *Roster) Heard(name string, b Beat, now time.Time) (events []Event) {
	h := r.hosts[name]
	if h != nil {
		events = r.check(h, now)
		h = r.hosts[name] // it may be forgotten
	}
	if h == nil {
		return append(events, r.add(name, b, now)...)
	}
	if h.Run == b.Run && b.Sequence <= h.Sequence {
		return events // it was heard before
	}
	if h.State == Gone {
		// What it sent before it was withdrawn may still come. Later it comes because it
		// was enrolled again.
		if now.Sub(h.Since) < silence {
			return events
		}
		h.losses = nil
		events = append(events, h.become(Here, now, "it was enrolled again"))
	} else if e, ok := h.again(b, now); ok {
		events = append(events, e)
	}
	if b.Run != h.Run {
		h.before = h.Run
	}
	h.Beat, h.Heard = b, now
	return events
}

// add begins a host.
func (r *Roster) add(name string, b Beat, now time.Time) []Event {
	if name == "" || len(name) > MaxName {
		return nil
	}
	if len(r.hosts) >= MaxHosts {
		if len(r.leftOut) < MaxHosts {
			r.leftOut[name] = true
		}
		return nil
	}
	delete(r.leftOut, name)
	h := &host{Host: Host{Name: name, Beat: b, Heard: now}}
	r.hosts[name] = h
	return []Event{h.become(Here, now, "it is heard for the first time")}
}

const twoAgents = "two agents send heartbeats under this name: stop one of them"

// again decides what a heartbeat makes of a host that is known.
func (h *host) again(b Beat, now time.Time) (Event, bool) {
	if b.Run == h.before && b.Run != h.Run {
		// A run of an agent that has ended does not come back.
		h.lose(now)
		h.back = now
		if h.State == Flapping && h.Reason == twoAgents {
			return Event{}, false
		}
		return h.become(Flapping, now, twoAgents), true
	}
	booted := b.Boot != h.Boot
	switch h.State {
	case Lost:
		if booted {
			h.losses = h.losses[:max(0, len(h.losses)-1)] // no flapping
			return h.become(Here, now, "it has booted"), true
		}
		h.back = now
		wait := h.hold()
		if len(h.losses) > 1 {
			return h.become(Flapping, now, fmt.Sprintf("it is heard again, and was lost %s within %v: it is here when it was heard for %v", printable.Count(len(h.losses), "time"), recent, wait)), true
		}
		return h.become(Returning, now, fmt.Sprintf("it is heard again: it is here when it was heard for %v", wait)), true
	case Returning, Flapping:
		if booted {
			return h.become(Here, now, "it has booted"), true
		}
		if wait := h.hold(); now.Sub(h.back) >= wait {
			return h.become(Here, now, fmt.Sprintf("it was heard for %v without a gap", wait)), true
		}
	case Here, Gone, Forgotten:
	}
	return Event{}, false
}

// become changes a host's state.
func (h *host) become(s State, now time.Time, reason string) Event {
	e := Event{now, h.Name, h.State, s, reason}
	h.State, h.Since, h.Reason = s, now, reason
	return e
}

// lose counts a loss.
func (h *host) lose(now time.Time) {
	h.losses = append(h.lately(now), now)
	h.losses = h.losses[max(0, len(h.losses)-maxLosses):]
}

// lately returns the losses of late.
func (h *host) lately(now time.Time) []time.Time {
	i := 0
	for i < len(h.losses) && now.Sub(h.losses[i]) > recent {
		i++
	}
	return h.losses[i:]
}

// hold is for how long a host must be heard before it is here again. The losses are those of
// when it was lost last: it does not shrink while the host is held down.
func (h *host) hold() time.Duration {
	wait := hold
	for range len(h.losses) - 1 {
		wait = min(2*wait, maxHold)
	}
	return wait
}

// check finds out what a silence makes of a host.
func (r *Roster) check(h *host, now time.Time) []Event {
	quiet := now.Sub(h.Heard)
	switch h.State {
	case Here, Returning, Flapping:
		if quiet >= silence {
			h.lose(now)
			return []Event{h.become(Lost, now, fmt.Sprintf("%d heartbeats are missing: the last one came %v ago", int((quiet-late)/Every), quiet.Round(time.Second)))}
		}
	case Lost:
		if quiet >= keepLost {
			return r.forget(h, now, "it was lost for long")
		}
	case Gone:
		if now.Sub(h.Since) >= keepGone {
			return r.forget(h, now, "it was withdrawn")
		}
	case Forgotten:
	}
	return nil
}

func (r *Roster) forget(h *host, now time.Time, reason string) []Event {
	delete(r.hosts, h.Name)
	return []Event{h.become(Forgotten, now, reason)}
}

// Tick finds the hosts that have fallen silent. It is for each second or so.
func (r *Roster) Tick(now time.Time) (events []Event) {
	for _, name := range r.names() {
		events = append(events, r.check(r.hosts[name], now)...)
	}
	return events
}

// Withdraw takes a host out that the farm has withdrawn.
func (r *Roster) Withdraw(name string, now time.Time) []Event {
	h := r.hosts[name]
	if h == nil || h.State == Gone {
		return nil
	}
	return []Event{h.become(Gone, now, "it was withdrawn")}
}

func (r *Roster) names() []string {
	names := make([]string, 0, len(r.hosts))
	for name := range r.hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Hosts returns the hosts by their names.
func (r *Roster) Hosts(now time.Time) []Host {
	all := make([]Host, 0, len(r.hosts))
	for _, name := range r.names() {
		all = append(all, r.hosts[name].at(now))
	}
	return all
}

// Host returns a host.
func (r *Roster) Host(name string, now time.Time) (Host, bool) {
	h := r.hosts[name]
	if h == nil {
		return Host{}, false
	}
	return h.at(now), true
}

func (h *host) at(now time.Time) Host {
	out := h.Host
	out.Losses = len(h.lately(now))
	return out
}

// LeftOut is how many hosts are beyond the bound.
func (r *Roster) LeftOut() int { return len(r.leftOut) }
