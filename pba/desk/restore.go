package desk

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// SetPaused makes cycles begin nothing, or resume. It reports whether that is a change.
func (d *Desk) SetPaused(ctx context.Context, paused bool) (changed bool, err error) {
	if err := d.mayChange("pause or resume the engine"); err != nil {
		return false, err
	}
	err = d.edit(ctx, func() (err error) {
		changed, err = d.ledger.SetPaused(ctx, d.editor(), paused)
		return err
	})
	return changed, err
}

// Restore puts everything back that was done to the queue. It pauses first: the next
// cycle would do it all again. It calls report with what was done, before it checks that
// nothing is left.
func (d *Desk) Restore(ctx context.Context, report func(*Cycle) error) error {
	if err := d.mayChange("put everything back"); err != nil {
		return err
	}
	var r pba.Result
	err := d.locked(ctx, func() error {
		if _, err := d.ledger.SetPaused(ctx, d.editor(), true); err != nil {
			return err
		}
		var err error
		r, err = d.engine(false).Restore(ctx, d.Now)
		return err
	})
	if err != nil {
		return restoreError(err)
	}
	if err := report(cycleOf(&r, false)); err != nil {
		return err
	}
	if err := r.Failed(); err != nil {
		return restoreError(err)
	}
	if err := d.checkRestored(ctx, &r); err != nil {
		return err
	}
	waiting, err := d.countResuming(ctx)
	if err != nil {
		return restoreError(err)
	}
	if waiting > 0 {
		return againf("put everything back: %s for slots that others hold now: all else is put back and cycles are paused; try again later",
			counted(waiting, "suspended job waits", "suspended jobs wait"))
	}
	return nil
}

func restoreError(err error) error {
	return fmt.Errorf("put everything back: %w (cycles are paused; try again)", err)
}

// shownAfter limits the time in which a queue must show all that was put back: dummy jobs
// end by signals.
const shownAfter = 30 * time.Second

// checkRestored reads the queue until nothing is left that was to be put back.
func (d *Desk) checkRestored(ctx context.Context, r *pba.Result) error {
	for deadline := time.Now().Add(shownAfter); ; {
		left, err := d.engine(false).Remaining(ctx, r, d.Now)
		if err != nil {
			return restoreError(fmt.Errorf("check the result: %w", err))
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return againf("put everything back: the queue does not show it yet: %s, first %s of job %v (cycles are paused; try again)",
				counted(len(left), "change is still to be done", "changes are still to be done"), left[0].Verb, left[0].Job)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// countResuming returns the number of suspended jobs that go on once they fit, on a queue
// that must be reconciled for it.
func (d *Desk) countResuming(ctx context.Context) (int, error) {
	if d.queue.Abilities().Reconcile == nil {
		return 0, nil
	}
	farm, err := d.queue.Snapshot(ctx, d.Now())
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range farm.Jobs {
		if farm.Jobs[i].Resuming {
			n++
		}
	}
	return n, nil
}

// CanForget reports whether the queue can remove Allotment's traces from its jobs.
func (d *Desk) CanForget() bool { return d.queue.Abilities().Forget != nil }

// Forget removes the last traces from the queue's jobs, and returns a sentence with their
// number.
func (d *Desk) Forget(ctx context.Context) (string, error) {
	n, err := d.queue.Abilities().Forget(ctx)
	if err != nil {
		return "", fmt.Errorf("remove Allotment's tags from the jobs: %w (try again)", err)
	}
	return counted(n, "job had a tag or a rank; it has none any more", "jobs had a tag or a rank; they have none any more"), nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Pruned is dummy jobs that were ended, or would be, and why.
type Pruned struct {
	Dummies int
	Reason  string
}

// Prune ends the dummy jobs that no job needs; a dry run only returns them.
func (d *Desk) Prune(ctx context.Context, dryRun bool) ([]Pruned, error) {
	if dryRun {
		r, err := d.engine(true).Observe(ctx, d.Now)
		if err != nil {
			return nil, err
		}
		return pruned(unneeded(&r)), nil
	}
	if err := d.mayChange("end dummy jobs"); err != nil {
		return nil, err
	}
	var r pba.Result
	err := d.locked(ctx, func() (err error) {
		r, err = d.engine(false).Prune(ctx, d.Now)
		return err
	})
	if err == nil {
		err = r.Failed()
	}
	if err != nil {
		return nil, fmt.Errorf("end dummy jobs without a heavy job: %w (try again)", err)
	}
	return pruned(r.Plan.Actions), nil
}

// unneeded returns the actions that end dummy jobs that no job needs.
func unneeded(r *pba.Result) []plan.Action {
	return plan.Prune(r.State, r.Rules.Policy, r.State.Farm.At).Actions
}

func pruned(actions []plan.Action) []Pruned {
	all := make([]Pruned, len(actions))
	for i := range actions {
		all[i] = Pruned{len(actions[i].Dummies), actions[i].Reason}
	}
	return all
}
