package state

import (
	"database/sql/driver"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/sqlite"
)

// schema is every object's; own is added when a job first sets or attaches something.
var (
	//go:embed schema.sql
	schema string
	//go:embed own.sql
	own string
)

// As the schema says.
const (
	pageSize      = 1024
	applicationID = 1634495599 // "allo"
	schemaVersion = 2
)

// memory is a database in memory in which objects are built and read, one at a
// time. It is not safe for concurrent use.
type memory struct {
	conn  *sqlite3.SQLiteConn
	empty []byte  // an object with the schema alone
	room  []byte  // of padded
	other *memory // in which objects that are merged are read; nil: none was

	version int64 // of the object that was opened last
	own     bool  // it has the tables of own.sql
}

func newMemory() (*memory, error) {
	conn, err := sqlite.Memory()
	if err != nil {
		return nil, err
	}
	m := &memory{conn: conn}
	for _, query := range []string{"PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", schema} {
		if err := m.exec(query); err != nil {
			return nil, errors.Join(err, m.conn.Close())
		}
	}
	if m.empty, err = m.conn.Serialize("main"); err != nil {
		return nil, errors.Join(err, m.conn.Close())
	}
	return m, nil
}

func (m *memory) close() {
	if m.other != nil {
		m.other.close()
	}
	_ = m.conn.Close()
}

func (m *memory) exec(query string, args ...driver.Value) error {
	_, err := m.conn.Exec(query, args)
	return err
}

// query hands each row to each; values are valid during the call only.
func (m *memory) query(query string, each func(row []driver.Value) error) error {
	rows, err := m.conn.Query(query, nil)
	if err != nil {
		return err
	}
	row := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(row)
		if errors.Is(err, io.EOF) {
			return rows.Close()
		}
		if err == nil {
			err = each(row)
		}
		if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
}

// build applies changes to a job's object (nil: a new one) and returns it.
func (m *memory) build(id backends.ID, object []byte, changes []Change) ([]byte, error) {
	begun := object != nil
	if !begun {
		object = m.empty
	}
	old, err := m.outdated(object)
	if err != nil {
		return nil, err
	}
	if old != nil {
		object = m.empty
	}
	if err := m.conn.Deserialize(m.padded(object, old.size(), changes), "main"); err != nil {
		return nil, err
	}
	if err := m.exec("BEGIN"); err != nil {
		return nil, err
	}
	if old != nil {
		err = m.insert(old)
	}
	if !begun && id.Index > 0 {
		err = m.putElement(id)
	}
	for i := range changes {
		if err == nil {
			err = m.apply(&changes[i])
		}
	}
	if err == nil {
		err = m.shorten(object, changes)
	}
	if err != nil {
		return nil, errors.Join(err, m.exec("ROLLBACK"))
	}
	if err := m.exec("COMMIT"); err != nil {
		return nil, err
	}
	return m.serialize()
}

// serialize returns the object without the room behind its last page.
func (m *memory) serialize() ([]byte, error) {
	const pageCount = 28 // its offset in the header
	object, err := m.conn.Serialize("main")
	if err != nil {
		return nil, err
	}
	if len(object) < pageSize {
		return nil, errTooShort
	}
	pages := int(binary.BigEndian.Uint32(object[pageCount:]))
	return object[:min(pages*pageSize, len(object))], nil
}

var errTooShort = errors.New("an object without a page")

// renew opens another database: one that was given damaged data can't be used again.
func (m *memory) renew() error {
	fresh, err := newMemory()
	if err != nil {
		return err
	}
	m.close()
	m.conn = fresh.conn
	return nil
}

// padded returns an object with as much room as changes could need, valid until the
// next call: the driver deserializes into a buffer that does not grow. SQLite goes by
// the page count in the header, and takes what is behind those pages when it needs more.
func (m *memory) padded(object []byte, more int, changes []Change) []byte {
	const fixed, perChange, perItem = 16 << 10, 1 << 10, 64 // several times what the rows take
	room := fixed + more
	for i := range changes {
		room += perChange + 2*len(changes[i].Detail) + 3*len(changes[i].Merge)
		if s := changes[i].Set; s != nil {
			room += 2 * (len(s.Key) + len(s.Value))
		}
		if f := changes[i].Attach; f != nil {
			room += len(f.Data) + len(f.Data)/8
		}
		if f := changes[i].Final; f != nil {
			room += perChange + 12*(len(f.Name)+len(f.Project)+len(f.Step)+len(f.Reason)+len(f.Mark)) // as JSON
			for _, list := range [][]string{f.Asked, f.Pinned} {
				for _, item := range list {
					room += 2*perItem + 12*len(item)
				}
			}
			room += 4 * perItem * (len(f.Hosts) + len(f.Shares))
		}
		if s := changes[i].Submit; s != nil {
			script, lists := len(s.Spec.Script), len(s.Spec.Command)+len(s.Spec.Env)+len(s.Spec.Hosts)
			room += script + script/16 // of a page 4 bytes are not content
			room += 2 * (s.Spec.Size() - script + perItem*lists)
			if s.Spec.Array != nil {
				room += 2 * len(indices(s.Spec.Array.Indices))
			}
		}
	}
	size := (len(object) + room + pageSize - 1) / pageSize * pageSize
	if size > keptRoom {
		return append(object[:len(object):len(object)], make([]byte, size-len(object))...)
	}
	if m.room == nil {
		m.room = make([]byte, keptRoom)
	}
	clear(m.room[copy(m.room, object):size])
	return m.room[:size]
}

// keptRoom is the size of the buffer that is used again, in bytes: most objects fit.
const keptRoom = 64 << 10

func (m *memory) apply(c *Change) error {
	if c.Submit != nil {
		if err := m.putSpec(c); err != nil {
			return err
		}
	}
	if c.Event != "" {
		err := m.exec("INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
			int64(c.Seq), int64(c.N), int64(c.RunNo), c.Host, stamp(c.At), c.Event, c.Detail)
		if err != nil {
			return err
		}
	}
	if c.Final != nil {
		final := c.Final.MapTexts(backends.Escape)
		end, err := json.Marshal(final.Compact())
		if err == nil {
			err = m.exec("INSERT OR REPLACE INTO spec VALUES (?, 0, ?)", endKey, string(end))
		}
		if err != nil {
			return err
		}
	}
	if c.Begin != nil {
		err := m.exec("INSERT OR IGNORE INTO results (run, host, started) VALUES (?, ?, ?)", int64(c.RunNo), c.Begin.Host, stamp(c.At))
		if err != nil {
			return err
		}
	}
	if e := c.End; e != nil {
		at := e.At
		if at.IsZero() {
			at = c.At
		}
		err := m.exec("UPDATE results SET ended = ?, exit_code = ?, user_us = ?, system_us = ?, max_rss = ?, why = ? WHERE run = ? AND ? IN ('', host)",
			stamp(at), int64(e.ExitCode), e.User.Microseconds(), e.System.Microseconds(), e.MaxRSS, e.Why, int64(c.RunNo), c.Host)
		if err != nil {
			return err
		}
	}
	if c.Merge != nil {
		if err := m.mergeIn(c.Merge); err != nil {
			return err
		}
	}
	return m.applyOwn(c)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// open loads an object, and checks its application ID and schema version.
func (m *memory) open(object []byte) error {
	if len(object) < pageSize {
		return errTooShort
	}
	if err := m.conn.Deserialize(object, "main"); err != nil {
		return err
	}
	// Never by SQLite's pragma_… tables: they point into the schema of the object
	// before this one, which is freed.
	id, err := m.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := m.number("PRAGMA user_version")
	switch {
	case err != nil:
		return err
	case id != applicationID:
		return errors.New("it is no state object")
	case version > schemaVersion:
		return fmt.Errorf("a newer version of Allotment wrote it (schema %d, this program's is %d)", version, schemaVersion)
	}
	m.version = version
	m.own, err = m.hasOwn()
	return err
}

// hasOwn reports whether the object has the tables of own.sql.
func (m *memory) hasOwn() (bool, error) {
	n, err := m.number("SELECT count(*) FROM sqlite_schema WHERE name = 'settings'")
	return n > 0, err
}

func (m *memory) number(query string) (n int64, err error) {
	err = m.query(query, func(row []driver.Value) error {
		n = number(row[0])
		return nil
	})
	return n, err
}

// rows returns the specification's rows, after a check of their checksum.
func (m *memory) rows() (specRows, error) {
	var rows specRows
	err := m.query("SELECT key, value FROM spec ORDER BY key, n", func(row []driver.Value) error {
		rows.add(row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, rows.check()
}

func (m *memory) read(data []byte) (*object, error) {
	if err := m.open(data); err != nil {
		return nil, err
	}
	return m.readOpened()
}

// readOpened reads the object that was opened last.
func (m *memory) readOpened() (*object, error) {
	rows, err := m.rows()
	if err != nil {
		return nil, err
	}
	r := new(backends.Record)
	err = m.query("SELECT "+m.lineColumns()+" FROM history ORDER BY seq, n, run", func(row []driver.Value) error {
		at, err := time.Parse(time.RFC3339Nano, text(row[4]))
		r.History = append(r.History, backends.HistoryLine{At: at, Run: int(number(row[2])), Event: text(row[5]), Detail: text(row[6]), Host: text(row[3])})
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.History, func(a, b backends.HistoryLine) int {
		return lineKey{Segment: Segment{a.Run, a.Host}}.inOrder(lineKey{Segment: Segment{b.Run, b.Host}})
	})
	err = m.query("SELECT run, host, started, ended, exit_code, user_us, system_us, max_rss, why FROM results ORDER BY run, host", func(row []driver.Value) error {
		run, err := readRun(row)
		r.Runs = append(r.Runs, run)
		return err
	})
	if err == nil {
		err = m.readOwn(r)
	}
	return &object{rows, r}, err
}

func readRun(row []driver.Value) (backends.RunRecord, error) {
	run := backends.RunRecord{
		Run: int(number(row[0])), Host: text(row[1]), ExitCode: int(number(row[4])),
		User: time.Duration(number(row[5])) * time.Microsecond, System: time.Duration(number(row[6])) * time.Microsecond,
		MaxRSS: number(row[7]), Why: text(row[8]),
	}
	var err error
	if run.Started, err = time.Parse(time.RFC3339Nano, text(row[2])); err != nil {
		return run, err
	}
	if row[3] != nil {
		run.Ended, err = time.Parse(time.RFC3339Nano, text(row[3]))
	}
	return run, err
}

func text(v driver.Value) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func number(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}
