package manager

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// place is what jobs have in common that may change places: however long they wait, they have
// the same priority.
type place struct {
	user, queue string
	now, final  backends.Priority
	ageing      bool
	within      *array // elements that wait for others of their array change places among themselves
}

func (m *Manager) placeOf(j *job) place {
	p := place{user: j.user, queue: j.queue, now: m.priority(j, m.now), final: m.final(j).priority, ageing: j.ageing}
	if j.waitList == inThrottle {
		p.within = j.array
	}
	return p
}

// mayReorder reports whether a job is one that its owner may put before or behind others. A job
// that is held, or waits for a time or another job, has no place in the queue that it could leave
// to another one.
func mayReorder(j *job) bool { return j.waitList != notWaiting && j.dummyFor == backends.ID{} }

func (m *Manager) reorder(e Reorder) Result {
	var named []*job
	chosen := map[*job]bool{}
	result := forIDs(m, e.By, e.IDs, func(_ By, j *job) error {
		switch {
		case e.Position < 1:
			return fmt.Errorf("job %s: position %d: positions count from 1", j.id, e.Position)
		case j.state != backends.Pending:
			return wrongState(j, "has started")
		case !mayReorder(j):
			return wrongState(j, "is held, or waits for a time or another job")
		}
		if !chosen[j] {
			chosen[j] = true
			named = append(named, j)
		}
		return nil
	})
	if len(named) == 0 {
		return result
	}
	peers := m.peers(chosen)
	done := map[place]bool{}
	for _, j := range named { // places in the order in which they are named
		at := m.placeOf(j)
		if !done[at] {
			done[at] = true
			m.arrangePeers(peers.alike[at], chosen, e)
		}
	}
	for i, id := range e.IDs {
		if result.Errors[i] == nil && !peers.canMove(m, m.find(id)) {
			result.Errors[i] = fmt.Errorf("job %s: your other jobs in queue %s have other priorities: it changes places with those of the same (asub -sp, and how long they have waited)", id, m.find(id)[0].queue)
		}
	}
	m.retry = true
	return result
}

// peers are the jobs of some owners that may be reordered.
type peers struct {
	alike   map[place][]*job // in the order of their turns
	inQueue map[place]int    // by user and queue alone
}

func (m *Manager) peers(chosen map[*job]bool) peers {
	owners := map[string]bool{}
	for j := range chosen {
		owners[j.user] = true
	}
	p := peers{map[place][]*job{}, map[place]int{}}
	for j := m.first; j != nil; j = j.next {
		if owners[j.user] && mayReorder(j) {
			at := m.placeOf(j)
			p.alike[at] = append(p.alike[at], j)
			p.inQueue[place{user: j.user, queue: j.queue}]++
		}
	}
	for _, jobs := range p.alike {
		slices.SortFunc(jobs, byTurn)
	}
	return p
}

// canMove reports whether one of the jobs of an ID has a job that it could change places with, or
// its owner has no other one in its queue.
func (p peers) canMove(m *Manager, jobs []*job) bool {
	return slices.ContainsFunc(jobs, func(j *job) bool {
		if !mayReorder(j) {
			return false
		}
		return len(p.alike[m.placeOf(j)]) > 1 || p.inQueue[place{user: j.user, queue: j.queue}] == 1
	})
}

func byTurn(a, b *job) int { return cmp.Compare(a.turn, b.turn) }

// arrangePeers gives jobs that may change places their turns anew: no other turns than they had.
func (m *Manager) arrangePeers(jobs []*job, chosen map[*job]bool, e Reorder) {
	turns := make([]int64, len(jobs))
	var moved, rest []*job
	for i, j := range jobs {
		turns[i] = j.turn
		if chosen[j] {
			moved = append(moved, j)
		} else {
			rest = append(rest, j)
		}
	}
	at := min(e.Position-1, len(rest))
	if e.Bottom {
		at = len(rest) - at
	}
	for i, j := range slices.Concat(rest[:at], moved, rest[at:]) {
		if j.turn != turns[i] {
			m.setTurn(j, turns[i])
		}
	}
}

// setTurn changes a job's place in the FIFO; its list is ordered by it.
func (m *Manager) setTurn(j *job, turn int64) {
	m.beforeChange(j)
	switch j.waitList {
	case inShape:
		m.removeFromOrder(j)
		j.turn = turn
		m.addToOrder(j)
	case inThrottle:
		j.array.waiting.remove(j)
		j.turn = turn
		j.array.waiting.Push(j)
	case notWaiting:
		j.turn = turn
	}
}
