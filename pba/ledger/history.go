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
	var all []Act
	err := each(ctx, l.db, func(rows *sql.Rows) error {
		var (
			a                   Act
			at, snap, priority  int64
			mode, verb, outcome string
		)
		err := rows.Scan(&at, &snap, &a.Who, &mode, &verb, &a.Job.Job, &a.Job.Index, &a.For.Job, &a.For.Index,
			&a.Reclaim, &priority, &a.Reason, &outcome, &a.Error, &a.Dummies)
		if err != nil {
			return err
		}
		a.At, a.Snapshot, a.Mode = unixtime.Time(at), unixtime.Time(snap), Mode(mode)
		a.Verb, a.Outcome, a.Priority = plan.Verb(verb), Result(outcome), backends.Priority(priority)
		all = append(all, a)
		return nil
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
	var (
		e                                 Ended
		submitted, started, ended, waited int64
		class, memory                     string
		pool                              int64
	)
	j := &e.Job
	err := l.db.QueryRowContext(ctx, `SELECT submitted, user, project, step, slots, started, ended, exit_code, requeues, waited, class, pool, memory
		FROM ended_job WHERE job = ? AND idx = ? ORDER BY submitted DESC LIMIT 1`, id.Job, id.Index).
		Scan(&submitted, &j.User, &j.Project, &j.Step, &j.Slots, &started, &ended, &j.ExitCode, &j.Requeues, &waited, &class, &pool, &memory)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, l.explain("read job "+id.String(), err)
	}
	j.ID, j.Submitted, j.Started, j.Ended = id, unixtime.Time(submitted), unixtime.Time(started), unixtime.Time(ended)
	j.State = backends.Done
	if j.ExitCode != 0 {
		j.State = backends.Exited
	}
	e.Waited, e.PBA = time.Duration(waited), class == "pba"
	if memory != "" {
		e.Memory = &plan.JobMemory{}
		if err := json.Unmarshal([]byte(memory), e.Memory); err != nil {
			return nil, l.explain("read job "+id.String(), err)
		}
	}
	return &e, nil
}

// Groups are the cached UNIX groups of users, and when each was looked up.
func (l *Ledger) Groups(ctx context.Context) (map[string]Groups, error) {
	all := map[string]Groups{}
	err := each(ctx, l.db, func(rows *sql.Rows) error {
		var (
			user, list string
			at         int64
			g          Groups
		)
		if err := rows.Scan(&user, &list, &at); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(list), &g.Names); err != nil {
			return err
		}
		g.LookedUp = unixtime.Time(at)
		all[user] = g
		return nil
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
	var (
		mode                        string
		started, snapshot, finished int64
	)
	err = l.db.QueryRowContext(ctx, `SELECT id, who, mode, started, snapshot, finished, actions, skipped, note FROM cycle ORDER BY id DESC LIMIT 1`).
		Scan(&c.ID, &c.Who, &mode, &started, &snapshot, &finished, &c.Actions, &c.Skipped, &c.Note)
	if errors.Is(err, sql.ErrNoRows) {
		return c, false, nil
	}
	c.Mode, c.Started, c.Snapshot, c.Finished = Mode(mode), unixtime.Time(started), unixtime.Time(snapshot), unixtime.Time(finished)
	return c, err == nil, l.explain("read the last cycle", err)
}

// CycleRecord is a cycle as it was recorded.
type CycleRecord struct {
	ID       int64     `json:"id"`
	Who      string    `json:"who"`
	Mode     Mode      `json:"mode"`
	Started  time.Time `json:"started"`
	Snapshot time.Time `json:"snapshot"`
	Finished time.Time `json:"finished,omitzero"` // zero: it never came to its end
	Actions  int       `json:"actions"`
	Skipped  int       `json:"skipped"`
	Note     string    `json:"note,omitempty"`
}
