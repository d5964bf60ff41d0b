package split

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/metrics"
)

//go:embed migrations/*.sql
var migrations embed.FS

// store keeps a split's state. Each of its exported methods is one transaction.
type store struct {
	db   *sql.DB
	path string
}

// row is a task as it is stored.
type row struct {
	Task
	Slots     int   // of its job
	Job       int64 // 0: not known; a worker's, if the task was given to one
	Worker    int64 // number of the task that its worker's job began with; its own: the job stays as a worker; 0: it does not
	Submitted time.Time
	Began     time.Time // by the host's clock
	Ended     time.Time
	Seen      time.Time // when its end was seen

	ran   time.Time // its job was first seen to run, in this run of asplit
	waits bool      // its job waited when it was last seen
}

// endedRound is a round that has ended.
type endedRound struct {
	N            int
	Began, Ended time.Time
	metrics.Verdict
}

// inputState is the stored state of the input.
type inputState struct {
	Ended bool
	Items int64 // if it has ended
}

func openStore(path string) (*store, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := sqlite.Open(path, files)
	if err != nil {
		return nil, fmt.Errorf("open the split's state: %w", err)
	}
	return &store{db: db, path: path}, nil
}

// Close closes it.
func (s *store) Close() error { return s.db.Close() }

func (s *store) tx(ctx context.Context, what string, do func(context.Context, *sql.Tx) error) error {
	// What has happened is stored even if the run is interrupted.
	ctx = context.WithoutCancel(ctx)
	tx, err := s.db.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback() //nolint:errcheck // after a commit it has nothing to do
		if err = do(ctx, tx); err == nil {
			err = tx.Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", what, s.path, err)
	}
	return nil
}

func put(ctx context.Context, tx *sql.Tx, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO split (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, text)
	return err
}

// get reads a value; missing reports whether there is none.
func (s *store) get(ctx context.Context, key string, to any) (missing bool, err error) {
	var text []byte
	err = s.db.QueryRowContext(ctx, `SELECT value FROM split WHERE key = ?`, key).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return false, fmt.Errorf("read %s of %s: %w", key, s.path, err)
	}
	return false, nil
}

// The keys of table split.
const (
	keyDefinition = "definition"
	keyCore       = "core"
	keyBalance    = "balance"
	keyInput      = "input"
)

// Define stores the definition, once.
func (s *store) Define(ctx context.Context, d *Definition) error {
	return s.tx(ctx, "store the definition", func(ctx context.Context, tx *sql.Tx) error { return put(ctx, tx, keyDefinition, d) })
}

var errUndefined = errors.New("it was interrupted before its definition was stored: start it again")

// Definition returns the definition; the error is errUndefined if there is none.
func (s *store) Definition(ctx context.Context) (*Definition, error) {
	d := new(Definition)
	missing, err := s.get(ctx, keyDefinition, d)
	if missing {
		err = errUndefined
	}
	return d, err
}

// Input returns the stored state of the input.
func (s *store) Input(ctx context.Context) (state inputState, err error) {
	_, err = s.get(ctx, keyInput, &state)
	return state, err
}

// InputEnded stores that there are no more items.
func (s *store) InputEnded(ctx context.Context, items int64) error {
	return s.tx(ctx, "store the input's end", func(ctx context.Context, tx *sql.Tx) error {
		return put(ctx, tx, keyInput, inputState{Ended: true, Items: items})
	})
}

// Save stores the core and the tasks that changed, and the balance if it may have
// changed.
func (s *store) Save(ctx context.Context, c *Core, balance bool, tasks ...*row) error {
	return s.tx(ctx, "save the split's state", func(ctx context.Context, tx *sql.Tx) error { return saveCore(ctx, tx, c, balance, tasks) })
}

// CloseRound stores a round that has ended.
func (s *store) CloseRound(ctx context.Context, c *Core, r endedRound) error {
	return s.tx(ctx, "save the split's state", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO round (n, began, ended, gap, first, last, under) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			r.N, unixtime.Of(r.Began), unixtime.Of(r.Ended), r.Gap, r.First, r.Last, r.Under)
		return errors.Join(err, saveCore(ctx, tx, c, true, nil))
	})
}

// Prune removes the tasks whose items are all among the first ones, but for those that are named, and all
// rounds but the last.
func (s *store) Prune(ctx context.Context, items int64, round int, keep map[int64]bool) error {
	return s.tx(ctx, "remove what is left of a period", func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT n FROM task WHERE first + count <= ?`, items)
		if err != nil {
			return err
		}
		defer rows.Close()
		var numbers []int64
		for rows.Next() {
			var n int64
			if err := rows.Scan(&n); err != nil {
				return err
			}
			if !keep[n] {
				numbers = append(numbers, n)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, n := range numbers {
			if _, err := tx.ExecContext(ctx, `DELETE FROM task WHERE n = ?`, n); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM round WHERE n < ?`, round)
		return err
	})
}

// SaveHost stores a host that takes part.
func (s *store) SaveHost(ctx context.Context, name string, slots int, m metrics.Measures) error {
	return s.tx(ctx, "save a host", func(ctx context.Context, tx *sql.Tx) error {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO host (name, slots, measures) VALUES (?, ?, ?)`, name, slots, string(text))
		return err
	})
}

func saveCore(ctx context.Context, tx *sql.Tx, c *Core, balance bool, tasks []*row) error {
	if err := put(ctx, tx, keyCore, c); err != nil {
		return err
	}
	if balance {
		if err := put(ctx, tx, keyBalance, c.Balance); err != nil {
			return err
		}
	}
	for _, t := range tasks {
		cells := ""
		if len(t.Cells) > 0 {
			text, err := json.Marshal(t.Cells)
			if err != nil {
				return err
			}
			cells = string(text)
		}
		_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO task (n, round, first, count, kills, host, state, took, slots, job, worker, submitted, began, ended, seen, copy_of, cells)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.N, t.Round, t.First, t.Count, t.Kills, t.Host, t.State, t.Took, t.Slots, t.Job, t.Worker, unixtime.Of(t.Submitted), unixtime.Of(t.Began), unixtime.Of(t.Ended), unixtime.Of(t.Seen), t.CopyOf, cells)
		if err != nil {
			return err
		}
	}
	return nil
}

// Core returns the stored core with its balance. Tasks has its tasks.
func (s *store) Core(ctx context.Context, o metrics.Options) (*Core, error) {
	c := NewCore(o)
	if _, err := s.get(ctx, keyCore, c); err != nil {
		return nil, err
	}
	_, err := s.get(ctx, keyBalance, c.Balance)
	return c, err
}

// Tasks calls do for each task, in the order of their numbers.
func (s *store) Tasks(ctx context.Context, do func(row) error) error {
	return s.each(ctx, "read the tasks", func(rows *sql.Rows) error {
		var t row
		var cells string
		err := rows.Scan(&t.N, &t.Round, &t.First, &t.Count, &t.Kills, &t.Host, &t.State, &t.Took, &t.Slots, &t.Job, &t.Worker,
			unixtime.Into{Time: &t.Submitted}, unixtime.Into{Time: &t.Began}, unixtime.Into{Time: &t.Ended}, unixtime.Into{Time: &t.Seen}, &t.CopyOf, &cells)
		if err == nil && cells != "" {
			err = json.Unmarshal([]byte(cells), &t.Cells)
		}
		if err != nil {
			return err
		}
		return do(t)
	}, `SELECT n, round, first, count, kills, host, state, took, slots, job, worker, submitted, began, ended, seen, copy_of, cells FROM task ORDER BY n`)
}

// Rounds calls do for each round that has ended, in their order.
func (s *store) Rounds(ctx context.Context, do func(endedRound) error) error {
	return s.each(ctx, "read the rounds", func(rows *sql.Rows) error {
		var r endedRound
		err := rows.Scan(&r.N, unixtime.Into{Time: &r.Began}, unixtime.Into{Time: &r.Ended}, &r.Gap, &r.First, &r.Last, &r.Under)
		if err != nil {
			return err
		}
		return do(r)
	}, `SELECT n, began, ended, gap, first, last, under FROM round ORDER BY n`)
}

func (s *store) each(ctx context.Context, what string, scan func(*sql.Rows) error, query string) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return fmt.Errorf("%s of %s: %w", what, s.path, err)
	}
	return nil
}
