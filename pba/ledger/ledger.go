// Package ledger keeps what must outlive a cycle: the plan of projects and
// weeks, what one cycle hands to the next, what was intended and what came of
// it. It stores, it decides nothing.
//
// Every exported method is one transaction: it happens as a whole or not at all.
package ledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/plan"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrMissing is wrapped by Open where there is no ledger yet.
var ErrMissing = errors.New("there is no ledger")

// Ledger is an open ledger file. One process uses one; cycles and edits of
// several processes take turns by a lock that is not the ledger's business.
type Ledger struct {
	db     *sql.DB
	path   string
	loaded plan.Memory // what the tables hold, so that only what differs is written
}

// ErrForeign is wrapped by Open where a file is there that holds no ledger.
var ErrForeign = sqlite.ErrForeign

// ErrLocked is wrapped where another process held the file's lock for too long.
var ErrLocked = sqlite.ErrLocked

// firstTables distinguish a ledger from another program's database: even the first
// version had them.
var firstTables = []string{"meta", "project", "pool", "allocation"}

// Create makes a ledger; the file must not exist. It appears when it is complete: no
// other function makes one.
func Create(path string) (*Ledger, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, fmt.Errorf("create the ledger: %w", err)
	}
	temp := f.Name()
	defer func() { _ = os.Remove(temp) }()
	// Any user who can enter its directory may read it.
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return nil, fmt.Errorf("create the ledger: %w", err)
	}
	db, err := sqlite.Open(temp, files)
	if err != nil {
		return nil, fmt.Errorf("create the ledger: %w", err)
	}
	if err := errors.Join(db.Close(), os.Link(temp, path), disk.OS().SyncDir(filepath.Dir(path))); err != nil {
		return nil, fmt.Errorf("create the ledger: %w", err)
	}
	return Open(path)
}

// Open opens the ledger at path and brings its tables up to date. It refuses a
// file of another owner, of a newer version (sqlite.ErrNewer), and one that is no
// ledger (ErrForeign).
func Open(path string) (*Ledger, error) {
	files, err := tables(path)
	if err != nil {
		return nil, err
	}
	db, err := sqlite.OpenExisting(path, files, firstTables...)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", advise(path, err))
	}
	if err := sqlite.KeepWAL(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open the ledger: %w", err), db.Close())
	}
	return &Ledger{db: db, path: path}, nil
}

// advise says what to do about a file that is no ledger.
func advise(path string, err error) error {
	if !errors.Is(err, ErrForeign) {
		return err
	}
	return fmt.Errorf("%w: put a copy that `pba backup` made in place of %s; only where there is none, move that file away and run `pba init`", err, path)
}

// OpenToRead opens a ledger that the caller may not write. It must belong to
// root or to the owner of its directory. Whatever would change it fails.
func OpenToRead(path string) (*Ledger, error) {
	files, err := tables(path)
	if err != nil {
		return nil, err
	}
	db, err := sqlite.OpenToRead(path, files, trusted.OwnerOf(filepath.Dir(path)), firstTables...)
	if err != nil {
		return nil, fmt.Errorf("open the ledger to read it: %w", advise(path, err))
	}
	return &Ledger{db: db, path: path}, nil
}

// tables returns the migrations for the ledger at path, which must be there.
func tables(path string) (fs.FS, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s: run `pba init` first", ErrMissing, path)
	}
	return fs.Sub(migrations, "migrations")
}

// Close closes the file.
func (l *Ledger) Close() error { return l.db.Close() }

// tx runs f in one transaction. What names the attempt in an error.
func (l *Ledger) tx(ctx context.Context, what string, f func(*sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return l.explain(what, err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it has nothing to do
	if err := f(tx); err != nil {
		return l.explain(what, err)
	}
	return l.explain(what, tx.Commit())
}

// explain adds to a database error the attempt, the path and the remedy.
func (l *Ledger) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrFull || e.Code == sqlite3.ErrIoErr) {
		return fmt.Errorf("%s in %s: %w: nothing of it was recorded; free some space there and try again", what, l.path, err)
	}
	return fmt.Errorf("%s in %s: %w", what, l.path, sqlite.Locked(err))
}

// The keys of the meta table.
const (
	metaPaused      = "paused"
	metaLastCycle   = "last_cycle"
	metaLastAction  = "last_action"
	metaPoolsSent   = "pools_sent"
	metaNextReclaim = "next_reclaim"
	metaEndedSince  = "ended_since"
	metaPlaced      = "dummies_placed"
	metaClockWall   = "clock_wall"
	metaClockBoot   = "clock_boot"
	metaClockUp     = "clock_up"
	metaClockSetAt  = "clock_set_at"
	metaClockSetBy  = "clock_set_by"
)

func getMeta(ctx context.Context, q querier, key string) (int64, error) {
	var n int64
	err := q.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

func setMeta(ctx context.Context, tx *sql.Tx, key string, value int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO meta (key, value) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, value)
	return err
}

// raiseMeta sets a time that only ever goes forward.
func raiseMeta(ctx context.Context, tx *sql.Tx, key string, value int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO meta (key, value) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE excluded.value > value`, key, value)
	return err
}

// placeholders is "(?, ?, …)" for n values.
func placeholders(n int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("?, ", n), ", ") + ")"
}

// isDatabase reports whether an error is a failure of the database, not a refusal.
func isDatabase(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
