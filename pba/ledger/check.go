package ledger

import (
	"context"
	"database/sql"
	"slices"
)

// Check asks SQLite whether the file is as it should be, and returns what it
// finds wrong, at most ten lines.
func (l *Ledger) Check(ctx context.Context) ([]string, error) {
	var wrong []string
	addFinding := func(rows *sql.Rows) error {
		var text string
		err := rows.Scan(&text)
		if text != "ok" {
			wrong = append(wrong, text)
		}
		return err
	}
	if err := each(ctx, l.db, addFinding, `PRAGMA quick_check(10)`); err != nil {
		return nil, l.explain("check the ledger", err)
	}
	err := each(ctx, l.db, addFinding, `SELECT 'a row of ' || "table" || ' refers to a missing one of ' || parent FROM pragma_foreign_key_check LIMIT 10`)
	return slices.Compact(wrong), l.explain("check the ledger", err)
}
