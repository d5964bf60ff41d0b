package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
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

// pastPart is how much of the past is renamed at once: a cycle waits for no more.
const pastPart = 3 * 24 * time.Hour

// RenameProject renames a project, with what cycles remember of it. RenamePast renames the rest
// of its past. Jobs that have the former name count for the project until none is unfinished. It
// returns an error if another project has the name or had it; a former name of its own it may
// have again.
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
			{`UPDATE reclaim SET project = ? WHERE project = ? AND ended = 0`, []any{to, from}},
			{`UPDATE victim SET project = ? WHERE project = ? AND reclaim IN (SELECT id FROM reclaim WHERE ended = 0)`, []any{to, from}},
			{`INSERT INTO past_name (name, project, before) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET before = MAX(before, excluded.before)`, []any{from, id, math.MaxInt64}},
		} {
			if _, err := tx.ExecContext(ctx, s.statement, s.args...); err != nil {
				return err
			}
		}
		if _, err := renamePart(ctx, tx, pastName{from, to, math.MaxInt64}, by.At.Add(-max(pastPart, remembered))); err != nil {
			return err
		}
		if err := renameRunTimes(ctx, tx, from, to); err != nil {
			return err
		}
		return audit(ctx, tx, by, id, "project rename", from, from, to)
	})
}

// pastName is a former name that a part of the past has.
type pastName struct {
	name, now string
	before    int64 // what ended before has it
}

// RenamePast renames the next part of the past of projects that were renamed, the latest first. It
// reports whether it has come to its end.
func (l *Ledger) RenamePast(ctx context.Context) (done bool, err error) {
	if err := l.db.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT * FROM past_name)`).Scan(&done); err != nil || done {
		return done, l.explain("look for a past to be renamed", err)
	}
	err = l.edit(ctx, "rename a part of the past", func(tx *sql.Tx) error {
		all, err := list(ctx, tx, func(p *pastName) []any { return []any{&p.name, &p.now, &p.before} },
			`SELECT n.name, p.name, n.before FROM past_name n JOIN project p ON p.id = n.project ORDER BY n.before DESC, n.name LIMIT 2`)
		if err != nil || len(all) == 0 {
			done = len(all) == 0
			return err
		}
		end, err := renamePart(ctx, tx, all[0], unixtime.Time(all[0].before).Add(-pastPart))
		done = end && len(all) == 1
		return err
	})
	return done, err
}

// renamePart renames what ended from a time on, and before the rest. It reports whether nothing
// older is left, and notes how far it has come.
func renamePart(ctx context.Context, tx *sql.Tx, p pastName, from time.Time) (end bool, err error) {
	since := unixtime.Of(from)
	if p.name != p.now { // else it has its former name again
		const reclaims = `SELECT id FROM reclaim WHERE ended > 0 AND ended >= ?3 AND ended < ?4`
		for _, statement := range []string{
			`UPDATE ended_job SET project = ?1 WHERE project = ?2 AND ended >= ?3 AND ended < ?4`,
			`UPDATE victim SET project = ?1 WHERE project = ?2 AND reclaim IN (` + reclaims + `)`,
			`UPDATE reclaim SET project = ?1 WHERE project = ?2 AND id IN (` + reclaims + `)`,
			// Where a clock was set back, an hour may have rows of both names.
			`INSERT INTO use_hour (hour, pool, project, user, step, guaranteed, used, waiting)
				SELECT hour, pool, ?1, user, step, guaranteed, used, waiting FROM use_hour WHERE project = ?2 AND hour >= ?3 AND hour < ?4
				ON CONFLICT (hour, pool, project, user, step) DO UPDATE SET guaranteed = guaranteed + excluded.guaranteed, used = used + excluded.used, waiting = waiting + excluded.waiting`,
			`DELETE FROM use_hour WHERE project = ?2 AND hour >= ?3 AND hour < ?4`,
			`INSERT INTO user_hour (hour, pool, project, user, step, used)
				SELECT hour, pool, ?1, user, step, used FROM user_hour WHERE project = ?2 AND hour >= ?3 AND hour < ?4
				ON CONFLICT (hour, pool, project, user, step) DO UPDATE SET used = used + excluded.used`,
			`DELETE FROM user_hour WHERE project = ?2 AND hour >= ?3 AND hour < ?4`,
		} {
			if _, err := tx.ExecContext(ctx, statement, p.now, p.name, since, p.before); err != nil {
				return false, err
			}
		}
	}
	var oldest int64
	err = tx.QueryRowContext(ctx, `SELECT MIN(
		COALESCE((SELECT MIN(ended) FROM ended_job), ?1), COALESCE((SELECT MIN(ended) FROM reclaim WHERE ended > 0), ?1),
		COALESCE((SELECT MIN(hour) FROM use_hour), ?1), COALESCE((SELECT MIN(hour) FROM user_hour), ?1))`, int64(math.MaxInt64)).Scan(&oldest)
	if err != nil {
		return false, err
	}
	if oldest >= since {
		_, err = tx.ExecContext(ctx, `DELETE FROM past_name WHERE name = ?`, p.name)
		return true, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE past_name SET before = ? WHERE name = ?`, since, p.name)
	return false, err
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
		return freePast(ctx, tx, name, project)
	}
	if err == nil {
		err = fmt.Errorf("%q is a former name of %s, and unfinished jobs may still have it", name, now)
	}
	return err
}

// freePast returns an error if a part of another project's past has a name.
func freePast(ctx context.Context, tx *sql.Tx, name string, project int64) error {
	var now string
	err := tx.QueryRowContext(ctx, `SELECT p.name FROM past_name n JOIN project p ON p.id = n.project WHERE n.name = ? AND n.project != ?`, name, project).Scan(&now)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%q is a former name of %s, whose past has it in part until some more cycles have run", name, now)
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
