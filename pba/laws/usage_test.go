package laws

import (
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba/simulate"
)

// usage counts what runs use of each host from the effects alone (lawCapacity).
type usage struct {
	hosts  map[string]backends.Host
	slots  map[string]int
	memory map[string]int64
	gpus   map[string]int
	runs   map[backends.ID]*useOfRun
	saves  saveBooks
	broken string

	apart    bool   // memory is for a law of its own
	alone    bool   // memory is not managed
	overfull string // the first breach of that law
	overHas  string // the first breach of lawUnits
}

type useOfRun struct {
	manager.StartRun
	stopped bool
}

func newUsage(hosts []backends.Host) *usage {
	u := &usage{hosts: map[string]backends.Host{}, slots: map[string]int{}, memory: map[string]int64{}, gpus: map[string]int{}, runs: map[backends.ID]*useOfRun{}, saves: newSaveBooks()}
	for _, h := range hosts {
		u.hosts[h.Name] = h
	}
	return u
}

func (u *usage) watch(at time.Time, e manager.Effect) {
	u.saves.watch(e)
	switch e := e.(type) {
	case manager.StartRun:
		if u.runs[e.ID] != nil {
			u.recordBreach(at, "job %v has two runs at a time", e.ID)
		}
		r := &useOfRun{StartRun: e}
		u.runs[e.ID] = r
		u.use(at, r, 1, 1)
	case manager.StopRun:
		if r := u.runs[e.ID]; r != nil && r.Run == e.Run && !r.stopped {
			r.stopped = true
			u.use(at, r, -1, 0) // its memory stays
		}
	case manager.ContinueRun:
		if r := u.runs[e.ID]; r != nil && r.Run == e.Run && r.stopped {
			r.stopped = false
			u.use(at, r, 1, 0)
		}
	}
}

func (u *usage) ended(at time.Time, end simulate.RunEnd) {
	id, run := end.ID, end.Run
	r := u.runs[id]
	if r == nil || r.Run != run {
		u.recordBreach(at, "job %v: run %d ended, which never began", id, run)
		return
	}
	delete(u.runs, id)
	slots := -1
	if r.stopped {
		slots = 0
	}
	u.use(at, r, slots, -1)
}

func (u *usage) use(at time.Time, r *useOfRun, slots int, memory int64) {
	perSlot := (r.Spec.Memory + int64(r.Spec.Slots) - 1) / int64(r.Spec.Slots)
	for _, p := range r.Hosts {
		h := u.hosts[p.Host]
		u.slots[p.Host] += slots * p.Slots
		u.memory[p.Host] += memory * perSlot * int64(p.Slots)
		u.useGPUs(at, r, p.Host, int(memory)) // they stay as its memory does
		if u.slots[p.Host] > h.Slots {
			u.recordBreach(at, "job %v: host %s offers %d slots, %d are used", r.ID, h.Name, h.Slots, u.slots[p.Host])
		}
		switch {
		case h.Memory <= 0 || u.memory[p.Host] <= h.Memory || u.alone:
		case u.apart:
			if u.overfull == "" {
				u.overfull = fmt.Sprintf("%v after the start: job %v: host %s offers %d bytes, %d are asked for", at.Sub(start()), r.ID, h.Name, h.Memory, u.memory[p.Host])
			}
		default:
			u.recordBreach(at, "job %v: host %s offers %d bytes, %d are used", r.ID, h.Name, h.Memory, u.memory[p.Host])
		}
	}
}

func (u *usage) recordBreach(at time.Time, format string, args ...any) {
	if u.broken == "" {
		u.broken = fmt.Sprintf("%v after the start: ", at.Sub(start())) + fmt.Sprintf(format, args...)
	}
}
