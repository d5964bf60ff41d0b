package manager

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Modify changes jobs that have not started: of each job all of it or nothing.
// They keep their place in the FIFO, and their priority unless it is changed,
// too. Of a job that has started its run limit can be changed alone.
type Modify struct {
	By     By
	IDs    []backends.ID
	Change backends.Change
	Past   []PastEnd `json:",omitempty"` // by ID: those that Change's condition names
}

// modify gives the changed jobs of an array a common work, as they had before.
func (m *Manager) modify(e Modify) Result {
	changed := map[*work]*work{} // is only looked up in
	return forIDs(m, e.By, e.IDs, func(by By, j *job) error {
		if j.state != backends.Pending {
			return m.changeLimit(by, j, &e.Change, changed)
		}
		if err := m.mayChange(by, j, &e.Change); err != nil {
			return err
		}
		w, more := changed[j.work], int64(0)
		if w == nil {
			var err error
			if w, err = m.changedWork(j, &e.Change, e.Past); err != nil {
				return fmt.Errorf("job %s: %w", j.id, err)
			}
			more = max(0, specBytes(w.spec)-specBytes(j.work.spec))
			if err := m.checkBytes(by, j.user, more); err != nil {
				return fmt.Errorf("job %s: %w", j.id, err)
			}
		}
		if err := m.mayReplacePriority(j, &e.Change); err != nil {
			return err
		}
		changed[j.work] = w
		m.rework(j, w)
		j.bytes += more
		m.held[j.user] += more
		m.applyQueueAndPriority(j, &e.Change)
		m.review(j)
		m.retry = true
		return nil
	})
}

// changeLimit changes the run limit of a job that has started. A limit that is over by now ends
// the run. Where slots are kept for a job by the time that its run limit frees some (R37), only an
// administrator may have it hold them longer.
func (m *Manager) changeLimit(by By, j *job, c *backends.Change, changed map[*work]*work) error {
	switch {
	case !c.LimitOnly():
		return wrongState(j, "has started: its run limit alone can be changed")
	case j.ending != notEnding:
		return wrongState(j, "is being ended")
	case *c.RunLimit < 0:
		return fmt.Errorf("job %s: run limit %s: give a time above zero", j.id, *c.RunLimit)
	}
	limit := *c.RunLimit
	if k := m.overdueJob; k != nil && j.early == k && !by.Admin {
		if most := k.at.Sub(j.started) + j.ranBefore; limit == 0 || limit > most {
			return denied(j, fmt.Sprintf("its slots are kept for job %s, which has waited for long: only an administrator can give it more than %s in all", k.job.id, most.Truncate(time.Minute)))
		}
	}
	w := changed[j.work]
	if w == nil {
		spec := *j.work.spec
		spec.RunLimit = limit
		w = newWork(&spec)
		w.needs = j.work.needs
		changed[j.work] = w
	}
	m.beforeChange(j)
	if j.state == backends.Running {
		m.dropEarly(j)
		if j.work.spec.RunLimit > 0 {
			m.limited.remove(j)
		}
	}
	j.work = w
	if j.state == backends.Running {
		if limit > 0 {
			m.limited.Push(j)
		}
		m.addEarly(j)
	}
	if j.state == backends.Suspended && limit > 0 && j.ranBefore >= limit {
		m.endOverLimit(j)
	}
	m.expire(j)
	m.retry = true
	return nil
}

// changedWork returns the work of a changed job.
func (m *Manager) changedWork(j *job, c *backends.Change, past []PastEnd) (*work, error) {
	spec := *j.work.spec
	spec.Queue = j.queue // that it was submitted to may be gone
	c.Apply(&spec)
	spec.BeginTime, spec.Hosts = jsonTime(spec.BeginTime), unique(spec.Hosts)
	if spec.Slots == 0 {
		return nil, fmt.Errorf("%d slots: ask for 1 or more", spec.Slots)
	}
	if err := m.check(&spec); err != nil {
		return nil, err
	}
	w := newWork(&spec)
	w.needs = j.work.needs
	if c.After == nil {
		return w, nil
	}
	needs, err := m.parseCondition(j.user, spec.After, past)
	if err != nil {
		return nil, fmt.Errorf("dependency %q: %w", spec.After, err)
	}
	if needs != nil && slices.ContainsFunc(needs.leaves, func(l *leaf) bool { return l.Job == j.id.Job }) {
		return nil, fmt.Errorf("dependency %q: a job can't wait for itself", spec.After)
	}
	w.needs = needs
	return w, nil
}

// mayChange returns an error if a change would raise a job, unless by an admin.
func (m *Manager) mayChange(by By, j *job, c *backends.Change) error {
	to := m.queueNamed(j.queue)
	if c.Queue != nil {
		to = m.queueNamed(*c.Queue)
		if err := m.mayMove(by, j, to); err != nil {
			return err
		}
	}
	if c.Priority != nil && to != nil {
		return m.mayHavePriority(by, j, firstPriority(to, *c.Priority))
	}
	return nil
}

// mayReplacePriority returns an error if a change would replace a priority above the level of the
// job's queue, which an allocation gave it.
func (m *Manager) mayReplacePriority(j *job, c *backends.Change) error {
	if q := m.queueNamed(j.queue); c.Priority != nil && q != nil && j.base.Level() > q.Level {
		return wrongState(j, "has a place in the queue that its project's allocation gave it")
	}
	return nil
}

// rework gives a job its new work, and removes it from the old one's dependency.
func (m *Manager) rework(j *job, w *work) {
	m.beforeChange(j)
	old := j.work
	if m.overdueJob != nil && m.overdueJob.job == j {
		m.overdueJob = nil
	}
	if key := (nameKey{j.user, old.spec.Name}); old.spec.Name != w.spec.Name {
		if m.names[key] == j.id.Job {
			m.beforeRename(key)
			delete(m.names, key)
		}
		if w.spec.Name != "" {
			key.name = w.spec.Name
			m.beforeRename(key)
			m.names[key] = j.id.Job
		}
	}
	j.work = w
	if old.needs == w.needs {
		return
	}
	if c := old.needs; c != nil {
		c.open--
		c.jobs = slices.DeleteFunc(c.jobs, func(other *job) bool { return other == j })
	}
	m.awaitDependencies(j)
}

// applyQueueAndPriority puts a job into the queue, and to the priority, that a change names.
func (m *Manager) applyQueueAndPriority(j *job, c *backends.Change) {
	if c.Queue != nil {
		m.moveTo(j, m.queueNamed(*c.Queue))
	}
	if c.Priority != nil {
		m.setPriority(j, firstPriority(m.queueNamed(j.queue), *c.Priority))
	}
}

// Spec returns what the manager knows of a job's submission now.
func (m *Manager) Spec(id backends.ID) (spec backends.Spec, known bool) {
	jobs := m.find(id)
	if len(jobs) == 0 {
		return spec, false
	}
	spec = *jobs[0].work.spec
	spec.Queue = jobs[0].queue
	return spec, true
}

// Queues lists the queues; the first one is for jobs that name none.
func (m *Manager) Queues() []backends.Queue {
	var all []backends.Queue
	for i, q := range m.cfg.Queues {
		all = append(all, backends.Queue{Name: q.Name, Level: q.Level, Default: i == 0})
	}
	return all
}
