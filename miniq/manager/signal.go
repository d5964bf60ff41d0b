package manager

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// Signalled returns the runs that a signal to a job, or to an array's elements, goes to:
// those that are alive. It is an error if there is none, or if a user who is no admin
// does not own the job.
func (m *Manager) Signalled(by By, id backends.ID) ([]Run, error) {
	jobs := m.find(id)
	if len(jobs) == 0 {
		return nil, fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	}
	var runs []Run
	for _, j := range jobs {
		if !by.Admin && by.User != j.user {
			return nil, denied(j, "it is another user's")
		}
		if j.live() {
			runs = append(runs, m.runOf(j))
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("job %v does not run: %w", id, backends.ErrWrongState)
	}
	return runs, nil
}
