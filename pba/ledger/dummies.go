package ledger

import (
	"context"
	"database/sql"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

func loadDummies(ctx context.Context, q querier) (m dummy.Memory, err error) {
	placed, err := getMeta(ctx, q, metaPlaced)
	if err != nil {
		return m, err
	}
	m.Placed = placed != 0
	m.Gathers, err = table(ctx, q, func(id *backends.ID, g *dummy.Gather) []any {
		return []any{&id.Job, &id.Index, &g.Host, when(&g.Since), when(&g.Backoff)}
	}, `SELECT job, idx, host, since, backoff FROM gather`)
	if err != nil {
		return m, err
	}
	m.Lights, err = table(ctx, q, func(id *backends.ID, l *dummy.Light) []any {
		return []any{&id.Job, &id.Index, &l.For.Job, &l.For.Index, &l.Host, when(&l.At)}
	}, `SELECT job, idx, for_job, for_idx, host, at FROM light`)
	return m, err
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
	err := storeTable(was.Gathers, is.Gathers, func(a, b dummy.Gather) bool {
		return a.Host == b.Host && a.Since.Equal(b.Since) && a.Backoff.Equal(b.Backoff)
	}, func(id backends.ID, g dummy.Gather) error {
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO gather (job, idx, host, since, backoff) VALUES `+placeholders(5),
			id.Job, id.Index, g.Host, unixtime.Of(g.Since), unixtime.Of(g.Backoff))
		return err
	}, forgetJob(ctx, tx, "gather"))
	if err != nil {
		return err
	}
	return storeTable(was.Lights, is.Lights, func(a, b dummy.Light) bool {
		return a.For == b.For && a.Host == b.Host && a.At.Equal(b.At)
	}, func(id backends.ID, l dummy.Light) error {
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO light (job, idx, for_job, for_idx, host, at) VALUES `+placeholders(6),
			id.Job, id.Index, l.For.Job, l.For.Index, l.Host, unixtime.Of(l.At))
		return err
	}, forgetJob(ctx, tx, "light"))
}

// dummyCount returns the number of dummy jobs that an action is about.
func dummyCount(a *plan.Action) int {
	n := len(a.Dummies)
	if a.Verb == plan.Place {
		for _, slots := range a.Slots {
			n += slots
		}
	}
	return n
}
