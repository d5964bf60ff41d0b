package web

import (
	"context"
	"errors"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/bsub"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// reported returns how far running jobs are, by their own words, as their hosts reported it last:
// of jobs by their IDs, each with its user. It has those alone that the caller may read.
func (s *Server) reported(ctx context.Context, d *desk.Desk, users map[backends.ID]string) (map[backends.ID]string, error) {
	if len(users) == 0 {
		return nil, nil
	}
	wanted := map[backends.ID]bool{}
	for id := range users {
		wanted[id] = true
	}
	uses, err := s.usesOf(ctx, d, wanted)
	if errors.Is(err, errNotHeard) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own := d.OwnOnHosts()
	all, at := map[backends.ID]string{}, map[backends.ID]time.Time{}
	for i := range uses {
		u := &uses[i]
		owner, ok := users[u.Listed]
		if !ok || u.Progress == "" || u.SaidAt.Before(at[u.Listed]) || !own(string(u.Queue), u.User, owner) {
			continue
		}
		all[u.Listed], at[u.Listed] = bsub.Progress(&backends.Job{Progress: u.Progress}), u.SaidAt
	}
	return all, nil
}

// runs reports whether a job has processes.
func runs(s backends.State) bool { return s == backends.Running || s == backends.Suspended }

// addProgress adds how far a job is where its hosts keep that, not the queue.
func (s *Server) addProgress(ctx context.Context, d *desk.Desk, t *desk.Story) error {
	id, err := backends.ParseID(t.ID)
	if err != nil || t.Progress != "" || !runs(t.State) {
		return nil
	}
	all, err := s.reported(ctx, d, map[backends.ID]string{id: t.User})
	t.Progress = all[id]
	return err
}

// addProgresses is addProgress for a list.
func (s *Server) addProgresses(ctx context.Context, d *desk.Desk, list *desk.JobList) error {
	users, at := map[backends.ID]string{}, map[backends.ID]*desk.JobNow{}
	for i := range list.Jobs {
		j := &list.Jobs[i]
		if id, err := backends.ParseID(j.ID); err == nil && j.Progress == "" && runs(j.State) {
			users[id], at[id] = j.User, j
		}
	}
	all, err := s.reported(ctx, d, users)
	for id, text := range all {
		at[id].Progress = text
	}
	return err
}
