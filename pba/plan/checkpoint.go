package plan

import (
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// MaxSave is the most time that a job may ask for to save itself: checkpoint.max, and less if a
// hold that begins with the preemption would end before the job is seen in the queue again.
func (p *Policy) MaxSave() time.Duration {
	return max(0, min(p.CheckpointMax, p.HoldLimit-2*p.Cycle)).Truncate(time.Second)
}

// savesHow returns how a job is asked to save itself before it is requeued (R33). The zero
// Checkpoint: it is not asked. It does not say how, or chose to be suspended; the queue can't
// ask in that way; it wants more time than the site allows; it failed too often; or others
// wait for its end.
func (f *farm) savesHow(j *backends.Job, tag *backends.Tag) backends.Checkpoint {
	c, able := tag.Checkpoint, &f.state.Abilities
	switch {
	case !c.OnDemand(), tag.Preempt == backends.PreemptSuspend,
		c.Signal != "" && !able.SavesBySignal, c.Command != "" && !able.SavesByCommand,
		c.Wait > f.policy.MaxSave(), j.FailedSaves >= backends.MaxFailedSaves, j.Awaited:
		return backends.Checkpoint{}
	}
	c.Every = 0 // which is not asked for
	return c
}

// stake says in a sentence what a preemption would cost a job, and how it would cost nothing.
func (f *farm) stake(j *job) string {
	tag, _, _ := backends.ParseTag(j.Tag)
	c, able := tag.Checkpoint, &f.state.Abilities
	ask := "submit it with ALLOTMENT_CHECKPOINT, by which it saves itself when it is asked to"
	if able.SuspendFrees {
		ask += ", or with ALLOTMENT_PREEMPT=suspend"
	}
	switch {
	case j.preempt == backends.PreemptSuspend:
		return "if it is preempted it is suspended, and loses nothing"
	case j.saves.OnDemand():
		return fmt.Sprintf("if it is preempted it has %v to save itself, and loses nothing if it does", j.saves.Wait)
	case c.OnDemand() && j.Awaited:
		return "it is not asked to save itself, as other jobs wait for its end: the queue would take that of its run for it"
	case c.OnDemand() && c.Wait > f.policy.MaxSave():
		return fmt.Sprintf("it is not asked to save itself, as it wants %v for that: the site allows %v (checkpoint.max)", c.Wait, f.policy.MaxSave())
	case c.OnDemand() && j.FailedSaves >= backends.MaxFailedSaves:
		return fmt.Sprintf("it is not asked to save itself any more: it did not %d times in a row, within the %v that it wanted", j.FailedSaves, c.Wait)
	case c.OnDemand():
		by := "a signal"
		if c.Command != "" {
			by = "a command"
		}
		return "it is not asked to save itself: this queue can't do that by " + by
	case j.every > 0:
		return fmt.Sprintf("if it is preempted it loses what it did since its last checkpoint, at most %v; to lose nothing, %s", j.every, ask)
	}
	return "if it is preempted it starts again from the beginning; to lose nothing, " + ask
}

// grace returns how long a job may go on after it was preempted.
func (f *farm) grace(j *job) time.Duration {
	switch {
	case j.saves.OnDemand():
		return j.saves.Wait
	case j.preempt == backends.PreemptSuspend:
		return 0
	}
	return f.policy.GracePeriod
}

// Saving returns the time that the victims of a reclaim have to save themselves (R33).
func (r *Reclaim) Saving() time.Duration {
	var most time.Duration
	for i := range r.Victims {
		if v := &r.Victims[i]; v.Fate == Intended || v.Fate == Taken || v.Fate == Finished {
			most = max(most, v.Save)
		}
	}
	return most
}

// andSaving is the end of a sentence about free_timeout.
func (r *Reclaim) andSaving() string {
	if most := r.Saving(); most > 0 {
		return fmt.Sprintf(" and the %s that they had to save themselves", most)
	}
	return ""
}

// updateSave records whether a victim that was asked to save itself did so, once it has left
// the run in which it was asked. The queue counts failures.
func (f *farm) updateSave(r *Reclaim, victim *Victim, j *job) {
	if victim.Fate != Taken || victim.Save == 0 || victim.Saved != "" || j == nil || j.Mark != r.Mark() {
		return
	}
	if (j.State == backends.Running || j.State == backends.Suspended) && j.Started.Equal(victim.Started) {
		return // its owner may stop it meanwhile
	}
	if victim.Saved = savedItself(j.Job); victim.Saved == Saved {
		j.mem.GaveWay = true
		return
	}
	j.mem.Lost += victim.Loss()
}

// settleSave records what became of a victim that was asked to save itself and has ended since
// the last cycle. If that was in the run in which it was asked, with exit status 0, it had only to
// end, and is not preempted for good. If it had left that run before, the queue's count of failures
// says how: its end says nothing of its save.
func (f *farm) settleSave(r *Reclaim, victim *Victim, ended *backends.Job) {
	switch {
	case victim.Save == 0 || victim.Saved != NotSaved || victim.Fate != Intended && victim.Fate != Taken:
	case ended == nil || ended.Mark != r.Mark():
	case r.hadLeft(victim, ended):
		victim.Fate, victim.Saved = Taken, savedItself(ended)
	case ended.ExitCode == 0:
		victim.Fate = Finished
	}
}

// hadLeft reports whether a victim had left the run that is meant before it ended: it ended in a
// later one, or was ended while it waited, and has no start. A start before the reclaim is of the
// run that is meant, also if it is another than was seen: queues show resumed runs in several ways.
func (r *Reclaim) hadLeft(victim *Victim, ended *backends.Job) bool {
	if ended.Started.IsZero() {
		return ended.ExitCode != 0
	}
	return !ended.Started.Equal(victim.Started) && !ended.Started.Before(r.Planned)
}

// savedItself returns what the queue's count of failures says of the last run that was asked to
// save itself.
func savedItself(j *backends.Job) SaveResult {
	if j.FailedSaves == 0 {
		return Saved
	}
	return SaveFailed
}

// past returns the jobs that ended since the last cycle, by ID, but those that their requeue ended.
func (f *farm) past() map[backends.ID]*backends.Job {
	all := map[backends.ID]*backends.Job{}
	for i := range f.state.Farm.Ended {
		if j := &f.state.Farm.Ended[i]; !j.Lost {
			all[j.ID] = j
		}
	}
	return all
}
