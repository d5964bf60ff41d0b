package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/trusted"
)

// Assignment is the task of a lease (R56): a task of a split, in a directory that the worker's host has, too.
type Assignment struct {
	Dir string `json:"dir"`
	N   int64  `json:"task"`
}

// Stoppable is the argument of asplit-task, behind the directory and the number, by which SIGTERM ends a task as
// RunUntil does.
const Stoppable = "stoppable"

// Outcome is what a worker answers to an Assignment.
type Outcome struct {
	Status int    `json:"status"`          // 0: the task has its result
	Error  string `json:"error,omitempty"` // why it has none
}

// Encode returns the text of an assignment.
func (a Assignment) Encode() (string, error) { return encode(a) }

// Encode returns the text of an outcome.
func (o Outcome) Encode() (string, error) { return encode(o) }

func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// ParseAssignment reads an assignment.
func ParseAssignment(text string) (a Assignment, err error) {
	if err := decode([]byte(text), &a); err != nil {
		return Assignment{}, fmt.Errorf("read what to execute: %w", err)
	}
	if !filepath.IsAbs(a.Dir) || filepath.Clean(a.Dir) != a.Dir || a.N < 1 {
		return Assignment{}, errors.New("read what to execute: it is no task of a split's directory")
	}
	return a, nil
}

// ParseOutcome reads an outcome.
func ParseOutcome(text string) (o Outcome, err error) {
	if err := decode([]byte(text), &o); err != nil {
		return Outcome{}, fmt.Errorf("read what a worker says: %w", err)
	}
	if o.Status < 0 || o.Status > 255 || o.Status == 0 && o.Error != "" {
		return Outcome{}, errors.New("read what a worker says: its status is invalid")
	}
	return o, nil
}

// decode reads one object, with the fields of v alone.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one object")
	}
	return nil
}

// fileSurroundings is the file of a split's directory that says where the tasks of leases are executed.
const fileSurroundings = "leased"

// maxSurroundings bounds it, in bytes.
const maxSurroundings = 4 << 20

// Surroundings are what a job has of its queue, and a task of a lease of this file.
type Surroundings struct {
	Dir string   `json:"dir"` // working directory
	Env []string `json:"env"`
}

// Write writes them into a split's directory.
func (s Surroundings) Write(dir string) error {
	text, err := encode(s)
	if err == nil && len(text) > maxSurroundings {
		err = fmt.Errorf("the environment has more than %d bytes", maxSurroundings)
	}
	if err == nil {
		err = disk.Replace(disk.OS(), filepath.Join(dir, fileSurroundings), 0o600, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("write where tasks of leases are executed: %w", err)
	}
	return nil
}

// ReadSurroundings reads those of a split's directory, which is this user's alone.
func ReadSurroundings(dir string) (s Surroundings, err error) {
	if err := CheckDir(dir); err != nil {
		return s, err
	}
	text, err := trusted.ReadPrivate(filepath.Join(dir, fileSurroundings), maxSurroundings, trusted.Others)
	if err == nil {
		err = decode(text, &s)
	}
	if err == nil && !filepath.IsAbs(s.Dir) {
		err = errors.New("it names no directory")
	}
	if err != nil {
		return Surroundings{}, fmt.Errorf("read where tasks of leases are executed: %w", err)
	}
	return s, nil
}
