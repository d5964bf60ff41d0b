package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/pba/plan"
)

// Errors that callers branch on.
var (
	ErrUnknownProject    = errors.New("unknown project")
	ErrProjectExists     = errors.New("the project exists already")
	ErrUnknownAllocation = errors.New("there is no such allocation")
)

// Editor says who edits, and when; every edit leaves an audit row of it.
type Editor struct {
	Who string // the identity that the system gave
	At  time.Time
}

// Project is a project of the plan.
type Project struct {
	Name     string   `json:"name"`
	Group    string   `json:"group"`
	Managers []string `json:"managers"`
}

func (p Project) String() string {
	return "group=" + p.Group + " managers=" + strings.Join(p.Managers, ",")
}

// Week is an ISO week.
type Week struct{ Year, Week int }

// String is the week as people write it: 2026-W48.
func (w Week) String() string { return fmt.Sprintf("%04d-W%02d", w.Year, w.Week) }

// MarshalText writes the week as String does.
func (w Week) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Compare orders weeks.
func (w Week) Compare(other Week) int {
	return cmp.Or(cmp.Compare(w.Year, other.Year), cmp.Compare(w.Week, other.Week))
}

// Pool names slots of a project, or of one of its users, steps, or both.
type Pool struct {
	Project string `json:"project"`
	User    string `json:"user,omitempty"`
	Step    string `json:"step,omitempty"`
}

func (p Pool) String() string {
	s := p.Project
	if p.Step != "" {
		s += ":" + p.Step
	}
	if p.User != "" {
		s += " user " + p.User
	}
	return s
}

// Allocation is the slots of a pool in one week.
type Allocation struct {
	ID int64 `json:"pool_id"` // of the pool, the same in all its weeks
	Pool
	Week  Week `json:"week"`
	Slots int  `json:"slots"`
}

// Projects lists the projects by name.
func (l *Ledger) Projects(ctx context.Context) ([]Project, error) {
	var all []Project
	err := l.tx(ctx, "list the projects", func(tx *sql.Tx) error {
		var err error
		all, err = projects(ctx, tx, `removed = 0`)
		return err
	})
	return all, err
}

func projects(ctx context.Context, q querier, where string, args ...any) ([]Project, error) {
	var (
		all []Project
		ids []int64
	)
	err := each(ctx, q, func(rows *sql.Rows) error {
		var (
			p  Project
			id int64
		)
		if err := rows.Scan(&id, &p.Name, &p.Group); err != nil {
			return err
		}
		all, ids = append(all, p), append(ids, id)
		return nil
	}, `SELECT id, name, unix_group FROM project WHERE `+where+` ORDER BY name`, args...)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		all[i].Managers = []string{}
		err := each(ctx, q, func(rows *sql.Rows) error {
			var user string
			if err := rows.Scan(&user); err != nil {
				return err
			}
			all[i].Managers = append(all[i].Managers, user)
			return nil
		}, `SELECT user FROM manager WHERE project = ? ORDER BY user`, id)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func projectID(ctx context.Context, q querier, name string) (int64, Project, error) {
	found, err := projects(ctx, q, `removed = 0 AND name = ?`, name)
	if err != nil {
		return 0, Project{}, err
	}
	if len(found) == 0 {
		return 0, Project{}, fmt.Errorf("%w %q", ErrUnknownProject, name)
	}
	var id int64
	err = q.QueryRowContext(ctx, `SELECT id FROM project WHERE removed = 0 AND name = ?`, name).Scan(&id)
	return id, found[0], err
}

// AddProject adds a project; ErrProjectExists if there is one of that name.
func (l *Ledger) AddProject(ctx context.Context, by Editor, p Project) error {
	return l.edit(ctx, "add the project", func(tx *sql.Tx) error {
		if _, _, err := projectID(ctx, tx, p.Name); err == nil {
			return fmt.Errorf("%w: %q", ErrProjectExists, p.Name)
		} else if !errors.Is(err, ErrUnknownProject) {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO project (name, unix_group) VALUES (?, ?)`, p.Name, p.Group)
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
		return audit(ctx, tx, by, "project add", p.Name, "", p.String())
	})
}

// SetProject replaces a project's group and managers.
func (l *Ledger) SetProject(ctx context.Context, by Editor, p Project) error {
	return l.edit(ctx, "change the project", func(tx *sql.Tx) error {
		id, was, err := projectID(ctx, tx, p.Name)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE project SET unix_group = ? WHERE id = ?`, p.Group, id); err != nil {
			return err
		}
		if err := setManagers(ctx, tx, id, p.Managers); err != nil {
			return err
		}
		return audit(ctx, tx, by, "project set", p.Name, was.String(), p.String())
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
func (l *Ledger) RemoveProject(ctx context.Context, by Editor, name string, thisWeek Week) error {
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
			return fmt.Errorf("project %q still has %d slots in %s: take its allocations back first (`pba alloc list --project %s`)",
				name, all[0].Slots, all[0].Week, name)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE project SET removed = ? WHERE id = ?`, stamp(by.At), id); err != nil {
			return err
		}
		return audit(ctx, tx, by, "project remove", name, was.String(), "")
	})
}

// Allocations lists what is planned from one week to another, both included, by
// week, project, user and step.
func (l *Ledger) Allocations(ctx context.Context, from, to Week) ([]Allocation, error) {
	var all []Allocation
	err := l.tx(ctx, "list the allocations", func(tx *sql.Tx) error {
		var err error
		all, err = allocations(ctx, tx, `p.removed = 0 AND (a.year, a.week) BETWEEN (?, ?) AND (?, ?)`, from.Year, from.Week, to.Year, to.Week)
		return err
	})
	return all, err
}

func allocations(ctx context.Context, q querier, where string, args ...any) ([]Allocation, error) {
	var all []Allocation
	err := each(ctx, q, func(rows *sql.Rows) error {
		var a Allocation
		err := rows.Scan(&a.ID, &a.Project, &a.User, &a.Step, &a.Week.Year, &a.Week.Week, &a.Slots)
		all = append(all, a)
		return err
	}, `SELECT o.id, p.name, o.user, o.step, a.year, a.week, a.slots
		FROM allocation a JOIN pool o ON o.id = a.pool JOIN project p ON p.id = o.project
		WHERE `+where+` ORDER BY a.year, a.week, p.name, o.user, o.step`, args...)
	return all, err
}

// SetAllocations gives a pool so many slots in each of some weeks. Before it
// writes it shows check what each of those weeks holds now, the pool's own slots
// of that week left out, in the same transaction; an error of check stops it.
func (l *Ledger) SetAllocations(ctx context.Context, by Editor, p Pool, weeks []Week, slots int, check func(w Week, others, own int) error) error {
	return l.edit(ctx, "change the allocation", func(tx *sql.Tx) error {
		pool, err := poolID(ctx, tx, p, true)
		if err != nil {
			return err
		}
		for _, w := range weeks {
			if err := setAllocation(ctx, tx, by, p, pool, w, slots, check); err != nil {
				return err
			}
		}
		return nil
	})
}

func setAllocation(ctx context.Context, tx *sql.Tx, by Editor, p Pool, pool int64, w Week, slots int, check func(w Week, others, own int) error) error {
	var sum, own int
	err := tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(a.slots), 0), COALESCE(SUM(CASE WHEN a.pool = ? THEN a.slots END), 0)
		FROM allocation a JOIN pool o ON o.id = a.pool JOIN project p ON p.id = o.project
		WHERE p.removed = 0 AND a.year = ? AND a.week = ?`, pool, w.Year, w.Week).Scan(&sum, &own)
	if err != nil {
		return err
	}
	if err := check(w, sum-own, own); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO allocation (pool, year, week, slots) VALUES (?, ?, ?, ?)
		ON CONFLICT (pool, year, week) DO UPDATE SET slots = excluded.slots`, pool, w.Year, w.Week, slots)
	if err != nil {
		return err
	}
	before := ""
	if own > 0 {
		before = strconv.Itoa(own)
	}
	return audit(ctx, tx, by, "alloc set", p.String()+" "+w.String(), before, strconv.Itoa(slots))
}

// UnsetAllocations takes a pool's slots back in some weeks; ErrUnknownAllocation
// if it has none in one of them, and then none is taken back.
func (l *Ledger) UnsetAllocations(ctx context.Context, by Editor, p Pool, weeks []Week) error {
	return l.edit(ctx, "take the allocation back", func(tx *sql.Tx) error {
		pool, err := poolID(ctx, tx, p, false)
		if err != nil {
			return err
		}
		for _, w := range weeks {
			var own int
			err := tx.QueryRowContext(ctx, `SELECT slots FROM allocation WHERE pool = ? AND year = ? AND week = ?`, pool, w.Year, w.Week).Scan(&own)
			if errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("%w: %s in %s", ErrUnknownAllocation, p, w)
			}
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM allocation WHERE pool = ? AND year = ? AND week = ?`, pool, w.Year, w.Week); err != nil {
				return err
			}
			if err := audit(ctx, tx, by, "alloc unset", p.String()+" "+w.String(), strconv.Itoa(own), ""); err != nil {
				return err
			}
		}
		return nil
	})
}

func poolID(ctx context.Context, tx *sql.Tx, p Pool, create bool) (int64, error) {
	project, _, err := projectID(ctx, tx, p.Project)
	if err != nil {
		return 0, err
	}
	if create {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO pool (project, user, step) VALUES (?, ?, ?)`, project, p.User, p.Step)
		if err != nil {
			return 0, err
		}
	}
	var id int64
	err = tx.QueryRowContext(ctx, `SELECT id FROM pool WHERE project = ? AND user = ? AND step = ?`, project, p.User, p.Step).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("%w: %s", ErrUnknownAllocation, p)
	}
	return id, err
}

// InForce is the plan of one week in the engine's words.
func (l *Ledger) InForce(ctx context.Context, w Week) ([]plan.Project, []plan.Allocation, error) {
	var (
		named  []plan.Project
		inWeek []plan.Allocation
	)
	err := l.tx(ctx, "read the plan", func(tx *sql.Tx) error {
		all, err := projects(ctx, tx, `removed = 0`)
		if err != nil {
			return err
		}
		for _, p := range all {
			named = append(named, plan.Project{Name: p.Name, Group: p.Group})
		}
		week, err := allocations(ctx, tx, `p.removed = 0 AND a.year = ? AND a.week = ?`, w.Year, w.Week)
		if err != nil {
			return err
		}
		for _, a := range week {
			inWeek = append(inWeek, plan.Allocation{ID: a.ID, Project: a.Project, User: a.User, Step: a.Step, Guarantee: a.Slots})
		}
		return nil
	})
	slices.SortFunc(inWeek, func(a, b plan.Allocation) int { return cmp.Compare(a.ID, b.ID) })
	return named, inWeek, err
}

// Paused tells whether cycles are to do nothing.
func (l *Ledger) Paused(ctx context.Context) (bool, error) {
	n, err := getMeta(ctx, l.db, metaPaused)
	return n != 0, l.explain("read whether the engine is paused", err)
}

// SetPaused pauses the engine, or lets it go on; it tells whether that changed
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
		return audit(ctx, tx, by, what, "", "", "")
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

func audit(ctx context.Context, tx *sql.Tx, by Editor, what, subject, before, after string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO edit (at, who, what, subject, before, after) VALUES (?, ?, ?, ?, ?, ?)`,
		stamp(by.At), by.Who, what, subject, before, after)
	return err
}
