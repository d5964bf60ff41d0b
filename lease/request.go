package lease

import (
	"cmp"
	"slices"
)

// holder is a requester that has jobs. One without a job is not known.
type holder struct {
	name     string
	jobs     []*job // by number
	requests map[string]*request
	held     int // slots that it holds and waits for
}

// job is what a holder's requests name.
type job struct {
	number uint64
	holder *holder
	limit  int
	held   int      // slots that it holds and waits for
	leases []*lease // in no order
}

// request is one that waits for slots.
type request struct {
	id            string
	job           *job
	priority      int
	slots         int // that it waits for
	milli, memory int64
	postBack      string
	task          string

	seq    uint64
	share  int64 // milli-cores of a worker more that a slot uses up; 0: it would not hold one
	parked bool  // it is in Manager.parked, else in Manager.waiting
	at     int   // its place there
}

// order is the order of requests (R52): the higher priority, the lower job, the one that came
// first.
func order(a, b *request) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.job.number, b.job.number), cmp.Compare(a.seq, b.seq))
}

func (m *Manager) openJob(e OpenJob) error {
	if err := checkName("holder", e.Holder); err != nil {
		return err
	}
	h := m.holders[e.Holder]
	switch {
	case e.Limit < 0:
		return invalid("a job's limit of %d slots", e.Limit)
	case h == nil && len(m.holders) >= m.limits.Holders:
		return overLimit("%d holders have jobs", len(m.holders))
	case h != nil && len(h.jobs) >= m.limits.Jobs:
		return overLimit("holder %q has %d jobs", e.Holder, len(h.jobs))
	}
	if h == nil {
		h = &holder{name: e.Holder, requests: map[string]*request{}}
		m.holders[h.name] = h
	}
	m.lastJob++
	j := &job{number: m.lastJob, holder: h, limit: e.Limit}
	if j.limit == 0 || j.limit > m.limits.Held {
		j.limit = m.limits.Held
	}
	h.jobs = append(h.jobs, j)
	m.jobs[j.number] = j
	m.emit(JobOpened{h.name, j.number, j.limit})
	return nil
}

// jobOf returns a job if it is the holder's.
func (m *Manager) jobOf(holder string, number uint64) (*job, error) {
	j := m.jobs[number]
	if j == nil || j.holder.name != holder {
		return nil, unknown("job %d of holder %.60q", number, holder)
	}
	return j, nil
}

func (m *Manager) closeJob(e CloseJob) error {
	j, err := m.jobOf(e.Holder, e.Job)
	if err != nil {
		return err
	}
	m.endJob(j, JobClosed)
	return nil
}

func (m *Manager) endJob(j *job, why Why) {
	h := j.holder
	for _, r := range h.requests { // in any order: no action comes of one
		if r.job == j {
			m.drop(r)
		}
	}
	for _, l := range inOrder(j.leases) {
		m.end(l, why)
	}
	delete(m.jobs, j.number)
	h.jobs = slices.DeleteFunc(h.jobs, func(other *job) bool { return other == j })
	if len(h.jobs) == 0 {
		delete(m.holders, h.name)
	}
}

func (m *Manager) holderGone(e HolderGone) error {
	h := m.holders[e.Holder]
	if h == nil {
		return unknown("holder %.60q", e.Holder)
	}
	for _, j := range slices.Clone(h.jobs) {
		m.endJob(j, HolderLost)
	}
	return nil
}

// request takes a request, or refuses it at once (R50). The job's limit counts what waits, too: a
// requester that keeps to it is never refused, and one that does not can't hold more.
func (m *Manager) request(e Request) error {
	j, err := m.jobOf(e.Holder, e.Job)
	if err != nil {
		return err
	}
	if err := checkName("request", e.ID); err != nil {
		return err
	}
	h := j.holder
	switch {
	case e.Slots < 1:
		return invalid("a request for %d slots", e.Slots)
	case e.Milli < 1 || e.Milli > MaxMilli:
		return invalid("a slot of %d milli-cores: want 1 to %d", e.Milli, MaxMilli)
	case e.Memory < 0 || e.Memory > MaxMemory:
		return invalid("a slot of %d bytes of memory: want 0 to %d", e.Memory, int64(MaxMemory))
	case len(e.PostBack) > MaxPostBack:
		return invalid("%d bytes say where to post back: at most %d", len(e.PostBack), MaxPostBack)
	case len(e.Task) > MaxTask:
		return invalid("a task of %d bytes: at most %d", len(e.Task), MaxTask)
	case e.Task != "" && (e.Slots > 1 || e.PostBack != ""):
		return invalid("a task for %d slots that posts back to %.60q: want one slot, and its result comes to the holder", e.Slots, e.PostBack)
	case h.requests[e.ID] != nil:
		return taken("request %q", e.ID)
	case e.Slots > m.limits.Slots:
		return overLimit("a request for %d slots: at most %d", e.Slots, m.limits.Slots)
	case j.held+e.Slots > j.limit:
		return overLimit("job %d may hold %d slots and has %d, with those that it waits for", j.number, j.limit, j.held)
	case h.held+e.Slots > m.limits.Held:
		return overLimit("holder %q may hold %d slots and has %d, with those that it waits for", h.name, m.limits.Held, h.held)
	case len(h.requests) >= m.limits.Each:
		return overLimit("%d requests of holder %q wait", len(h.requests), h.name)
	case m.waits >= m.limits.Waiting:
		return overLimit("%d requests wait", m.waits)
	case m.tasks+len(e.Task) > m.limits.Tasks:
		return overLimit("tasks of %d bytes wait", m.tasks)
	}
	m.seq++
	r := &request{
		id: e.ID, job: j, priority: e.Priority, slots: e.Slots, milli: int64(e.Milli), memory: e.Memory,
		postBack: e.PostBack, task: e.Task, seq: m.seq,
	}
	h.requests[r.id] = r
	h.held += r.slots
	j.held += r.slots
	m.waits++
	m.tasks += len(r.task)
	r.share = m.limits.share(r.milli, r.memory)
	m.wanted += int64(r.slots) * r.share
	m.waiting.Push(r)
	m.emit(Acknowledge{h.name, r.id})
	return nil
}

func (m *Manager) cancel(e Cancel) error {
	h := m.holders[e.Holder]
	if h == nil || h.requests[e.ID] == nil {
		return unknown("request %.60q of holder %.60q", e.ID, e.Holder)
	}
	m.drop(h.requests[e.ID])
	return nil
}

// lower notes that a request waits for fewer slots.
func (m *Manager) lower(r *request, slots int) {
	r.slots -= slots
	m.wanted -= int64(slots) * r.share
}

// drop ends a request that waits for slots.
func (m *Manager) drop(r *request) {
	r.job.held -= r.slots
	r.job.holder.held -= r.slots
	m.lower(r, r.slots)
	m.remove(r)
}

// remove takes a request out of those that wait.
func (m *Manager) remove(r *request) {
	delete(r.job.holder.requests, r.id)
	m.waits--
	m.tasks -= len(r.task)
	r.task = ""
	if !r.parked {
		m.waiting.Remove(r.at)
		return
	}
	m.unpark(r)
}

// park puts a request aside that no present worker could hold.
func (m *Manager) park(r *request) {
	m.waiting.Remove(r.at)
	r.parked, r.at = true, len(m.parked)
	m.parked = append(m.parked, r)
}

func (m *Manager) unpark(r *request) {
	m.parked = takeOut(m.parked, r.at, func(r *request, at int) { r.at = at })
	r.parked = false
}
