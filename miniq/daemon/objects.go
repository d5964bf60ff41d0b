package daemon

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/state"
)

// objects takes changes to state objects: a state.Writer, or gathered, which only
// collects them.
type objects interface {
	Put(c state.Change)
	Remove(ids ...backends.ID)
	Expire(before time.Time)
	Admit(longest time.Duration, user string, jobs int) (over func(), err error)
	Mark(seq uint64)
	Marked() uint64
	Durable() uint64
	Flush(ctx context.Context) error
	Close()
}

// inspectionNumber is a place among the changes of an entry that no change of the
// queue's has.
const inspectionNumber = 1 << 20

// readObject reads a job's state object as it is now. A damaged one is set aside; it or a
// missing one is begun anew, with a line that says so.
func (d *daemon) readObject(ctx context.Context, id backends.ID, seq uint64) (*backends.Record, error) {
	if err := d.objects.Flush(ctx); err != nil {
		d.log.Warn("a state object may be behind", "error", err)
	}
	record, err := state.Read(d.objectDir(), id)
	doubt := state.Change{ID: id, Seq: seq, N: inspectionNumber, Doubt: true}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		doubt.Event, doubt.Detail = "missing", "its state object was missing: what stood there is gone"
	case !errors.Is(err, state.ErrCorrupt):
		return record, err
	}
	d.log.Error("a state object can't be read", "job", id, "error", err)
	if id.Index > 0 { // it may have been the array's, which an element without its own is read from
		d.objects.Put(state.Change{ID: backends.ID{Job: id.Job}, Seq: seq, N: inspectionNumber, Doubt: true})
	}
	d.objects.Put(doubt)
	if err := d.objects.Flush(ctx); err != nil {
		return nil, err
	}
	return state.Read(d.objectDir(), id)
}
