package manager

import (
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
)

// saves is what must be true of a job's checkpoints on demand.
type saves struct {
	failed    int
	restarted bool
}

// anySave is how an act asks a job to save itself, if it does.
func anySave(t *rapid.T) backends.Checkpoint {
	wait := time.Duration(rapid.IntRange(1, 90).Draw(t, "wait")) * time.Second
	return rapid.SampledFrom([]backends.Checkpoint{
		{}, {}, {Every: wait}, {Signal: "SIGUSR1", Wait: wait}, {Signal: "SIGTERM", Wait: wait, Every: wait}, {Command: "/save", Wait: wait},
	}).Draw(t, "save")
}

// anyExit is the exit status of a run.
func anyExit(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 1, backends.ExitSaved, 137}).Draw(t, "code")
}

func (w *world) savesOf(id backends.ID) *saves {
	if w.saves[id] == nil {
		w.saves[id] = &saves{}
	}
	return w.saves[id]
}

// anyEnd is the end of a run as its keeper reports it: the job saves itself, finishes, fails
// or does nothing until it is killed; it may not have been begun.
func (w *world) anyEnd(r *liveRun) Ended {
	e := Ended{ID: r.ID, Run: r.Run, ExitCode: anyExit(w.T), Self: rapid.Bool().Draw(w.T, "self"), Unbegun: r.killed && rapid.IntRange(0, 9).Draw(w.T, "unbegun") == 0}
	if e.Unbegun {
		e.Self, e.ExitCode = false, 143
	}
	if r.save.OnDemand() && !e.Self && !e.Unbegun {
		e.Asked = rapid.IntRange(0, 9).Draw(w.T, "asked") > 0
		e.Saved = e.Asked && r.save.Command != "" && rapid.Bool().Draw(w.T, "saved")
	}
	return e
}

// endWithSave is the law of checkpoints on demand: what is to be true of a job when its run
// ends so. It returns whether the job goes back into the queue.
func (w *world) endWithSave(r *liveRun, event Event) (back bool) {
	s := w.savesOf(r.ID)
	switch e := event.(type) {
	case Ended:
		saved := r.save.OnDemand() && (e.Saved || e.ExitCode == backends.ExitSaved)
		done := e.ExitCode == 0 && (e.Self || e.Asked && r.save.Signal != "") && !saved
		if !r.requeued || done {
			return false
		}
		if !e.Unbegun {
			w.judge(s, r, saved)
		}
		return true
	case RunLost:
		if !r.requeued && (r.killed || !r.Spec.Rerunnable) {
			return false
		}
		w.judge(s, r, false)
		return true
	}
	return false // a run that was not begun may be tried too often
}

func (w *world) judge(s *saves, r *liveRun, saved bool) {
	switch s.restarted = saved; {
	case saved:
		s.failed = 0
		w.counts["saved"]++
	case r.save.OnDemand():
		s.failed++
		w.counts["unsaved"]++
	}
}

// checkSaves compares a job with that law after the end of its run.
func (w *world) checkSaves(id backends.ID, back bool) {
	j := w.m.view(w.m.jobs[id], w.now)
	if j.FailedSaves != w.savesOf(id).failed || back && j.State.Ended() {
		w.Fatalf("job %+v: want %d failed checkpoints, and it to go on: %v", j, w.savesOf(id).failed, back)
	}
}

// noteRequeue notes which runs end to be requeued.
func (w *world) noteRequeue(e Event, result Result) {
	acts, ok := e.(Requeue)
	for i := range acts.Acts {
		id := acts.Acts[i].ID
		if j := w.m.jobs[id]; ok && j != nil && result.Errors[i] == nil {
			w.runs[id].requeued = true
		}
	}
}
