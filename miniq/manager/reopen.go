package manager

import (
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Reopen puts jobs that have ended, and are still in memory, back into the queue (brequeue -e and
// -d): behind all others, under their IDs, with the number of their next run. What other jobs have
// learned of their earlier end stays so. What they waited for themselves counts no more.
type Reopen struct {
	By  By
	IDs []backends.ID // that of an array stands for those of its elements that have ended
}

func (m *Manager) reopen(e Reopen) Result {
	errs := make(backends.Errors, len(e.IDs))
	works := map[*work]*work{} // without their dependency; is only looked up in
	for i, id := range e.IDs {
		jobs := m.find(id)
		if len(jobs) == 0 {
			errs[i] = m.unknownJob(id)
			continue
		}
		reopened := false
		for _, j := range jobs {
			err := m.reopenOne(e.By, j, works)
			if reopened = reopened || err == nil; errs[i] == nil {
				errs[i] = err
			}
		}
		if reopened {
			errs[i] = nil
		}
	}
	return Result{Errors: errs}
}

func (m *Manager) reopenOne(by By, j *job, works map[*work]*work) error {
	if err := m.mayReopen(by, j); err != nil {
		return err
	}
	m.removeEnded(j)
	if a := j.array; a != nil {
		a.left++
		if j.state == backends.Exited {
			a.failed--
		}
	}
	if j.work.spec.After != "" {
		if works[j.work] == nil {
			spec := *j.work.spec
			spec.After = ""
			works[j.work] = newWork(&spec)
		}
		j.work = works[j.work]
	}
	m.seq++
	j.seq, j.turn, j.endSeq, j.weight = m.seq, m.seq, 0, 0
	j.state, j.submitted, j.hosts, j.ranBefore = backends.Pending, m.now, nil, 0
	j.ended, j.exitCode, j.reason, j.mark = time.Time{}, 0, "", ""
	j.base, j.aged, j.ageing = m.reopenedPriority(j), 0, false
	j.heldUntil, j.retryAt, j.killedAt, j.failures, j.preFailures = time.Time{}, time.Time{}, time.Time{}, 0, 0
	j.pinned, j.shares, j.pinEnds = nil, nil, time.Time{}
	j.ownerHold, j.parked, j.confirmed, j.restarted, j.failedSaves = false, false, false, false, 0
	j.requeues++
	m.link(j)
	m.review(j)
	m.retry = true
	m.emit(Reopened{j.id, by.User})
	return nil
}

// mayReopen returns an error if a job can't be put back into the queue.
func (m *Manager) mayReopen(by By, j *job) error {
	spec := *j.work.spec
	spec.Queue = j.queue
	switch {
	case !by.Admin && by.User != j.user:
		return denied(j, "it is another user's")
	case !j.state.Ended():
		return wrongState(j, "has not ended")
	case j.dummyFor != backends.ID{}:
		return wrongState(j, "is a dummy job")
	case spec.NoRequeue:
		return denied(j, "it was submitted as one that must not be requeued")
	case spec.Interactive:
		return denied(j, "its owner waited for it at a terminal: submit it again")
	case j.run == 0 && spec.After != "":
		return wrongState(j, "ended before the jobs that it was to wait for: submit it again")
	}
	if err := m.checkJobCount(by, nil); err != nil {
		return err
	}
	if err := m.checkBytes(by, j.user, j.bytes); err != nil {
		return err
	}
	return m.check(&spec)
}

// reopenedPriority returns what the job would begin with if its user submitted it now: a level above
// that of normal jobs was the policy's for then.
func (m *Manager) reopenedPriority(j *job) backends.Priority {
	p := j.work.spec.Priority
	if p.Level() > backends.LevelNormal {
		p = backends.At(backends.LevelNormal, min(p.Value(), backends.DefaultValue))
	}
	return firstPriority(m.queueNamed(j.queue), p)
}
