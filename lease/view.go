package lease

import (
	"maps"
	"slices"
)

// View is what a Manager knows, for people.
type View struct {
	Workers []WorkerView  `json:"workers"` // by host and name
	Leases  []HeldView    `json:"leases"`  // by number
	Waiting []WaitingView `json:"waiting"` // in the order in which they are served
	Want    int           `json:"want"`    // workers more that would be of use
}

// WorkerView is a worker. Memory of 0 bytes is not limited.
type WorkerView struct {
	Worker     string `json:"worker"`
	Host       string `json:"host"`
	Milli      int64  `json:"milli_cores"`
	FreeMilli  int64  `json:"free_milli_cores"`
	Memory     int64  `json:"memory"`
	FreeMemory int64  `json:"free_memory"`
	Leases     int    `json:"leases"`
	State      string `json:"state"` // open, withdrawn, released
}

// HeldView is a lease.
type HeldView struct {
	Lease  uint64 `json:"lease"`
	Worker string `json:"worker"`
	Host   string `json:"host"`
	Holder string `json:"holder"`
	ID     string `json:"id"` // of its request
	Job    uint64 `json:"job"`
	Milli  int64  `json:"milli_cores"`
	Memory int64  `json:"memory"`
	Locked bool   `json:"locked,omitempty"` // it is being posted back
}

// WaitingView is a request that waits for slots.
type WaitingView struct {
	Holder     string `json:"holder"`
	ID         string `json:"id"`
	Job        uint64 `json:"job"`
	Priority   int    `json:"priority"`
	Slots      int    `json:"slots"`
	Milli      int64  `json:"milli_cores"`
	Memory     int64  `json:"memory"`
	Impossible bool   `json:"impossible,omitempty"` // no present worker could hold it
}

// View returns a copy of what the manager knows.
func (m *Manager) View() View {
	v := View{Workers: []WorkerView{}, Leases: []HeldView{}, Waiting: []WaitingView{}, Want: m.want}
	for _, w := range m.ranking.workers {
		one := WorkerView{w.name, w.host.name, w.milli, w.freeMilli, w.memory, w.freeMemory, len(w.leases), "open"}
		if w.memory == unlimited {
			one.Memory, one.FreeMemory = 0, 0
		}
		if w.closed != 0 {
			one.State = "withdrawn"
		}
		if w.released {
			one.State = "released"
		}
		v.Workers = append(v.Workers, one)
	}
	for _, l := range inOrder(slices.Collect(maps.Values(m.leases))) {
		v.Leases = append(v.Leases, HeldView{l.number, l.worker.name, l.worker.host.name, l.job.holder.name, l.request.id, l.job.number, l.milli, l.memory, l.locked})
	}
	requests := slices.Concat(m.waiting.Items(), m.parked)
	slices.SortFunc(requests, order)
	for _, r := range requests {
		v.Waiting = append(v.Waiting, WaitingView{r.job.holder.name, r.id, r.job.number, r.priority, r.slots, r.milli, r.memory, r.parked})
	}
	return v
}
