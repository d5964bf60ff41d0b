// Package watch keeps the list of hosts, and what jobs use on them, for who asks: it hears
// what the bus carries, and agent/roster decides.
package watch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/agent/measure"
	"github.com/allotment-hpc/allotment/agent/roster"
)

// Kinds of messages that hosts send.
const (
	BeatKind   = "beat" // a heartbeat
	ReportKind = "jobs" // what jobs use
)

// Watch is safe for several goroutines.
type Watch struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	hosts  *roster.Roster
	uses   *roster.Uses
	places *Places              // nil: places of jobs' state objects are not kept
	faults map[string]time.Time // hosts whose messages were refused, and when that was logged
}

// New returns a list without hosts. The clock is one that is not set.
func New(log *slog.Logger, now func() time.Time) *Watch {
	return &Watch{log: log, now: now, hosts: roster.New(), uses: roster.NewUses(), faults: map[string]time.Time{}}
}

// Beat takes a heartbeat of a host that the bus has authenticated.
func (w *Watch) Beat(host string, message []byte) {
	b, err := roster.ParseBeat(message)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refuse(host, err)
		return
	}
	w.take(w.hosts.Heard(host, b, w.now()))
}

// Report takes a report of a host likewise. One of a host that is not in the list is ignored:
// its heartbeat comes first.
func (w *Watch) Report(host string, message []byte) {
	r, err := roster.ParseReport(message)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refuse(host, err)
		return
	}
	now := w.now()
	if h, ok := w.hosts.Host(host, now); ok && h.State != roster.Gone {
		w.uses.Heard(host, r, now)
	}
}

// Track has the places of jobs' state objects kept, by what hosts announce from now on.
func (w *Watch) Track(p *Places) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places = p
}

// Places returns the places of jobs' state objects; nil: they are not kept.
func (w *Watch) Places() *Places {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places
}

// Objects takes what a host announces of jobs' state objects likewise.
func (w *Watch) Objects(host string, message []byte) {
	p := w.Places()
	if p == nil {
		return
	}
	if err := p.Hear(host, message, w.now()); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refuse(host, err)
	}
}

// refuse logs a message that can't be read: once an hour for a host.
func (w *Watch) refuse(host string, err error) {
	const again = time.Hour
	now := w.now()
	if at, ok := w.faults[host]; ok && now.Sub(at) < again {
		return
	}
	if len(w.faults) >= roster.MaxHosts {
		clear(w.faults)
	}
	w.faults[host] = now
	w.log.Warn("a host's message is refused", "host", host, "error", err)
}

// take does what the changes of hosts need.
func (w *Watch) take(events []roster.Event) {
	for _, e := range events {
		w.log.Info(e.String())
		if e.To == roster.Gone || e.To == roster.Forgotten {
			w.uses.Forget(e.Host)
			if w.places != nil {
				w.places.Withdraw(e.Host)
			}
		}
	}
}

// Run finds hosts that fall silent, and those that are withdrawn, until the context ends.
// admitted returns the hosts that may send; nil: there is no such list.
func (w *Watch) Run(ctx context.Context, admitted func() map[string]bool) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			var may map[string]bool
			if admitted != nil {
				may = admitted()
			}
			w.tick(may)
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watch) tick(admitted map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	w.take(w.hosts.Tick(now))
	if admitted == nil {
		return
	}
	for _, h := range w.hosts.Hosts(now) {
		if !admitted[h.Name] {
			w.take(w.hosts.Withdraw(h.Name, now))
		}
	}
}

// Hosts returns the hosts by their names, and how many are beyond the bound.
func (w *Watch) Hosts() (all []roster.Host, leftOut int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts.Hosts(w.now()), w.hosts.LeftOut()
}

// Host returns a host.
func (w *Watch) Host(name string) (roster.Host, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts.Host(name, w.now())
}

// Uses returns what jobs use on hosts that are not lost, those that want says.
func (w *Watch) Uses(want func(*roster.Use) bool) []roster.Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses.Now(w.heard(want))
}

// UsesOn is Uses on one host.
func (w *Watch) UsesOn(host string, want func(*roster.Use) bool) []roster.Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses.Of(host, w.heard(want))
}

// heard leaves out what hosts reported before they were lost.
func (w *Watch) heard(want func(*roster.Use) bool) func(*roster.Use) bool {
	lost := map[string]bool{}
	for _, h := range w.hosts.Hosts(w.now()) {
		lost[h.Name] = h.State == roster.Lost
	}
	return func(u *roster.Use) bool { return !lost[u.Host] && want(u) }
}

// History returns the last hour of a job on a host.
func (w *Watch) History(host string, key measure.Key) []roster.Point {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses.History(host, key)
}
