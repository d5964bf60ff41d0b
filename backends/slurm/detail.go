package slurm

import (
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// slack is by how much squeue's times of one job may differ, in whole seconds each.
const slack = 2 * time.Second

// touched reports whether the engine, or an administrator, may have done something to
// the job that squeue doesn't show.
func (j *listedJob) touched(at time.Time) bool {
	if j.Interactive || j.IsDummy() {
		return false
	}
	if j.State.Ended() {
		return j.Priority.Level() == backends.LevelVictim // it may have been asked to save itself
	}
	if j.Requeues > 0 || j.State == backends.Suspended {
		return true
	}
	switch j.Priority.Level() {
	case backends.LevelVictim, backends.LevelPlaceholder, backends.LevelHandOver:
		return true
	case backends.LevelLow, backends.LevelNormal, backends.LevelNext, backends.LevelPBA:
	}
	if j.State == backends.Running {
		return !j.Ending && at.Sub(j.Started)-j.used > slack // it was suspended for a while
	}
	return len(j.record.pin) > 0 || j.eligible.After(at)
}

// pinHolds reports whether a job that excludes these hosts is pinned, and no other user has
// changed that since.
func (r *record) pinHolds(excluded []string) bool {
	return len(r.pin) > 0 && len(excluded) == r.excluded && !slices.ContainsFunc(r.pin, func(h string) bool { return slices.Contains(excluded, h) })
}

// addDetail adds a job's details to it.
func (j *listedJob) addDetail(d detail, at time.Time) {
	j.before, j.record, j.after = splitComment(d.comment)
	j.detailed, j.excluded, j.licences = true, d.excluded, d.licences
	r := &j.record
	if j.State.Ended() {
		if j.saving() {
			j.Mark, j.returning = r.mark, comesBack(j.state)
		}
		return
	}
	switch {
	case j.saving():
		j.Ending = j.Ending || j.State == backends.Running
	case j.Requeues < r.run: // the requeue was announced and not made
		r.mark, r.until, r.started, r.delayed, r.run = "", time.Time{}, time.Time{}, false, 0
	}
	if r.stop && j.State != backends.Suspended { // it is not suspended, or not any more
		r.mark, r.until, r.ranked, r.stop = "", time.Time{}, false, false
	}
	j.Mark, j.FailedSaves = r.mark, j.failedSaves()
	if j.Ending && r.delayed && !r.started.IsZero() {
		j.Started = r.started
	}
	if !r.submitted.IsZero() {
		j.Submitted = r.submitted
	}
	if r.pinHolds(d.excluded) {
		j.Pinned, j.excluded = slices.Clone(r.pin), slices.Clone(r.out)
	}
	switch j.State {
	case backends.Pending, backends.Held:
		if j.eligible.After(at) {
			j.BeginTime = r.begin
			tag, _, _ := backends.ParseTag(j.before)
			switch {
			case r.until.After(at):
				j.HeldUntil = r.until
			case tag.Held == j.eligible.Unix(): // the filter's hold, not its owner's
				j.HeldUntil = j.eligible
			case j.Requeues == 0:
				j.BeginTime = j.eligible
			}
		}
	case backends.Suspended:
		j.RanFor = max(j.used, d.before)
		j.Resuming = !r.resumed.IsZero()
		if r.until.After(at) && !j.Resuming {
			j.HeldUntil = r.until
		}
		if r.ranked {
			j.Priority = r.priority
		}
	case backends.Running:
		if d.suspended.After(j.Started) { // that is when it was resumed
			j.Started, j.RanFor = d.suspended, d.before
		}
	case backends.Done, backends.Exited:
	}
}
