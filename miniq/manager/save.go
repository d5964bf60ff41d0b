package manager

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// Checkpoints on demand (R33): a run that is being requeued may be asked first to save
// its work, and has Save.Wait for it. How it ends says whether it has.

// saveOf returns how an act asks a job to save itself; the zero Checkpoint: it does not.
// Like a grace, a time beyond Config.KillGrace is an admin's.
func (m *Manager) saveOf(by By, j *job, a backends.Act) (backends.Checkpoint, error) {
	save := a.Save
	save.Every = 0
	if save == (backends.Checkpoint{}) {
		return save, nil
	}
	plain := save
	plain.Command = backends.Unescape(save.Command)
	if parsed, err := backends.ParseCheckpoint(plain.String()); err != nil || parsed != plain || !plain.OnDemand() {
		return save, fmt.Errorf("job %s: it can't be asked to save itself by %+v", j.id, plain)
	}
	if !by.Admin {
		save.Wait = min(save.Wait, m.cfg.KillGrace)
	}
	return save, nil
}

// hasSaved reports whether a run that was asked to save itself and has ended so did.
func (j *job) hasSaved(e Ended) bool {
	return j.save.OnDemand() && (e.Saved || e.ExitCode == backends.ExitSaved)
}

// hasFinished reports whether the job of a run that was being requeued is done: the run
// ended with 0, by itself or after the signal by which it was asked to save itself.
func (j *job) hasFinished(e Ended) bool {
	return e.ExitCode == 0 && !j.hasSaved(e) && (e.Self || e.Asked && j.save.Signal != "")
}

// judgeSave records what the end of a run that goes back into the queue, and was begun, says of
// its checkpoint.
func (m *Manager) judgeSave(j *job, saved bool, how string) {
	m.beforeChange(j)
	j.restarted = saved
	switch {
	case !j.save.OnDemand():
	case saved:
		j.failedSaves = 0
		m.emit(Notice{j.id, 0, backends.CheckpointMade + ": the next run can go on from there"})
	default:
		j.failedSaves++
		m.emit(Notice{j.id, 0, fmt.Sprintf("%s, %d in a row: %s", backends.CheckpointFailed, j.failedSaves, how)})
	}
}

// howEnded says how a run ended.
func howEnded(e Ended) string {
	if e.Reason != "" {
		return e.Reason
	}
	return fmt.Sprintf("exit status %d", e.ExitCode)
}
