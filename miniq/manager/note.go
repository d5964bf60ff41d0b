package manager

import (
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Note records a fact of a job's own (Key), or a file that is to travel with it (File), in the
// job's state object. The manager counts them, and knows of their content Progress alone.
type Note struct {
	By         By
	ID         backends.ID
	Key        string `json:",omitempty"`
	Value      string `json:",omitempty"`
	Progress   string `json:",omitempty"` // how far the job is, for Job.Progress; "": as before
	File       string `json:",omitempty"` // its name
	Executable bool   `json:",omitempty"`
	Data       []byte `json:",omitempty"`
}

// Bounds of what one job has noted.
const (
	MaxKeys  = 64
	MaxFiles = 16
)

// notes are what a job has noted. They are replaced, never changed: states that are being
// written share them.
type notes struct {
	Progress string     `json:",omitempty"`
	Keys     []noteSize `json:",omitempty"`
	Files    []noteSize `json:",omitempty"`
}

// noteSize is a setting or a file, and the bytes of its value.
type noteSize struct {
	Name string
	Size int `json:",omitempty"`
}

// weigh is about what they take in memory, in bytes.
func (n *notes) weigh() int {
	if n == nil {
		return 0
	}
	const head = 96
	size := head + len(n.Progress)
	for _, list := range [][]noteSize{n.Keys, n.Files} {
		for _, one := range list {
			size += itemBytes + len(one.Name)
		}
	}
	return size
}

// held is what they count of Config.MaxBytes: their values are on disk.
func (n *notes) held() int64 {
	if n == nil {
		return 0
	}
	held := int64(n.weigh())
	for _, list := range [][]noteSize{n.Keys, n.Files} {
		for _, one := range list {
			held += int64(one.Size)
		}
	}
	return held
}

// MayNote returns why a note is refused. A job that has ended takes none, nor does a whole array.
func (m *Manager) MayNote(e Note) error {
	_, _, err := m.noted(e)
	return err
}

// noted returns the job of a note and what it has noted then.
func (m *Manager) noted(e Note) (*job, *notes, error) {
	j := m.jobs[e.ID]
	switch {
	case j == nil && m.find(e.ID) != nil:
		return nil, nil, fmt.Errorf("job %s is an array: name one of its elements, such as %d[1]: %w", e.ID, e.ID.Job, backends.ErrWrongState)
	case j == nil:
		return nil, nil, m.unknownJob(e.ID)
	case !e.By.Admin && e.By.User != j.user:
		return nil, nil, denied(j, "it is another user's")
	case j.state.Ended():
		return nil, nil, wrongState(j, "has ended, and its state object takes no more")
	}
	n := notes{}
	if j.notes != nil {
		n = *j.notes
	}
	if e.Progress != "" {
		n.Progress = e.Progress
	}
	var err error
	if n.Keys, err = j.addNote(n.Keys, noteSize{e.Key, len(e.Value)}, MaxKeys, "settings"); err != nil {
		return nil, nil, err
	}
	if n.Files, err = j.addNote(n.Files, noteSize{e.File, len(e.Data)}, MaxFiles, "files"); err != nil {
		return nil, nil, err
	}
	return j, &n, m.checkBytes(e.By, j.user, n.held()-j.notes.held())
}

// addNote returns a list with one more, in the place of the one of its name if it is there.
// Without a name it is none.
func (j *job) addNote(list []noteSize, one noteSize, most int, what string) ([]noteSize, error) {
	if one.Name == "" {
		return list, nil
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].Name == one.Name {
			list[i] = one
			return list, nil
		}
	}
	if len(list) >= most {
		return nil, fmt.Errorf("job %s has %d %s, and can have no more: use one of their names again, such as %s: %w", j.id, most, what, list[0].Name, backends.ErrDenied)
	}
	return append(list, one), nil
}

func (m *Manager) note(e Note) error {
	j, n, err := m.noted(e)
	if err != nil {
		return err
	}
	m.beforeChange(j)
	more := n.held() - j.notes.held()
	j.bytes += more
	m.held[j.user] += more
	j.notes = n
	return nil
}

// LastRun returns the number of a job's last run; 0: it had none.
func (m *Manager) LastRun(id backends.ID) int {
	if j := m.jobs[id]; j != nil {
		return j.run
	}
	return 0
}
