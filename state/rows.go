package state

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// lineColumns are those of a line of history. Objects of schema 1 are of one host and have no
// column for it.
const (
	lineColumns    = "seq, n, run, host, at, event, detail"
	oldLineColumns = "seq, n, run, '', at, event, detail"
)

func (m *memory) lineColumns() string {
	if m.version < 2 {
		return oldLineColumns
	}
	return lineColumns
}

// outdated returns what an object of an older schema holds; nil: it has this one.
func (m *memory) outdated(object []byte) (*content, error) {
	const userVersion = 60 // its offset in the header
	if len(object) < pageSize || binary.BigEndian.Uint32(object[userVersion:]) == schemaVersion {
		return nil, nil
	}
	if err := m.open(object); err != nil {
		return nil, err
	}
	return m.load()
}

// load reads all of the object that was opened last.
func (m *memory) load() (*content, error) {
	c := &content{spec: map[specKey]driver.Value{}, history: map[lineKey]line{}, results: map[Segment]result{}, settings: map[string]setting{}, files: map[string]file{}}
	err := m.query("SELECT key, n, value FROM spec", func(row []driver.Value) error {
		c.spec[specKey{text(row[0]), number(row[1])}] = kept(row[2])
		return nil
	})
	if err == nil {
		err = m.query("SELECT "+m.lineColumns()+" FROM history", func(row []driver.Value) error {
			c.history[keyOf(row)] = line{text(row[4]), text(row[5]), text(row[6])}
			return nil
		})
	}
	if err == nil {
		err = m.query("SELECT run, host, started, ended, exit_code, user_us, system_us, max_rss, why FROM results", func(row []driver.Value) error {
			c.results[Segment{int(number(row[0])), text(row[1])}] = result{text(row[2]), kept(row[3]), kept(row[4]), kept(row[5]), kept(row[6]), kept(row[7]), kept(row[8])}
			return nil
		})
	}
	if err != nil || !m.own {
		return c, err
	}
	err = m.query("SELECT seq, n, run, host, at, key, value FROM settings", func(row []driver.Value) error {
		c.settings[text(row[5])] = setting{keyOf(row), text(row[4]), text(row[6])}
		return nil
	})
	if err == nil {
		err = m.query("SELECT seq, n, run, host, at, name, executable, data FROM files", func(row []driver.Value) error {
			c.files[text(row[5])] = file{keyOf(row), text(row[4]), number(row[6]), text(row[7])}
			return nil
		})
	}
	return c, err
}

// keyOf reads the first columns of a row: seq, n, run, host.
func keyOf(row []driver.Value) lineKey {
	return lineKey{Segment{int(number(row[2])), text(row[3])}, uint64(number(row[0])), number(row[1])}
}

// kept is a value that outlives its row.
func kept(v driver.Value) driver.Value {
	if b, ok := v.([]byte); ok {
		return append([]byte{}, b...)
	}
	return v
}

// size bounds what the rows take in an object, in bytes.
func (c *content) size() int {
	if c == nil {
		return 0
	}
	const perRow = 256
	n := 0
	for k, v := range c.spec {
		n += perRow + len(k.key) + len(text(v))
	}
	for _, l := range c.history {
		n += perRow + len(l.event) + len(l.detail)
	}
	for _, r := range c.results {
		n += perRow + len(text(r.why))
	}
	for k, s := range c.settings {
		n += perRow + len(k) + len(s.value)
	}
	for k, f := range c.files {
		n += perRow + len(k) + len(f.data)
	}
	return 2 * n
}

// insert writes rows into an object that has none of them, in their order: the same rows give
// the same bytes.
func (m *memory) insert(c *content) error {
	for _, k := range specKeys(c.spec) {
		if err := m.exec("INSERT INTO spec VALUES (?, ?, ?)", k.key, k.n, c.spec[k]); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.history), lineKey.compare) {
		l := c.history[k]
		if err := m.exec("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", int64(k.seq), k.n, int64(k.Run), k.Host, l.at, l.event, l.detail); err != nil {
			return err
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(c.results), compareSegments) {
		r := c.results[s]
		if err := m.exec("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", int64(s.Run), s.Host, r.started, r.ended, r.exit, r.user, r.system, r.rss, r.why); err != nil {
			return err
		}
	}
	if len(c.settings) > 0 || len(c.files) > 0 {
		if err := m.addOwn(); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.settings)) {
		if err := m.putSetting(key, c.settings[key]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if err := m.putFile(name, c.files[name]); err != nil {
			return err
		}
	}
	return nil
}

// addOwn makes the tables of own.sql where they are missing.
func (m *memory) addOwn() error {
	there, err := m.hasOwn()
	if err == nil && !there {
		err = m.exec(own)
	}
	return err
}

// putSetting writes a setting, unless a later one of its key is there.
func (m *memory) putSetting(key string, s setting) error {
	return m.exec("INSERT INTO settings VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at, run = excluded.run, host = excluded.host, seq = excluded.seq, n = excluded.n"+later,
		key, s.value, s.at, int64(s.Run), s.Host, int64(s.seq), s.n)
}

func (m *memory) putFile(name string, f file) error {
	return m.exec("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET executable = excluded.executable, at = excluded.at, run = excluded.run, host = excluded.host, seq = excluded.seq, n = excluded.n, data = excluded.data"+later,
		name, f.executable, f.at, int64(f.Run), f.Host, int64(f.seq), f.n, []byte(f.data))
}

// later is lineKey.compare in SQL.
const later = " WHERE (iif(excluded.host = '', 0, excluded.run), excluded.seq, excluded.n, excluded.host) >= (iif(host = '', 0, run), seq, n, host)"

// applyOwn writes what a job set or attached.
func (m *memory) applyOwn(c *Change) error {
	if c.Set == nil && c.Attach == nil {
		return nil
	}
	if err := m.addOwn(); err != nil {
		return err
	}
	key := lineKey{Segment{c.RunNo, c.Host}, c.Seq, int64(c.N)}
	if c.Set != nil {
		if err := m.putSetting(c.Set.Key, setting{key, stamp(c.At), c.Set.Value}); err != nil {
			return err
		}
	}
	if f := c.Attach; f != nil {
		executable := int64(0)
		if f.Executable {
			executable = 1
		}
		return m.putFile(f.Name, file{key, stamp(c.At), executable, string(f.Data)})
	}
	return nil
}

// mergeIn merges another object into the one that is being built.
func (m *memory) mergeIn(object []byte) error {
	if m.other == nil {
		var err error
		if m.other, err = newMemory(); err != nil {
			return err
		}
	}
	theirs, err := m.other.loadObject(object)
	if err != nil {
		return errors.Join(err, m.other.renew())
	}
	m.version = schemaVersion
	if m.own, err = m.hasOwn(); err != nil {
		return err
	}
	ours, err := m.load()
	if err != nil {
		return err
	}
	tables := []string{"spec", "history", "results"}
	if m.own {
		tables = append(tables, "settings", "files")
	}
	for _, table := range tables {
		if err := m.exec("DELETE FROM " + table); err != nil {
			return err
		}
	}
	return m.insert(merge(ours, theirs))
}

func (m *memory) loadObject(object []byte) (*content, error) {
	if err := m.open(object); err != nil {
		return nil, err
	}
	return m.load()
}

// store returns an object that holds the rows.
func (m *memory) store(c *content) ([]byte, error) {
	if err := m.conn.Deserialize(m.padded(m.empty, c.size(), nil), "main"); err != nil {
		return nil, err
	}
	if err := m.exec("BEGIN"); err != nil {
		return nil, err
	}
	if err := m.insert(c); err != nil {
		return nil, errors.Join(err, m.exec("ROLLBACK"))
	}
	if err := m.exec("COMMIT"); err != nil {
		return nil, err
	}
	return m.serialize()
}

// readOwn reads what the job set and attached.
func (m *memory) readOwn(r *backends.Record) error {
	if !m.own {
		return nil
	}
	err := m.query("SELECT key, value, at, run, host FROM settings ORDER BY key", func(row []driver.Value) error {
		at, err := time.Parse(time.RFC3339Nano, text(row[2]))
		r.Settings = append(r.Settings, backends.SettingRecord{Key: text(row[0]), Value: text(row[1]), At: at, Run: int(number(row[3])), Host: text(row[4])})
		return err
	})
	if err != nil {
		return err
	}
	return m.query("SELECT name, length(data), executable, at, run, host FROM files ORDER BY name", func(row []driver.Value) error {
		at, err := time.Parse(time.RFC3339Nano, text(row[3]))
		r.Files = append(r.Files, backends.FileRecord{Name: text(row[0]), Size: number(row[1]), Executable: number(row[2]) != 0, At: at, Run: int(number(row[4])), Host: text(row[5])})
		return err
	})
}

// ReadFile reads a file that travels with a job. fs.ErrNotExist: it has none of that name.
func ReadFile(dir string, id backends.ID, name string) (File, error) {
	data, err := os.ReadFile(Path(dir, id))
	if err != nil {
		return File{}, fmt.Errorf("read the state object of job %v: %w", id, err)
	}
	m, err := newMemory()
	if err != nil {
		return File{}, err
	}
	defer m.close()
	f, err := m.file(data, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = damaged(id, err)
	}
	return f, err
}

func (m *memory) file(object []byte, name string) (File, error) {
	c, err := m.loadObject(object)
	if err != nil {
		return File{}, err
	}
	f, ok := c.files[name]
	if !ok {
		return File{}, fmt.Errorf("no file %.80q is attached: %w", name, fs.ErrNotExist)
	}
	return File{Name: name, Executable: f.executable != 0, Data: []byte(f.data)}, nil
}

// Checksum is what a copy of an object is compared by: SHA-256, in hexadecimal digits.
func Checksum(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}
