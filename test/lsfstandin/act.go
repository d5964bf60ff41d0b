package lsfstandin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// live reports whether a run of the job has slots.
func (j *job) live() bool {
	return j.Stat == RUN || j.Stat == USUSP || j.Stat == SSUSP
}

// over reports whether LSF takes a job for finished: for a moment one being requeued,
// too.
func (j *job) over() bool { return j.Stat == DONE || j.Stat == EXIT }

// mayAct reports whether a user may act on a job.
func (b caller) mayAct(j *job) bool { return b.Admin || b.Name == j.User }

// findJobs returns the jobs of an argument: one, or an array's elements.
func (q *queue) findJobs(arg string) (found []*job, whole bool, err string) {
	a, bad := bsub.ParseJobArg(arg)
	if bad != nil || a.All {
		return nil, false, errJobID
	}
	for _, j := range q.order {
		if j.ID == a.Job && (a.Indices == nil || slices.Contains(a.Indices, j.Index)) {
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		return nil, false, errNoJob
	}
	return found, a.Indices == nil && found[0].Index != 0, ""
}

// act applies an act to each of its jobs.
func (q *queue) act(b caller, a *act) reply {
	var r reply
	for _, arg := range a.Jobs {
		if arg == "0" {
			r.Results = append(r.Results, q.actAll(b, a)...)
			continue
		}
		jobs, whole, err := q.findJobs(arg)
		if err == "" {
			err = q.actOn(b, a, jobs)
		}
		if err == "" && whole && a.Verb == verbKill {
			err = errProgress // though it is done
		}
		r.Results = append(r.Results, result{Job: arg, Err: err})
	}
	return r
}

// actAll is an act on job 0: all jobs of the user that the act's options select.
func (q *queue) actAll(b caller, a *act) []result {
	var results []result
	for _, j := range slices.Clone(q.order) {
		mine := j.User == b.Name || a.All && b.Admin
		if j.over() && j.gap == noGap || !mine || a.Queue != "" && a.Queue != j.Queue || a.Name != "" && a.Name != j.base && a.Name != j.Name {
			continue
		}
		results = append(results, result{Job: j.id.String(), Err: q.actOn(b, a, []*job{j})})
	}
	if len(results) == 0 {
		return []result{{Job: "0", Err: errNoJob}}
	}
	return results
}

// actOn succeeds if the act does for one of the jobs; else it returns the first error.
func (q *queue) actOn(b caller, a *act, jobs []*job) string {
	first, done := "", false
	for _, j := range jobs {
		err := errPermission
		if b.mayAct(j) && (b.Admin || a.Verb != verbRun) {
			err = q.actOne(b, a, j)
		}
		if err == "" {
			done = true
		} else if first == "" {
			first = err
		}
	}
	if done {
		return ""
	}
	return first
}

func (q *queue) actOne(b caller, a *act, j *job) string {
	switch a.Verb {
	case verbKill:
		if a.Signal != 0 {
			return q.signal(j, a.Signal)
		}
		return q.kill(b, j, a.Now)
	case verbStop:
		return q.stop(b, j)
	case verbResume:
		return q.resume(j)
	case verbRequeue:
		return q.requeue(j, a)
	case verbRun:
		return q.brun(j, a.Hosts)
	case verbTop:
		if j.live() {
			return errStarted
		}
		if j.over() {
			return errFinished
		}
		return "" // nothing moves, as on the real cluster
	}
	return errArgument
}

// kill is bkill. With -r (now) the job has ended for LSF before its processes have
// (IBM: lsf_command_ref, bkill -r).
func (q *queue) kill(b caller, j *job, now bool) string {
	if j.over() && j.gap != gone {
		return errFinished
	}
	left := j.left
	j.gap, j.gapAt, j.left, j.Gone = noGap, time.Time{}, false, false
	j.killed = true
	j.Termed = "TERM_OWNER"
	if b.Name != j.User {
		j.Termed = "TERM_ADMIN"
	}
	q.feed(manager.Kill{By: by(b.Name), IDs: []backends.ID{j.id}})
	if left || now && j.live() {
		q.feed(manager.Ended{ID: j.id, Run: j.run, ExitCode: requeueCode})
	}
	return ""
}

func (q *queue) signal(j *job, sig int) string {
	switch {
	case j.over():
		return errFinished
	case !j.live():
		return errNotStarted
	}
	q.effects = append(q.effects, effect{id: j.id, run: j.run, do: doSignal, sig: sig})
	return ""
}

// stop is bstop. A stopped run keeps its slots: the manager does not learn of it.
func (q *queue) stop(b caller, j *job) string {
	switch {
	case j.over():
		return errFinished
	case j.Stat == PEND:
		q.feed(manager.Hold{By: by(b.Name), IDs: []backends.ID{j.id}})
		j.Stat, j.adminHas, j.Held = PSUSP, b.Name != j.User, false
	case j.Stat == RUN && j.gap == noGap, j.gap == waking:
		j.gap, j.gapAt = noGap, time.Time{}
		j.Stat, j.stoppedAt, j.adminHas = USUSP, q.now, b.Name != j.User
		q.effects = append(q.effects, effect{id: j.id, run: j.run, do: doStop})
	}
	return ""
}

// resume is bresume. It does not check whether other jobs run in the job's slots by now.
func (q *queue) resume(j *job) string {
	switch {
	case j.over():
		return errFinished
	case j.Stat == PSUSP:
		j.Stat, j.Held = PEND, false
		q.feed(manager.Release{By: by(j.User), IDs: []backends.ID{j.id}})
	case j.Stat == USUSP:
		j.Stat, j.stoppedFor = RUN, j.stoppedFor+q.now.Sub(j.stoppedAt)
		if q.cfg.Unkind.ResumedBySSUSP {
			j.Stat, j.gap, j.gapAt = SSUSP, waking, q.now.Add(q.cfg.Second)
		}
		q.effects = append(q.effects, effect{id: j.id, run: j.run, do: doContinue})
	}
	return ""
}

// requeueCode is the exit code that a requeued job shows as it leaves: SIGINT's.
const requeueCode = 130

// never is later than all that happens.
const never = 100 * 365 * 24 * time.Hour

// unreachable is how long mbatchd tries to reach a dead host, in seconds of the daemons,
// before it ends a job that it is to requeue there.
const unreachable = 11

// onDeadHost reports whether a host of a job's run is down.
func (q *queue) onDeadHost(j *job) bool {
	return slices.ContainsFunc(j.ExecHosts, func(h string) bool { return q.down[h] })
}

// cutOff makes a job end that is being requeued on a host that is down.
func (q *queue) cutOff(j *job) {
	if q.cfg.Unkind.RequeueLosesJobOnDeadHost && j.gap == leaving && q.onDeadHost(j) {
		j.cut, j.gapAt = true, q.now.Add(unreachable*q.cfg.Second)
	}
}

// requeue is brequeue. For the manager the job is held until the gap is over.
func (q *queue) requeue(j *job, a *act) string {
	switch {
	case a.Exited || a.Done:
		return q.requeueEnded(j, a)
	case j.over():
		return errFinished
	case !j.live():
		return errNotStarted
	case j.gap == leaving:
		return ""
	}
	j.gap, j.gapAt, j.left, j.cut, j.hold, j.Stat = leaving, q.now.Add(q.cfg.Second), false, false, a.Hold, RUN
	result := q.feed(manager.Requeue{By: by(j.User), Acts: []backends.Act{{ID: j.id, Until: q.now.Add(never), Grace: time.Hour}}})
	if result.Errors.First() != nil {
		j.gap, j.gapAt = noGap, time.Time{} // its end was ordered before
	}
	q.cutOff(j)
	return ""
}

// requeueEnded is brequeue -e and -d (volclava's sources, lsbatch/daemons/mbd.job.c,
// arrayRequeue). There the job is pending at once; here it shows EXIT for a second more.
func (q *queue) requeueEnded(j *job, a *act) string {
	switch {
	case j.live():
		return errStarted
	case !j.over():
		return errNotStarted
	case j.Stat == DONE && !a.Done, j.Stat != DONE && !a.Exited:
		return errAction
	case j.gap == gone:
		return ""
	case j.gap == lost && q.cfg.Unkind.ExitedStayEnded:
		return errFinished
	case j.gap == noGap && !q.anew(j):
		return errArgument
	}
	j.gap, j.gapAt, j.hold = gone, q.now.Add(q.cfg.Second), a.Hold
	return ""
}

// anew gives the manager a job once more that has ended there. It is another job for the
// manager, and the same one for LSF.
func (q *queue) anew(j *job) bool {
	spec := q.spec(&j.Job)
	spec.Name, spec.After, spec.HeldUntil = j.base, "", q.now.Add(never)
	submitted := q.feed(manager.Submit{By: by(j.User), Specs: []backends.Spec{spec}}).Submitted[0]
	if submitted.Err != nil {
		return false
	}
	delete(q.jobs, j.id)
	j.id, j.run = submitted.ID, 0
	q.jobs[j.id] = j
	return true
}

// shellKilled is added to the signal that ended the shell in which LSF runs a job.
const shellKilled = 1000

// exitStatus returns the exit code that LSF takes a run's end for.
func (q *queue) exitStatus(j *job, code int) int {
	switch {
	case code < shellKilled:
		return code
	case q.cfg.Flavour == Lava && q.cfg.Unkind.ShellSignalledDone && !j.killed:
		return 0
	}
	return 128 + code - shellKilled
}

// requeuesItself reports whether LSF puts jobs of a queue back that end with an exit code.
func (q *queue) requeuesItself(name string, code int) bool {
	return slices.ContainsFunc(q.cfg.Queues, func(c QueueConfig) bool { return c.Name == name && slices.Contains(c.Requeues, code) })
}

// runEnded takes the end of a run's processes.
func (q *queue) runEnded(e *ended) {
	j := q.jobs[e.ID]
	if j == nil || j.run != e.Run || !j.live() {
		return
	}
	if j.gap == leaving {
		if j.left = true; j.gapAt.IsZero() {
			q.gapStep(j)
		}
		return // gapStep reports it to the manager
	}
	code := q.exitStatus(j, e.Code)
	if !j.killed && q.requeuesItself(j.Queue, code) {
		q.feed(manager.Requeue{By: by(j.User), Acts: []backends.Act{{ID: j.id, Until: q.now.Add(never), Grace: time.Hour}}})
		q.feed(manager.Ended{ID: j.id, Run: j.run, ExitCode: code})
		q.account(j, q.now, code, 0)
		j.gap, j.hold = gone, false
		q.gapStep(j)
		return
	}
	q.feed(manager.Ended{ID: e.ID, Run: e.Run, ExitCode: code, Self: !j.killed})
}

// gapStep takes a requeued job one step further: RUN, EXIT, PEND.
func (q *queue) gapStep(j *job) {
	switch {
	case j.gap == leaving && j.cut:
		j.gap, j.gapAt, j.Stat, j.ExitCode, j.Ended = lost, time.Time{}, EXIT, requeueCode, q.now
		q.account(j, q.now, requeueCode, 0)
		q.feed(manager.Ended{ID: j.id, Run: j.run, ExitCode: requeueCode})
	case j.gap == waking:
		j.gap, j.gapAt, j.Stat = noGap, time.Time{}, RUN
	case j.gap == leaving && !j.left:
		j.gapAt = time.Time{}
	case j.gap == leaving:
		j.gap, j.Stat, j.ExitCode, j.Gone, j.gapAt = gone, EXIT, requeueCode, true, q.now.Add(2*q.cfg.Second)
		q.account(j, q.now, requeueCode, termRequeueAdmin)
		q.feed(manager.Ended{ID: j.id, Run: j.run, ExitCode: requeueCode})
	case j.gap == gone:
		j.Stat, j.Gone, j.left, j.killed = PEND, false, false, false
		j.ExecHosts, j.Started, j.Ended, j.ExitCode, j.PGID, j.PIDs = nil, time.Time{}, time.Time{}, 0, 0, nil
		j.Requeued++
		q.refit(j)
		if j.hold {
			j.Stat, j.adminHas = PSUSP, false
			q.feed(manager.Hold{By: by(j.User), IDs: []backends.ID{j.id}})
		}
		j.gap, j.gapAt = settling, q.now.Add(q.cfg.Second)
	case j.gap == settling:
		j.gap, j.gapAt = noGap, time.Time{}
		q.feed(manager.HoldUntil{By: by(j.User), Holds: []backends.HoldUntil{{ID: j.id}}})
	}
}

// refit gives the manager all that it schedules a pending job by: a brun, or a bmod
// during its run, has changed that.
func (q *queue) refit(j *job) {
	b := by(j.User)
	spec := q.spec(&j.Job)
	q.feed(manager.SetPriority{By: b, Rankings: []backends.PriorityChange{{ID: j.id, Priority: q.priority(j.Queue, j.Priority)}}})
	q.feed(manager.Modify{By: b, IDs: []backends.ID{j.id}, Change: backends.Change{
		Queue: &spec.Queue, Memory: &spec.Memory, OneHost: &spec.OneHost, Hosts: &spec.Hosts, BeginTime: &spec.BeginTime,
	}})
	q.feed(manager.Pin{By: b, Pins: []backends.Pin{{ID: j.id}}})
}

// used returns how many slots of a host are taken, by stopped jobs too.
func (q *queue) used(host string) int {
	n := 0
	for _, j := range q.order {
		if j.live() {
			for _, h := range j.ExecHosts {
				if h == host {
					n++
				}
			}
		}
	}
	return n
}

// placement reads brun -m: hosts, each with #slots or named once for each slot. A single
// host without a number gives all the slots that the job needs.
func (q *queue) placement(list string, slots int) ([]backends.Placement, string) {
	var placed []backends.Placement
	left, numbered := slots, false
	for _, word := range strings.Fields(list) {
		name, number, counted := strings.Cut(strings.ReplaceAll(word, "*", "#"), "#")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(number); err != nil || n < 1 {
				return nil, errArgument
			}
		}
		if !slices.ContainsFunc(q.cfg.Hosts, func(h HostConfig) bool { return h.Name == name }) {
			return nil, errHost
		}
		numbered = numbered || counted
		n = min(n, left)
		left -= n
		if i := slices.IndexFunc(placed, func(p backends.Placement) bool { return p.Host == name }); i >= 0 {
			placed[i].Slots += n
		} else if n > 0 {
			placed = append(placed, backends.Placement{Host: name, Slots: n})
		}
	}
	if len(placed) == 1 && !numbered {
		placed[0].Slots += left
		left = 0
	}
	if len(placed) == 0 || left > 0 {
		return nil, "Not enough host(s) currently eligible"
	}
	return placed, ""
}

// brun starts a job on the hosts named, full or closed or not, whatever else keeps it.
// The reservation keeps other jobs out of what the host seems to have for this one step.
func (q *queue) brun(j *job, hosts string) string {
	switch {
	case j.over():
		return errFinished
	case j.live():
		return errStarted
	}
	placed, err := q.placement(hosts, j.Slots)
	if err != "" {
		return err
	}
	if slices.ContainsFunc(placed, func(p backends.Placement) bool { return q.down[p.Host] }) {
		return "Unable to contact execution host"
	}
	held := j.Stat == PSUSP
	pin := backends.Pin{ID: j.id}
	for _, p := range placed {
		pin.Hosts, pin.Slots = append(pin.Hosts, p.Host), append(pin.Slots, p.Slots)
	}
	b, ids := by(j.User), []backends.ID{j.id}
	none, at := "", time.Time{}
	free := backends.Change{BeginTime: &at}
	if j.Depend != "" {
		free.After = &none
	}
	events := []manager.Event{
		manager.Pin{By: b, Pins: []backends.Pin{pin}},
		manager.SetPriority{By: b, Rankings: []backends.PriorityChange{{ID: j.id, Priority: backends.At(backends.LevelHandOver, 999)}}},
		manager.Reserve{By: b, Reservations: []backends.Reservation{{ID: j.id, Hosts: pin.Hosts, Until: q.now.Add(time.Hour)}}},
		manager.Modify{By: b, IDs: ids, Change: free},
		manager.HoldUntil{By: b, Holds: []backends.HoldUntil{{ID: j.id}}},
	}
	if j.gap == settling {
		j.gap, j.gapAt = noGap, time.Time{}
	}
	if held {
		events = append(events, manager.Release{By: b, IDs: ids})
	}
	for _, e := range events {
		if !j.live() {
			q.feed(e)
		}
	}
	for _, p := range placed {
		if h, ok := q.host(p.Host); ok && !j.live() {
			q.feed(manager.NodeUp{Name: h.Name, Slots: q.used(h.Name) + p.Slots, Memory: 1 << 60})
		}
	}
	for _, p := range placed {
		if h, ok := q.host(p.Host); ok {
			q.offer(h, h.Slots, h.Memory)
		}
	}
	if j.live() {
		j.Held = false
		return ""
	}
	q.feed(manager.Reserve{By: b, Reservations: []backends.Reservation{{ID: j.id}}})
	if held {
		q.feed(manager.Hold{By: b, IDs: ids})
	}
	q.refit(j)
	return "Not enough host(s) currently eligible"
}

func (q *queue) host(name string) (HostConfig, bool) {
	for _, h := range q.cfg.Hosts {
		if h.Name == name {
			return h, true
		}
	}
	return HostConfig{}, false
}

func (q *queue) changeHost(c *hostChange) string {
	h, ok := q.host(c.Name)
	if !ok {
		return errHost
	}
	q.closed[h.Name], q.down[h.Name] = c.Closed, c.Down
	q.offer(h, h.Slots, h.Memory)
	for _, j := range q.order {
		q.cutOff(j)
	}
	return ""
}

// modify is bmod.
func (q *queue) modify(b caller, m *modification) reply {
	jobs, _, err := q.findJobs(m.Job)
	if err != "" {
		return reply{Subject: m.Job, Err: err}
	}
	for _, j := range jobs {
		if r := q.modifyOne(b, m, j); r.Err != "" {
			return r
		}
	}
	return reply{}
}

func (q *queue) modifyOne(b caller, m *modification, j *job) reply {
	switch {
	case !b.mayAct(j):
		return reply{Err: errPermission}
	case j.over():
		return reply{Err: errFinished}
	}
	want := j.Job
	for _, option := range m.Params {
		if option.Key == "LSB_SUB_JOB_NAME" && j.Index != 0 {
			return reply{Err: "Change job name is not allowed for job array"}
		}
		if subject, sentence := q.applyOption(&want, option); sentence != "" {
			return reply{Subject: subject, Err: sentence}
		}
		if j.live() && option.Key != "LSB_SUB_RES_REQ" && option.Key != "LSB_SUB_MODIFY" {
			return reply{Err: errRunning}
		}
	}
	if m.Command != "" {
		want.Command = m.Command
	}
	if j.live() {
		j.Job = want
		return reply{}
	}
	before, spec := j.Job, q.spec(&want)
	change := backends.Change{
		Project: &spec.Project, Queue: &spec.Queue, Slots: &spec.Slots, Memory: &spec.Memory, OneHost: &spec.OneHost,
		Hosts: &spec.Hosts, BeginTime: &spec.BeginTime,
	}
	if want.Depend != before.Depend {
		change.After = &spec.After
	}
	j.Job = want // before the step that may start it
	q.feed(manager.SetPriority{By: by(b.Name), Rankings: []backends.PriorityChange{{ID: j.id, Priority: q.priority(want.Queue, want.Priority)}}})
	if !j.live() {
		result := q.feed(manager.Modify{By: by(b.Name), IDs: []backends.ID{j.id}, Change: change})
		if err := result.Errors.First(); err != nil && !j.live() {
			j.Job = before
			q.feed(manager.SetPriority{By: by(b.Name), Rankings: []backends.PriorityChange{{ID: j.id, Priority: q.priority(before.Queue, before.Priority)}}})
			return q.refusal(&want, err)
		}
	}
	if m.Command != "" {
		w := *j.work
		w.command, w.script = m.Command, false
		j.work = &w
	}
	if j.Index == 0 {
		j.base = j.Name
	}
	return reply{}
}
