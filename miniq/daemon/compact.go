package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/miniq"
	"github.com/allotment-hpc/allotment/miniq/manager"
)

// compactNow forgets what ended long ago and shortens the journal at once.
func (d *daemon) compactNow(c *connection, req *miniq.Request) error {
	if !c.by.Admin {
		return c.answer(miniq.Response{Error: miniq.ToError(fmt.Errorf("%w: only an administrator can compact the queue's state", backends.ErrDenied))})
	}
	compacted, err := d.compactState(req.Keep)
	if err != nil {
		return c.answer(miniq.Response{Error: miniq.ToError(err)})
	}
	return c.answer(miniq.Response{Compacted: compacted})
}

func (d *daemon) compactState(keep *time.Duration) (*miniq.Compacted, error) {
	before, err := measure(d.state)
	if err != nil {
		return nil, err
	}
	cutoff := d.compactCutoff(keep)
	var old, left int
	if !d.inLoop(func() { old = d.m.EndedBefore(cutoff) }) {
		return nil, errStopping
	}
	if old > 0 {
		if _, err := d.ask(input{event: manager.Forget{EndedBefore: cutoff}}); err != nil {
			return nil, err
		}
	}
	d.objects.Expire(cutoff)
	_ = d.objects.Flush(context.Background()) // d.compact reports its error
	past, err := d.collect(cutoff, d.notPastInLoop)
	if err != nil {
		return nil, fmt.Errorf("compact %s: %w", d.state, err)
	}
	_ = d.objects.Flush(context.Background()) // a new segment of the journal may need the room
	saved := make(chan error, 1)
	if !d.inLoop(func() { left = d.m.EndedBefore(cutoff); d.compact(func(err error) { saved <- err }) }) {
		return nil, errStopping
	}
	select {
	case err = <-saved:
	case <-d.conns.closed():
		err = errStopping
	}
	if err != nil {
		return nil, fmt.Errorf("compact %s: %w", d.state, err)
	}
	return compactResult(d.state, before, old-left+past.gone)
}

// compactCutoff returns the time before which ended jobs are forgotten.
func (d *daemon) compactCutoff(keep *time.Duration) time.Time {
	if keep == nil {
		return time.Now().Add(-time.Duration(d.Config.KeepFinished))
	}
	return time.Now().Add(-*keep)
}

// Compact does to a state that is not served what a daemon does when it is asked:
// it forgets jobs that ended longer ago than keep (nil: than the config says) and
// shortens the journal. ErrServing: ask the daemon.
func Compact(o Options, keep *time.Duration) (*miniq.Compacted, error) {
	state := miniq.StateDir(o.Paths)
	lock, err := lockState(state, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, flock.ErrHeld) {
		return nil, fmt.Errorf("compact %s: %w", state, ErrServing)
	}
	if err != nil {
		return nil, fmt.Errorf("compact the queue's state: %w", err)
	}
	defer lock.close()
	before, err := measure(state)
	if err != nil {
		return nil, err
	}
	d, err := recoverDaemon(o, state)
	if err != nil {
		return nil, fmt.Errorf("compact %s: %w", state, err)
	}
	cutoff := d.compactCutoff(keep)
	old := d.m.EndedBefore(cutoff)
	if old > 0 {
		d.process([]input{{event: manager.Forget{EndedBefore: cutoff}}})
		if d.failing {
			return nil, errors.Join(fmt.Errorf("compact %s: the journal can't be written: free some space first", state), d.saveState())
		}
	}
	d.objects.Expire(cutoff)
	left := d.m.EndedBefore(cutoff)
	err = d.objects.Flush(context.Background()) // however long that takes
	past, failed := d.collect(cutoff, func(ids []backends.ID) ([]bool, error) { return d.notPast(ids), nil })
	err = errors.Join(err, failed, d.objects.Flush(context.Background()))
	if err = errors.Join(err, d.saveState()); err != nil {
		return nil, fmt.Errorf("compact %s: %w", state, err)
	}
	return compactResult(state, before, old-left+past.gone)
}

// stateSizes is how much the parts of a state take, in bytes.
type stateSizes struct{ all, objects, journal int64 }

func measure(state string) (stateSizes, error) {
	var w stateSizes
	err := filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = e.Info()
		}
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		name, _ := filepath.Rel(state, path)
		w.all += info.Size()
		switch {
		case filepath.Ext(name) == ".db":
			w.objects += info.Size()
		case filepath.Dir(name) == "." && len(name) > len(segmentPrefix) && name[:len(segmentPrefix)] == segmentPrefix:
			w.journal += info.Size()
		}
		return nil
	})
	if err != nil {
		return w, fmt.Errorf("measure %s: %w", state, err)
	}
	return w, nil
}

func compactResult(state string, before stateSizes, forgotten int) (*miniq.Compacted, error) {
	after, err := measure(state)
	if err != nil {
		return nil, err
	}
	return &miniq.Compacted{
		Forgotten: forgotten, Left: after.all,
		Objects: max(before.objects-after.objects, 0), Journal: max(before.journal-after.journal, 0),
	}, nil
}
