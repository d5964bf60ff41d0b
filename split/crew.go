package split

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// WorkerState is what a standing worker says of itself, and repeats until it is acknowledged. The
// tasks that a worker is given rise in number.
type WorkerState struct {
	Run     string `json:"run"`               // of this process: a job that is requeued has another
	Seq     int64  `json:"seq"`               // rises when something changes
	Running int64  `json:"running,omitempty"` // the task at work; 0: none
	Done    int64  `json:"done,omitempty"`    // the last one that ended
	Leaving Leave  `json:"leaving,omitempty"`
}

// has reports whether a worker has taken a task, ended or not.
func (s *WorkerState) has(n int64) bool { return s.Running == n || s.Done >= n }

// Leave is why a worker ends.
type Leave string

// The reasons.
const (
	LeaveIdle Leave = "idle"   // it had nothing to do; an order to take a task has it stay
	LeaveTold Leave = "told"   // by WorkerOrder.End
	LeaveKill Leave = "signal" // the queue ends its job: what it has not done goes back
)

// WorkerOrder is what asplit tells a worker: all that is in force.
type WorkerOrder struct {
	Run  string `json:"run,omitempty"` // of the state that is acknowledged
	Seq  int64  `json:"seq,omitempty"`
	Take int64  `json:"take,omitempty"` // a task to execute, unless that was done; 0: none
	Drop int64  `json:"drop,omitempty"` // a task to end if it is at work, without a result; 0: none
	End  bool   `json:"end,omitempty"`  // when nothing runs
}

// member is a job of the split that stays as a standing worker after its first task.
type member struct {
	N     int64 // of its first task
	Job   int64
	Host  string
	Slots int

	began    time.Time     // its job was submitted, or by the queue's word started
	limit    time.Duration // of its job's run; 0: none known
	state    WorkerState
	heard    bool      // it has said something in this run of asplit
	given    int64     // the open task that it has or is to take; 0: none
	givenAt  time.Time // when that was
	sentAt   time.Time // the last order
	asked    time.Time // the first order that was not answered; zero: all were
	longest  time.Duration
	drop     int64 // the task that it is to end, as it was executed elsewhere; 0: none
	left     bool  // it is not to be given anything any more
	ended    bool  // its job is known to end, or to have ended
	awaiting bool  // its job was preempted, or is of an earlier run of asplit: it may stand again
	restored bool  // it is of an earlier run
}

// crew knows the standing workers of a run. It decides which of them gets a task and which is
// let end: it has no clock, file or socket.
type crew struct {
	most    int // jobs that may stay at a time; 0: none may
	members map[int64]*member
	barred  map[string]time.Time // hosts whose workers could not reach asplit: until when none begins there
	reached bool                 // some worker could
}

func newCrew(most int) *crew {
	return &crew{most: most, members: map[int64]*member{}, barred: map[string]time.Time{}}
}

// Bounds of the time that a worker has to take a task: one that has joined, and one that may be about
// to. That is above the time in which a worker that can't join ends by itself (worker.BusyTime).
const (
	giveTime  = 20 * time.Second
	firstTime = 40 * time.Second
)

// patience is how long a worker has to take a task.
func (m *member) patience() time.Duration {
	if m.heard {
		return giveTime
	}
	return firstTime
}

// Times of orders.
const (
	orderEvery = time.Second     // between two orders to a worker that does not answer
	limitSpare = 5 * time.Second // before the run limit of a worker's job
)

// add adds the job of a task, which stays.
func (c *crew) add(w *row, host string, limit time.Duration) *member {
	m := &member{N: w.N, Job: w.Job, Host: host, Slots: w.Slots, began: w.Submitted, limit: limit, given: w.N, givenAt: w.Submitted}
	c.members[m.N] = m
	return m
}

// ordered returns the workers in the order of their numbers.
func (c *crew) ordered() []*member {
	return slices.SortedFunc(maps.Values(c.members), func(a, b *member) int { return cmp.Compare(a.N, b.N) })
}

// on returns the worker that stands on a host, of several the first; nil: none.
func (c *crew) on(host string) (first *member) {
	for _, m := range c.members {
		if m.Host == host && !m.left && (first == nil || m.N < first.N) {
			first = m
		}
	}
	return first
}

// standing returns the number of workers.
func (c *crew) standing() int {
	n := 0
	for _, m := range c.members {
		if !m.left {
			n++
		}
	}
	return n
}

// place decides which worker is given a task for a host; nil: a new job gets it. stays reports
// whether that job stays: where another round may follow (more), the host has no worker, workers
// on it can reach asplit, and not too many stay.
func (c *crew) place(host string, more bool, now time.Time) (m *member, stays bool) {
	if m := c.on(host); m != nil {
		if m.given == 0 && !m.due(now) {
			return m, false
		}
		return nil, false
	}
	return nil, more && c.most > 0 && !now.Before(c.barred[host]) && c.standing() < c.most
}

// give gives a worker a task.
func (m *member) give(n int64, now time.Time) { m.given, m.givenAt, m.sentAt = n, now, time.Time{} }

// abandon has a worker end its task, which was executed elsewhere, and reports whether the worker can get
// that order: it has been heard, and stays.
func (m *member) abandon(n int64) bool {
	if !m.heard || m.left {
		return false
	}
	m.drop, m.sentAt = n, time.Time{}
	return true
}

// ask notes that an order was sent.
func (m *member) ask(now time.Time) {
	if m.asked.IsZero() {
		m.asked = now
	}
}

// Bounds of the time that a worker has to answer the order to end: one that has not ended what it was
// to drop may be on a lost host. The jobs of those that do not answer are killed.
const (
	byeTime  = 2 * time.Second
	dropTime = byeTime / 4
)

// mayAnswer reports whether it is worth while to wait for a worker's answer.
func (m *member) mayAnswer(now time.Time) bool {
	most := byeTime
	if m.drop != 0 {
		most = dropTime
	}
	return m.heard && now.Sub(m.asked) < most
}

// due reports whether a worker's job might reach its run limit in the next task.
func (m *member) due(now time.Time) bool {
	return m.limit > 0 && now.Add(2*m.longest+limitSpare).After(m.began.Add(m.limit))
}

// outgrown reports whether a host has at least twice the slots that its worker has.
func (m *member) outgrown(slots int) bool { return slots >= 2*m.Slots }

// need is what a run needs of its workers.
type need struct {
	more  bool                // items wait, or may come
	hosts map[string]struct{} // that take part
	slots func(host string) int
}

// release returns the workers that have nothing to do and are to end: nothing is left to do, their
// host takes no part any more, it has twice the room, or their job comes near its run limit.
func (c *crew) release(n need, now time.Time) (all []*member) {
	for _, m := range c.ordered() {
		if m.left || m.given != 0 {
			continue
		}
		if _, part := n.hosts[m.Host]; !n.more || !part || m.outgrown(n.slots(m.Host)) || m.due(now) {
			m.left = true
			m.ask(now)
			all = append(all, m)
		}
	}
	return all
}

// freed notes that a task has ended that a worker may have had.
func (c *crew) freed(w *row) {
	if m := c.members[w.Worker]; m != nil && m.given == w.N {
		m.given, m.longest = 0, max(m.longest, w.Took)
	}
}

// verdict is what follows from what a worker said.
type verdict struct {
	answer WorkerOrder
	back   int64 // the task that goes back to asplit; 0: none
}

// hear applies what a worker said. The answer to a worker that is not known is to end.
func (c *crew) hear(n int64, s WorkerState) verdict {
	v := verdict{answer: WorkerOrder{Run: s.Run, Seq: s.Seq}}
	m := c.members[n]
	if m == nil {
		v.answer.End = true
		return v
	}
	c.reached = true
	m.state, m.heard, m.asked = s, true, time.Time{}
	if s.Running > m.drop || s.Done >= m.drop {
		m.drop = 0
	}
	v.answer.Drop = m.drop
	switch {
	case s.Leaving == LeaveKill:
		m.left, m.awaiting = true, true
		if m.given > s.Done {
			v.back, m.given = m.given, 0
		}
		return v
	case s.Leaving == LeaveTold:
		m.left, m.ended = true, true
	case m.left && m.awaiting && c.on(m.Host) == nil: // its job was requeued and runs again
		m.left = false
	}
	m.awaiting = false
	if m.ended {
		v.answer.End = true
		return v
	}
	switch {
	case m.left:
		v.answer.End = true
	case m.given != 0 && m.given != m.N:
		v.answer.Take = m.given
	case s.Leaving == LeaveIdle && m.given == 0:
		v.answer.End, m.left, m.ended = true, true, true
	}
	return v
}

// orders returns the orders that are due: to workers that have not taken what they were given, or not
// ended what they are to drop.
func (c *crew) orders(now time.Time) map[int64]WorkerOrder {
	all := map[int64]WorkerOrder{}
	for _, m := range c.members {
		o := WorkerOrder{Run: m.state.Run, Seq: m.state.Seq, Drop: m.drop}
		if m.given != m.N && !m.state.has(m.given) {
			o.Take = m.given
		}
		if m.left || o.Take == 0 && o.Drop == 0 || now.Sub(m.sentAt) < orderEvery {
			continue
		}
		m.sentAt = now
		m.ask(now)
		all[m.N] = o
	}
	return all
}

// late returns the workers that have not taken what they were given in time. Their jobs are of
// no use.
func (c *crew) late(now time.Time) (all []*member) {
	for _, m := range c.ordered() {
		if !m.left && m.given != 0 && m.given != m.N && !m.state.has(m.given) && now.Sub(m.givenAt) > m.patience() {
			all = append(all, m)
		}
	}
	return all
}

// barTime is how long no worker is begun on a host from which the last one did not reach asplit: it
// may be a firewall, or a link that comes back.
const barTime = 5 * time.Minute

// lost notes that a worker is of no use, and reports whether it never reached asplit: no more
// workers are begun on its host for a while, nor on any if none ever did.
func (c *crew) lost(m *member, now time.Time) (unreachable bool) {
	m.left, m.given = true, 0
	if m.heard || m.restored {
		return false
	}
	c.barred[m.Host] = now.Add(barTime)
	if !c.reached {
		c.most = 0
	}
	return true
}
