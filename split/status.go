package split

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/split/task"
)

// Status is a split of a working directory, as the process that works on it last said.
type Status struct {
	Name    string       `json:"name"`
	State   string       `json:"state"` // one of the States
	Said    *time.Time   `json:"said,omitempty"`
	Began   *time.Time   `json:"began,omitempty"`
	Items   int64        `json:"items"`            // that have ended; of a resident job in its period
	Total   int64        `json:"total"`            // -1: not known yet
	Failed  int64        `json:"failed"`           // since the process began
	Rate    float64      `json:"rate,omitempty"`   // items a second
	Left    float64      `json:"left,omitempty"`   // seconds until the end; 0: not known
	Round   int          `json:"round"`            // from 1
	Period  int64        `json:"period,omitempty"` // of a resident job
	Workers int          `json:"workers"`          // jobs that stay
	Open    int          `json:"open"`             // tasks that have not ended
	Tasks   []TaskReport `json:"tasks,omitempty"`  // of those the first ones, by number
}

// The States of a split.
const (
	StateRuns        = "runs"
	StateBegins      = "begins"      // it runs, and has said nothing yet
	StateInterrupted = "interrupted" // no process works on it: asplit --resume goes on
	StateEnded       = "ended"       // it was kept
)

// The bounds of a status, and of a list of them.
const (
	maxStatusTasks = 1000
	maxStatus      = 1 << 20 // bytes
	maxStatuses    = 1000
)

// statusEvery is the shortest time between two statuses.
const statusEvery = time.Second

// status returns the status of the split.
func (r *runner) status(p *Progress) *Status {
	now := time.Now().UTC()
	s := &Status{
		Name: r.def.Name, Said: &now, Began: &r.def.Began, Items: p.Items, Total: p.Total, Failed: r.runFailed,
		Rate: p.Rate, Left: p.Left.Seconds(), Round: p.Round, Period: p.Period, Workers: r.crew.standing(), Open: p.Open,
	}
	for _, t := range r.core.Open() {
		if w := r.tasks[t.N]; w != nil && len(s.Tasks) < maxStatusTasks {
			s.Tasks = append(s.Tasks, r.taskReport(w))
		}
	}
	return s
}

// writeStatus writes the status for people, at most each statusEvery. It is not synced, and an error does
// not matter: the next one may succeed.
func (r *runner) writeStatus(p *Progress, state string) {
	if state == StateRuns && time.Since(r.statusAt) < statusEvery {
		return
	}
	r.statusAt = time.Now()
	s := r.status(p)
	s.State = state
	text, err := json.Marshal(s)
	if err != nil || len(text) > maxStatus {
		return
	}
	path := r.dir.file(fileStatus)
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

// Statuses returns the splits of a working directory, by name, at most 1000. An error is of the first one that can't
// be read: the others are returned all the same.
func Statuses(work string) (all []Status, err error) {
	folder := filepath.Join(work, Folder)
	if err := task.CheckDir(folder); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	entries, err := splitsIn(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries[:min(len(entries), maxStatuses)] {
		s, wrong := statusOf(filepath.Join(folder, e.Name()))
		if errors.Is(wrong, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if wrong != nil {
			if err == nil {
				err = fmt.Errorf("read the state of split %s: %w", e.Name(), wrong)
			}
			continue
		}
		s.Name = e.Name()
		all = append(all, *s)
	}
	return all, err
}

// statusOf returns the status of the split in a directory.
func statusOf(path string) (*Status, error) {
	if err := task.CheckDir(path); err != nil {
		return nil, err
	}
	runs, err := held(filepath.Join(path, fileLock))
	if err != nil {
		return nil, err
	}
	s := &Status{Total: -1}
	text, err := trusted.ReadPrivate(filepath.Join(path, fileStatus), maxStatus, trusted.Others)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(s); err != nil {
			return nil, err
		}
	}
	switch {
	case !runs && s.State != StateEnded:
		s.State = StateInterrupted
	case !runs:
	case s.Said == nil:
		s.State = StateBegins
	default:
		s.State = StateRuns
	}
	return s, nil
}

// held reports whether a process holds the lock of a split.
func held(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	err = flock.TryShared(f)
	if errors.Is(err, flock.ErrHeld) {
		return true, nil
	}
	return false, err
}

// splitsIn returns the entries of a folder that are splits, by name.
func splitsIn(folder string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the splits: %w", err)
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() || CheckName(e.Name()) != nil }), nil
}
