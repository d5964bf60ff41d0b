package lsf

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// job is a job as callers see it: as LSF lists it, with what is remembered of it.
type job struct {
	backends.Job
	listed *listedJob // as LSF lists it
	entry  entry      // the zero entry: nothing is remembered
	number int64      // -sp, its own or ours; 0: unknown
	stuck  bool       // its begin time is never
	asked  []string   // its owner's list of hosts as LSF has it: with groups and preferences
}

// How long LSF takes for a requeue (lava): the job shows RUN for about a second, and its
// processes have JOB_TERMINATE_INTERVAL (10 s) after each of SIGINT and SIGTERM to end;
// then EXIT for about two seconds; then PEND, or PSUSP with -H.
const (
	// leaving is how long a requeued run may still show RUN. After that the requeue was only
	// recorded: the engine died before brequeue.
	leaving = 45 * time.Second
	// gap is how long a requeued job may show EXIT. After that it has ended: it was killed
	// during the requeue.
	gap = 20 * time.Second
)

// newJob combines what LSF lists of a job with what is remembered of it.
func newJob(listed *listedJob, e entry, p *snapshot, lowQueue string) *job {
	if !e.describes(listed) {
		e = entry{} // an older job's with the same number
	}
	j := &job{Job: listed.Job, listed: listed, entry: e, asked: listed.Asked}
	tag, _, err := backends.ParseTag(listed.Tag)
	if err == nil && tag.NoRequeue {
		j.NoRequeue = true
	}
	if j.DummyFor = dummyFor(listed.description); !slices.Contains(p.engineUsers, j.User) {
		j.DummyFor = backends.ID{}
	}
	j.NoRequeue = j.NoRequeue || j.DummyFor != backends.ID{}
	j.setPriority(p, lowQueue)
	j.Mark, j.Requeues, j.FailedSaves = e.Mark, e.Requeues, e.FailedSaves
	if signal := tag.Checkpoint.Signal; signal != "" && !slices.Contains(deliverable, signal) {
		j.FailedSaves = backends.MaxFailedSaves
	}
	switch {
	case j.requeueUnderway(p.at):
		j.State, j.Ending = backends.Running, true
		j.Ended, j.ExitCode, j.Started, j.RanFor = time.Time{}, 0, j.began(), 0
		j.HeldUntil = after(e.Until, p.at)
	case j.State == backends.Pending || j.State == backends.Held:
		j.applyPending(p, tag.Held, tag.Begin)
	case j.State == backends.Suspended && j.sameRun():
		j.Started, j.RanFor = j.began(), e.Ran
		j.HeldUntil, j.Resuming = after(e.Until, p.at), e.Resuming
	case j.State == backends.Running && j.sameRun():
		j.Started, j.RanFor = j.began(), e.Ran
	}
	j.Lost = e.Requeuing && j.sameRun() && j.State.Ended() && !j.finished()
	if e.Requeuing && !j.Ending && !j.State.Ended() && (j.listed.Started.IsZero() || !j.sameRun()) {
		j.Requeues++ // it is back, and completeRequeues has not recorded it yet
	}
	return j
}

// setPriority sets the job's priority.
func (j *job) setPriority(p *snapshot, lowQueue string) {
	e := &j.entry
	if j.number = j.listed.userPriority; j.number == 0 {
		j.number = j.listed.priority
	}
	j.Priority = p.scale.priority(j.number)
	if e.Ranked && j.priorityInForce(p) {
		j.Priority = e.Rank
	}
	if j.Priority.Level() == backends.LevelNormal && lowQueue != "" && j.Queue == lowQueue {
		j.Priority = backends.At(backends.LevelLow, j.Priority.Value())
	}
}

// priorityInForce reports whether LSF has the priority that is remembered: the number that the
// current scale gives it, or none that counts before the job is back in the queue.
func (j *job) priorityInForce(p *snapshot) bool {
	e := &j.entry
	switch {
	case j.listed.State != backends.Pending && j.listed.State != backends.Held:
		return true
	case e.Number == 0:
		return e.Requeuing
	}
	return e.Number == j.number && e.Number == p.scale.number(e.Rank)
}

// applyPending applies what is remembered of a job that has not started: the engine's hold, and
// the owner's hosts and begin time where the queue has the engine's. held is the end of
// the submit filter's hold, and begin what its owner gave (UNIX seconds; 0: none): the begin
// time that is held is the engine's, too.
func (j *job) applyPending(p *snapshot, held, begin int64) {
	e, at := &j.entry, p.at
	if j.State == backends.Held && e.Requeuing && e.Returns {
		j.State, j.Wait = backends.Pending, backends.WaitTime // held by the engine, on its way back
	}
	until, hold := e.Until, asListed(time.Unix(held, 0).UTC(), p.flavour)
	switch shown := j.BeginTime; {
	case shown.IsZero():
	case e.Freed && shown.Equal(e.Ours):
		j.BeginTime = e.Begin
	case shown.Equal(e.Ours), shown.Equal(e.Was):
		if j.BeginTime = e.Begin; until.IsZero() {
			until = shown // a release that did not reach LSF
		}
	case j.neverBegins(p.flavour, !e.Ours.IsZero() || held > 0):
		if j.BeginTime, j.stuck = e.Begin, true; !until.After(at) {
			until = never
		}
	case held > 0 && shown.Equal(hold):
		if j.BeginTime = (time.Time{}); begin > 0 {
			j.BeginTime = time.Unix(begin, 0).UTC()
		}
		if until.IsZero() {
			until = time.Unix(held, 0).UTC()
		}
	}
	if j.HeldUntil = after(until, at); !j.HeldUntil.IsZero() && j.State == backends.Pending {
		j.Wait = backends.WaitTime
	}
	if j.pinnedByUs() {
		j.Asked, j.asked, j.Pinned = e.Asked, e.Asked, e.Pinned
	}
}

// asListed returns a begin time as bjobs shows it: LSF 10.1 leaves out the seconds.
func asListed(t time.Time, f flavour) time.Time {
	if f == lsf10 {
		return t.Truncate(time.Minute)
	}
	return t.Truncate(time.Second)
}

// pinnedByUs reports whether LSF has the hosts that the engine set.
func (j *job) pinnedByUs() bool {
	return len(j.entry.Pinned) > 0 && sameHosts(j.listed.Asked, j.entry.Pinned)
}

func sameHosts(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// sameRun reports whether what is remembered is about the run that LSF lists.
func (j *job) sameRun() bool {
	return !j.entry.Run.IsZero() && j.entry.Run.Equal(j.listed.Started)
}

// began returns when the listed run began, or was resumed.
func (j *job) began() time.Time {
	if j.sameRun() && !j.entry.Resumed.IsZero() {
		return j.entry.Resumed
	}
	return j.listed.Started
}

// requeueUnderway reports whether the engine requeued the run and the job is not back yet.
func (j *job) requeueUnderway(at time.Time) bool {
	e := &j.entry
	if !e.Requeuing || !j.sameRun() {
		return false
	}
	if j.saving() {
		return j.saveUnderway(at)
	}
	switch j.listed.State {
	case backends.Running, backends.Suspended:
		return at.Sub(latest(e.Acted, e.Down)).Abs() < leaving // further ahead: written by a clock that was ahead
	case backends.Done, backends.Exited:
		remaining := j.leftAt().Sub(at)
		return remaining > 0 && remaining <= max(gap, repairPeriod)
	case backends.Pending, backends.Held:
	}
	return false
}

// after returns t if it is still to come, else zero.
func after(t, at time.Time) time.Time {
	if t.After(at) {
		return t
	}
	return time.Time{}
}

// Shown returns the job as callers see it.
func (j *job) Shown() *backends.Job { return &j.Job }

// waits reports whether the job has not started.
func (j *job) waits() bool { return reconcile.Waits(&j.Job) }

// returning reports whether a requeued job is on its way back into the queue, or is there
// and still to be released.
func (j *job) returning() bool { return j.entry.Requeuing && (j.Ending || j.waits()) }
