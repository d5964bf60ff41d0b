package manager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// wrongState returns the error for what a job's state does not allow.
func wrongState(j *job, why string) error {
	return fmt.Errorf("job %s %s: %w", j.id, why, backends.ErrWrongState)
}

func denied(j *job, why string) error {
	return fmt.Errorf("job %s: %s: %w", j.id, why, backends.ErrDenied)
}

// forEach calls do for the jobs of each element of a batch. The ID of an array stands
// for those of its elements that have not ended; it succeeds if do did for one of them.
func forEach[T any](m *Manager, by By, batch []T, id func(T) backends.ID, do func(T, *job) error) Result {
	errs := make(backends.Errors, len(batch))
	for i, element := range batch {
		jobs := m.find(id(element))
		if len(jobs) == 0 {
			errs[i] = m.unknownJob(id(element))
			continue
		}
		errs[i] = m.forSome(by, jobs, func(j *job) error { return do(element, j) })
	}
	return Result{Errors: errs}
}

func (m *Manager) forSome(by By, jobs []*job, do func(*job) error) error {
	var first error
	succeeded := false
	for _, j := range jobs {
		err := doPermitted(by, j, do)
		succeeded = succeeded || err == nil
		if first == nil {
			first = err
		}
	}
	if succeeded {
		return nil
	}
	return first
}

func doPermitted(by By, j *job, do func(*job) error) error {
	if !by.Admin && by.User != j.user {
		return denied(j, "it is another user's")
	}
	if j.state.Ended() {
		return wrongState(j, "has ended")
	}
	return do(j)
}

func forIDs(m *Manager, by By, ids []backends.ID, do func(By, *job) error) Result {
	same := func(id backends.ID) backends.ID { return id }
	return forEach(m, by, ids, same, func(_ backends.ID, j *job) error { return do(by, j) })
}

// find returns the job of an ID, or an array's elements; nil: there is none.
func (m *Manager) find(id backends.ID) []*job {
	if j := m.jobs[id]; j != nil {
		return []*job{j}
	}
	if a := m.arrays[id.Job]; a != nil && id.Index == 0 {
		return a.elements
	}
	return nil
}

func (m *Manager) kill(by By, j *job) error { return m.killWithin(by, j, m.cfg.KillGrace) }

func (m *Manager) killNow(by By, j *job) error { return m.killWithin(by, j, 0) }

func (m *Manager) killWithin(by By, j *job, grace time.Duration) error {
	user := strings.ToValidUTF8(by.User, "\uFFFD")
	switch {
	case !j.live():
		m.finish(j, killedExit, false, "killed by "+user+" before it started")
	case (j.ending == killed || j.ending == overLimit) && (grace > 0 || j.grace == 0):
	default:
		m.end(j, killed, grace, backends.Checkpoint{})
		m.emit(Notice{j.id, j.run, "killed by " + user})
	}
	return nil
}

func actID(a backends.Act) backends.ID { return a.ID }

// mayAct returns an error if an act is not allowed upon the run that it means.
func mayAct(by By, a backends.Act, j *job) error {
	switch {
	case !by.Admin && (a.Mark != "" || !a.Until.IsZero()):
		return denied(j, "only an administrator can mark it or hold it until a time")
	case !j.live():
		return wrongState(j, "does not run")
	case !a.Started.IsZero() && !a.Started.Equal(j.started):
		return wrongState(j, "is in another run by now")
	case j.ending == requeued:
		return wrongState(j, "is being requeued")
	case j.ending != notEnding:
		return wrongState(j, "is being killed")
	}
	return nil
}

// recordAct records what an act says about the job.
func (m *Manager) recordAct(a backends.Act, j *job) {
	m.beforeChange(j)
	if a.Mark != "" {
		j.mark = strings.ToValidUTF8(a.Mark, "\uFFFD")
	}
	if !a.Until.IsZero() {
		j.heldUntil = jsonTime(a.Until)
	}
	if a.Notice != "" {
		m.emit(Notice{j.id, j.run, a.Notice})
	}
}

func (m *Manager) requeue(e Requeue) Result {
	return forEach(m, e.By, e.Acts, actID, func(a backends.Act, j *job) error {
		if err := mayAct(e.By, a, j); err != nil {
			return err
		}
		if j.work.spec.NoRequeue {
			return denied(j, "it was submitted as one that must not be requeued")
		}
		if j.work.spec.Interactive {
			return denied(j, "its owner waits for it at a terminal")
		}
		save, err := m.saveOf(e.By, j, a)
		if err != nil {
			return err
		}
		m.recordAct(a, j)
		grace := max(0, a.Grace)
		if !e.By.Admin {
			grace = min(grace, m.cfg.KillGrace)
		}
		if save.OnDemand() {
			grace = save.Wait
		}
		m.end(j, requeued, grace, save)
		return nil
	})
}

func (m *Manager) suspend(e Suspend) Result {
	return forEach(m, e.By, e.Acts, actID, func(a backends.Act, j *job) error {
		if err := mayAct(e.By, a, j); err != nil {
			return err
		}
		if j.state == backends.Suspended && !j.resuming(m.now) {
			return wrongState(j, "is suspended already")
		}
		m.recordAct(a, j)
		j.parked = a.Until.IsZero()
		if j.state == backends.Running {
			m.pause(j)
			j.state = backends.Suspended
			m.emit(StopRun{j.id, j.run})
			if j.stopBy = m.now.Add(m.cfg.StopWait); m.cfg.StopWait <= 0 {
				m.freeStopped(j)
			}
		}
		m.review(j)
		return nil
	})
}

func (m *Manager) resume(by By, j *job) error {
	switch {
	case !j.live():
		return wrongState(j, "does not run")
	case j.ending != notEnding:
		return wrongState(j, "is being ended")
	case j.state == backends.Running:
		return nil
	}
	m.beforeChange(j)
	j.parked = false
	if by.Admin {
		j.heldUntil = time.Time{}
	}
	m.review(j)
	return nil
}

// hold is the owner's hold, and its release.
func (m *Manager) hold(j *job, held bool) error {
	switch {
	case j.live():
		return wrongState(j, "runs")
	case held && j.ownerHold:
		return wrongState(j, "is held already")
	case !held && !j.ownerHold:
		return wrongState(j, "is not held by its owner")
	}
	m.beforeChange(j)
	j.ownerHold = held
	m.review(j)
	return nil
}

// queued reports whether a job has a place in the queue: all but one that runs on.
func queued(j *job) bool { return j.state != backends.Running || j.ending == requeued }

func (m *Manager) setPriorities(e SetPriority) Result {
	id := func(r backends.PriorityChange) backends.ID { return r.ID }
	return forEach(m, e.By, e.Rankings, id, func(r backends.PriorityChange, j *job) error {
		level := r.Priority.Level()
		switch {
		case level < backends.LevelLow || level > backends.LevelHandOver:
			return fmt.Errorf("job %s: no such priority: %d", j.id, r.Priority)
		case !queued(j):
			return wrongState(j, "runs")
		}
		if err := m.mayHavePriority(e.By, j, r.Priority); err != nil {
			return err
		}
		m.setPriority(j, r.Priority)
		return nil
	})
}

// mayHavePriority returns an error if a priority would raise a job, unless by an admin.
func (m *Manager) mayHavePriority(by By, j *job, p backends.Priority) error {
	if now := m.priority(j, m.now); !by.Admin && p > now {
		return denied(j, fmt.Sprintf("only an administrator can raise its priority, which is %s %d", now.Level(), now.Value()))
	}
	return nil
}

// mayMove returns an error if a queue would raise a job, unless by an admin. A queue
// that is no longer in the config had the level that its jobs have.
func (m *Manager) mayMove(by By, j *job, to *Queue) error {
	level := j.base.Level()
	if from := m.queueNamed(j.queue); from != nil {
		level = from.Level
	}
	if !by.Admin && to != nil && to.Level > level {
		return denied(j, fmt.Sprintf("only an administrator can move it up, from queue %s to %s", j.queue, to.Name))
	}
	return nil
}

// setPriority writes a priority: it shows exactly so until the next tick.
func (m *Manager) setPriority(j *job, p backends.Priority) {
	m.beforeChange(j)
	if j.waitList == inShape {
		m.removeFromOrder(j)
		j.base = p
		m.addToOrder(j)
	} else {
		j.base = p
	}
	m.retry = true
}

func (m *Manager) knownHosts(names []string) error {
	for _, name := range names {
		if m.byName[name] == nil {
			return fmt.Errorf("no host is named %q: name some of: %s", name, m.hostNames())
		}
	}
	return nil
}

// hostNames returns a short list for an error.
func (m *Manager) hostNames() string {
	var names []string
	for _, h := range m.hosts[:min(len(m.hosts), 10)] {
		names = append(names, h.name)
	}
	if len(m.hosts) > len(names) {
		names = append(names, "…")
	}
	return strings.Join(names, " ")
}

// unique returns a host list without repetitions, in its own order.
func unique(names []string) []string {
	var all []string
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

func (m *Manager) pin(e Pin) Result {
	id := func(p backends.Pin) backends.ID { return p.ID }
	return forEach(m, e.By, e.Pins, id, func(p backends.Pin, j *job) error {
		if !e.By.Admin {
			return denied(j, "only an administrator can pin it")
		}
		if j.state != backends.Pending && j.ending != requeued {
			return wrongState(j, "runs")
		}
		if err := m.knownHosts(p.Hosts); err != nil {
			return fmt.Errorf("job %s: %w", j.id, err)
		}
		pinned := unique(p.Hosts)
		if err := checkShares(j, pinned, p); err != nil {
			return err
		}
		m.beforeChange(j)
		j.pinned, j.shares, j.pinEnds = pinned, slices.Clone(p.Slots), jsonTime(p.Until)
		m.review(j)
		m.retry = true
		return nil
	})
}

func checkShares(j *job, hosts []string, p backends.Pin) error {
	if len(p.Slots) == 0 {
		return nil
	}
	sum := 0
	for _, n := range p.Slots {
		if n <= 0 {
			return fmt.Errorf("job %s: a share of %d slots on a host makes no sense", j.id, n)
		}
		sum += n
	}
	if len(p.Slots) != len(p.Hosts) || len(hosts) != len(p.Hosts) || sum != j.work.spec.Slots || j.work.oneHost() && len(hosts) > 1 {
		return fmt.Errorf("job %s: its %d slots are not shared out among %d hosts by %v", j.id, j.work.spec.Slots, len(p.Hosts), p.Slots)
	}
	return nil
}

func (m *Manager) holdUntil(e HoldUntil) Result {
	id := func(h backends.HoldUntil) backends.ID { return h.ID }
	return forEach(m, e.By, e.Holds, id, func(h backends.HoldUntil, j *job) error {
		if !e.By.Admin {
			return denied(j, "only an administrator can hold it until a time")
		}
		if !queued(j) {
			return wrongState(j, "runs")
		}
		m.beforeChange(j)
		j.heldUntil = jsonTime(h.Until)
		m.review(j)
		return nil
	})
}

func (m *Manager) reserve(e Reserve) Result {
	id := func(r backends.Reservation) backends.ID { return r.ID }
	return forEach(m, e.By, e.Reservations, id, func(r backends.Reservation, j *job) error {
		if !e.By.Admin {
			return denied(j, "only an administrator can reserve for it")
		}
		if j.state != backends.Pending {
			return wrongState(j, "is not pending")
		}
		if err := m.knownHosts(r.Hosts); err != nil {
			return fmt.Errorf("job %s: %w", j.id, err)
		}
		m.beforeChange(j)
		m.unreserve(j)
		if until := jsonTime(r.Until); until.After(m.now) && len(r.Hosts) > 0 {
			j.reserve = &reservation{unique(r.Hosts), until}
			m.reservers = append(m.reservers, j)
		}
		m.review(j)
		return nil
	})
}

// unreserve takes a reservation back, if there is one.
func (m *Manager) unreserve(j *job) {
	if j.reserve == nil {
		return
	}
	m.beforeChange(j)
	j.reserve = nil
	i := slices.Index(m.reservers, j)
	m.reservers = slices.Delete(m.reservers, i, i+1)
	m.retry = true
}

func (m *Manager) move(e Move) Result {
	return forIDs(m, e.By, e.IDs, func(by By, j *job) error {
		to := m.queueNamed(e.Queue)
		switch {
		case to == nil:
			return fmt.Errorf("job %s: %w", j.id, m.noQueue(e.Queue))
		case !queued(j):
			return wrongState(j, "runs")
		}
		if err := m.mayMove(by, j, to); err != nil {
			return err
		}
		m.moveTo(j, to)
		return nil
	})
}

// moveTo puts a job into another queue. A priority of another level than that of the
// job's queue, such as PBA's, outlives the move.
func (m *Manager) moveTo(j *job, to *Queue) {
	m.beforeChange(j)
	from := m.queueNamed(j.queue)
	j.queue = to.Name
	if from == nil || j.base.Level() == from.Level {
		m.setPriority(j, backends.At(to.Level, m.priority(j, m.now).Value()))
	}
}

// queueNamed returns a queue, nil if there is none; the empty name is the default's.
func (m *Manager) queueNamed(name string) *Queue {
	for i := range m.cfg.Queues {
		if q := &m.cfg.Queues[i]; q.Name == name || name == "" {
			return q
		}
	}
	return nil
}

func (m *Manager) noQueue(name string) error {
	var names []string
	for _, q := range m.cfg.Queues {
		names = append(names, q.Name)
	}
	return fmt.Errorf("no queue is named %q: choose one of: %s", name, strings.Join(names, " "))
}
