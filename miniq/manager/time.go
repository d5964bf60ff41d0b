package manager

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/clock"
)

// jsonTime returns a time that is the same after it was written as JSON and read.
func jsonTime(t time.Time) time.Time { return t.Round(0).UTC() }

// advance lets time pass: all that was due by now happens.
func (m *Manager) advance(now time.Time) {
	if now = jsonTime(now); now.After(m.now) {
		m.now = now
	}
	for j := m.due.Top(); j != nil && !j.due.After(m.now); j = m.due.Top() {
		m.expire(j)
	}
	m.dropGuarantees()
	for _, at := range []time.Time{m.overdueNext, m.tickNext} {
		if !at.IsZero() && !at.After(m.now) {
			m.retry = true
		}
	}
}

// readClock takes a new reading of the clocks. Where the wall clock was set, every
// stamp that elapsed time is counted from goes with it: waits, holds, reservations,
// retries, kills. The start of a run stays, since an Act names the run by it: the time
// that the run has taken is corrected instead.
func (m *Manager) readClock(e ClockRead) {
	is := jsonTime(e.Now.Wall)
	m.clock = e.Now
	if e.Jump == 0 {
		m.advance(is)
		return
	}
	if e.Jump > 0 {
		m.ahead = Ahead{is, e.Jump}
	}
	m.advance(is.Add(-e.Jump)) // what came due before
	by := is.Sub(m.now)
	waiting := m.waiting()
	for _, j := range waiting {
		m.dequeue(j) // with what it gained by waiting
	}
	m.now = is
	move := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	for j := m.first; j != nil; j = j.next {
		m.beforeChange(j)
		for _, t := range []*time.Time{&j.heldUntil, &j.retryAt, &j.pinEnds, &j.killedAt, &j.stopBy, &j.waitSince} {
			move(t)
		}
		if j.reserve != nil {
			move(&j.reserve.until)
		}
		if j.state == backends.Running {
			j.ranBefore -= by
		}
	}
	for i := range m.guaranteed {
		move(&m.guaranteed[i].Until)
	}
	for j := m.ended.first; j != nil; j = j.next {
		if j.ended.After(m.now) {
			m.beforeChange(j)
			j.ended = m.now
		}
	}
	for _, j := range waiting {
		if m.review(j); j.waitList == notWaiting { // its begin time is ahead again
			m.beforeChange(j)
			j.waitSince = time.Time{}
		}
	}
	for j := m.first; j != nil; j = j.next {
		m.review(j)
	}
	m.retry = true
}

// Clock returns the reading of the last ClockRead.
func (m *Manager) Clock() clock.Reading { return m.clock }

// Ahead returns when the wall clock was last put ahead.
func (m *Manager) Ahead() Ahead { return m.ahead }

// Now returns the time of the last step.
func (m *Manager) Now() time.Time { return m.now }

// expire does what was due for a job.
func (m *Manager) expire(j *job) {
	if j.reserve != nil && !j.reserve.until.After(m.now) {
		m.unreserve(j)
	}
	if !j.stopBy.IsZero() && !j.stopBy.After(m.now) {
		m.freeStopped(j)
	}
	if at := j.limitAt(); !at.IsZero() && !at.After(m.now) && j.ending == notEnding {
		m.endOverLimit(j)
	}
	m.review(j)
}

func (m *Manager) endOverLimit(j *job) {
	m.end(j, overLimit, m.cfg.KillGrace, backends.Checkpoint{})
	m.emit(Notice{j.id, j.run, "killed: over its run limit of " + j.work.spec.RunLimit.String()})
}

// setDue finds the next instant at which something happens to a job by itself.
func (m *Manager) setDue(j *job) {
	var due time.Time
	sooner := func(t time.Time) {
		if t.After(m.now) && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	switch j.state {
	case backends.Pending:
		sooner(j.startAt())
		sooner(j.pinEnds)
		if j.reserve != nil {
			sooner(j.reserve.until)
		}
	case backends.Running:
		if j.ending == notEnding {
			sooner(j.limitAt())
		}
	case backends.Suspended:
		sooner(j.stopBy)
		if !j.parked && j.ending == notEnding {
			sooner(j.heldUntil)
		}
	case backends.Held, backends.Done, backends.Exited:
	}
	if due.Equal(j.due) {
		return
	}
	if !j.due.IsZero() {
		m.due.remove(j)
	}
	if j.due = due; !due.IsZero() {
		m.due.Push(j)
	}
}

// setWake asks for a tick at the next instant at which something changes by itself.
func (m *Manager) setWake() {
	m.setNextTimes()
	next := time.Time{}
	if j := m.due.Top(); j != nil {
		next = j.due
	}
	for _, at := range []time.Time{m.overdueNext, m.tickNext} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.Equal(m.wake) {
		m.wake = next
		m.emit(WakeAt{next})
	}
}

// setNextTimes finds when time alone will let a job start. Where no slot is free it
// can't.
func (m *Manager) setNextTimes() {
	m.overdueNext, m.tickNext = time.Time{}, time.Time{}
	for _, h := range m.hosts {
		if m.room(h).slots > 0 {
			m.overdueNext, m.tickNext = m.nextOverdue(), m.nextOvertaking()
			return
		}
	}
}

// Wake returns the time of the last WakeAt.
func (m *Manager) Wake() time.Time { return m.wake }

// review puts a job where it belongs after anything about it changed.
func (m *Manager) review(j *job) {
	if !j.heldUntil.IsZero() && !j.heldUntil.After(m.now) {
		m.beforeChange(j)
		j.heldUntil = time.Time{}
	}
	if !j.pinEnds.IsZero() && !j.pinEnds.After(m.now) && j.state == backends.Pending {
		m.beforeChange(j)
		j.pinned, j.shares, j.pinEnds, m.retry = nil, nil, time.Time{}, true
	}
	m.reviewWait(j)
	m.reviewResuming(j)
	m.setDue(j)
}

func (m *Manager) reviewWait(j *job) {
	startable := m.startable(j)
	want := notWaiting
	if startable {
		want = inShape
	}
	if throttled(j) {
		if j.admitted && !startable {
			m.beforeChange(j)
			j.admitted = false
			j.array.admitted--
		}
		if startable && !j.admitted {
			want = inThrottle
		}
	}
	if want != j.waitList || want == inShape && j.shape.key != m.keyOf(j) {
		m.moveToList(j, want)
	}
	if throttled(j) {
		m.admit(j.array)
	}
}

// startable reports whether a pending job waits for nothing but resources or its array.
func (m *Manager) startable(j *job) bool {
	return j.state == backends.Pending && !j.ownerHold && !j.startAt().After(m.now) && m.satisfied(j)
}

func throttled(j *job) bool { return j.array != nil && j.array.limit > 0 }

// moveToList moves a job to another wait list.
func (m *Manager) moveToList(j *job, want waitList) {
	switch j.waitList {
	case inShape:
		m.dequeue(j)
	case inThrottle:
		j.array.waiting.remove(j)
	case notWaiting:
	}
	j.waitList = want
	switch want {
	case inShape:
		m.enqueue(j)
	case inThrottle:
		j.array.waiting.Push(j)
	case notWaiting:
		if !j.waitSince.IsZero() {
			m.beforeChange(j)
			j.waitSince = time.Time{}
		}
	}
}

// admit lets as many elements of an array wait for slots as its limit leaves.
func (m *Manager) admit(a *array) {
	for a.active+a.admitted < a.limit && a.waiting.Len() > 0 {
		j := a.waiting.Top()
		m.beforeChange(j)
		j.admitted = true
		a.admitted++
		m.moveToList(j, inShape)
	}
}

func (m *Manager) reviewResuming(j *job) {
	want := j.resuming(m.now)
	if want == j.claims {
		return
	}
	j.claims, m.retry = want, true
	if want {
		m.resuming = append(m.resuming, j)
		return
	}
	i := slices.Index(m.resuming, j)
	m.resuming = slices.Delete(m.resuming, i, i+1)
}
