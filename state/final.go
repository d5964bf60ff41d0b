package state

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// ReadFinal reads how a job ended, or an array as a whole. fs.ErrNotExist: nothing
// says so.
func ReadFinal(dir string, id backends.ID) (*backends.Job, error) {
	data, err := os.ReadFile(Path(dir, id))
	if err != nil {
		return nil, fmt.Errorf("read the state object of job %v: %w", id, err)
	}
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	defer m.close()
	j, err := m.final(data)
	if err != nil {
		return nil, fmt.Errorf("read the state object of job %v: how it ended: %w", id, err)
	}
	return j, nil
}

// final reads how a job ended from its object; fs.ErrNotExist: nothing says so.
func (m *memory) final(object []byte) (*backends.Job, error) {
	if err := m.open(object); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	rows, err := m.rows()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	text := rows.text(endKey)
	if text == "" {
		return nil, fs.ErrNotExist
	}
	var compact backends.CompactJob
	if err := json.Unmarshal([]byte(text), &compact); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	j := compact.Job().MapTexts(backends.Unescape)
	return &j, nil
}

// Folders lists the directories below one of objects.
func Folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list state objects: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// ListFolder lists the jobs that have an object in one of Folders.
func ListFolder(folder string) ([]backends.ID, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("list state objects: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list state objects: %w", err)
	}
	var ids []backends.ID
	for _, name := range names {
		if id, ok := IDOf(filepath.Join(folder, name)); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// LastChange returns when something last happened to a job, by its object's modification
// time, which may be later.
func LastChange(dir string, id backends.ID) (time.Time, error) {
	info, err := os.Stat(Path(dir, id))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the modification time of the state object of job %v: %w", id, err)
	}
	return info.ModTime(), nil
}
