package laws

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// mostToSave is checkpoint.max of the farms, in seconds.
const mostToSave = 40

// neverSaves is the time that a job would need to save itself that works on when it is asked to:
// it is done within what it says, or has failed.
const neverSaves = 3600

// drawSaves lets jobs of most farms save themselves on demand, within what they say or
// not, and periodically. Some end before they have saved themselves.
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
		j.Saves = pick("says it saves itself in", 20, mostToSave, 5, 20, 90)
		j.SaveTakes = pick("saves itself in", 1, neverSaves, neverSaves, j.Saves/2, neverSaves, j.Saves+20, 0)
		if j.SaveTakes == neverSaves {
			j.Takes, j.Saves = pick("works on, and takes", 60, 80, 60, 100), min(mostToSave, f.HoldLimit-int(2*cycle/time.Second))
		}
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

// askOf is a reclaim's asking a job to save itself.
type askOf struct {
	reclaim int64
	job     backends.ID
}

// endOfAsk is how the run ended in which a job was asked to save itself.
type endOfAsk string

const (
	goesOn      endOfAsk = "goes on"
	endsSaved   endOfAsk = "saved" // the queue has the job's work
	endsUnsaved endOfAsk = "failed, and put back"
	endsDone    endOfAsk = "done" // with exit status 0, and the job with it
	endsDead    endOfAsk = "ended with its job"
	endsUnseen  endOfAsk = "not known" // the queue said nothing of it
)

// saveBooks are what the queue said of the runs that were asked to save themselves.
type saveBooks struct {
	open map[backends.ID]askOf // of runs that have not ended
	ends map[askOf]endOfAsk
}

func newSaveBooks() saveBooks {
	return saveBooks{open: map[backends.ID]askOf{}, ends: map[askOf]endOfAsk{}}
}

func (b *saveBooks) ask(job backends.ID, reclaim int64) {
	b.open[job] = askOf{reclaim, job}
	b.ends[b.open[job]] = goesOn
}

func (b *saveBooks) end(job backends.ID, how endOfAsk) {
	if ask, asked := b.open[job]; asked {
		b.ends[ask] = how
		delete(b.open, job)
	}
}

func (b *saveBooks) watch(e manager.Effect) {
	switch e := e.(type) {
	case manager.StartRun:
		b.end(e.ID, endsUnseen)
	case manager.Notice:
		switch {
		case strings.HasPrefix(e.Text, backends.CheckpointMade):
			b.end(e.ID, endsSaved)
		case strings.HasPrefix(e.Text, backends.CheckpointFailed):
			b.end(e.ID, endsUnsaved)
		}
	case manager.Finished:
		how := endsDead
		if e.Job.State == backends.Done {
			how = endsDone
		}
		b.end(e.Job.ID, how)
	}
}

// lawSaves: a job that saves itself on demand is asked to, once in a run, and each other one
// is not; what is recorded of it is how that run ended, whatever becomes of the next one; what is
// remembered of it as lost is what it did not save; and those that lost nothing go before other
// victims.
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
	for _, o := range r.Outcomes {
		if a := &r.Plan.Actions[o.Action]; o.Result == ledger.Done && a.Verb == plan.Requeue && a.Save.OnDemand() {
			d.asked[runOf{a.Job, a.Started}] = true
			d.usage.saves.ask(a.Job, a.Reclaim)
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

// judgeEnd checks what is recorded of a victim against how the run ended in which it was asked to
// save itself.
func (d *drive) judgeEnd(r *plan.Reclaim, v *plan.Victim) {
	ask := askOf{r.ID, v.ID}
	how, asked := d.usage.saves.ends[ask]
	right := true
	switch {
	case !asked:
		right = v.Fate != plan.Finished
	case how == goesOn:
		right = v.Fate == plan.Taken && v.Saved == plan.NotSaved
	case how == endsSaved:
		right = v.Fate == plan.Taken && v.Saved == plan.Saved
	case how == endsUnsaved:
		right = v.Fate == plan.Taken && v.Saved == plan.SaveFailed
	case how == endsDone:
		right = v.Fate == plan.Finished && v.Saved == plan.NotSaved
		d.met[metFinished] = d.met[metFinished] || right
	case how == endsDead:
		right = v.Fate != plan.Finished && v.Saved == plan.NotSaved
	}
	if !right {
		d.breach(lawSaves, "the run in which reclaim %d asked job %v to save itself: %s; recorded: %+v", r.ID, v.ID, how, v)
	}
}

// judgeSave checks what is recorded of a victim against the queue's own count.
func (d *drive) judgeSave(r *plan.Reclaim, v *plan.Victim, j *backends.Job, lost map[backends.ID]float64) {
	d.judgeEnd(r, v)
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
