package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/pba/calendar"
)

// Errors that callers branch on.
var (
	ErrUnknownFlow = errors.New("unknown flow")
	ErrFlowExists  = errors.New("the flow exists already")
)

// Flow names the steps that jobs of its projects may name, in their order.
type Flow struct {
	Name     string   `json:"name"`
	Steps    []string `json:"steps"`
	Projects []string `json:"projects"` // that use it
}

// Flows lists the flows by name.
func (l *Ledger) Flows(ctx context.Context) (all []Flow, err error) {
	err = l.tx(ctx, "list the flows", func(tx *sql.Tx) error {
		all, err = flows(ctx, tx)
		return err
	})
	return all, err
}

func flows(ctx context.Context, q querier) ([]Flow, error) {
	names, err := column(ctx, q, `SELECT name FROM flow ORDER BY name`)
	if err != nil {
		return nil, err
	}
	var all []Flow
	for _, name := range names {
		f := Flow{Name: name}
		if f.Steps, err = stepsOf(ctx, q, name); err != nil {
			return nil, err
		}
		f.Projects, err = column(ctx, q, `SELECT p.name FROM project p JOIN flow f ON f.id = p.flow
			WHERE f.name = ? AND p.removed = 0 ORDER BY p.name`, name)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// stepsOf are a flow's steps in order; none for the name "".
func stepsOf(ctx context.Context, q querier, flow string) ([]string, error) {
	if flow == "" {
		return nil, nil
	}
	return column(ctx, q, `SELECT s.step FROM flow_step s JOIN flow f ON f.id = s.flow WHERE f.name = ? ORDER BY s.ord`, flow)
}

// column is a query's only column of texts; never nil.
func column(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	all, err := list(ctx, q, func(text *string) []any { return []any{text} }, query, args...)
	if all == nil {
		all = []string{}
	}
	return all, err
}

// flowID is a flow's row; nil for the name "".
func flowID(ctx context.Context, q querier, name string) (any, error) {
	if name == "" {
		return nil, nil
	}
	var id int64
	err := q.QueryRowContext(ctx, `SELECT id FROM flow WHERE name = ?`, name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w %q", ErrUnknownFlow, name)
	}
	return id, err
}

// AddFlow adds a flow; ErrFlowExists if there is one of that name.
func (l *Ledger) AddFlow(ctx context.Context, by Editor, name string, steps []string) error {
	return l.edit(ctx, "add the flow", func(tx *sql.Tx) error {
		if _, err := flowID(ctx, tx, name); err == nil {
			return fmt.Errorf("%w: %q", ErrFlowExists, name)
		} else if !errors.Is(err, ErrUnknownFlow) {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO flow (name) VALUES (?)`, name)
		if err != nil {
			return err
		}
		id, err := res.LastInsertId()
		if err != nil {
			return err
		}
		if err := setSteps(ctx, tx, id, steps); err != nil {
			return err
		}
		return audit(ctx, tx, by, 0, "flow add", name, "", strings.Join(steps, ","))
	})
}

// SetFlow replaces a flow's steps. One that an allocation of this week or a
// later one names can't go.
func (l *Ledger) SetFlow(ctx context.Context, by Editor, name string, steps []string, thisWeek calendar.Week) error {
	return l.edit(ctx, "change the flow", func(tx *sql.Tx) error {
		id, err := flowID(ctx, tx, name)
		if err != nil {
			return err
		}
		was, err := stepsOf(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := requireSteps(ctx, tx, steps, thisWeek, `p.flow = ?`, id); err != nil {
			return fmt.Errorf("flow %q: %w", name, err)
		}
		if err := setSteps(ctx, tx, id, steps); err != nil {
			return err
		}
		return audit(ctx, tx, by, 0, "flow set", name, strings.Join(was, ","), strings.Join(steps, ","))
	})
}

// requireSteps is an error if an allocation of this week or a later one names a
// step that is not among steps; which asks for projects.
func requireSteps(ctx context.Context, tx *sql.Tx, steps []string, thisWeek calendar.Week, which string, args ...any) error {
	planned, err := allocations(ctx, tx, `p.removed = 0 AND o.step <> '' AND (a.year, a.week) >= (?, ?) AND `+which,
		append([]any{thisWeek.Year, thisWeek.Week}, args...)...)
	if err != nil {
		return err
	}
	for _, a := range planned {
		if !slices.Contains(steps, a.Step) {
			hosts := ""
			if a.Hosts != "" {
				hosts = " --hosts " + a.Hosts
			}
			return fmt.Errorf("%s has %d slots for step %q in %s: withdraw them first (`pba alloc unset %s --step %s%s --week %s`)",
				a.Project, a.Slots, a.Step, a.Week, a.Project, a.Step, hosts, a.Week)
		}
	}
	return nil
}

func setSteps(ctx context.Context, tx *sql.Tx, flow any, steps []string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM flow_step WHERE flow = ?`, flow); err != nil {
		return err
	}
	for i, step := range steps {
		if _, err := tx.ExecContext(ctx, `INSERT INTO flow_step (flow, ord, step) VALUES (?, ?, ?)`, flow, i, step); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFlow removes a flow that no project uses.
func (l *Ledger) RemoveFlow(ctx context.Context, by Editor, name string) error {
	return l.edit(ctx, "remove the flow", func(tx *sql.Tx) error {
		id, err := flowID(ctx, tx, name)
		if err != nil {
			return err
		}
		was, err := stepsOf(ctx, tx, name)
		if err != nil {
			return err
		}
		users, err := column(ctx, tx, `SELECT name FROM project WHERE flow = ? AND removed = 0 ORDER BY name`, id)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fmt.Errorf("flow %q is used by %s: assign them another flow first (`pba project set %s --flow NAME`)", name, strings.Join(users, ", "), users[0])
		}
		if _, err := tx.ExecContext(ctx, `UPDATE project SET flow = NULL WHERE flow = ?`, id); err != nil { // of removed ones
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM flow WHERE id = ?`, id); err != nil {
			return err
		}
		return audit(ctx, tx, by, 0, "flow remove", name, strings.Join(was, ","), "")
	})
}
