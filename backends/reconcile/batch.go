// Package reconcile brings a queue's jobs to the state that the engine asks for, where
// the queue itself has only commands for the single steps (LSF, Slurm). An adapter
// takes a snapshot of the jobs, this package decides which of them a step concerns and
// keeps the error of each, and the adapter runs the queue's commands.
package reconcile

import (
	"fmt"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Job is a job in a snapshot: an adapter's own type around the job that callers see.
type Job interface {
	comparable
	Shown() *backends.Job
}

// Item is one element of a batch call.
type Item[J Job] struct {
	Index int // in the call's argument
	ID    backends.ID
	Job   J     // in the snapshot that the call began with; the zero J where there is none
	Err   error // why it is not done
}

// Batch is the elements of one batch call, or some of them; parts of a batch share their
// items. A step acts on the items without an error and sets an error where it fails, so
// that the steps of an act can follow each other and need not check what failed before.
type Batch[J Job] []*Item[J]

// Begin looks up the jobs of a call, one for each ID, and checks each.
func Begin[J Job](ids []backends.ID, jobs []J, check func(*Item[J]) error) Batch[J] {
	b := make(Batch[J], len(ids))
	for i, id := range ids {
		b[i] = &Item[J]{Index: i, ID: id}
		if b[i].Job, b[i].Err = One(jobs, id); b[i].Err == nil {
			b[i].Err = check(b[i])
		}
	}
	return b
}

// Failed is a call of which no job was found, for one reason.
func Failed[J Job](ids []backends.ID, err error) Batch[J] {
	b := make(Batch[J], len(ids))
	for i, id := range ids {
		b[i] = &Item[J]{Index: i, ID: id, Err: err}
	}
	return b
}

// Of is a batch of a snapshot's jobs.
func Of[J Job](jobs []J) Batch[J] {
	b := make(Batch[J], len(jobs))
	for i, j := range jobs {
		b[i] = &Item[J]{Index: i, ID: j.Shown().ID, Job: j}
	}
	return b
}

// Where is the items without an error of which want is true.
func (b Batch[J]) Where(match func(*Item[J]) bool) Batch[J] {
	var some Batch[J]
	for _, it := range b {
		if it.Err == nil && match(it) {
			some = append(some, it)
		}
	}
	return some
}

// Open is the items without an error.
func (b Batch[J]) Open() Batch[J] { return b.Where(func(*Item[J]) bool { return true }) }

// Each calls f for the items without an error, and takes its error.
func (b Batch[J]) Each(f func(*Item[J]) error) {
	for _, it := range b {
		if it.Err == nil {
			it.Err = f(it)
		}
	}
}

// Fail gives an error to all items that have none.
func (b Batch[J]) Fail(err error) { b.Each(func(*Item[J]) error { return err }) }

// Do gives the IDs of the items without an error to f, and takes the errors that it
// returns for each.
func (b Batch[J]) Do(f func(ids []backends.ID) backends.Errors) {
	open := b.Open()
	if len(open) == 0 {
		return
	}
	for i, err := range f(open.IDs()) {
		open[i].Err = err
	}
}

// IDs are those of all items.
func (b Batch[J]) IDs() []backends.ID {
	return IDs(b, func(it *Item[J]) backends.ID { return it.ID })
}

// Jobs are those of all items.
func (b Batch[J]) Jobs() []J {
	jobs := make([]J, len(b))
	for i, it := range b {
		jobs[i] = it.Job
	}
	return jobs
}

// Errors are those of all items: the result of the call.
func (b Batch[J]) Errors() backends.Errors {
	errs := make(backends.Errors, len(b))
	for i, it := range b {
		errs[i] = it.Err
	}
	return errs
}

// IDs are the IDs that a list names.
func IDs[T any](list []T, id func(T) backends.ID) []backends.ID {
	ids := make([]backends.ID, len(list))
	for i, x := range list {
		ids[i] = id(x)
	}
	return ids
}

// Find is the job of an ID, or the elements of an array. Jobs are in order of their IDs.
func Find[J Job](jobs []J, id backends.ID) []J {
	first, _ := slices.BinarySearchFunc(jobs, backends.ID{Job: id.Job, Index: backends.ZeroIndex}, func(j J, id backends.ID) int { return j.Shown().ID.Compare(id) })
	var found []J
	for _, j := range jobs[first:] {
		if j.Shown().ID.Job != id.Job {
			break
		}
		if id.Index == 0 || j.Shown().ID == id {
			found = append(found, j)
		}
	}
	return found
}

// One is the job of an ID that is no array, or why there is none.
func One[J Job](jobs []J, id backends.ID) (j J, err error) {
	switch found := Find(jobs, id); {
	case len(found) == 0:
		return j, fmt.Errorf("job %v: %w", id, backends.ErrUnknownJob)
	case found[0].Shown().ID != id:
		return j, fmt.Errorf("job %v: %w: it is an array", id, backends.ErrWrongState)
	default:
		return found[0], nil
	}
}

// Shown are the jobs of IDs as callers see them; unknown ones are left out.
func Shown[J Job](jobs []J, ids []backends.ID) []backends.Job {
	var shown []backends.Job
	for _, id := range ids {
		for _, j := range Find(jobs, id) {
			shown = append(shown, *j.Shown())
		}
	}
	return shown
}

// Alive is a call upon jobs that must not have ended; the ID of an array stands for all
// of its elements, of which one is enough.
func Alive[J Job](ids []backends.ID, jobs []J) Batch[J] {
	b := Failed[J](ids, nil)
	b.Each(func(it *Item[J]) error {
		found := Find(jobs, it.ID)
		if len(found) == 0 {
			return fmt.Errorf("job %v: %w", it.ID, backends.ErrUnknownJob)
		}
		if !slices.ContainsFunc(found, func(j J) bool { return !j.Shown().State.Ended() }) {
			return WrongState(found[0].Shown())
		}
		return nil
	})
	return b
}
