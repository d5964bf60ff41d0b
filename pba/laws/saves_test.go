package laws

import (
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// mostToSave is checkpoint.max of the farms, in seconds.
const mostToSave = 40

// drawSaves lets jobs of most farms save themselves on demand, within what they say or
// not, and periodically.
func (f *farm) drawSaves(t *rapid.T, d dice) {
	pick := func(what string, n ...int) int { return n[d.percent.Draw(t, what)*len(n)/100] }
	if d.percent.Draw(t, "saves") < 25 {
		return
	}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if d.percent.Draw(t, "job that saves") < 40 {
			continue
		}
		j.Saves = pick("says it saves itself in", 5, 20, 20, mostToSave, 90)
		j.SaveTakes = pick("saves itself in", 1, j.Saves/2, j.Saves+20, 0)
		j.Every = pick("saves itself every", 0, 0, 30, 100)
	}
}

func (j *jobCase) checkpoint() backends.Checkpoint {
	c := backends.Checkpoint{Every: seconds(j.Every)}
	if j.Saves > 0 {
		c.Signal, c.Wait = "SIGUSR1", seconds(j.Saves)
	}
	return c
}

// runOf is a run of a job.
type runOf struct {
	job     backends.ID
	started time.Time
}

// lawSaves: a job that saves itself on demand is asked to, once in a run, and each other one
// is not; what is remembered of it as lost is what it did not save; and those that lost nothing
// go before other victims.
func (d *drive) lawSaves(r *pba.Result, after *backends.Snapshot) {
	jobs := map[backends.ID]*backends.Job{}
	for i := range r.State.Farm.Jobs {
		jobs[r.State.Farm.Jobs[i].ID] = &r.State.Farm.Jobs[i]
	}
	for i := range r.Plan.Actions {
		a := &r.Plan.Actions[i]
		if a.Verb != plan.Requeue && a.Verb != plan.Suspend {
			continue
		}
		if d.asked[runOf{a.Job, a.Started}] {
			d.breach(lawSaves, "job %v was asked to save itself, and is preempted again in that run: %+v", a.Job, a)
		}
		if want := d.mustSave(jobs[a.Job]); a.Verb == plan.Requeue && a.Save.Wait != want {
			d.breach(lawSaves, "job %v (%s, %d failed) is asked to save itself by %+v, want %v", a.Job, jobs[a.Job].Tag, jobs[a.Job].FailedSaves, a.Save, want)
		}
	}
	for _, o := range r.Outcomes {
		if a := &r.Plan.Actions[o.Action]; o.Result == ledger.Done && a.Verb == plan.Requeue && a.Save.OnDemand() {
			d.asked[runOf{a.Job, a.Started}] = true
		}
	}
	lost := map[backends.ID]float64{}
	for i := range r.Plan.Memory.Reclaims {
		r := &r.Plan.Memory.Reclaims[i]
		for k := range r.Victims {
			d.judgeSave(r, &r.Victims[k], jobs[r.Victims[k].ID], lost)
		}
	}
	for id, m := range r.Plan.Memory.Jobs {
		if was := r.State.Memory.Jobs[id].Lost; m.Lost > was && lost[id] == 0 {
			d.breach(lawSaves, "job %v lost nothing to a reclaim of this hour, and %v slot-seconds are added to what it lost", id, m.Lost-was)
		}
	}
	d.judgeWhoComesBack(&r.Plan, after)
}

// judgeWhoComesBack looks at the queue after a plan.
func (d *drive) judgeWhoComesBack(p *plan.Plan, farm *backends.Snapshot) {
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		m, known := p.Memory.Jobs[j.ID]
		if known && j.State == backends.Pending && j.Priority.Level() == backends.LevelVictim && m.GaveWay != (j.Priority.Value() >= 200) {
			d.breach(lawSaves, "job %v stands at %v %d; remembered: %+v", j.ID, j.Priority.Level(), j.Priority.Value(), m)
		}
	}
}

// mustSave returns for how long a victim is to have time to save itself.
func (f *farm) mustSave(j *backends.Job) time.Duration {
	tag, _, err := backends.ParseTag(j.Tag)
	if c := tag.Checkpoint; err == nil && c.Signal != "" && c.Wait <= min(seconds(mostToSave), seconds(f.HoldLimit)-2*cycle) && j.FailedSaves < 2 {
		return c.Wait
	}
	return 0
}

// judgeSave checks what is recorded of a victim against the queue's own count.
func (d *drive) judgeSave(r *plan.Reclaim, v *plan.Victim, j *backends.Job, lost map[backends.ID]float64) {
	if v.Fate == plan.Finished {
		d.met[metFinished] = true
	}
	if v.Fate != plan.Taken {
		return
	}
	if v.Mode == backends.PreemptRequeue && v.Saved != plan.Saved {
		lost[v.ID] += float64(v.Slots)
	}
	if v.Save == 0 || j == nil || j.Mark != r.Mark() {
		return
	}
	d.met[metSaved] = d.met[metSaved] || v.Saved == plan.Saved
	d.met[metSaveFailed] = d.met[metSaveFailed] || v.Saved == plan.SaveFailed
	in := j.State == backends.Running && j.Started.Equal(v.Started)
	if in != (v.Saved == plan.NotSaved) {
		d.breach(lawSaves, "job %v, %v since %v, is recorded as %q: %+v", v.ID, j.State, j.Started, v.Saved, v)
	}
	if !in && (v.Saved == plan.Saved) != (j.FailedSaves == 0) {
		d.breach(lawSaves, "job %v has %d failed checkpoints, and is recorded as %q", v.ID, j.FailedSaves, v.Saved)
	}
}
