// Package sqlite opens every SQLite file: with the same pragmas on every
// connection, one writer, and its schema brought up to date.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/allotment-hpc/allotment/internal/trusted"
)

// ErrNewer is wrapped when a file's schema is newer than this program knows.
var ErrNewer = errors.New("it was written by a newer version of Allotment")

// ErrOlder is wrapped when a file that is only read lacks migrations.
var ErrOlder = errors.New("it was written by an older version of Allotment")

// ErrForeign is wrapped when what is there is no database of the wanted kind: empty,
// cut off, damaged, or written by another program.
var ErrForeign = errors.New("it is not a complete Allotment database")

// ErrLocked is wrapped when another process held a file's lock for all of the wait.
var ErrLocked = errors.New("another process has locked it")

// Locked adds ErrLocked to an error of SQLite's that says so.
func Locked(err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrBusy || e.Code == sqlite3.ErrLocked) && !errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// busyTimeout is how long a statement waits for another process's lock.
const busyTimeout = 5 * time.Second

// Open opens an SQLite file, which it creates if it is missing (its directory
// must exist), and applies the migrations that it lacks.
//
// Migrations are the files NNNN_name.sql at the top of the file system, numbered
// from 0001 without a gap. Each is applied in a transaction of its own together
// with its number, user_version: a crash leaves the schema before or after it.
//
// What is committed is on the disk (WAL, synchronous=FULL), foreign keys hold,
// transactions take the write lock when they begin. The pool has one connection,
// so a caller must close its rows before its next query. A file that users other than
// root and the caller can write is refused (trusted.ErrNotTrusted).
func Open(path string, migrations fs.FS) (*sql.DB, error) {
	steps, err := readMigrations(migrations)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := trusted.File(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db, err := sql.Open("sqlite3", dsn(path))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	if err := migrate(context.Background(), db, steps); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, Locked(err)), db.Close())
	}
	return db, nil
}

// OpenExisting is Open for a file that must hold a database already, with these
// tables at least: what even its first version had. Anything else is refused with
// ErrForeign, and is not changed.
func OpenExisting(path string, migrations fs.FS, tables ...string) (*sql.DB, error) {
	db, err := openAs(path, "rw", func(uint32) bool { return false })
	if err != nil {
		return nil, err
	}
	_, err = knownVersion(context.Background(), db, tables)
	// The last connection that closes removes the WAL file, which readers need.
	if kept := KeepWAL(db); err == nil {
		err = kept
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return Open(path, migrations)
}

// openAs opens a file that is there, in one of SQLite's modes, and changes nothing.
// Its owner must be root, the caller or a user that may allows.
func openAs(path, mode string, allowed func(owner uint32) bool) (*sql.DB, error) {
	if err := trusted.FileBy(path, allowed); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := checkSize(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db, err := sql.Open("sqlite3", name(path)+"?"+url.Values{
		"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)},
		"mode":          {mode},
	}.Encode())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// checkSize refuses a file that is too short for a database. SQLite takes an empty one for a
// new database, or reads the old one's WAL file in its place; whatever else is no database it
// refuses itself. The file is not opened: closing it would drop the locks that this process
// has on it for other connections (fcntl), and a process that closes the database could then
// remove the WAL file under them.
func checkSize(path string) error {
	const least = 512 // bytes, of a page (https://sqlite.org/fileformat2.html)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Size() == 0:
		return fmt.Errorf("%w: it is empty", ErrForeign)
	case info.Size() < least:
		return fmt.Errorf("%w: it has no SQLite header", ErrForeign)
	}
	return nil
}

// knownVersion is the schema number of a file that must have these tables.
func knownVersion(ctx context.Context, db *sql.DB, tables []string) (int, error) {
	version, err := firstVersion(ctx, db)
	if err != nil {
		return 0, foreign(err)
	}
	if version == 0 {
		return 0, fmt.Errorf("%w: it has no schema number", ErrForeign)
	}
	for _, table := range tables {
		n := 0
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`, table).Scan(&n); err != nil {
			return 0, foreign(err)
		}
		if n == 0 {
			return 0, fmt.Errorf("%w: it has no table %s", ErrForeign, table)
		}
	}
	return version, nil
}

// foreign adds ErrForeign to SQLite's errors that mean it.
func foreign(err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrNotADB || e.Code == sqlite3.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return Locked(err)
}

// OpenToRead opens another user's SQLite file to read it: nothing is
// created, changed or migrated. Its owner must be root, the caller or a user that may
// allows. A file without these tables is refused with ErrForeign; one that lacks
// migrations is an error that wraps ErrOlder. Where its writers keep the WAL file
// (see KeepWAL) no right to write is needed.
func OpenToRead(path string, migrations fs.FS, allowed func(owner uint32) bool, tables ...string) (*sql.DB, error) {
	steps, err := readMigrations(migrations)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db, err := openAs(path, "ro", allowed)
	if err != nil {
		return nil, err
	}
	version, err := knownVersion(context.Background(), db, tables)
	switch {
	case err != nil:
	case version > len(steps):
		err = newer(version, len(steps))
	case version < len(steps):
		err = ErrOlder
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return db, nil
}

// KeepWAL leaves the WAL file and its index beside the database when the last
// process closes it. A reader without the right to write needs them.
func KeepWAL(db *sql.DB) error {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return fmt.Errorf("keep the WAL file: %w", err)
	}
	err = conn.Raw(func(driver any) error {
		c, ok := driver.(*sqlite3.SQLiteConn)
		if !ok {
			return fmt.Errorf("the driver gave a %T", driver)
		}
		return c.SetFileControlInt("main", sqlite3.SQLITE_FCNTL_PERSIST_WAL, 1)
	})
	if err = errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("keep the WAL file: %w", err)
	}
	return nil
}

func newer(version, known int) error {
	return fmt.Errorf("%w (its schema is %d, this program's %d): use that version", ErrNewer, version, known)
}

// name is a path as an SQLite URI.
func name(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// dsn carries the pragmas: given by Exec they would reach one connection of the
// pool only.
func dsn(path string) string {
	return name(path) + "?" + url.Values{
		"_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)},
		"_foreign_keys": {"1"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
		"_txlock":       {"immediate"},
	}.Encode()
}

// step is one migration; its number is its place, from 1.
type step struct{ name, script string }

func readMigrations(files fs.FS) ([]step, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	slices.Sort(names)
	steps := make([]step, len(names))
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("%04d_", i+1)) {
			return nil, fmt.Errorf("migration %q: want number %04d", name, i+1)
		}
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		steps[i] = step{name: name, script: string(script)}
	}
	return steps, nil
}

func migrate(ctx context.Context, db *sql.DB, steps []step) error {
	version, err := firstVersion(ctx, db)
	if err != nil {
		return err
	}
	for version < len(steps) {
		if version, err = advance(ctx, db, steps); err != nil {
			return err
		}
	}
	if version > len(steps) {
		return newer(version, len(steps))
	}
	return nil
}

// firstVersion is the file's schema number. Another process that makes the same
// new file a WAL file at this moment locks it in a way that SQLite's own busy
// handler does not wait for.
func firstVersion(ctx context.Context, db *sql.DB) (int, error) {
	for deadline := time.Now().Add(busyTimeout); ; time.Sleep(10 * time.Millisecond) {
		version, err := userVersion(ctx, db)
		var busy sqlite3.Error
		if err == nil || !errors.As(err, &busy) || busy.Code != sqlite3.ErrBusy || time.Now().After(deadline) {
			return version, err
		}
	}
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func userVersion(ctx context.Context, q querier) (int, error) {
	var version int
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, fmt.Errorf("read its schema version: %w", err)
	}
	return version, nil
}

// advance applies the next migration, unless another process did so by now, and
// returns the version that the file has then.
func advance(ctx context.Context, db *sql.DB, steps []step) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("begin a migration: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	version, err := userVersion(ctx, tx)
	if err != nil || version >= len(steps) {
		return version, err
	}
	next := steps[version]
	if _, err := tx.ExecContext(ctx, next.script); err != nil {
		return 0, fmt.Errorf("migration %s: %w", next.name, err)
	}
	version++
	if _, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(version)); err != nil {
		return 0, fmt.Errorf("migration %s: %w", next.name, err)
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("migration %s: %w", next.name, err)
	}
	return version, nil
}

// Memory returns a connection to a new database in memory, for objects that are built
// and read as bytes (Serialize, Deserialize). It is not safe for concurrent use.
func Memory() (*sqlite3.SQLiteConn, error) {
	giveBack()
	conn, err := (&sqlite3.SQLiteDriver{}).Open(":memory:")
	if err != nil {
		return nil, fmt.Errorf("open a database in memory: %w", err)
	}
	memory, ok := conn.(*sqlite3.SQLiteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("open a database in memory: the driver gave a %T", conn), conn.Close())
	}
	return memory, nil
}
