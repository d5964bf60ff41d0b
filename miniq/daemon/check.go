package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/flock"
	"github.com/allotment-hpc/allotment/state"
)

// Finding is one fault of a state directory.
type Finding struct {
	File     string `json:"file"` // below the state directory
	Problem  string `json:"problem"`
	Remedy   string `json:"remedy"`
	Repaired string `json:"repaired,omitempty"` // what was done about it

	repair func() (string, error)
}

// Checked is what a check found.
type Checked struct {
	State    string    `json:"state"` // the directory
	Serving  bool      `json:"serving"`
	Format   int       `json:"format"`
	Jobs     int       `json:"jobs"`
	Objects  int       `json:"objects"`
	Segments int       `json:"segments"`
	Records  int       `json:"records"`
	Aside    int       `json:"aside"` // files that were set aside, now or earlier
	Findings []Finding `json:"findings"`
}

// ErrServing says that a state can't be repaired while a daemon serves it.
var ErrServing = errors.New("miniqd serves it: stop it first with miniqd stop")

// Check examines all of a state directory: the snapshot, the journal, the state
// objects, the keepers' records, what else lies there, owners and modes. It
// changes nothing, unless repair is set: then it makes lossless repairs. No daemon
// can begin to serve meanwhile. If one serves already, Check examines it twice
// and returns what it found both times, since files change meanwhile.
func Check(ctx context.Context, state string, repair bool) (*Checked, error) {
	state, err := filepath.Abs(state)
	if err != nil {
		return nil, fmt.Errorf("check the queue's state: %w", err)
	}
	info, err := os.Stat(state)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check the queue's state: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("check the queue's state: %s is no directory", state)
	}
	lock, err := lockState(state, os.O_RDONLY) // no daemon begins to serve meanwhile
	serving := errors.Is(err, flock.ErrHeld)
	switch {
	case err == nil:
		defer lock.close()
	case !serving:
		return nil, fmt.Errorf("check the queue's state: %w", err)
	}
	if serving && repair {
		return nil, fmt.Errorf("repair %s: %w", state, ErrServing)
	}
	first, err := examine(ctx, state, serving)
	if err != nil {
		return nil, err
	}
	if serving && len(first.Findings) > 0 {
		second, err := examine(ctx, state, serving)
		if err != nil {
			return nil, err
		}
		second.Findings = slices.DeleteFunc(second.Findings, func(f Finding) bool {
			return !slices.ContainsFunc(first.Findings, func(g Finding) bool { return f.File == g.File && f.Problem == g.Problem })
		})
		return second, nil
	}
	if repair {
		err = first.repair()
	}
	return first, err
}

// repair makes the repairs that the findings have.
func (c *Checked) repair() error {
	for i := range c.Findings {
		f := &c.Findings[i]
		if f.repair == nil {
			continue
		}
		var err error
		if f.Repaired, err = f.repair(); err != nil {
			return fmt.Errorf("repair %s: %w", filepath.Join(c.State, f.File), err)
		}
	}
	return nil
}

// Left returns the number of findings that were not repaired.
func (c *Checked) Left() int {
	n := 0
	for i := range c.Findings {
		if c.Findings[i].Repaired == "" {
			n++
		}
	}
	return n
}

// examination is one pass over a state directory.
type examination struct {
	Checked
	files files
	d     *daemon         // the queue as the next daemon would find it; nil: it can't be read
	later *pendingChanges // what that one would write into state objects first
	short bool            // the journal lacks its end: the queue knows less than was acknowledged
}

func examine(ctx context.Context, state string, serving bool) (*Checked, error) {
	x := &examination{Checked: Checked{State: state, Serving: serving, Findings: []Finding{}}}
	x.readQueue() // first: objects may be ahead of what was read of the queue, but never behind
	if err := x.checkFiles(); err != nil {
		return nil, err
	}
	if err := x.checkObjects(ctx); err != nil {
		return nil, err
	}
	x.checkRecords()
	return &x.Checked, nil
}

func (x *examination) addFinding(file, problem, remedy string, repair func() (string, error)) {
	x.Findings = append(x.Findings, Finding{File: file, Problem: problem, Remedy: remedy, repair: repair})
}

// asideRepair returns the repair that moves a file to state.AsideDir.
func (x *examination) asideRepair(file string) func() (string, error) {
	return func() (string, error) {
		to, err := state.Aside(disk.OS(), filepath.Join(x.State, "jobs"), filepath.Join(x.State, file))
		return "kept as " + to, err
	}
}

const asideRemedy = "miniqd check --repair sets it aside"

// readQueue reads the snapshot and the journal as a starting daemon does.
func (x *examination) readQueue() {
	x.later = newPendingChanges()
	d := newDaemon(Options{Log: discardLog()}, x.State)
	d.objects = x.later
	for try := 0; ; try++ {
		s, err := readSnapshot(x.State, d.managerConfig())
		if err != nil {
			x.addReadError(snapshotName, err)
			return
		}
		d.m, d.seq, x.Format = s.m, s.seq, s.format
		read, seq, err := walkJournal(x.State, d.seq, d.replayEntry, x.unfinished)
		x.Segments = len(read)
		if x.Serving && err != nil && try < 3 { // its daemon has shortened the journal meanwhile
			x.later = newPendingChanges()
			d = newDaemon(Options{Log: discardLog()}, x.State)
			d.objects = x.later
			continue
		}
		if err != nil {
			x.addReadError(segmentPrefix+"*", err)
			return
		}
		d.seq = seq
		if len(read) == 0 && d.seq > 0 {
			x.addFinding(segmentPrefix+"*", "there is no journal: what came after the last snapshot is missing", restoreBackup, nil)
			x.short = true
		}
		break
	}
	x.d = d
	snapshot := d.m.Snapshot(farPast(), farPast())
	x.Jobs = len(snapshot.Jobs) + len(snapshot.Ended)
}

func (x *examination) unfinished(path string, bad *damage, last bool) error {
	if x.Serving || !last {
		return nil
	}
	x.addFinding(filepath.Base(path), fmt.Sprintf("it ends at byte %d in an entry that was never finished, nor acknowledged", bad.at),
		"nothing is lost; the next miniqd, or miniqd check --repair, keeps that end aside", func() (string, error) {
			return "kept aside what followed", cutTail(disk.OS(), path, bad, discardLog())
		})
	return nil
}

// addReadError adds what kept the queue from being read.
func (x *examination) addReadError(file string, err error) {
	var t *stateError
	var bad *damage
	switch {
	case errors.As(err, &bad):
		t, file = bad.stateError(), bad.name
	case errors.As(err, &t):
	default:
		t = &stateError{err.Error(), restoreBackup}
	}
	x.addFinding(file, t.problem, t.remedy, nil)
}
