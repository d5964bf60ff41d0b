package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/disk"
	"github.com/allotment-hpc/allotment/internal/proc"
	"github.com/allotment-hpc/allotment/miniq/keeper"
	"github.com/allotment-hpc/allotment/miniq/node"
	"github.com/allotment-hpc/allotment/state"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// farPast returns a time before every job's end.
func farPast() time.Time { return time.Time{} }

func asPath(err error, p **fs.PathError) bool { return errors.As(err, p) }

// pendingChanges keeps what would be written into state objects.
type pendingChanges struct {
	changes map[backends.ID][]state.Change
	removed map[backends.ID]bool
}

func newPendingChanges() *pendingChanges {
	return &pendingChanges{changes: map[backends.ID][]state.Change{}, removed: map[backends.ID]bool{}}
}

func (g *pendingChanges) Put(c state.Change) { g.changes[c.ID] = append(g.changes[c.ID], c) }

func (g *pendingChanges) Remove(ids ...backends.ID) {
	for _, id := range ids {
		g.removed[id] = true
	}
}

func (g *pendingChanges) Expire(time.Time)            {}
func (g *pendingChanges) Mark(uint64)                 {}
func (g *pendingChanges) Marked() uint64              { return 0 }
func (g *pendingChanges) Durable() uint64             { return 0 }
func (g *pendingChanges) Flush(context.Context) error { return nil }
func (g *pendingChanges) Close()                      {}

func (g *pendingChanges) Admit(time.Duration, string, int) (func(), error) { return func() {}, nil }

// inspected is what was found of a job's object.
type inspected struct {
	facts *state.Facts
	err   error // it is damaged
}

// checkObjects compares each state object with the queue.
func (x *examination) checkObjects(ctx context.Context) error {
	ids := slices.SortedFunc(maps.Keys(x.files.objects), backends.ID.Compare)
	x.Objects = len(ids)
	all, err := x.inspect(ctx, ids)
	if err != nil {
		return err
	}
	if x.d == nil { // which jobs there are is not known
		for _, id := range ids {
			if s := all[id]; s.err != nil {
				x.addFinding(objectName(id), "it is damaged: "+reason(s.err), "first the queue itself must be readable", nil)
			}
		}
		return nil
	}
	snapshot := x.d.m.Snapshot(farPast(), farPast())
	known := make(map[backends.ID]bool, x.Jobs)
	arrays := make(map[int64]bool)
	var ahead []backends.ID
	for _, jobs := range [][]backends.Job{snapshot.Jobs, snapshot.Ended} {
		for i := range jobs {
			j := &jobs[i]
			known[j.ID] = true
			if j.ID.Index > 0 && !arrays[j.ID.Job] {
				arrays[j.ID.Job] = true
				array := backends.Job{ID: backends.ID{Job: j.ID.Job}, State: j.State}
				known[array.ID] = true
				x.checkObject(&array, all, true)
			}
			x.checkObject(j, all, false)
		}
	}
	for _, id := range ids {
		s, there := all[id]
		switch {
		case !there:
		case s.err == nil && !x.Serving && x.lastSeq(s) > x.d.seq:
			ahead = append(ahead, id)
		case !known[id] && !x.later.removed[id] && !x.isPast(id, s):
			x.addFinding(objectName(id), fmt.Sprintf("the queue knows no job %v", id), asideRemedy, x.asideRepair(objectName(id)))
		}
	}
	if len(ahead) > 0 && !x.short {
		x.short = true
		x.addFinding(segmentPrefix+"*", fmt.Sprintf("%d state objects, job %v's first, know of more than the journal, which ends with entry %d: its end is missing", len(ahead), ahead[0], x.d.seq), restoreBackup, nil)
	}
	return nil
}

// isPast reports whether an object is that of a job that ended and is no longer in memory.
func (x *examination) isPast(id backends.ID, s inspected) bool {
	if s.err != nil || !x.d.m.Issued(id) {
		return false
	}
	return slices.ContainsFunc(s.facts.History, func(e state.Event) bool { return endsJob(e.Event) }) ||
		slices.ContainsFunc(x.later.changes[id], func(c state.Change) bool { return endsJob(c.Event) })
}

// endsJob reports whether an event of a job's history is its end.
func endsJob(event string) bool {
	return event == backends.Done.String() || event == backends.Exited.String()
}

func objectName(id backends.ID) string { return state.Path("jobs", id) }

func reason(err error) string {
	return strings.TrimPrefix(err.Error(), state.ErrCorrupt.Error()+": ")
}

func (x *examination) lastSeq(s inspected) uint64 {
	last := uint64(0)
	for _, e := range s.facts.History {
		last = max(last, e.Seq)
	}
	return last
}

// inspect verifies objects, on all processors.
func (x *examination) inspect(ctx context.Context, ids []backends.ID) (map[backends.ID]inspected, error) {
	const share = 64
	var mu sync.Mutex
	var failed error
	all := make(map[backends.ID]inspected, len(ids))
	parts := make(chan []backends.ID)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			inspector, err := state.NewInspector()
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
			for part := range parts {
				for _, id := range part {
					if err != nil {
						continue
					}
					s, there := x.inspectOne(inspector, id)
					mu.Lock()
					if there {
						all[id] = s
					} else {
						delete(x.files.objects, id)
					}
					mu.Unlock()
				}
			}
			if err == nil {
				inspector.Close()
			}
		})
	}
	for part := range slices.Chunk(ids, share) {
		if ctx.Err() != nil {
			break
		}
		parts <- part
	}
	close(parts)
	workers.Wait()
	return all, errors.Join(failed, context.Cause(ctx))
}

func (x *examination) inspectOne(inspector *state.Inspector, id backends.ID) (inspected, bool) {
	data, err := os.ReadFile(filepath.Join(x.State, objectName(id)))
	if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
		return inspected{}, false
	}
	var s inspected
	if err != nil {
		s.err = fmt.Errorf("it can't be read: %s", cause(err))
	} else {
		s.facts, s.err = inspector.Verify(data, id)
	}
	return s, true
}

// checkObject compares a job's object with what the queue knows. An array's own
// object holds its elements' specification.
func (x *examination) checkObject(j *backends.Job, all map[backends.ID]inspected, array bool) {
	name := objectName(j.ID)
	later := x.later.changes[j.ID]
	submitted := slices.ContainsFunc(later, func(c state.Change) bool { return c.Submit != nil })
	s, there := all[j.ID]
	open := !j.State.Ended()
	switch {
	case there && s.err != nil:
		remedy := asideRemedy + "; what its job did before is not known any more"
		if open && !submitted {
			remedy += ", nor what it is to run: akill it and submit it again, or " + restoreBackup
		}
		x.addFinding(name, "it is damaged: "+reason(s.err), remedy, x.renew(j.ID))
	case there && open && !submitted && !x.specified(j.ID, all):
		x.addFinding(name, fmt.Sprintf("what job %v is to run is not in it", j.ID), "akill the job and submit it again", nil)
	case there && !array:
		x.compareEnds(j, s.facts, later)
	case there || submitted || j.ID.Index > 0 && len(later) == 0 && (open || all[backends.ID{Job: j.ID.Job}].facts != nil):
	case j.ID.Index > 0 && all[backends.ID{Job: j.ID.Job}].facts != nil:
	default:
		remedy := "its history is gone; miniqd check --repair begins it anew"
		if open {
			remedy = "what its job is to run is not known any more: akill it and submit it again, or " + restoreBackup
		}
		x.addFinding(name, fmt.Sprintf("job %v has no state object", j.ID), remedy, x.renew(j.ID))
	}
}

// specified reports whether a sound object, or an element's array's, holds what to run.
func (x *examination) specified(id backends.ID, all map[backends.ID]inspected) bool {
	if f := all[id].facts; f != nil && f.Specified || id.Index == 0 {
		return f != nil && f.Specified
	}
	array := backends.ID{Job: id.Job}
	f := all[array].facts
	return f != nil && f.Specified || slices.ContainsFunc(x.later.changes[array], func(c state.Change) bool { return c.Submit != nil })
}

// renew is the repair of an object that is damaged or missing: what is there is
// set aside, and one begun that says so.
func (x *examination) renew(id backends.ID) func() (string, error) {
	return func() (string, error) {
		w, err := state.NewWriter(disk.OS(), filepath.Join(x.State, "jobs"), discardLog())
		if err != nil {
			return "", err
		}
		w.Start()
		defer w.Close()
		done := "begun anew, what was there is kept in " + state.AsideDir
		change := state.Change{ID: id, Seq: x.d.seq, N: inspectionNumber, At: time.Now(), Doubt: true}
		if !x.files.objects[id] {
			change.Event, change.Detail = "missing", "its state object was missing: what stood there is gone"
			done = "begun anew"
		}
		w.Put(change)
		return done, w.Flush(context.Background())
	}
}

// compareEnds compares how a job ended by its object and by the queue.
func (x *examination) compareEnds(j *backends.Job, facts *state.Facts, later []state.Change) {
	recorded := ""
	apply := func(seq uint64, event string) {
		switch {
		case seq > x.d.seq:
		case endsJob(event):
			recorded = event
		case event == reopenEvent:
			recorded = ""
		}
	}
	anew := false
	for _, e := range facts.History {
		apply(e.Seq, e.Event)
		anew = anew || e.Event == "damaged" || e.Event == "missing"
	}
	for _, c := range later {
		apply(c.Seq, c.Event)
	}
	is := ""
	if j.State.Ended() {
		is = j.State.String()
	}
	if recorded == is || anew && recorded == "" {
		return
	}
	describe := func(state string) string {
		if state == "" {
			return "not ended"
		}
		return "ended as " + state
	}
	x.addFinding(objectName(j.ID), fmt.Sprintf("it records that job %v has %s; in the queue it has %s", j.ID, describe(recorded), describe(is)),
		"the queue's state counts; if parts of two backups were mixed, "+restoreBackup, nil)
}

// checkRecords checks the records of keepers.
func (x *examination) checkRecords() {
	x.Records = len(x.files.records)
	if x.d == nil || x.short {
		return
	}
	alive := make(map[node.RunID]bool)
	for _, r := range x.d.m.Runs() {
		alive[node.RunID{ID: r.ID, Run: r.Run}] = true
	}
	for _, name := range slices.Sorted(maps.Keys(x.files.records)) {
		run := x.files.records[name]
		r, err := keeper.ReadRecord(filepath.Join(x.State, name))
		if errors.Is(err, fs.ErrNotExist) || alive[run] {
			continue
		}
		if err != nil {
			r = &keeper.Record{}
		}
		if r.Run != "" && r.Run != run.String() { // its lines are of the run that had the file before
			r = &keeper.Record{}
		}
		switch {
		case err != nil:
			x.addFinding(name, "it can't be read: "+cause(err), "look at the disk's health", nil)
		case r.End == nil && r.Keeper.PID != 0 && proc.StartTime(r.Keeper.PID) == r.Keeper.Start:
			x.addFinding(name, fmt.Sprintf("run %d of job %v goes on under process %d, but the queue knows of no such run", run.Run, run.ID, r.Keeper.PID),
				"the next miniqd ends it", nil)
		case x.d.m.Count([]backends.ID{run.ID}) == 0 && !x.d.m.Issued(run.ID):
			x.addFinding(name, fmt.Sprintf("the queue knows no job %v", run.ID), asideRemedy, x.asideRepair(name))
		}
	}
}
