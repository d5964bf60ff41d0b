package lsf

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// A job that saves itself (R33) is asked by a signal (bkill -s), and put back by
// `brequeue -e` once it has ended; if it takes too long, brequeue kills it. LSF remembers
// neither that it was asked nor why it ended once it is back, so that the entry has each step before it
// is taken. After a crash at any point Reconcile takes the next one (nextSave).
//
// LSF's own checkpoints (bsub -k, bchkpnt) are not used, and the filter says so (startsAnew in
// esub). A job that comes back by brequeue starts from the beginning
// (https://www.ibm.com/docs/en/SSWRJV_10.1.0/lsf_command_ref/brequeue.1.html); one that brestart
// continues from a checkpoint has another ID; and what bmig continues bypasses all pending jobs
// (https://www.hpc.dtu.dk/lsf931/lsf_admin/job_migration_lsf_behaviour.html): it would take its
// own slots again.

// save is how a run was asked to save itself. The zero save: it was not.
type save struct {
	Signal string        `json:"signal,omitempty"` // as bkill -s takes it: USR1
	Wait   time.Duration `json:"wait,omitempty"`   // nanoseconds
	Sent   time.Time     `json:"sent,omitzero"`    // when the signal was sent; zero: that is not known
	Judged time.Time     `json:"judged,omitzero"`  // when entry.FailedSaves had the outcome
	Tried  time.Time     `json:"tried,omitzero"`   // when LSF first answered brequeue -e; zero: that is not known
	Killed time.Time     `json:"killed,omitzero"`  // when brequeue was ordered to kill it, as it took too long

	// Of the job, for a report if LSF forgets it before it is put back.
	User    string `json:"user,omitempty"`
	Project string `json:"project,omitempty"` // with its step
}

// deliverable are the signals that reach a job and leave the shell alone in which LSF runs
// it. That shell traps the first five (LSB_TRAPSIGS: volclava's sources,
// lsbatch/daemons/sbd.job.c) and ignores the others, as every process does. SIGALRM and
// SIGQUIT would end the shell, and the job with it, while its program saves itself.
var deliverable = []string{"SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGURG", "SIGWINCH"}

// saveOf returns how an act asks a job to save itself; the zero save: in no way that LSF has.
func saveOf(act *backends.Act, j *backends.Job) save {
	if !slices.Contains(deliverable, act.Save.Signal) {
		return save{}
	}
	return save{
		Signal: strings.TrimPrefix(act.Save.Signal, "SIG"), Wait: act.Save.Wait,
		User: j.User, Project: backends.JoinProject(j.Project, j.Step),
	}
}

// saveSlack is what LSF may take beside the job's own time: it delivers a signal and notices
// an end once a second.
const saveSlack = 3 * time.Second

// saveStep is what is to be done next with a job that was asked to save itself.
type saveStep uint8

const (
	saveNothing saveStep = iota // it saves itself, LSF brings it back, or it has ended for good
	saveAsk                     // it is not known to have got the signal
	saveKill                    // it takes too long
	savePutBack                 // it has ended, and comes back by brequeue -e
)

// saving reports whether the listed run was asked to save itself, and is not known to be
// back in the queue.
func (j *job) saving() bool {
	return j.entry.Save.Signal != "" && j.entry.Requeuing && j.sameRun()
}

// nextSave returns the next step of a job that is saving.
func (j *job) nextSave(at time.Time) saveStep {
	e, s := &j.entry, &j.entry.Save
	switch j.listed.State {
	case backends.Running, backends.Suspended:
		switch {
		case !s.Killed.IsZero():
			if at.Sub(latest(s.Killed, e.Down)).Abs() >= leaving { // brequeue never ran
				return saveKill
			}
		case s.Sent.IsZero():
			return saveAsk
		case at.Sub(latest(s.Sent, e.Down)).Abs() > s.Wait+saveSlack: // Abs: the clock was put back
			return saveKill
		}
	case backends.Exited:
		if j.saveUnderway(at) && (s.Killed.IsZero() || at.Sub(latest(s.Killed, j.listed.Ended)) >= gap) {
			return savePutBack
		}
	case backends.Done, backends.Pending, backends.Held:
	}
	return saveNothing
}

// saveUnderway reports whether a job that is saving may still come back.
func (j *job) saveUnderway(at time.Time) bool {
	switch j.listed.State {
	case backends.Running, backends.Suspended:
		return true
	case backends.Exited:
		return !j.endedByOwner() && at.Before(j.savedUntil(at))
	case backends.Done, backends.Pending, backends.Held:
	}
	return false
}

// savedUntil returns how long it is tried to put a job back that has ended. A time without an
// engine, or in which LSF does not answer, does not count.
func (j *job) savedUntil(at time.Time) time.Time {
	if j.entry.Save.Tried.IsZero() {
		return at.Add(repairPeriod)
	}
	return latest(latest(j.entry.Save.Tried, j.entry.Save.Killed), j.listed.Ended).Add(repairPeriod)
}

// endedByOwner reports whether a job that is saving was ended by a bkill, which begins with
// SIGINT: LSF shows no more of it. (If it was asked by SIGINT, it comes back.)
func (j *job) endedByOwner() bool {
	const byInterrupt = 128 + int(syscall.SIGINT)
	return j.listed.State == backends.Exited && j.listed.ExitCode == byInterrupt && j.entry.Save.Signal != "INT" && j.entry.Save.Killed.IsZero()
}

// finished reports whether a job that was asked to save itself has ended for good, by itself or
// its owner.
func (j *job) finished() bool {
	return j.saving() && (j.listed.State == backends.Done || j.endedByOwner())
}

// askToSave sends jobs the signals that they asked for, and notes that. A crash between the
// two has Reconcile send it once more: a job may get its signal twice.
func (c *Client) askToSave(ctx context.Context, b batch) {
	b = b.Open()
	signals := map[string]bool{}
	for _, it := range b {
		signals[it.Job.entry.Save.Signal] = true
	}
	for signal := range signals {
		c.runBatch(ctx, b.Where(func(it *item) bool { return it.Job.entry.Save.Signal == signal }), "bkill", "-s", signal)
	}
	c.updateEntries(b, func(_ *item, e *entry) { e.Save.Sent = time.Now() })
}

// advanceSaves takes the next step with each job that was asked to save itself.
func (c *Client) advanceSaves(ctx context.Context, p *snapshot) error {
	steps := map[saveStep][]*job{}
	var finished []*job
	for _, j := range p.jobs {
		switch {
		case j.finished():
			finished = append(finished, j)
		case j.saving():
			step := j.nextSave(p.at)
			steps[step] = append(steps[step], j)
		}
	}
	c.updateEntries(reconcile.Of(finished), dropSave)
	ask, kill, back := reconcile.Of(steps[saveAsk]), reconcile.Of(steps[saveKill]), reconcile.Of(steps[savePutBack])
	returns := func(e *entry) bool { return e.Until.After(p.at) || p.flavour == lsf10 }
	c.askToSave(ctx, ask)
	c.updateEntries(refusedForGood(ask), dropSave)
	c.updateEntries(kill, func(_ *item, e *entry) {
		e.judge(p.at, false)
		e.Save.Killed, e.Returns = p.at, returns(e)
	})
	c.brequeue(ctx, kill)
	c.updateEntries(back, func(it *item, e *entry) {
		e.judge(p.at, it.Job.listed.ExitCode == backends.ExitSaved)
		e.Returns = returns(e)
	})
	c.brequeue(ctx, back, "-e")
	c.noteTried(back, p.at)
	c.awaitRequeue(ctx, putBackPace(), back.Open().IDs())
	for _, b := range []batch{ask, kill, back} {
		for _, it := range b {
			if err := unreachable(it.Err); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteTried notes that LSF answered a brequeue -e, if it did: the job is put back, or refused.
func (c *Client) noteTried(b batch, at time.Time) {
	var answered batch
	for _, it := range b {
		if (it.Err == nil || refused(it.Err)) && it.Job.entry.Save.Tried.IsZero() {
			answered = append(answered, &item{Index: it.Index, ID: it.ID, Job: it.Job})
		}
	}
	c.updateEntries(answered, func(_ *item, e *entry) { e.Save.Tried = at })
}

// refusedForGood returns the jobs to which LSF sends no signal, for another reason than that
// they have just ended.
func refusedForGood(b batch) (refusedOnes batch) {
	for _, it := range b {
		if refused(it.Err) && !errors.Is(it.Err, backends.ErrWrongState) && !errors.Is(it.Err, backends.ErrUnknownJob) {
			refusedOnes = append(refusedOnes, &item{Index: it.Index, ID: it.ID, Job: it.Job})
		}
	}
	return refusedOnes
}

// dropSave notes that a job is no longer to come back.
func dropSave(_ *item, e *entry) { e.Requeuing, e.Save = false, save{} }

// judge notes the outcome of a run that was asked to save itself, once.
func (e *entry) judge(at time.Time, saved bool) {
	switch {
	case !e.Save.Judged.IsZero():
		return
	case saved:
		e.FailedSaves = 0
	default:
		e.FailedSaves++
	}
	e.Save.Judged = at
}

// putBackPace is that of Reconcile until jobs that brequeue -e put back can be completed.
func putBackPace() reconcile.Pace {
	return reconcile.Pace{First: 50 * time.Millisecond, Most: 300 * time.Millisecond, Limit: 5 * time.Second}
}

// notePutBack notes that jobs are back in the queue. LSF itself puts back one whose exit
// status its queue lists (REQUEUE_EXIT_VALUES): it has saved itself if ExitSaved is
// listed. What else brought a job back before its end was seen says nothing of its save.
func (c *Client) notePutBack(ctx context.Context, b batch) {
	unseen := func(e *entry) bool { return e.Save.Signal != "" && e.Save.Judged.IsZero() }
	var lists map[string]exitValues
	if slices.ContainsFunc(b.Open(), func(it *item) bool { return unseen(&it.Job.entry) }) {
		if printed, err := c.ask(ctx, "bqueues", "-l"); err == nil {
			lists = parseRequeueValues([]byte(printed))
		}
	}
	c.updateEntries(b, func(it *item, e *entry) {
		if unseen(e) && lists[it.Job.Queue].listed(backends.ExitSaved) {
			e.FailedSaves = 0
		}
		e.Save = save{}
		e.Requeuing, e.Returns, e.Run, e.Acted, e.Down, e.Resumed = false, false, time.Time{}, time.Time{}, time.Time{}, time.Time{}
		e.Requeues++
	})
}

// forgotten returns the jobs that were asked to save themselves and that LSF forgot before
// they were put back (CLEAN_PERIOD). It shows each to the cycle that found it missing.
func (c *Client) forgotten(p *snapshot, since time.Time) ([]backends.Job, error) {
	if !p.misses {
		return nil, nil
	}
	remembered, err := c.record.read()
	if err != nil {
		return nil, err
	}
	var lost []backends.Job
	for id, e := range remembered {
		missed := e.Gone.Add(-time.Nanosecond) // a cycle's snapshot shows what ended since the one before it
		if e.Save.Signal == "" || !e.Requeuing || e.Gone.IsZero() || missed.Before(since) || p.knows(id, e) {
			continue
		}
		project, step := backends.SplitProject(e.Save.Project)
		lost = append(lost, backends.Job{
			ID: id, User: e.Save.User, Project: project, Step: step, State: backends.Exited, Submitted: e.Submitted, Ended: missed,
			Mark: e.Mark, Requeues: e.Requeues, FailedSaves: e.FailedSaves, Lost: true,
		})
	}
	slices.SortFunc(lost, func(a, b backends.Job) int { return a.ID.Compare(b.ID) })
	return lost, nil
}

// knows reports whether a snapshot has the job of an entry.
func (p *snapshot) knows(id backends.ID, e entry) bool {
	j, err := reconcile.One(p.jobs, id)
	return err == nil && e.describes(j.listed)
}

// exitValues are the exit statuses with which LSF itself puts jobs of a queue back.
type exitValues struct {
	all   bool // but those in but
	exact []int
	but   []int
}

// listed reports whether a status is named, not only among all.
func (v exitValues) listed(status int) bool { return slices.Contains(v.exact, status) }

// has reports whether LSF puts a job back that ends with a status.
func (v exitValues) has(status int) bool {
	return v.listed(status) || v.all && status != 0 && !slices.Contains(v.but, status)
}
