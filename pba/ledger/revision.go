package ledger

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/calendar"
)

// Revision is the number of the newest edit; 0: there was none.
func (l *Ledger) Revision(ctx context.Context) (n int64, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM edit`).Scan(&n)
	return n, l.explain("read the plan's revision", err)
}

// Edited is an edit of what a pool has in a week.
type Edited struct {
	At     time.Time
	Who    string
	Pool   string // as Pool.String writes it
	Week   calendar.Week
	Before string // as Terms.String writes them
}

// EditedSince lists the edits of allocations after a revision, oldest first, and the newest
// revision.
func (l *Ledger) EditedSince(ctx context.Context, revision int64) (all []Edited, newest int64, err error) {
	err = l.tx(ctx, "read the edits of the plan", func(tx *sql.Tx) error {
		all = nil
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(id), 0) FROM edit`).Scan(&newest); err != nil {
			return err
		}
		return each(ctx, tx, func(rows *sql.Rows) error {
			var (
				e       Edited
				subject string
			)
			if err := rows.Scan(when(&e.At), &e.Who, &subject, &e.Before); err != nil {
				return err
			}
			at := strings.LastIndexByte(subject, ' ')
			week, err := calendar.ParseWeek(subject[at+1:])
			if err == nil && at > 0 {
				e.Pool, e.Week = subject[:at], week
				all = append(all, e)
			}
			return nil
		}, `SELECT at, who, subject, before FROM edit WHERE id > ? AND what IN ('alloc set', 'alloc unset') ORDER BY id`, revision)
	})
	return all, newest, err
}
