package state

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Read verifies an object that may come from elsewhere, and returns what it says, with its
// sequence. Its specification is empty where it is that of the job's array. ErrCorrupt: it is
// damaged, not this job's, larger than it may be, or has other tables, triggers or views than
// objects have.
func (i *Inspector) Read(object []byte, id backends.ID) (*backends.Record, Sequence, error) {
	r, _, s, err := i.ReadOwned(object, id)
	return r, s, err
}

// ReadOwned is Read, and returns the job's owner, too.
func (i *Inspector) ReadOwned(object []byte, id backends.ID) (*backends.Record, Owner, Sequence, error) {
	o, c, err := i.m.readForeign(object, id)
	if err != nil {
		return nil, Owner{}, Sequence{}, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), i.m.renew())
	}
	return o.record, o.rows.owner(), c.sequence(), nil
}

// ReadFile is Read of a file that travels with the job. fs.ErrNotExist: there is none of that
// name.
func (i *Inspector) ReadFile(object []byte, id backends.ID, name string) (File, error) {
	if _, _, err := i.Read(object, id); err != nil {
		return File{}, err
	}
	return i.m.file(object, name)
}

// Merge returns the object that holds what all of a job's objects hold, in whatever order they
// are given. Each may come from elsewhere, as for Read.
func (i *Inspector) Merge(id backends.ID, objects ...[]byte) ([]byte, error) {
	all := new(content)
	for _, object := range objects {
		_, c, err := i.m.readForeign(object, id)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), i.m.renew())
		}
		all = merge(all, c)
	}
	return i.m.store(all)
}

func (m *memory) readForeign(data []byte, id backends.ID) (*object, *content, error) {
	if len(data) > MaxObject {
		return nil, nil, fmt.Errorf("%d bytes: at most %d", len(data), MaxObject)
	}
	if err := m.open(data); err != nil {
		return nil, nil, err
	}
	if err := m.checkSchema(); err != nil {
		return nil, nil, err
	}
	if err := m.checkSizes(); err != nil {
		return nil, nil, err
	}
	o, err := m.sound(id)
	if err != nil {
		return nil, nil, err
	}
	c, err := m.load()
	if err != nil {
		return nil, nil, err
	}
	return o, c, c.check()
}

// statements are the schema's, as SQLite keeps them.
func statements(schema string) map[string]bool {
	known := map[string]bool{}
	for s := range strings.SplitSeq(schema, ";\n") {
		if s = strings.TrimSpace(s); strings.HasPrefix(s, "CREATE ") {
			known[s] = true
		}
	}
	return known
}

// checkSchema refuses an object that has other tables than objects have, or a trigger, a view or
// an index: SQLite then runs nothing of its sender's.
func (m *memory) checkSchema() error {
	tables := 0
	err := m.query("SELECT type, sql FROM sqlite_schema", func(row []driver.Value) error {
		switch {
		case text(row[0]) == "table" && knownTables[text(row[1])]:
			tables++
		case text(row[0]) == "index" && row[1] == nil: // files has one, SQLite's own
		default:
			return fmt.Errorf("it has a %.20s that no state object has", backends.Escape(text(row[0])))
		}
		return nil
	})
	if err == nil && tables != len(statements(schema)) && tables != len(knownTables) {
		err = fmt.Errorf("it has %d tables, want %d or %d", tables, len(statements(schema)), len(knownTables))
	}
	if err == nil && m.version != schemaVersion {
		err = fmt.Errorf("its schema is %d, want %d", m.version, schemaVersion)
	}
	return err
}

var knownTables = statements(schema + own)

// Bounds of rows in an object from elsewhere: what merged objects have, and some texts.
const (
	maxLines     = 2*maxHistory + maxSubmitted
	maxSpecRows  = 100_000 // a job may have thousands of variables
	maxDetail    = 64 << 10
	maxHostBytes = 255
)

// checkSizes refuses an object before its rows are read, if they are too many or too large.
func (m *memory) checkSizes() error {
	for query, most := range map[string]int64{
		"SELECT count(*) FROM spec":    maxSpecRows,
		"SELECT count(*) FROM history": maxLines,
		"SELECT count(*) FROM results": mergedResults,
		"SELECT max(length(CAST(event AS BLOB))+length(CAST(detail AS BLOB))) FROM history": maxDetail,
		"SELECT max(length(CAST(host AS BLOB))) FROM history":                               maxHostBytes,
		"SELECT max(length(CAST(host AS BLOB))) FROM results":                               maxHostBytes,
	} {
		if n, err := m.number(query); err != nil || n > most {
			return errors.Join(err, fmt.Errorf("too large: %s is %d, at most %d", query, n, most))
		}
	}
	if !m.own {
		return nil
	}
	for query, most := range map[string]int64{
		"SELECT count(*) FROM settings":                         mergedSettings,
		"SELECT count(*) FROM files":                            mergedFiles,
		"SELECT max(length(CAST(value AS BLOB))) FROM settings": MaxValue,
		"SELECT max(length(CAST(data AS BLOB))) FROM files":     MaxFile,
		"SELECT max(length(CAST(host AS BLOB))) FROM settings":  maxHostBytes,
		"SELECT max(length(CAST(host AS BLOB))) FROM files":     maxHostBytes,
	} {
		if n, err := m.number(query); err != nil || n > most {
			return errors.Join(err, fmt.Errorf("too large: %s is %d, at most %d", query, n, most))
		}
	}
	return nil
}

// check refuses rows that no run could have written.
func (c *content) check() error {
	for k, l := range c.history {
		if err := k.check(); err != nil {
			return err
		}
		if err := checkTime(l.at); err != nil {
			return err
		}
	}
	for s, r := range c.results {
		if s.Run < 0 || s.Run > maxRun {
			return fmt.Errorf("run %d", s.Run)
		}
		if err := checkTime(r.started); err != nil {
			return err
		}
	}
	for key, s := range c.settings {
		if err := errors.Join(s.check(), checkTime(s.at), CheckSetting(Setting{key, s.value})); err != nil {
			return err
		}
	}
	for name, f := range c.files {
		if err := errors.Join(f.check(), checkTime(f.at), CheckFile(File{Name: name})); err != nil {
			return err
		}
	}
	return nil
}

// maxRun and maxSeq bound what a run and a line are numbered: no forged number shuts out all
// later ones.
const (
	maxRun = 1 << 20
	maxSeq = 1 << 40
)

func (k lineKey) check() error {
	if k.Run < 0 || k.Run > maxRun || k.seq > maxSeq || k.n < -maxSeq || k.n > maxSeq {
		return fmt.Errorf("a line is numbered run %d, %d, %d", k.Run, k.seq, k.n)
	}
	return nil
}

func checkTime(s string) error {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err
}
