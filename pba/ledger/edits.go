package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/internal/nearest"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/calendar"
)

// Errors that callers branch on.
var (
	ErrUnknownProject    = errors.New("unknown project")
	ErrProjectExists     = errors.New("the project exists already")
	ErrUnknownAllocation = errors.New("there is no such allocation")
)

// Editor is the user who edits, and the time; every edit leaves an audit row of it.
type Editor struct {
	Who string // the identity that the system gave
	At  time.Time
}

// Project is a project of the plan.
type Project struct {
	Name     string   `json:"name"`
	Group    string   `json:"group"`
	Managers []string `json:"managers"`
	Flow     string   `json:"flow,omitempty"`         // "": its jobs may name any step
	Former   []string `json:"former_names,omitempty"` // that unfinished jobs may still have
}

func (p Project) String() string {
	s := "group=" + p.Group + " managers=" + strings.Join(p.Managers, ",")
	if p.Flow != "" {
		s += " flow=" + p.Flow
	}
	return s
}

// Projects lists the projects by name.
func (l *Ledger) Projects(ctx context.Context) (all []Project, err error) {
	err = l.tx(ctx, "list the projects", func(tx *sql.Tx) error {
		all, err = projects(ctx, tx, `p.removed = 0`)
		return err
	})
	return all, err
}

func projects(ctx context.Context, q querier, where string, args ...any) ([]Project, error) {
	var all []Project
	index := map[int64]int{} // in all, by the project's number
	err := each(ctx, q, func(rows *sql.Rows) error {
		p := Project{Managers: []string{}}
		var id int64
		err := rows.Scan(&id, &p.Name, &p.Group, &p.Flow)
		index[id] = len(all)
		all = append(all, p)
		return err
	}, `SELECT p.id, p.name, p.unix_group, COALESCE(f.name, '')
		FROM project p LEFT JOIN flow f ON f.id = p.flow WHERE `+where+` ORDER BY p.name`, args...)
	if err != nil {
		return nil, err
	}
	err = each(ctx, q, func(rows *sql.Rows) error {
		var (
			id      int64
			manager string
		)
		if err := rows.Scan(&id, &manager); err != nil {
			return err
		}
		p := &all[index[id]]
		p.Managers = append(p.Managers, manager)
		return nil
	}, `SELECT p.id, m.user FROM manager m JOIN project p ON p.id = m.project WHERE `+where+` ORDER BY m.user`, args...)
	if err != nil {
		return nil, err
	}
	err = each(ctx, q, func(rows *sql.Rows) error {
		var (
			id   int64
			name string
		)
		err := rows.Scan(&id, &name)
		if i, ok := index[id]; ok {
			all[i].Former = append(all[i].Former, name)
		}
		return err
	}, `SELECT project, name FROM former_name ORDER BY name`)
	return all, err
}

func projectID(ctx context.Context, q querier, name string) (int64, Project, error) {
	found, err := projects(ctx, q, `p.removed = 0 AND p.name = ?`, name)
	if err != nil {
		return 0, Project{}, err
	}
	if len(found) == 0 {
		all, err := projects(ctx, q, `p.removed = 0`)
		if err != nil {
			return 0, Project{}, err
		}
		var names []string
		for i := range all {
			names = append(names, all[i].Name)
		}
		return 0, Project{}, fmt.Errorf("%w %q%s", ErrUnknownProject, name, nearest.Hint(name, names))
	}
	var id int64
	err = q.QueryRowContext(ctx, `SELECT id FROM project WHERE removed = 0 AND name = ?`, name).Scan(&id)
	return id, found[0], err
}

// AddProject adds a project; ErrProjectExists if there is one of that name.
func (l *Ledger) AddProject(ctx context.Context, by Editor, p Project) error {
	return l.edit(ctx, "add the project", func(tx *sql.Tx) error {
		if err := freeName(ctx, tx, p.Name, 0); err != nil {
			return err
		}
		flow, err := flowID(ctx, tx, p.Flow)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO project (name, unix_group, flow) VALUES (?, ?, ?)`, p.Name, p.Group, flow)
		if err != nil {
			return err
		}
		id, err := res.LastInsertId()
		if err != nil {
			return err
		}
		if err := setManagers(ctx, tx, id, p.Managers); err != nil {
			return err
		}
		return audit(ctx, tx, by, id, "project add", p.Name, "", p.String())
	})
}

// SetProject replaces a project's group, managers and flow. A step that an
// allocation of this week or a later one names must be one of the flow's.
func (l *Ledger) SetProject(ctx context.Context, by Editor, p Project, thisWeek calendar.Week) error {
	return l.edit(ctx, "change the project", func(tx *sql.Tx) error {
		id, was, err := projectID(ctx, tx, p.Name)
		if err != nil {
			return err
		}
		flow, err := flowID(ctx, tx, p.Flow)
		if err != nil {
			return err
		}
		if p.Flow != "" {
			steps, err := stepsOf(ctx, tx, p.Flow)
			if err != nil {
				return err
			}
			if err := requireSteps(ctx, tx, steps, thisWeek, `p.id = ?`, id); err != nil {
				return fmt.Errorf("flow %q: %w", p.Flow, err)
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE project SET unix_group = ?, flow = ? WHERE id = ?`, p.Group, flow, id); err != nil {
			return err
		}
		if err := setManagers(ctx, tx, id, p.Managers); err != nil {
			return err
		}
		return audit(ctx, tx, by, id, "project set", p.Name, was.String(), p.String())
	})
}

func setManagers(ctx context.Context, tx *sql.Tx, project int64, users []string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM manager WHERE project = ?`, project); err != nil {
		return err
	}
	for _, user := range users {
		if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO manager (project, user) VALUES (?, ?)`, project, user); err != nil {
			return err
		}
	}
	return nil
}

// RemoveProject removes a project. One with allocations in this week or a later
// one stays: the error names them.
func (l *Ledger) RemoveProject(ctx context.Context, by Editor, name string, thisWeek calendar.Week) error {
	return l.edit(ctx, "remove the project", func(tx *sql.Tx) error {
		id, was, err := projectID(ctx, tx, name)
		if err != nil {
			return err
		}
		all, err := allocations(ctx, tx, `p.id = ? AND (a.year, a.week) >= (?, ?)`, id, thisWeek.Year, thisWeek.Week)
		if err != nil {
			return err
		}
		if len(all) > 0 {
			return fmt.Errorf("project %q still has %d slots in %s: withdraw its allocations first (`pba alloc list --project %s`)",
				name, all[0].Slots, all[0].Week, name)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE project SET removed = ? WHERE id = ?`, unixtime.Of(by.At), id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM former_name WHERE project = ?`, id); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE request SET state = 'declined', answer = 'the project was removed', answerer = ?, answered = ? WHERE project = ? AND state = 'open'`,
			by.Who, unixtime.Of(by.At), id)
		if err != nil {
			return err
		}
		return audit(ctx, tx, by, id, "project remove", name, was.String(), "")
	})
}

// Paused reports whether cycles are to do nothing.
func (l *Ledger) Paused(ctx context.Context) (bool, error) {
	n, err := getMeta(ctx, l.db, metaPaused)
	return n != 0, l.explain("read whether the engine is paused", err)
}

// SetPaused pauses the engine, or resumes it; it reports whether that changed
// anything.
func (l *Ledger) SetPaused(ctx context.Context, by Editor, paused bool) (bool, error) {
	changed := false
	err := l.edit(ctx, "pause or resume the engine", func(tx *sql.Tx) error {
		was, err := getMeta(ctx, tx, metaPaused)
		if err != nil || (was != 0) == paused {
			return err
		}
		changed = true
		what, value := "resume", int64(0)
		if paused {
			what, value = "pause", 1
		}
		if err := setMeta(ctx, tx, metaPaused, value); err != nil {
			return err
		}
		return audit(ctx, tx, by, 0, what, "", "", "")
	})
	return changed, err
}

// edit is tx for what people ask for: errors that are theirs keep their own words.
func (l *Ledger) edit(ctx context.Context, what string, f func(*sql.Tx) error) error {
	var refused error
	err := l.tx(ctx, what, func(tx *sql.Tx) error {
		err := f(tx)
		if err != nil {
			refused = err
		}
		return err
	})
	if err != nil && refused != nil && !isDatabase(refused) {
		return refused
	}
	return err
}

// audit writes a row of the log for an edit of something else than allocations: of a
// project, unless 0.
func audit(ctx context.Context, tx *sql.Tx, by Editor, project int64, what, subject, before, after string) error {
	_, err := record(ctx, tx, by, entry{project: project, what: what, subject: subject, before: before, after: after})
	return err
}
