package manager

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Snapshot returns the snapshot for backends.Backend.Snapshot. Priorities are those of now; all
// else is as the last step left it, which WakeAt keeps true.
func (m *Manager) Snapshot(now, endedSince time.Time) *backends.Snapshot {
	now = m.notBefore(now)
	f := &backends.Snapshot{At: now, Jobs: make([]backends.Job, 0, len(m.jobs)-m.ended.count)}
	f.Hosts, f.Guaranteed = m.Hosts(), m.Guaranteed(now)
	for _, j := range m.inTurn() {
		f.Jobs = append(f.Jobs, m.view(j, now))
	}
	for _, j := range m.endedSince(endedSince) {
		f.Ended = append(f.Ended, m.view(j, now))
	}
	return f
}

// inTurn returns the jobs that have not ended, in the order of the queue's FIFO.
func (m *Manager) inTurn() []*job {
	jobs, sorted := make([]*job, 0, m.Open()), true
	for j := m.first; j != nil; j = j.next {
		sorted = sorted && j.turn == j.seq
		jobs = append(jobs, j)
	}
	if !sorted {
		slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.turn, b.turn) })
	}
	return jobs
}

// Hosts lists the hosts, by name.
func (m *Manager) Hosts() []backends.Host {
	var hosts []backends.Host
	for _, h := range m.hosts {
		hosts = append(hosts, h.view())
	}
	return hosts
}

// Open returns how many jobs have not ended.
func (m *Manager) Open() int { return len(m.jobs) - m.ended.count }

// Jobs returns the jobs for backends.Backend.Jobs.
func (m *Manager) Jobs(now time.Time, ids []backends.ID) []backends.Job {
	return m.AppendJobs(nil, now, ids)
}

// AppendJobs appends to jobs what Jobs returns.
func (m *Manager) AppendJobs(jobs []backends.Job, now time.Time, ids []backends.ID) []backends.Job {
	now = m.notBefore(now)
	jobs = slices.Grow(jobs, len(ids))
	for _, id := range ids {
		if j := m.jobs[id]; j != nil {
			jobs = append(jobs, m.view(j, now))
			continue
		}
		for _, j := range m.find(id) {
			jobs = append(jobs, m.view(j, now))
		}
	}
	return jobs
}

// EndedFrom returns at most limit jobs that ended at a time or later, in the order of
// their ends, without those that are known.
func (m *Manager) EndedFrom(now, from time.Time, limit int, known func(backends.ID) bool) []backends.Job {
	now = m.notBefore(now)
	var jobs []backends.Job
	for _, j := range m.endedSince(from) {
		if len(jobs) == limit {
			break
		}
		if !known(j.id) {
			jobs = append(jobs, m.view(j, now))
		}
	}
	return jobs
}

// Count returns how many jobs Jobs would return.
func (m *Manager) Count(ids []backends.ID) int {
	n := 0
	for _, id := range ids {
		n += len(m.find(id))
	}
	return n
}

// Unended returns how many jobs of an ID have not ended; an array's ID stands for its
// elements.
func (m *Manager) Unended(id backends.ID) int {
	if j := m.jobs[id]; j == nil {
		if a := m.arrays[id.Job]; a != nil && id.Index == 0 {
			return a.left
		}
	} else if !j.state.Ended() {
		return 1
	}
	return 0
}

func (m *Manager) notBefore(now time.Time) time.Time {
	if now = jsonTime(now); now.Before(m.now) {
		return m.now
	}
	return now
}

func (h *host) view() backends.Host {
	v := backends.Host{Name: h.name, Slots: h.slots, Memory: h.memory, State: backends.HostUp, Has: h.has, Features: h.features}
	if h.closed {
		v.State = backends.HostClosed
	}
	if s := h.shut; s != nil {
		v.State = backends.HostClosed
		v.Reason = fmt.Sprintf("closed by %s at %s", s.By, s.At.UTC().Format("2006-01-02 15:04 UTC"))
		if s.Reason != "" {
			v.Reason += ": " + s.Reason
		}
	}
	if h.down {
		v.State = backends.HostDown
	}
	return v
}

// view returns a job as clients see it.
func (m *Manager) view(j *job, now time.Time) backends.Job {
	s := j.work.spec
	v := backends.Job{
		ID: j.id, Name: s.Name, User: j.user, Project: j.work.project, Step: j.work.step, Queue: j.queue, Group: s.Group, Tag: j.work.tag,
		State: j.state, Priority: m.priority(j, now), Slots: s.Slots, Memory: s.Memory, OneHost: j.work.oneHost(), PerHost: j.work.perHost(),
		Needs: s.Needs, Suits: m.suits(j.work),
		Hosts: slices.Clip(j.hosts), Asked: slices.Clip(s.Hosts), Pinned: slices.Clip(j.pinned), Shares: slices.Clip(j.shares), PinEnds: j.pinEnds, // lists are replaced, never changed
		Submitted: j.submitted, Ended: j.ended, RunLimit: s.RunLimit, RanFor: j.ranBefore, BeginTime: s.BeginTime,
		HeldUntil: j.heldUntil, Requeues: j.requeues, FailedSaves: j.failedSaves, Mark: j.mark, ExitCode: j.exitCode, Reason: j.reason,
		DummyFor: j.dummyFor, NoRequeue: s.NoRequeue, Interactive: s.Interactive, Exclusive: s.Exclusive, Resuming: j.resuming(m.now),
		Ending: j.state == backends.Running && j.ending != notEnding,
	}
	if len(j.hosts) > 0 {
		v.Started = j.started
	}
	if j.notes != nil {
		v.Progress = j.notes.Progress
	}
	switch j.state {
	case backends.Pending:
		v.Unserved = m.unserved(j.work, s.Hosts)
		if m.overdueJob != nil && m.overdueJob.job == j {
			v.Keeps = m.overdueJob.hosts()
		}
		v.Wait, v.Reason = m.waitReason(j)
		if j.ownerHold {
			v.State, v.Wait, v.Reason = backends.Held, backends.WaitOther, "held by its owner"
		}
	case backends.Running, backends.Suspended:
		v.Reason = m.runReason(j)
	case backends.Held, backends.Done, backends.Exited:
	}
	return v
}

// viewArray returns a job's array as a whole when all of it has ended; nil: it has not,
// or there is none.
func (m *Manager) viewArray(j *job) *backends.Job {
	a := j.array
	if a == nil || a.left > 0 {
		return nil
	}
	v := m.view(j, m.now)
	v.ID.Index, v.State, v.ExitCode, v.Reason = 0, backends.Done, 0, ""
	v.Hosts, v.Started, v.RanFor, v.Progress = nil, time.Time{}, 0, ""
	if a.failed > 0 {
		v.State, v.ExitCode = backends.Exited, a.firstCode
		v.Reason = fmt.Sprintf("%d of its %d elements failed", a.failed, a.size)
	}
	return &v
}

// waitReason says what a pending job waits for.
func (m *Manager) waitReason(j *job) (backends.Wait, string) {
	switch at := j.startAt(); {
	case j.waitList == inShape && !j.shape.able:
		return backends.WaitOther, "no host that takes jobs now could hold it"
	case j.waitList == inShape:
		return backends.WaitResources, "waits for " + m.waitsFor(j.work)
	case j.waitList == inThrottle:
		return backends.WaitThrottle, fmt.Sprintf("%d elements of its array may run at a time", j.array.limit)
	case at.After(m.now) && at.Equal(j.heldUntil) && m.satisfied(j): // a hold hides no dependency
		return backends.WaitTime, "held by an administrator until " + formatTime(at)
	case at.After(m.now) && at.Equal(j.retryAt) && j.preFailures > 0:
		return backends.WaitTime, fmt.Sprintf("its pre-execution command failed, %d of %d times; tried again at %s", j.preFailures, MaxPreExec, formatTime(at))
	case at.After(m.now) && at.Equal(j.retryAt):
		return backends.WaitTime, "could not be started; tried again at " + formatTime(at)
	case at.After(m.now) && !at.Equal(j.heldUntil):
		return backends.WaitTime, "begins at " + formatTime(at)
	case !m.satisfied(j) && j.work.needs.decided():
		return backends.WaitDependency, "its dependency can't come true any more"
	case !m.satisfied(j):
		return backends.WaitDependency, "waits for other jobs"
	}
	return backends.WaitOther, ""
}

// waitsFor says what a job that could start waits for.
func (m *Manager) waitsFor(w *work) string {
	memory := w.perSlot > 0 && !m.cfg.SlotsOnly
	switch needs := backends.FormatAmounts(w.spec.Needs); {
	case memory && needs != "":
		return "slots, memory and " + needs
	case memory:
		return "slots and memory"
	case needs != "":
		return "slots and " + needs
	}
	return "slots"
}

// runReason says why a job that has a run does not go on as usual.
func (m *Manager) runReason(j *job) string {
	switch {
	case j.ending == requeued && j.save.OnDemand():
		return "saves its work, and is being requeued"
	case j.ending == requeued:
		return "is being requeued"
	case j.ending == killed:
		return "is being killed"
	case j.ending == overLimit:
		return "is over its run limit"
	case j.state == backends.Running:
		return ""
	case j.parked:
		return "suspended until it is resumed"
	case j.heldUntil.After(m.now):
		return "suspended until " + formatTime(j.heldUntil)
	}
	return "goes on as soon as its slots are free"
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
