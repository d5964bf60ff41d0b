package state

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// Facts are what an object says of its job.
type Facts struct {
	Specified bool    // it holds a command or script; an element's may be in its array's
	History   []Event // in order
}

// Event is a line of an object's history.
type Event struct {
	Seq   uint64
	Event string
}

// Inspector verifies objects one after the other. It is not safe for concurrent
// use.
type Inspector struct{ m *memory }

// NewInspector returns an Inspector. The caller must Close it.
func NewInspector() (*Inspector, error) {
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	return &Inspector{m}, nil
}

// Close frees the Inspector's database.
func (i *Inspector) Close() { i.m.close() }

// Verify returns what an object says. ErrCorrupt: it is damaged, or not this job's.
func (i *Inspector) Verify(object []byte, id backends.ID) (*Facts, error) {
	facts, err := i.m.verify(object, id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), i.m.renew())
	}
	return facts, nil
}

// verify returns what an object says, after sound has checked it.
func (m *memory) verify(data []byte, id backends.ID) (*Facts, error) {
	if err := m.open(data); err != nil {
		return nil, err
	}
	o, err := m.sound(id)
	if err != nil {
		return nil, err
	}
	facts := &Facts{Specified: o.rows.specified()}
	err = m.query("SELECT seq, event FROM history ORDER BY seq, n", func(row []driver.Value) error {
		facts.History = append(facts.History, Event{uint64(number(row[0])), text(row[1])})
		return nil
	})
	return facts, err
}

// sound checks all of the object that was opened last, and returns it, with its specification:
// the file's structure, the checksum of its specification, its job's ID, and that every row can
// be read.
func (m *memory) sound(id backends.ID) (*object, error) {
	err := m.query("PRAGMA integrity_check(1)", func(row []driver.Value) error {
		if result := text(row[0]); result != "ok" {
			return errors.New(result[strings.LastIndexByte(result, '\n')+1:])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o, err := m.readOpened()
	if err != nil {
		return nil, err
	}
	if o.record.Spec, err = o.rows.spec(); err != nil {
		return nil, err
	}
	if job := o.rows.number("job"); job != 0 && (job != id.Job || int(o.rows.number("index")) != id.Index) {
		return nil, fmt.Errorf("it belongs to job %v", backends.ID{Job: job, Index: int(o.rows.number("index"))})
	}
	return o, nil
}
