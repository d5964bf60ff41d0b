package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Options are what a run of a split needs in addition to its definition.
type Options struct {
	Work     string        // the working directory, in which jobs run too; absolute
	Queue    Queue         // where its jobs run
	Spec     backends.Spec // of each job, but its name, host, command and files
	Program  []string      // what a job runs, before the split's directory and the task's number
	Standing Standing      // workers that take the tasks of further rounds
	Measure  Measure       // nil: all hosts count as equal, to begin with
	Stdin    io.Reader     // its lines are the items, for input of kind Stdin
	Stdout   io.Writer     // gets the results
	Stderr   io.Writer     // gets what items write on standard error
	Reporter Reporter
	Report   func(*Report) error // called at the end, unless nil
	Tag      bool                // each line of an item's output begins with the item and a tab
	Keep     bool                // the directory is not removed at the end

	pace pace // zero: the usual one
}

// pace holds the intervals and time limits of a run.
type pace struct {
	snapshot time.Duration // between two snapshots of the farm, at least, unless a task gave no result
	start    time.Duration // a task that has not begun this long after the rest of its round has ended moves to another host
	measure  time.Duration // longest time that the first round waits for hosts that are being measured
	rest     time.Duration // first pause of a host that had no free slots
	waiting  time.Duration // after which a line says that all jobs wait
	slow     time.Duration // no task that takes less is a straggler
}

// defaultPace is the pace outside of tests.
func defaultPace() pace {
	return pace{snapshot: 10 * time.Second, start: 15 * time.Second, measure: time.Minute, rest: 30 * time.Second, waiting: 2 * time.Second, slow: 300 * time.Millisecond}
}

// Start begins a split and runs it to its end. The definition's name, token and time
// are set here. The error wraps ErrInterrupted when ctx has ended, and ErrItems when
// all is done and items failed.
func Start(ctx context.Context, d Definition, o Options) error {
	dir, name, err := CreateDir(o.Work, d.Name)
	if err != nil {
		return err
	}
	d.Name, d.Token, d.Began = name, token(), time.Now()
	s, err := openStore(dir.file(fileState))
	if err == nil {
		if err = s.Define(ctx, &d); err != nil {
			_ = s.Close()
		}
	}
	if err != nil {
		return errors.Join(err, dir.Remove(), dir.Close())
	}
	return run(ctx, &d, dir, s, o)
}

// Existing is a split that was started before.
type Existing struct {
	Definition *Definition
	dir        *Dir
	store      *store
}

// Find opens a split that was started before; an empty name means the latest one. The split
// is locked until Resume or Close returns.
func Find(ctx context.Context, work, name string) (*Existing, error) {
	dir, name, err := OpenDir(work, name)
	if err != nil {
		return nil, err
	}
	s, err := openStore(dir.file(fileState))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	d, err := s.Definition(ctx)
	if errors.Is(err, errUndefined) { // killed before its definition was stored
		err = errors.Join(err, dir.Remove())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resume %s: %w", name, err), s.Close(), dir.Close())
	}
	return &Existing{Definition: d, dir: dir, store: s}, nil
}

// Close closes the split and releases its lock.
func (e *Existing) Close() error { return errors.Join(e.store.Close(), e.dir.Close()) }

// Resume runs the split to its end, as Start does. It writes all results, from the
// first one on, and runs no item again that has one.
func (e *Existing) Resume(ctx context.Context, o Options) error {
	return run(ctx, e.Definition, e.dir, e.store, o)
}
