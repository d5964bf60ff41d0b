package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
)

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls scan for every row of a query.
func each(ctx context.Context, q querier, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list reads the rows of a query; columns says where each column of one goes.
func list[T any](ctx context.Context, q querier, columns func(*T) []any, query string, args ...any) ([]T, error) {
	var all []T
	err := each(ctx, q, func(rows *sql.Rows) error {
		var one T
		err := rows.Scan(columns(&one)...)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// table reads the rows of a query by their keys.
func table[K comparable, V any](ctx context.Context, q querier, columns func(*K, *V) []any, query string) (map[K]V, error) {
	all := map[K]V{}
	err := each(ctx, q, func(rows *sql.Rows) error {
		var (
			key K
			one V
		)
		err := rows.Scan(columns(&key, &one)...)
		all[key] = one
		return err
	}, query)
	return all, err
}

// storeTable writes what differs between two tables.
func storeTable[K comparable, V any](was, is map[K]V, same func(a, b V) bool, put func(K, V) error, drop func(K) error) error {
	for key, one := range is {
		if old, ok := was[key]; ok && same(old, one) {
			continue
		}
		if err := put(key, one); err != nil {
			return err
		}
	}
	for key := range was {
		if _, ok := is[key]; ok {
			continue
		}
		if err := drop(key); err != nil {
			return err
		}
	}
	return nil
}

// forgetJob deletes a job's row of a table.
func forgetJob(ctx context.Context, tx *sql.Tx, table string) func(backends.ID) error {
	return func(id backends.ID) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE job = ? AND idx = ?`, id.Job, id.Index)
		return err
	}
}

// when scans a time.
func when(t *time.Time) unixtime.Into { return unixtime.Into{Time: t} }

// fromJSON scans a value that toJSON wrote.
type fromJSON struct{ to any }

// Scan reads the column's value.
func (c fromJSON) Scan(value any) error {
	text, ok := value.(string)
	switch {
	case !ok:
		return fmt.Errorf("%v is no JSON", value)
	case text == "":
		return nil
	}
	return json.Unmarshal([]byte(text), c.to)
}

// toJSON writes a list, an empty one as no text.
func toJSON[T any](list []T) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// suspends scans the mode of a preemption.
type suspends struct{ *backends.Mode }

// Scan reads the column's value.
func (c suspends) Scan(value any) error {
	if value == backends.PreemptSuspend.String() {
		*c.Mode = backends.PreemptSuspend
	}
	return nil
}
