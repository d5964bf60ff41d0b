package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Dummies returns the submission of dummy jobs (see backends.Abilities.Place). What they
// run is not in it.
func Dummies(by By, key string, dummies []backends.Dummy) Submit {
	e := Submit{By: by, Key: key, Specs: make([]backends.Spec, len(dummies)), For: make([]backends.ID, len(dummies))}
	for i, d := range dummies {
		e.For[i] = d.For
		e.Specs[i] = backends.Spec{
			Name: "dummy for " + d.For.String(), Priority: d.Priority, Slots: 1, OneHost: true, Hosts: []string{d.Host},
			RunLimit: d.Limit, NoRequeue: true,
		}
		if d.Project != "" {
			e.Specs[i].Name, e.Specs[i].Project, e.Specs[i].Queue = "slot kept for "+d.Project, d.Project, d.Queues
		}
	}
	return e
}

// standby reports whether it is a dummy job that keeps a slot for the next jobs of a project.
func (e *submittedJob) standby() bool {
	return e.dummy && e.dummyFor == (backends.ID{}) && e.spec.Project != ""
}

// checkDummy returns an error if a dummy job is not allowed. It puts the dummy job into
// the queue of the job that it is for: the engine that manages that queue sees it. A standby job
// goes into the first of its queues that there is.
func (m *Manager) checkDummy(e submittedJob) error {
	heavy := m.jobs[e.dummyFor]
	if e.standby() && !e.by.Admin {
		return fmt.Errorf("keep a slot for %s: only an administrator can: %w", e.spec.Project, backends.ErrDenied)
	}
	switch {
	case !e.by.Admin:
		return fmt.Errorf("dummy job for job %s: only an administrator can place one: %w", e.dummyFor, backends.ErrDenied)
	case e.spec.Array != nil || e.spec.Slots != 1 || len(e.spec.Hosts) != 1 || e.spec.Hosts[0] == "":
		return errors.New("dummy job: it must ask for one slot on one named host")
	case e.spec.RunLimit <= 0:
		return errors.New("dummy job: give it a run limit, which ends it if the engine does not")
	case e.standby():
		queues := strings.Split(e.spec.Queue, ",")
		e.spec.Queue = ""
		if i := slices.IndexFunc(queues, func(name string) bool { return m.queueNamed(name) != nil }); i >= 0 {
			e.spec.Queue = queues[i]
		}
		return nil
	case heavy == nil:
		return fmt.Errorf("dummy job for job %s: %w", e.dummyFor, backends.ErrUnknownJob)
	case heavy.state.Ended():
		return fmt.Errorf("dummy job: %w", wrongState(heavy, "has ended"))
	case heavy.dummyFor != (backends.ID{}):
		return fmt.Errorf("dummy job: %w", wrongState(heavy, "is a dummy job itself"))
	}
	e.spec.Queue = ""
	if m.queueNamed(heavy.queue) != nil { // else it is no longer in the config
		e.spec.Queue = heavy.queue
	}
	return nil
}
