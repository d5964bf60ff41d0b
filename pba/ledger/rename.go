package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
)

// formerKept is how long a former name is kept at least: submissions that were under way, or a
// filter that had read the plan before, may still bring jobs with it.
const formerKept = 24 * time.Hour

// maxFormer is the largest number of former names of a project.
const maxFormer = 20

// CheckRename returns the error that RenameProject would return.
func (l *Ledger) CheckRename(ctx context.Context, from, to string) error {
	return l.edit(ctx, "check the project's name", func(tx *sql.Tx) error {
		_, err := renameable(ctx, tx, from, to)
		return err
	})
}

// RenameProject renames a project, its past included. Jobs that have the former name count
// for the project until none is unfinished. It returns an error if another project has the name
// or had it; a former name of its own it may have again.
func (l *Ledger) RenameProject(ctx context.Context, by Editor, from, to string) error {
	return l.edit(ctx, "rename the project", func(tx *sql.Tx) error {
		id, err := renameable(ctx, tx, from, to)
		if err != nil {
			return err
		}
		for _, s := range []struct {
			statement string
			args      []any
		}{
			{`DELETE FROM former_name WHERE name = ?`, []any{to}},
			{`INSERT INTO former_name (name, project, until) VALUES (?, ?, ?)`, []any{from, id, unixtime.Of(by.At)}},
			{`UPDATE project SET name = ? WHERE id = ?`, []any{to, id}},
			{`UPDATE ended_job SET project = ? WHERE project = ?`, []any{to, from}},
			{`UPDATE reclaim SET project = ? WHERE project = ?`, []any{to, from}},
			{`UPDATE victim SET project = ? WHERE project = ?`, []any{to, from}},
			{`UPDATE use_hour SET project = ? WHERE project = ?`, []any{to, from}},
			{`UPDATE user_hour SET project = ? WHERE project = ?`, []any{to, from}},
		} {
			if _, err := tx.ExecContext(ctx, s.statement, s.args...); err != nil {
				return err
			}
		}
		if err := renameRunTimes(ctx, tx, from, to); err != nil {
			return err
		}
		return audit(ctx, tx, by, id, "project rename", from, from, to)
	})
}

// renameable returns the number of a project that may be renamed.
func renameable(ctx context.Context, tx *sql.Tx, from, to string) (int64, error) {
	id, p, err := projectID(ctx, tx, from)
	if err != nil {
		return 0, err
	}
	if err := freeName(ctx, tx, to, id); err != nil {
		return 0, err
	}
	if len(p.Former) >= maxFormer && !slices.Contains(p.Former, to) {
		return 0, fmt.Errorf("project %q has %d former names that unfinished jobs may have, as many as are kept: rename it once these jobs have ended", from, len(p.Former))
	}
	var removed time.Time
	err = tx.QueryRowContext(ctx, `SELECT removed FROM project WHERE name = ? AND removed > 0 LIMIT 1`, to).Scan(when(&removed))
	if err == nil {
		err = fmt.Errorf("a project %q was removed on %s: in reports its past and that of %q would be one", to, removed.UTC().Format(time.DateOnly), from)
	} else if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return id, err
}

// freeName returns an error if a project has a name, or another project than this one had it.
func freeName(ctx context.Context, tx *sql.Tx, name string, project int64) error {
	if _, _, err := projectID(ctx, tx, name); err == nil {
		return fmt.Errorf("%w: %q", ErrProjectExists, name)
	} else if !errors.Is(err, ErrUnknownProject) {
		return err
	}
	var now string
	err := tx.QueryRowContext(ctx, `SELECT p.name FROM former_name n JOIN project p ON p.id = n.project WHERE n.name = ? AND n.project != ?`, name, project).Scan(&now)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%q is a former name of %s, and unfinished jobs may still have it", name, now)
	}
	return err
}

// renameRunTimes renames a project in the keys of plan.Allocation.
func renameRunTimes(ctx context.Context, tx *sql.Tx, from, to string) error {
	keys, err := list(ctx, tx, func(key *[]byte) []any { return []any{key} }, `SELECT DISTINCT pool FROM run_time`)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if rest, is := bytes.CutPrefix(key, []byte(from+"\x00")); is {
			if _, err := tx.ExecContext(ctx, `UPDATE run_time SET pool = ? WHERE pool = ?`, append([]byte(to+"\x00"), rest...), key); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetNames forgets the former names that no unfinished job has any more.
func forgetNames(ctx context.Context, tx *sql.Tx, c Cycle) error {
	old, err := list(ctx, tx, func(name *string) []any { return []any{name} },
		`SELECT name FROM former_name WHERE until < ?`, unixtime.Of(c.Started.Add(-formerKept)))
	for _, name := range old {
		if err == nil && !slices.Contains(c.Former, name) {
			_, err = tx.ExecContext(ctx, `DELETE FROM former_name WHERE name = ?`, name)
		}
	}
	return err
}
