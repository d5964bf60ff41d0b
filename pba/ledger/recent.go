package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// ActiveCycle is a cycle that had something to do.
type ActiveCycle struct {
	CycleRecord
	Counts []ActCount `json:"counts"` // by verb and outcome
	Acts   []Act      `json:"acts"`   // the first ones but for ranks, which are many
}

// ActCount is a number of a cycle's actions.
type ActCount struct {
	Verb    plan.Verb `json:"verb"`
	Outcome Result    `json:"outcome"`
	Acts    int       `json:"acts"`
}

// ActiveCycles lists the last cycles that had something to do, the newest first, with at most
// so many acts of each. Before is a cycle's ID: only those before it are listed; 0: all.
func (l *Ledger) ActiveCycles(ctx context.Context, before int64, cycles, acts int) (all []ActiveCycle, err error) {
	err = l.tx(ctx, "read the last cycles", func(tx *sql.Tx) error {
		all, err = list(ctx, tx, func(c *ActiveCycle) []any {
			return []any{&c.ID, &c.Who, &c.Mode, when(&c.Started), when(&c.Read), when(&c.Planned), when(&c.Snapshot), when(&c.Finished), &c.Actions, &c.Skipped, &c.Note}
		}, `SELECT id, who, mode, started, was_read, planned, snapshot, finished, actions, skipped, note FROM cycle
			WHERE actions > 0 AND (?1 = 0 OR id < ?1) ORDER BY id DESC LIMIT ?2`, before, cycles)
		for i := range all {
			if err == nil {
				err = readActs(ctx, tx, &all[i], acts)
			}
		}
		return err
	})
	return all, err
}

func readActs(ctx context.Context, tx *sql.Tx, c *ActiveCycle, acts int) (err error) {
	c.Counts, err = list(ctx, tx, func(n *ActCount) []any { return []any{&n.Verb, &n.Outcome, &n.Acts} },
		`SELECT verb, outcome, COUNT(*) FROM action WHERE cycle = ? GROUP BY verb, outcome ORDER BY MIN(ord)`, c.ID)
	if err != nil {
		return err
	}
	c.Acts, err = list(ctx, tx, func(a *Act) []any {
		a.Snapshot, a.Who, a.Mode = c.Snapshot, c.Who, c.Mode
		return []any{when(&a.At), &a.Verb, &a.Job.Job, &a.Job.Index, &a.For.Job, &a.For.Index, &a.Reclaim, &a.Priority, &a.Reason, &a.Outcome, &a.Error, &a.Dummies}
	}, `SELECT CASE WHEN at = 0 THEN ? ELSE at END, verb, job, idx, for_job, for_idx, reclaim, priority, reason, outcome, error, dummies
		FROM action WHERE cycle = ? AND verb != 'rank' ORDER BY ord LIMIT ?`, unixtime.Of(c.Started), c.ID, acts)
	return err
}

// EndedOf lists the last jobs of a user that ended at or after a time, the newest first.
func (l *Ledger) EndedOf(ctx context.Context, user string, since time.Time, n int) ([]backends.Job, error) {
	all, err := list(ctx, l.db, func(j *backends.Job) []any {
		j.User = user
		return []any{&j.ID.Job, &j.ID.Index, when(&j.Submitted), &j.Project, &j.Step, &j.Slots, when(&j.Started), when(&j.Ended), &j.ExitCode}
	}, `SELECT job, idx, submitted, project, step, slots, started, ended, exit_code
		FROM ended_job WHERE user = ? AND ended >= ? ORDER BY ended DESC, job DESC, idx DESC LIMIT ?`, user, unixtime.Of(since), n)
	for i := range all {
		if all[i].State = backends.Done; all[i].ExitCode != 0 {
			all[i].State = backends.Exited
		}
	}
	return all, l.explain("read the jobs of "+user+" that ended", err)
}
