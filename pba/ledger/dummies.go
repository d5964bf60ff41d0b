package ledger

import (
	"context"
	"database/sql"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func loadDummies(ctx context.Context, q querier) (dummy.Memory, error) {
	m := dummy.Memory{Gathers: map[backends.ID]dummy.Gather{}, Lights: map[backends.ID]dummy.Light{}}
	placed, err := getMeta(ctx, q, metaPlaced)
	if err != nil {
		return m, err
	}
	m.Placed = placed != 0
	err = each(ctx, q, func(rows *sql.Rows) error {
		var (
			id             backends.ID
			g              dummy.Gather
			since, backoff int64
		)
		err := rows.Scan(&id.Job, &id.Index, &g.Host, &since, &backoff)
		g.Since, g.Backoff = unixtime.Time(since), unixtime.Time(backoff)
		m.Gathers[id] = g
		return err
	}, `SELECT job, idx, host, since, backoff FROM gather`)
	if err != nil {
		return m, err
	}
	return m, each(ctx, q, func(rows *sql.Rows) error {
		var (
			id backends.ID
			l  dummy.Light
			at int64
		)
		err := rows.Scan(&id.Job, &id.Index, &l.For.Job, &l.For.Index, &l.Host, &at)
		l.At = unixtime.Time(at)
		m.Lights[id] = l
		return err
	}, `SELECT job, idx, for_job, for_idx, host, at FROM light`)
}

func storeDummies(ctx context.Context, tx *sql.Tx, was, is dummy.Memory) error {
	if was.Placed != is.Placed {
		placed := int64(0)
		if is.Placed {
			placed = 1
		}
		if err := setMeta(ctx, tx, metaPlaced, placed); err != nil {
			return err
		}
	}
	for id, g := range is.Gathers {
		if old, ok := was.Gathers[id]; ok && old.Host == g.Host && old.Since.Equal(g.Since) && old.Backoff.Equal(g.Backoff) {
			continue
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO gather (job, idx, host, since, backoff) VALUES `+places(5),
			id.Job, id.Index, g.Host, unixtime.Of(g.Since), unixtime.Of(g.Backoff))
		if err != nil {
			return err
		}
	}
	for id, l := range is.Lights {
		if old, ok := was.Lights[id]; ok && old.For == l.For && old.Host == l.Host && old.At.Equal(l.At) {
			continue
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO light (job, idx, for_job, for_idx, host, at) VALUES `+places(6),
			id.Job, id.Index, l.For.Job, l.For.Index, l.Host, unixtime.Of(l.At))
		if err != nil {
			return err
		}
	}
	if err := forgetJobs(ctx, tx, `DELETE FROM gather WHERE job = ? AND idx = ?`, was.Gathers, is.Gathers); err != nil {
		return err
	}
	return forgetJobs(ctx, tx, `DELETE FROM light WHERE job = ? AND idx = ?`, was.Lights, is.Lights)
}

// forgetJobs deletes what is remembered no more.
func forgetJobs[T any](ctx context.Context, tx *sql.Tx, statement string, was, is map[backends.ID]T) error {
	for id := range was {
		if _, ok := is[id]; ok {
			continue
		}
		if _, err := tx.ExecContext(ctx, statement, id.Job, id.Index); err != nil {
			return err
		}
	}
	return nil
}

// dummiesOf is how many dummy jobs an action is about.
func dummiesOf(a *plan.Action) int {
	n := len(a.Dummies)
	if a.Verb == plan.Place {
		for _, slots := range a.Slots {
			n += slots
		}
	}
	return n
}
