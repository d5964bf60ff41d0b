package pba

import (
	"context"
	"errors"
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// errNoDummy keeps a wrong plan from ending a user's job.
var errNoDummy = errors.New("it is no dummy job")

// submitDummies submits the dummy jobs of some actions, all in one call.
func (a *applier) submitDummies(ctx context.Context, actions []plan.Action) backends.Errors {
	var dummies []backends.Dummy
	var owners []int // the action that each is of
	for i := range actions {
		x := &actions[i]
		for k, host := range x.Hosts {
			for range x.Slots[k] {
				dummies = append(dummies, backends.Dummy{For: x.Job, Project: x.Project, Queues: x.Queue, Host: host, Priority: x.Priority, Limit: x.Limit})
				owners = append(owners, i)
			}
		}
	}
	errs := make(backends.Errors, len(dummies))
	for i, s := range a.e.Backend.Abilities().Place(ctx, dummies) {
		errs[i] = s.Err
	}
	return perAction(len(actions), owners, errs, "placed")
}

// endDummies ends the dummy jobs of some actions, all in one call. One that has ended by
// itself is no failure.
func (a *applier) endDummies(ctx context.Context, actions []plan.Action) backends.Errors {
	isDummy := map[backends.ID]bool{}
	for i := range a.farm.Jobs {
		if j := &a.farm.Jobs[i]; j.IsDummy() {
			isDummy[j.ID] = true
		}
	}
	var ids []backends.ID
	var owners, foreign []int
	for i := range actions {
		for _, id := range actions[i].Dummies {
			if !isDummy[id] {
				foreign = append(foreign, i)
				continue
			}
			ids = append(ids, id)
			owners = append(owners, i)
		}
	}
	var errs backends.Errors
	if len(ids) > 0 {
		errs = a.e.Backend.Kill(ctx, ids)
	}
	for i, err := range errs {
		if isGone(err) {
			errs[i] = nil
		}
	}
	for _, i := range foreign {
		owners, errs = append(owners, i), append(errs, errNoDummy)
	}
	return perAction(len(actions), owners, errs, "ended")
}

// perAction sums up what became of dummy jobs by the actions that they are of.
func perAction(actions int, owners []int, errs backends.Errors, done string) backends.Errors {
	all, failed, of := make(backends.Errors, actions), make([]int, actions), make([]int, actions)
	for i, err := range errs {
		owner := owners[i]
		of[owner]++
		if err == nil {
			continue
		}
		if failed[owner]++; all[owner] == nil {
			all[owner] = err
		}
	}
	for i, err := range all {
		if err != nil {
			all[i] = fmt.Errorf("%d of %d dummy jobs were not %s: %w", failed[i], of[i], done, err)
		}
	}
	return all
}
