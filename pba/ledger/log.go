package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Record is a row of the log: one thing that a command changed. Those of one command have
// the same Change.
type Record struct {
	Row     int64 // its number; the newest is the plan's revision
	Change  int64
	At      time.Time
	Who     string
	What    string // alloc set, alloc unset, project add, pause …
	Command string // that did it: alloc import …
	Comment string
	Undoes  int64 // the change that this one undoes; 0: none

	Subject       string // as it was called at the time
	Before, After string // in words

	PoolID  int64 // of an allocation; 0: none, or it is not known
	Pool    Pool  // by its present names
	Week    calendar.Week
	Was, Is Terms
}

// Query selects changes of the log.
type Query struct {
	Project string    // "": of all projects, and what concerns none
	Since   time.Time // zero: all
	Change  int64     // only this one; 0: any
	Limit   int       // changes, the latest ones
	Before  int64     // only changes before this one; 0: all
}

// Log lists what changed, the latest change first, and within a change as it was made.
func (l *Ledger) Log(ctx context.Context, q Query) ([]Record, error) {
	where, args := `(? = 0 OR e.change = ?) AND (? = 0 OR e.change < ?) AND e.at >= ?`, []any{q.Change, q.Change, q.Before, q.Before, unixtime.Of(q.Since)}
	if q.Project != "" {
		where += ` AND e.project IN (SELECT id FROM project WHERE name = ?)`
		args = append(args, q.Project)
	}
	all := append(append(append([]any{}, args...), q.Limit), args...)
	found, err := records(ctx, l.db, `e.change IN (SELECT DISTINCT e.change FROM edit e WHERE `+where+` ORDER BY e.change DESC LIMIT ?) AND `+where+`
		ORDER BY e.change DESC, e.id`, all...)
	return found, l.explain("read the log", err)
}

// LastOf returns the latest row of the log of a pool in a week, if there is one.
func (l *Ledger) LastOf(ctx context.Context, pool int64, w calendar.Week) ([]Record, error) {
	found, err := records(ctx, l.db, `e.pool = ? AND e.year = ? AND e.week = ? ORDER BY e.id DESC LIMIT 1`, pool, w.Year, w.Week)
	return found, l.explain("read the log", err)
}

func records(ctx context.Context, q querier, where string, args ...any) ([]Record, error) {
	all, err := list(ctx, q, func(r *Record) []any {
		return []any{
			&r.Row, &r.Change, when(&r.At), &r.Who, &r.What, &r.Command, &r.Comment, &r.Undoes, &r.Subject, &r.Before, &r.After,
			&r.PoolID, &r.Week.Year, &r.Week.Week, &r.Pool.Project, &r.Pool.User, &r.Pool.Step, &r.Pool.Hosts,
		}
	}, `SELECT e.id, e.change, e.at, e.who, e.what, CASE e.command WHEN '' THEN e.what ELSE e.command END, e.comment, e.undoes, e.subject, e.before, e.after,
		e.pool, e.year, e.week, COALESCE(p.name, ''), COALESCE(o.user, ''), COALESCE(o.step, ''), COALESCE(o.hosts, '')
		FROM edit e LEFT JOIN pool o ON o.id = e.pool LEFT JOIN project p ON p.id = e.project WHERE `+where, args...)
	for i := range all {
		if r := &all[i]; r.PoolID != 0 && err == nil {
			if r.Was, err = parseTerms(r.Before); err == nil {
				r.Is, err = parseTerms(r.After)
			}
		}
	}
	return all, err
}

// parseTerms reads what Terms.String writes.
func parseTerms(text string) (t Terms, err error) {
	if text == "" {
		return t, nil
	}
	t.SLA = plan.Velocity
	if n, _ := fmt.Sscanf(text, "%d throughput %d", &t.Slots, &t.Jobs); n == 2 {
		t.SLA = plan.Throughput
	} else if n != 1 {
		err = fmt.Errorf("the log has %q as terms", text)
	}
	if err == nil && t.String() != text {
		err = fmt.Errorf("the log has %q as terms", text)
	}
	return t, err
}

// Undoing is a change that undoes another one.
type Undoing struct{ Change, Undoes int64 }

// Undoings lists the changes that undo others, the latest first.
func (l *Ledger) Undoings(ctx context.Context) ([]Undoing, error) {
	all, err := list(ctx, l.db, func(u *Undoing) []any { return []any{&u.Change, &u.Undoes} },
		`SELECT DISTINCT change, undoes FROM edit WHERE undoes > 0 ORDER BY change DESC LIMIT ?`, maxUndoings)
	return all, l.explain("read the log", err)
}

// maxUndoings and maxByEditors bound what is read to find the change to undo.
const (
	maxUndoings  = 10_000
	maxByEditors = 1_000
)

// ByEditors lists the latest changes of allocations that users of these names made and
// that undo no other, the latest first.
func (l *Ledger) ByEditors(ctx context.Context, who ...string) ([]int64, error) {
	args := []any{}
	for _, w := range who {
		args = append(args, w)
	}
	all, err := list(ctx, l.db, func(id *int64) []any { return []any{id} },
		`SELECT DISTINCT change FROM edit WHERE pool > 0 AND undoes = 0 AND who IN `+placeholders(len(who))+` ORDER BY change DESC LIMIT ?`, append(args, maxByEditors)...)
	return all, l.explain("read the log", err)
}

// entry is a row of the log to be written.
type entry struct {
	change                                int64 // 0: the first row of a change
	what, command, subject, before, after string
	comment                               string
	undoes, project, pool                 int64
	week                                  calendar.Week
}

// record writes a row of the log, and returns its change.
func record(ctx context.Context, tx *sql.Tx, by Editor, e entry) (int64, error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO edit (at, who, what, subject, before, after, change, command, comment, undoes, project, pool, year, week) VALUES `+placeholders(14),
		unixtime.Of(by.At), by.Who, e.what, e.subject, e.before, e.after, e.change, e.command, e.comment, e.undoes, e.project, e.pool, e.week.Year, e.week.Week)
	if err != nil || e.change != 0 {
		return e.change, err
	}
	id, err := res.LastInsertId()
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE edit SET change = id WHERE id = ?`, id)
	return id, err
}
