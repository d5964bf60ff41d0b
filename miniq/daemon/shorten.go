package daemon

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/allotment-hpc/allotment/miniq/manager"
)

// The journal is shortened in the background. The state is copied in slices, between
// what is asked of the loop, then encoded and written beside it; the journal goes on
// in a new segment after the last entry that the state holds.

// sliceTime is how long the loop copies before it looks for requests again.
const sliceTime = 2 * time.Millisecond

// compactAt returns how long the journal may become, in bytes: the larger the state,
// the rarer it is written.
func (d *daemon) compactAt() int64 {
	if d.CompactAt > 0 {
		return d.CompactAt
	}
	return compactSize + int64(d.saved)
}

// noteSize is the part of the journal, in bytes, that takes as long to replay, and as much
// memory, as one change to a state object: one short entry may end 100,000 jobs.
const noteSize = 512

// due reports whether the journal is so long, or has so many changes, that it is shortened.
func (d *daemon) due() bool { return max(d.journal.total, d.noted*noteSize) > d.compactAt() }

// compact has the journal shortened, and calls asked in the loop with the result.
func (d *daemon) compact(asked func(error)) { d.wanted = append(d.wanted, asked) }

// shorten begins to shorten the journal where that is due or was asked for. It is called
// between batches: all that the journal holds is in the state then.
func (d *daemon) shorten() {
	if d.saving || len(d.wanted) == 0 && !d.due() { // what is asked for meanwhile needs a later state
		return
	}
	asked := d.wanted
	d.wanted = nil
	d.journal.total, d.noted = 0, 0 // after an error it is tried again after as much again
	seq := d.seq
	err := d.lost()
	if err == nil {
		err = d.journal.rotate(seq + 1)
	}
	if err != nil {
		d.shortened(err, asked)
		return
	}
	d.saving = true
	d.copyOn(d.m.Freeze(), func(f *manager.Frozen) {
		d.saves.Go(func() {
			size, err := d.save(seq, f)
			debug.FreeOSMemory() // it took several times as much as the queue does
			d.post(input{do: func() {
				d.saving = false
				if err == nil {
					d.saved = size
				}
				d.shortened(err, asked)
			}})
		})
	})
}

// copyOn copies a slice of the queue, and the rest when the loop has looked for requests.
func (d *daemon) copyOn(f *manager.Frozen, whole func(*manager.Frozen)) {
	const atOnce = 100
	for began := time.Now(); time.Since(began) < sliceTime; {
		if !f.More(atOnce) {
			whole(f)
			return
		}
	}
	d.soon = append(d.soon, input{do: func() { d.copyOn(f, whole) }})
}

func (d *daemon) shortened(err error, asked []func(error)) {
	if err != nil {
		d.log.Error("the journal can't be shortened", "error", err)
	}
	for _, told := range asked {
		told(err)
	}
}

// save puts a state on disk and drops the journal before it, once the state objects hold
// what it says of jobs' specifications.
func (d *daemon) save(seq uint64, f *manager.Frozen) (int, error) {
	state, err := f.Encode() // first: it takes less than the copy, and objects may take long
	if err != nil {
		return 0, err
	}
	if err := d.objects.Flush(context.Background()); err != nil {
		return 0, err
	}
	if d.objects.Durable() < seq {
		return 0, fmt.Errorf("state objects are behind: %d of %d", d.objects.Durable(), seq)
	}
	size := 0
	for _, part := range state {
		size += len(part)
	}
	if err := writeSnapshot(d.Disk, d.state, seq, state...); err != nil {
		return 0, err
	}
	return size, dropSegments(d.Disk, d.state, seq)
}
