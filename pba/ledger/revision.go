package ledger

import (
	"context"
	"database/sql"
)

// Revision is the number of the newest edit; 0: there was none.
func (l *Ledger) Revision(ctx context.Context) (n int64, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM edit`).Scan(&n)
	return n, l.explain("read the plan's revision", err)
}

// EditedSince lists the edits of allocations after a revision, oldest first, and the newest
// revision.
func (l *Ledger) EditedSince(ctx context.Context, revision int64) (all []Record, newest int64, err error) {
	err = l.tx(ctx, "read the edits of the plan", func(tx *sql.Tx) (err error) {
		if err = tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM edit`).Scan(&newest); err == nil {
			all, err = records(ctx, tx, `e.id > ? AND e.pool > 0 ORDER BY e.id`, revision)
		}
		return err
	})
	return all, newest, err
}
