package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Act is one action as it was recorded.
type Act struct {
	At       time.Time         `json:"at"` // of its outcome, or of its cycle
	Snapshot time.Time         `json:"snapshot"`
	Who      string            `json:"who"`
	Mode     Mode              `json:"mode"`
	Verb     plan.Verb         `json:"verb"`
	Job      backends.ID       `json:"job"`
	For      backends.ID       `json:"for"`
	Reclaim  int64             `json:"reclaim,omitempty"`
	Priority backends.Priority `json:"-"`
	Dummies  int               `json:"dummies,omitempty"` // jobs to be placed or ended
	Reason   string            `json:"reason"`
	Outcome  Result            `json:"outcome"`
	Error    string            `json:"error,omitempty"`
}

// Acts are the last n actions upon a job, oldest first.
func (l *Ledger) Acts(ctx context.Context, id backends.ID, n int) ([]Act, error) {
	all, err := list(ctx, l.db, func(a *Act) []any {
		return []any{
			when(&a.At), when(&a.Snapshot), &a.Who, &a.Mode, &a.Verb, &a.Job.Job, &a.Job.Index, &a.For.Job, &a.For.Index,
			&a.Reclaim, &a.Priority, &a.Reason, &a.Outcome, &a.Error, &a.Dummies,
		}
	}, `SELECT CASE WHEN a.at = 0 THEN c.started ELSE a.at END, c.snapshot, c.who, c.mode, a.verb, a.job, a.idx,
			a.for_job, a.for_idx, a.reclaim, a.priority, a.reason, a.outcome, a.error, a.dummies
		FROM action a JOIN cycle c ON c.id = a.cycle WHERE a.job = ? AND a.idx = ? ORDER BY a.id DESC LIMIT ?`,
		id.Job, id.Index, n)
	slices.Reverse(all)
	return all, l.explain("read the acts upon job "+id.String(), err)
}

// ReclaimsOf are the reclaims that a job was the beneficiary of, or a victim of,
// oldest first.
func (l *Ledger) ReclaimsOf(ctx context.Context, id backends.ID) ([]plan.Reclaim, error) {
	var all []plan.Reclaim
	err := l.tx(ctx, "read the reclaims of job "+id.String(), func(tx *sql.Tx) error {
		var err error
		all, err = loadReclaims(ctx, tx, `WHERE (job = ? AND idx = ?) OR id IN (SELECT reclaim FROM victim WHERE job = ? AND idx = ?)`,
			id.Job, id.Index, id.Job, id.Index)
		return err
	})
	return all, err
}

// EndedJob is the last job of that ID that ended; nil if the ledger knows none.
func (l *Ledger) EndedJob(ctx context.Context, id backends.ID) (*Ended, error) {
	e := &Ended{Job: backends.Job{ID: id, State: backends.Done}}
	j := &e.Job
	err := l.db.QueryRowContext(ctx, `SELECT submitted, user, project, step, slots, started, ended, exit_code, requeues, waited, class = 'pba', memory
		FROM ended_job WHERE job = ? AND idx = ? ORDER BY submitted DESC LIMIT 1`, id.Job, id.Index).
		Scan(when(&j.Submitted), &j.User, &j.Project, &j.Step, &j.Slots, when(&j.Started), when(&j.Ended), &j.ExitCode, &j.Requeues, &e.Waited, &e.PBA, fromJSON{&e.Memory})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, l.explain("read job "+id.String(), err)
	}
	if j.ExitCode != 0 {
		j.State = backends.Exited
	}
	return e, nil
}

// Groups are the cached UNIX groups of users, and when each was looked up.
func (l *Ledger) Groups(ctx context.Context) (map[string]Groups, error) {
	all, err := table(ctx, l.db, func(user *string, g *Groups) []any {
		return []any{user, fromJSON{&g.Names}, when(&g.LookedUp)}
	}, `SELECT user, groups, looked_up FROM user_groups`)
	return all, l.explain("read the cached groups", err)
}

// Groups are one user's UNIX groups.
type Groups struct {
	Names    []string
	LookedUp time.Time
}

// SetGroups stores looked-up groups.
func (l *Ledger) SetGroups(ctx context.Context, groups map[string]Groups) error {
	return l.tx(ctx, "store looked-up groups", func(tx *sql.Tx) error {
		for user, g := range groups {
			list, err := json.Marshal(g.Names)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO user_groups (user, groups, looked_up) VALUES (?, ?, ?)`, user, string(list), unixtime.Of(g.LookedUp))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// LastCycle is the newest cycle's record; ok is false if there was none.
func (l *Ledger) LastCycle(ctx context.Context) (c CycleRecord, ok bool, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT id, who, mode, started, was_read, planned, snapshot, finished, actions, skipped, note FROM cycle ORDER BY id DESC LIMIT 1`).
		Scan(&c.ID, &c.Who, &c.Mode, when(&c.Started), when(&c.Read), when(&c.Planned), when(&c.Snapshot), when(&c.Finished), &c.Actions, &c.Skipped, &c.Note)
	if errors.Is(err, sql.ErrNoRows) {
		return c, false, nil
	}
	return c, err == nil, l.explain("read the last cycle", err)
}

// CycleRecord is a cycle as it was recorded.
type CycleRecord struct {
	ID       int64     `json:"id"`
	Who      string    `json:"who"`
	Mode     Mode      `json:"mode"`
	Started  time.Time `json:"started"`
	Read     time.Time `json:"read,omitzero"`    // when the queue's answer was there; zero: not known
	Planned  time.Time `json:"planned,omitzero"` // when the plan was made; zero: not known
	Snapshot time.Time `json:"snapshot"`
	Finished time.Time `json:"finished,omitzero"` // zero: it never came to its end
	Actions  int       `json:"actions"`
	Skipped  int       `json:"skipped"`
	Note     string    `json:"note,omitempty"`
}
