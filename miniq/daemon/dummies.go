package daemon

import (
	"fmt"
	"os"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// answerDummies submits dummy jobs. What they run is the daemon's own choice, and no other
// submission can make dummy jobs.
func (d *daemon) answerDummies(c *connection, req *miniq.Request) error {
	results, err := d.submitDummies(c, req)
	return c.answer(miniq.Response{Submitted: results, Error: miniq.ToError(err)})
}

func (d *daemon) submitDummies(c *connection, req *miniq.Request) ([]miniq.Submission, error) {
	if err := checkKey(req.Key); err != nil {
		return nil, err
	}
	if !c.by.Admin {
		return nil, fmt.Errorf("place dummy jobs: only an administrator can: %w", backends.ErrDenied)
	}
	if d.Dummy == "" {
		return nil, fmt.Errorf("place dummy jobs: %w: miniqd found no adummy beside it: install all programs of one version, then restart it", backends.ErrUnable)
	}
	as, err := d.runsAs(c)
	if err != nil {
		return nil, err
	}
	event := manager.Dummies(c.by, req.Key, req.Dummies)
	bodies := make([]body, len(event.Specs))
	for i := range bodies {
		bodies[i] = body{Command: []string{d.Dummy}, Dir: "/", Umask: 0o077, Stdin: os.DevNull, Stdout: os.DevNull, Stderr: os.DevNull, As: as}
	}
	result, err := d.ask(input{event: event, bodies: bodies})
	if err != nil {
		return nil, err
	}
	results := make([]miniq.Submission, len(result.Submitted))
	for i, s := range result.Submitted {
		results[i] = miniq.Submission{ID: s.ID, Queue: s.Queue, Error: miniq.ToError(s.Err)}
	}
	return results, nil
}
