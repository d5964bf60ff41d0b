package manager

import (
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Exit codes of jobs whose own one is not known.
const (
	killedExit  = 128 + 15
	noStartExit = 126
	lostExit    = 255
)

// retryStart is the pause after a start that failed; the second one is longer.
const retryStart = 10 * time.Second

// start begins a run.
func (m *Manager) start(j *job, placed []backends.Placement) {
	m.beforeChange(j)
	j.state, j.hosts, j.ranBefore = backends.Running, placed, 0
	if j.run++; j.run == 1 && j.array != nil {
		j.array.begun++
	}
	j.confirmed, j.parked, j.ending = false, false, notEnding
	j.heldUntil, j.retryAt = time.Time{}, time.Time{}
	m.begin(j)
	m.bookRun(j, 1)
	m.unreserve(j)
	m.review(j)
	m.wakeDependents(j)
	m.emit(m.startRun(j))
}

func (m *Manager) startRun(j *job) StartRun {
	return StartRun{ID: j.id, Run: j.run, User: j.user, Hosts: j.hosts, Requeues: j.requeues, Restarted: j.restarted, Queue: j.queue, At: j.started, Spec: j.work.spec}
}

// begin counts run time from now. No two runs of a job have the same start: an Act names
// a run by it. A last start that is further ahead is of a wrong clock.
func (m *Manager) begin(j *job) {
	m.beforeChange(j)
	if ahead := j.started.Sub(m.now); ahead >= 0 && ahead < time.Millisecond {
		j.started = j.started.Add(1)
	} else {
		j.started = m.now
	}
	m.occupy(j)
	if j.work.spec.RunLimit > 0 {
		m.limited.Push(j)
	}
}

// pause counts no more run time.
func (m *Manager) pause(j *job) {
	m.beforeChange(j)
	m.dropEarly(j)
	if j.work.spec.RunLimit > 0 {
		m.limited.remove(j)
	}
	j.ranBefore = max(0, j.ranBefore+m.now.Sub(j.started))
}

// freeStopped frees the slots of a run that has stopped.
func (m *Manager) freeStopped(j *job) {
	m.beforeChange(j)
	j.stopBy = time.Time{}
	m.vacate(j)
}

// resumeRun resumes a suspended job, whose slots are free.
func (m *Manager) resumeRun(j *job) {
	m.beforeChange(j)
	j.state, j.heldUntil = backends.Running, time.Time{}
	m.begin(j)
	m.review(j)
	m.emit(ContinueRun{j.id, j.run})
}

// end asks for the end of a run's processes, which may be asked to save their work first. Its
// slots are taken until they are gone.
func (m *Manager) end(j *job, why ending, grace time.Duration, save backends.Checkpoint) {
	m.beforeChange(j)
	j.ending, j.grace, j.killedAt, j.save = why, grace, m.now, save
	m.emit(KillRun{j.id, j.run, grace, save, why == requeued})
	m.review(j)
}

// releaseRun releases all that a run held.
func (m *Manager) releaseRun(j *job) {
	m.beforeChange(j)
	if j.holdsSlots() {
		m.vacate(j)
	}
	if j.state == backends.Running {
		m.pause(j)
	}
	j.stopBy = time.Time{}
	m.bookRun(j, -1)
	m.retry = true
	j.ending, j.save = notEnding, backends.Checkpoint{}
}

// makePending makes a job pending again, in its old place.
func (m *Manager) makePending(j *job) {
	m.releaseRun(j)
	j.state, j.hosts, j.ranBefore, j.parked = backends.Pending, nil, 0, false
	m.review(j)
}

// finish ends a job's life.
func (m *Manager) finish(j *job, exitCode int, self bool, reason string) {
	m.beforeChange(j)
	j.state = backends.Exited
	if exitCode == 0 && self {
		j.state = backends.Done
	}
	j.exitCode, j.reason, j.ended = exitCode, reason, m.now
	m.unreserve(j)
	m.review(j)
	m.unlink(j)
	m.addEnded(j)
	if j.array != nil {
		j.array.left--
		if j.state == backends.Exited {
			if j.array.failed++; j.array.failed == 1 {
				j.array.firstCode = exitCode
			}
		}
	}
	if j.work.needs != nil {
		j.work.needs.jobEnded()
	}
	m.wakeDependents(j)
	m.emit(Finished{m.view(j, m.now), m.viewArray(j)})
}

// running returns the job of a run that is alive.
func (m *Manager) running(id backends.ID, run int) (*job, error) {
	j := m.jobs[id]
	if j == nil {
		return nil, fmt.Errorf("run %d of job %s: %w", run, id, backends.ErrUnknownJob)
	}
	if !j.live() || j.run != run {
		return nil, fmt.Errorf("run %d of job %s is not its run now: %w", run, id, backends.ErrWrongState)
	}
	return j, nil
}

func (m *Manager) runStarted(e Started) error {
	j, err := m.running(e.ID, e.Run)
	if err == nil {
		m.beforeChange(j)
		j.confirmed, j.failures = true, 0
	}
	return err
}

func (m *Manager) runStopped(e Stopped) error {
	j, err := m.running(e.ID, e.Run)
	if err == nil && !j.stopBy.IsZero() {
		m.freeStopped(j)
		m.review(j)
	}
	return err
}

func (m *Manager) startFailed(e StartFailed) error {
	j, err := m.running(e.ID, e.Run)
	if err != nil {
		return err
	}
	m.beforeChange(j)
	e.Reason = strings.ToValidUTF8(e.Reason, "\uFFFD")
	why := j.ending
	switch {
	case e.PreExec != 0 && why == notEnding:
		j.preFailures++
	case e.PreExec == 0 && !e.Again:
		j.failures++
	}
	switch {
	case why == killed || why == overLimit:
		m.releaseRun(j)
		m.finish(j, killedExit, false, "killed before it started")
	case j.preFailures > 0 && (e.PreExec == ExitCancel || j.preFailures >= MaxPreExec):
		m.releaseRun(j)
		m.finish(j, e.PreExec, false, fmt.Sprintf("did not begin, %d time(s): %s", j.preFailures, e.Reason))
	case j.failures >= MaxStarts:
		m.releaseRun(j)
		m.finish(j, noStartExit, false, fmt.Sprintf("could not be started, %d times: %s", j.failures, e.Reason))
	default:
		if why == requeued {
			j.requeues++
		}
		if why == notEnding || e.PreExec == 0 {
			j.retryAt = m.now.Add(time.Duration(max(j.failures, j.preFailures, 1)) * retryStart)
			m.emit(Notice{j.id, 0, "could not be started: " + e.Reason})
		}
		m.makePending(j)
	}
	return nil
}

func (m *Manager) runEnded(e Ended) error {
	j, err := m.running(e.ID, e.Run)
	if err != nil {
		return err
	}
	e.Reason = strings.ToValidUTF8(e.Reason, "\uFFFD")
	why := j.ending
	switch {
	case why == notEnding || why != requeued && e.Self || why == requeued && j.hasFinished(e):
		m.releaseRun(j)
		m.finish(j, e.ExitCode, true, e.Reason)
	case why == requeued:
		m.beforeChange(j)
		j.requeues++
		j.preFailures = 0
		if !e.Unbegun {
			m.judgeSave(j, j.hasSaved(e), howEnded(e))
		}
		m.makePending(j)
	default:
		m.releaseRun(j)
		code := e.ExitCode
		if code == 0 {
			code = killedExit
		}
		reason := "killed"
		if why == overLimit {
			reason = "over its run limit of " + j.work.spec.RunLimit.String()
		}
		m.finish(j, code, false, reason)
	}
	return nil
}

func (m *Manager) runLost(e RunLost) error {
	j, err := m.running(e.ID, e.Run)
	if err != nil {
		return err
	}
	e.Reason = strings.ToValidUTF8(e.Reason, "\uFFFD")
	why := j.ending
	switch {
	case why == killed || why == overLimit:
		m.releaseRun(j)
		m.finish(j, killedExit, false, "killed; how it ended was not seen: "+e.Reason)
	case why == requeued || j.work.spec.Rerunnable:
		m.beforeChange(j)
		j.requeues++
		m.judgeSave(j, false, e.Reason)
		m.emit(Notice{j.id, 0, "run again: " + e.Reason})
		m.makePending(j)
	default:
		m.releaseRun(j)
		m.finish(j, lostExit, false, "exit unknown: "+e.Reason)
	}
	return nil
}

// Runs lists the runs that are alive, in order of submission.
func (m *Manager) Runs() []Run {
	var runs []Run
	for j := m.first; j != nil; j = j.next {
		if j.live() {
			runs = append(runs, m.runOf(j))
		}
	}
	return runs
}

// Run returns a run that is alive; false: it is not.
func (m *Manager) Run(id backends.ID, run int) (Run, bool) {
	j, err := m.running(id, run)
	if err != nil {
		return Run{}, false
	}
	return m.runOf(j), true
}

func (m *Manager) runOf(j *job) Run {
	r := Run{StartRun: m.startRun(j), Confirmed: j.confirmed, Stopped: j.state == backends.Suspended}
	if j.ending != notEnding {
		r.Killing, r.Requeued, r.Grace, r.Save, r.KilledAt, r.Stopped = true, j.ending == requeued, j.grace, j.save, j.killedAt, false
	}
	return r
}
