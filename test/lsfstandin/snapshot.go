package lsfstandin

import (
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// listing returns a snapshot of the queue.
func (q *queue) listing(now time.Time) *Listing {
	l := &Listing{Cluster: q.cfg.cluster(), Now: now, Hosts: []Host{{Name: q.cfg.Master, NCPUs: 2, MaxMem: q.memory()}}}
	rooms := map[string]*room{}
	for _, h := range q.cfg.Hosts {
		l.Hosts = append(l.Hosts, Host{
			Name: h.Name, Max: h.Slots, NCPUs: h.Slots, MaxMem: h.Memory, Closed: q.closed[h.Name], Down: q.down[h.Name],
			Type: h.Type, Resources: h.Resources, Has: h.Has, Taken: q.taken(h.Name), GPUs: h.GPUs,
		})
		rooms[h.Name] = &room{slots: h.Slots, memory: h.Memory}
	}
	for _, j := range q.order {
		if !j.live() {
			continue
		}
		for i, name := range j.ExecHosts {
			at := slices.IndexFunc(l.Hosts, func(h Host) bool { return h.Name == name })
			l.Hosts[at].NJobs++
			switch j.Stat {
			case USUSP:
				l.Hosts[at].USUSP++
			case SSUSP:
				l.Hosts[at].SSUSP++
			default:
				l.Hosts[at].Run++
			}
			l.Hosts[at].Excl = l.Hosts[at].Excl || j.Exclusive
			r := rooms[name]
			r.slots--
			r.memory -= perSlot(&j.Job, i)
			r.exclusive = r.exclusive || j.Exclusive
		}
	}
	waits := map[backends.ID]backends.Job{}
	for _, j := range q.m.Snapshot(now, now).Jobs {
		waits[j.ID] = j
	}
	for _, j := range q.order {
		v := j.Job
		v.Limit = j.limit
		v.ExecHosts, v.Asked, v.PIDs = slices.Clone(j.ExecHosts), slices.Clone(j.Asked), slices.Clone(j.PIDs)
		v.Submitted, v.Begin, v.Started, v.Ended = whole(v.Submitted), whole(v.Begin), whole(v.Started), whole(v.Ended)
		switch {
		case j.live() && q.onDeadHost(j):
			v.Stat = UNKWN
		case j.Stat == EXIT && !j.Gone && q.cfg.Unkind.PostExecError && q.postExec(j.Queue):
			v.Stat = ERROR
		case j.Stat == PEND || j.Stat == PSUSP:
			v.Reasons = q.reasons(j, waits[j.id], l.Hosts, rooms)
		case j.Stat == USUSP && j.adminHas:
			v.Reasons = []Reason{{Text: "The job was suspended by LSF admin or root"}}
		case j.Stat == SSUSP:
			v.Reasons = []Reason{{Text: "Waiting for re-scheduling after being resumed by user"}}
		case j.Stat == USUSP:
			v.Reasons = []Reason{{Text: "The job was suspended by user"}}
		}
		l.Jobs = append(l.Jobs, v)
	}
	return l
}

func (q *queue) postExec(name string) bool {
	return slices.ContainsFunc(q.cfg.Queues, func(c QueueConfig) bool { return c.Name == name && c.PostExec })
}

// whole cuts a time to the seconds that LSF knows.
func whole(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Truncate(time.Second)
}

// memory is what lshosts says of the master host, which is a machine like the others.
func (q *queue) memory() int64 {
	if len(q.cfg.Hosts) == 0 {
		return 0
	}
	return q.cfg.Hosts[0].Memory
}

// room is what a host has left.
type room struct {
	slots     int
	memory    int64
	exclusive bool
}

// perSlot returns the part of a job's memory that slot i takes.
func perSlot(j *Job, i int) int64 {
	n := int64(max(1, j.Slots))
	share := j.Memory / n
	if i == 0 {
		share += j.Memory % n
	}
	return share
}

// reasons returns why a job pends, in the words of LSF's batch library.
func (q *queue) reasons(j *job, m backends.Job, hosts []Host, rooms map[string]*room) []Reason {
	switch {
	case j.gap == settling && j.Stat == PEND:
		return []Reason{{Text: "New job is waiting for scheduling"}}
	case j.Stat == PSUSP && !j.Held && j.adminHas:
		return []Reason{{Text: "The job was suspended by LSF admin or root while pending", Hosts: 1}}
	case j.Stat == PSUSP && !j.Held:
		return []Reason{{Text: "The job was suspended by the user while pending", Hosts: 1}}
	case m.Wait == backends.WaitDependency && strings.Contains(m.Reason, "can't"):
		return []Reason{{Text: "Dependency condition invalid or never satisfied"}}
	case m.Wait == backends.WaitDependency:
		return []Reason{{Text: "Job dependency condition not satisfied"}}
	case m.Wait == backends.WaitTime && (!j.kept || j.Begin.After(q.now)):
		return []Reason{{Text: "The job has a specified start time"}}
	case m.Wait == backends.WaitThrottle:
		return []Reason{{Text: "The job array has reached its running element limit"}}
	}
	var all []Reason
	add := func(text string) {
		if text == "" {
			return
		}
		if i := slices.IndexFunc(all, func(r Reason) bool { return r.Text == text }); i >= 0 {
			all[i].Hosts++
			return
		}
		all = append(all, Reason{Text: text, Hosts: 1})
	}
	for _, h := range hosts {
		add(q.whyNot(j, &h, rooms[h.Name]))
	}
	if len(all) == 0 {
		return []Reason{{Text: "New job is waiting for scheduling"}}
	}
	return all
}

// whyNot returns why a job does not start on a host; "": it could.
func (q *queue) whyNot(j *job, h *Host, r *room) string {
	config, known := q.host(h.Name)
	if !known {
		config = HostConfig{Name: h.Name}
	}
	if why := q.whyNever(&j.Job, config); known && why != "" || !known && len(j.Asked) > 0 {
		if !known {
			why = "Not specified in job submission"
		}
		return why
	}
	switch {
	case !hasRoom(selection(j.ResReq), h):
		return "Job's resource requirements not satisfied"
	case h.Down:
		return "Load information unavailable"
	case h.Closed:
		return "Closed by LSF administrator"
	case r == nil || r.slots <= 0:
		return "Job slot limit reached"
	case r.exclusive:
		return "Running an exclusive job"
	case j.Exclusive && h.NJobs > 0:
		return "Job's requirement for exclusive execution not satisfied"
	case r.slots < j.Slots:
		return "Not enough job slot(s)"
	case r.memory < j.Memory, q.lacks(&j.Job, config):
		return "Job's requirements for resource reservation not satisfied"
	}
	return ""
}
