package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Pool names slots of a project, or of one of its users, steps, or both, and on which hosts
// they are.
type Pool struct {
	Project string `json:"project"`
	User    string `json:"user,omitempty"`
	Step    string `json:"step,omitempty"`
	Hosts   string `json:"hosts,omitempty"` // a host set of the config; "": the hosts in none
}

func (p Pool) String() string {
	s := p.Project
	if p.Step != "" {
		s += ":" + p.Step
	}
	if p.User != "" {
		s += " user " + p.User
	}
	if p.Hosts != "" {
		s += " on " + p.Hosts
	}
	return s
}

// Compare orders pools by project, user, step and host set.
func (p Pool) Compare(q Pool) int {
	return cmp.Or(cmp.Compare(p.Project, q.Project), cmp.Compare(p.User, q.User), cmp.Compare(p.Step, q.Step), cmp.Compare(p.Hosts, q.Hosts))
}

// Terms are what a pool is guaranteed in a week (R26).
type Terms struct {
	Slots int      `json:"slots"`
	SLA   plan.SLA `json:"sla"`
	Jobs  int      `json:"jobs,omitempty"` // to be done in the week, for a throughput
}

func (t Terms) String() string {
	switch {
	case t.Slots == 0:
		return ""
	case t.SLA == plan.Throughput:
		return fmt.Sprintf("%d throughput %d", t.Slots, t.Jobs)
	}
	return fmt.Sprint(t.Slots)
}

// Allocation is what a pool is guaranteed in one week.
type Allocation struct {
	ID int64 `json:"pool_id"` // of the pool, the same in all its weeks
	Pool
	Week calendar.Week `json:"week"`
	Terms
}

// Allocations lists what is planned from one week to another, both included, by
// week, project, user, step and host set.
func (l *Ledger) Allocations(ctx context.Context, from, to calendar.Week) ([]Allocation, error) {
	all, err := allocations(ctx, l.db, `p.removed = 0 AND (a.year, a.week) BETWEEN (?, ?) AND (?, ?)`, from.Year, from.Week, to.Year, to.Week)
	return all, l.explain("list the allocations", err)
}

func allocations(ctx context.Context, q querier, where string, args ...any) ([]Allocation, error) {
	return list(ctx, q, func(a *Allocation) []any {
		return []any{&a.ID, &a.Project, &a.User, &a.Step, &a.Hosts, &a.Week.Year, &a.Week.Week, &a.Slots, &a.SLA, &a.Jobs}
	}, `SELECT o.id, p.name, o.user, o.step, o.hosts, a.year, a.week, a.slots, a.sla, a.jobs
		FROM allocation a JOIN pool o ON o.id = a.pool JOIN project p ON p.id = o.project
		WHERE a.slots > 0 AND `+where+` ORDER BY a.year, a.week, p.name, o.user, o.step, o.hosts`, args...)
}

// Change gives a pool new terms in one week. Zero Terms withdraw its slots.
type Change struct {
	Pool
	Week calendar.Week
	Terms
}

// Edit says how changes of allocations are made.
type Edit struct {
	Editor
	ThisWeek calendar.Week // what is taken off in it is remembered (R25) …
	Grace    time.Duration // … for so long

	// For the log.
	Command string // "": alloc set, or unset
	Comment string
	Undoes  int64 // the change that this one undoes; 0: none
}

// ChangeAllocations makes all of the changes, or none, and returns the number of that in
// the log; 0 if all is so already. What undoes a grant opens its request again. It returns
// ErrUnknownAllocation if a change withdraws an allocation that does not exist.
func (l *Ledger) ChangeAllocations(ctx context.Context, e Edit, changes []Change) (id int64, err error) {
	err = l.edit(ctx, "change the allocations", func(tx *sql.Tx) error {
		for _, c := range changes {
			if id, err = change(ctx, tx, e, c, id); err != nil {
				return err
			}
		}
		if e.Undoes == 0 || id == 0 {
			return nil
		}
		return undoGrant(ctx, tx, e, id)
	})
	return id, err
}

// lowering is what was taken off a pool in mid-week, and when last.
type lowering struct {
	slots int
	at    time.Time
}

// changed is the lowering after an edit: what is taken off adds to what is still
// spared, and all of it counts from now; what is given back ends it.
func (l lowering) changed(was, is int, e Edit) lowering {
	switch {
	case is >= was:
		l.slots = max(0, l.slots-(is-was))
	case e.At.Sub(l.at) < e.Grace:
		return lowering{l.slots + was - is, e.At}
	default:
		return lowering{was - is, e.At}
	}
	if l.slots == 0 {
		return lowering{}
	}
	return l
}

// change makes one change, and returns id, the number of all of them in the log, or that of
// its row in place of 0.
func change(ctx context.Context, tx *sql.Tx, e Edit, c Change, id int64) (int64, error) {
	project, pool, err := poolID(ctx, tx, c.Pool, c.Slots > 0)
	if err != nil {
		return 0, err
	}
	var (
		was     Terms
		lowered lowering
	)
	err = tx.QueryRowContext(ctx, `SELECT slots, sla, jobs, lowered, lowered_at FROM allocation WHERE pool = ? AND year = ? AND week = ?`,
		pool, c.Week.Year, c.Week.Week).Scan(&was.Slots, &was.SLA, &was.Jobs, &lowered.slots, when(&lowered.at))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if c.Slots == 0 && was.Slots == 0 {
		return 0, fmt.Errorf("%w: %s in %s", ErrUnknownAllocation, c.Pool, c.Week)
	}
	is := c.Terms
	if is.SLA == "" {
		is.SLA = plan.Velocity
	}
	if is == was {
		return id, nil
	}
	if c.Week == e.ThisWeek {
		lowered = lowered.changed(was.Slots, is.Slots, e)
	}
	if is.Slots == 0 && lowered.slots == 0 {
		_, err = tx.ExecContext(ctx, `DELETE FROM allocation WHERE pool = ? AND year = ? AND week = ?`, pool, c.Week.Year, c.Week.Week)
	} else {
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO allocation (pool, year, week, slots, sla, jobs, lowered, lowered_at) VALUES `+placeholders(8),
			pool, c.Week.Year, c.Week.Week, is.Slots, is.SLA, is.Jobs, lowered.slots, unixtime.Of(lowered.at))
	}
	if err != nil {
		return 0, err
	}
	what := "alloc set"
	if c.Slots == 0 {
		what = "alloc unset"
	}
	return record(ctx, tx, e.Editor, entry{
		change: id, what: what, command: e.Command, subject: c.Pool.String() + " " + c.Week.String(), before: was.String(), after: c.Terms.String(),
		comment: e.Comment, undoes: e.Undoes, project: project, pool: pool, week: c.Week,
	})
}

func poolID(ctx context.Context, tx *sql.Tx, p Pool, create bool) (project, id int64, err error) {
	project, _, err = projectID(ctx, tx, p.Project)
	if err != nil {
		return 0, 0, err
	}
	if create {
		_, err = tx.ExecContext(ctx, `INSERT OR IGNORE INTO pool (project, user, step, hosts) VALUES (?, ?, ?, ?)`, project, p.User, p.Step, p.Hosts)
		if err != nil {
			return 0, 0, err
		}
	}
	err = tx.QueryRowContext(ctx, `SELECT id FROM pool WHERE project = ? AND user = ? AND step = ? AND hosts = ?`, project, p.User, p.Step, p.Hosts).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, fmt.Errorf("%w: %s", ErrUnknownAllocation, p)
	}
	return project, id, err
}

// InForce returns the plan of one week in the engine's terms. A pool whose slots were
// all withdrawn after spared is still in it, with none.
func (l *Ledger) InForce(ctx context.Context, w calendar.Period, spared time.Time) ([]plan.Project, []plan.Allocation, error) {
	var (
		named  []plan.Project
		inWeek []plan.Allocation
	)
	err := l.tx(ctx, "read the plan", func(tx *sql.Tx) error {
		all, err := projects(ctx, tx, `p.removed = 0`)
		if err != nil {
			return err
		}
		flows := map[string][]string{} // their steps
		for _, p := range all {
			steps, known := flows[p.Flow]
			if !known {
				if steps, err = stepsOf(ctx, tx, p.Flow); err != nil {
					return err
				}
				flows[p.Flow] = steps
			}
			named = append(named, plan.Project{Name: p.Name, Group: p.Group, Steps: steps, Former: p.Former})
		}
		inWeek, err = inForce(ctx, tx, w, spared)
		return err
	})
	slices.SortFunc(inWeek, func(a, b plan.Allocation) int { return cmp.Compare(a.ID, b.ID) })
	return named, inWeek, err
}

func inForce(ctx context.Context, q querier, w calendar.Period, spared time.Time) ([]plan.Allocation, error) {
	return list(ctx, q, func(a *plan.Allocation) []any {
		a.Begin, a.End = w.Begin, w.End
		return []any{&a.ID, &a.Project, &a.User, &a.Step, &a.Hosts, &a.Guarantee, &a.SLA, &a.Jobs, &a.Lowered, when(&a.LoweredAt)}
	}, `SELECT o.id, p.name, o.user, o.step, o.hosts, a.slots, a.sla, a.jobs, a.lowered, a.lowered_at
		FROM allocation a JOIN pool o ON o.id = a.pool JOIN project p ON p.id = o.project
		WHERE p.removed = 0 AND a.year = ? AND a.week = ? AND (a.slots > 0 OR a.lowered_at > ?)`, w.Year, w.Week.Week, unixtime.Of(spared))
}
