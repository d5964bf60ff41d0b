package manager

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// Signalled are the runs to which somebody's signal to a job goes, or to an
// array's elements: those that are alive.
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
