package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/state"
)

// The manager's bounds are those of an object.
const (
	_ = uint(state.MaxSettings - manager.MaxKeys)
	_ = uint(state.MaxFiles - manager.MaxFiles)
)

// A job may note so many things in a second, and so many more at once after a while without any.
const (
	notesPerSecond = 20
	noteBurst      = 100
)

// noting are what jobs may still note.
type noting struct {
	mu   sync.Mutex
	jobs map[backends.ID]noteAllowance
}

type noteAllowance struct {
	left float64
	at   time.Time
}

func (a noteAllowance) grown(now time.Time) float64 {
	return min(a.left+max(now.Sub(a.at), 0).Seconds()*notesPerSecond, noteBurst)
}

// acquire takes one from a job's allowance; false: nothing is left. Jobs that have all of theirs
// are dropped when there are many.
func (n *noting) acquire(now time.Time, id backends.ID) bool {
	const many = 10_000
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.jobs) > many {
		for other, a := range n.jobs {
			if a.grown(now) == noteBurst {
				delete(n.jobs, other)
			}
		}
	}
	a, known := n.jobs[id]
	if !known {
		a = noteAllowance{noteBurst, now}
	}
	a.left, a.at = a.grown(now), now
	if a.left < 1 {
		return false
	}
	a.left--
	if n.jobs == nil {
		n.jobs = map[backends.ID]noteAllowance{}
	}
	n.jobs[id] = a
	return true
}

// noteOf returns the event that notes what a request has.
func noteOf(by manager.By, req *miniq.Request) (manager.Note, error) {
	e := manager.Note{By: by}
	if len(req.IDs) != 1 || (req.Setting == nil) == (req.File == nil) {
		return e, errors.New("want one job, and a setting or a file")
	}
	e.ID = req.IDs[0]
	if f := req.File; f != nil {
		e.File, e.Executable, e.Data = f.Name, f.Executable, f.Data
		return e, state.CheckFile(state.File{Name: f.Name, Executable: f.Executable, Data: f.Data})
	}
	setting := state.Setting{Key: req.Setting.Key, Value: backends.Unescape(req.Setting.Value)}
	if err := state.CheckSetting(setting); err != nil {
		return e, err
	}
	e.Key, e.Value = req.Setting.Key, req.Setting.Value
	if setting.Key == state.ProgressKey {
		p, err := state.ParseProgress(setting.Value)
		if err != nil {
			return e, err
		}
		e.Progress = backends.Escape(state.Brief(p.String()))
	}
	return e, nil
}

// note writes a setting or a file into a job's state object. The answer to a file comes when
// that is on disk: files wait in memory no longer than their requests.
func (d *daemon) note(c *connection, req *miniq.Request) error {
	event, err := noteOf(c.by, req)
	if err == nil {
		err = d.mayNote(event)
	}
	if err == nil && event.File != "" {
		err = d.awaitFiles()
	}
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	result, err := d.ask(input{event: event})
	if err == nil {
		err = result.Errors.First()
	}
	if err == nil && event.File != "" {
		err = d.awaitFiles()
	}
	if d.isLimited(c) {
		d.rates.addChanges(time.Now(), c.uid, 1)
	}
	return c.answer(miniq.Response{Error: miniq.ToError(err)})
}

// mayNote refuses what need not be in the journal.
func (d *daemon) mayNote(e manager.Note) error {
	var err error
	if !d.inLoop(func() { err = d.m.MayNote(e) }) {
		return errStopping
	}
	if err == nil && !d.noting.acquire(time.Now(), e.ID) {
		err = fmt.Errorf("job %v notes more than %d settings and files a second: wait a second, or set them less often", e.ID, notesPerSecond)
	}
	return err
}

// awaitFiles waits until the state objects are on disk.
func (d *daemon) awaitFiles() error {
	ctx, cancel := context.WithTimeout(context.Background(), behindPause)
	defer cancel()
	if err := d.objects.Flush(ctx); err != nil {
		return fmt.Errorf("%w: write the job's state object: %w", miniq.ErrBusy, err)
	}
	return nil
}

// noted passes a note to the job's state object.
func (n *entryChanges) noted(e *manager.Note) {
	c := state.Change{ID: e.ID, RunNo: n.d.m.LastRun(e.ID)}
	if e.File != "" {
		c.Attach = &state.File{Name: e.File, Executable: e.Executable, Data: e.Data}
	} else {
		c.Set = &state.Setting{Key: e.Key, Value: backends.Unescape(e.Value)}
	}
	n.put(c)
}

// file answers with a file that travels with a job.
func (d *daemon) file(c *connection, req *miniq.Request) error {
	if len(req.IDs) != 1 {
		return c.answer(miniq.Response{Error: miniq.ToError(errors.New("want one job"))})
	}
	id := req.IDs[0]
	var past, known bool
	var denied error
	ok := d.inLoop(func() {
		past, known = len(d.past(req.IDs)) > 0, d.m.Count(req.IDs) > 0
		denied = mayAccess(c.by, d.m.Jobs(time.Now(), req.IDs), "its files are its owner's to read")
	})
	switch {
	case !ok:
		return c.answerStopping()
	case denied != nil:
		return c.answer(miniq.Response{Error: miniq.ToError(denied)})
	}
	f, err := d.readFile(c.by, id, req.Name, past, known)
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	return c.answer(miniq.Response{File: &miniq.File{Name: f.Name, Executable: f.Executable, Data: f.Data}})
}

func (d *daemon) readFile(by manager.By, id backends.ID, name string, past, known bool) (state.File, error) {
	switch {
	case past:
		if _, err := d.pastRecord(by, id); err != nil {
			return state.File{}, err
		}
	case !known:
		return state.File{}, fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	}
	d.awaitObjects([]backends.ID{id})
	f, err := state.ReadFile(d.objectDir(), id, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("job %v: no file %.80q is attached", id, name)
	}
	return f, err
}
