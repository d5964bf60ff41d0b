package sqlite_test

import (
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/sqlite"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

func files(scripts ...string) fstest.MapFS {
	names := []string{"0001_first.sql", "0002_second.sql", "0003_third.sql"}
	all := fstest.MapFS{"README": {Data: []byte("no migration")}}
	for i, script := range scripts {
		all[names[i]] = &fstest.MapFile{Data: []byte(script)}
	}
	return all
}

const (
	one = "CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a INTEGER REFERENCES a(id));"
	two = "INSERT INTO a VALUES (1);"
)

func open(t *testing.T, path string, migrations fstest.MapFS) *sql.DB {
	t.Helper()
	db, err := sqlite.Open(path, migrations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func number(t *testing.T, db *sql.DB, query string) int {
	t.Helper()
	var n int
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpenMigratesOnceAndInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd name?#%41.db")
	if db := open(t, path, files(one)); number(t, db, "PRAGMA user_version") != 1 {
		t.Error("first migration missing")
	}
	for range 2 {
		db := open(t, path, files(one, two))
		if number(t, db, "PRAGMA user_version") != 2 || number(t, db, "SELECT count(*) FROM a") != 1 {
			t.Error("second migration not applied exactly once")
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestPragmas(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "db"), files(one))
	for pragma, want := range map[string]int{"synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000} {
		if got := number(t, db, "PRAGMA "+pragma); got != want {
			t.Errorf("%s is %d, want %d", pragma, got, want)
		}
	}
	var mode string
	if err := db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v", mode, err)
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO b VALUES (9)"); err == nil {
		t.Error("foreign keys do not hold")
	}
	if n := db.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d connections, want one writer", n)
	}
}

func TestFailedMigrationIsRolledBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	_, err := sqlite.Open(path, files(one, "INSERT INTO a VALUES (7); INSERT INTO nowhere VALUES (1);"))
	if err == nil || !strings.Contains(err.Error(), "migration 0002_second.sql: no such table: nowhere") {
		t.Fatalf("got %v", err)
	}
	db := open(t, path, files(one))
	if number(t, db, "PRAGMA user_version") != 1 || number(t, db, "SELECT count(*) FROM a") != 0 {
		t.Error("half a migration was kept")
	}
}

func TestOpenRefusesANewerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path, files(one, two))
	_, err := sqlite.Open(path, files(one))
	if !errors.Is(err, sqlite.ErrNewer) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesAFileThatOthersCanWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path, files(one))
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(path, files(one)); !errors.Is(err, trusted.ErrNotTrusted) {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesNonDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(path, files(one)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := sqlite.Open(filepath.Join(t.TempDir(), "no/such/dir/db"), files(one)); err == nil {
		t.Error("a missing directory: want an error")
	}
}

func TestOpenRefusesGapsBetweenMigrations(t *testing.T) {
	gap := fstest.MapFS{"0001_a.sql": {Data: []byte(one)}, "0003_c.sql": {Data: []byte(two)}}
	if _, err := sqlite.Open(filepath.Join(t.TempDir(), "db"), gap); err == nil || !strings.Contains(err.Error(), "want number 0002") {
		t.Errorf("got %v", err)
	}
}

// SQLite itself does not wait for the process that makes a new file a WAL file.
func TestConcurrentOpenOfNewFile(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "db")
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				db, err := sqlite.Open(path, files(one, two))
				if err != nil {
					t.Error(err)
					return
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := number(t, open(t, path, files(one, two)), "SELECT count(*) FROM a"); n != 1 {
			t.Errorf("migration 2 was applied %d times", n)
		}
	}
}

func TestMemoryDatabasesAreSeparate(t *testing.T) {
	for range 2 {
		db, err := sqlite.Memory()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if _, err := db.Exec("CREATE TABLE t (x)", nil); err != nil {
			t.Error(err)
		}
	}
}

// A second connection of the same process must not drop the first one's locks: fcntl's are
// gone when any descriptor of the file is closed.
func TestLocksOutliveAnotherConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	open(t, path, files(one))
	other, err := sqlite.OpenToRead(path, files(one), func(uint32) bool { return false }, "a")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if lock.Type == unix.F_UNLCK {
		t.Error("no lock is left: another process could take itself for the last one and remove the WAL file")
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}
