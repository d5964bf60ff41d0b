package manager

import (
	"errors"
	"testing"

	"github.com/allotment-hpc/allotment/backends"
)

// A signal goes to what runs of a job or an array, by its owner or an administrator.
func TestSignalled(t *testing.T) {
	b := newBench(t, Config{}, 2)
	array := spec(1)
	array.Array = &backends.Array{Indices: []int{1, 2, 3}}
	id := backends.ID{Job: b.submit(array).Job}
	waits := b.submit(spec(2))
	for _, c := range []struct {
		by   By
		id   backends.ID
		runs int
		err  error
	}{
		{user, id, 2, nil},
		{admin, id, 2, nil},
		{user, backends.ID{Job: id.Job, Index: 2}, 1, nil},
		{user, backends.ID{Job: id.Job, Index: 3}, 0, backends.ErrWrongState},
		{user, waits, 0, backends.ErrWrongState},
		{user, backends.ID{Job: 99}, 0, backends.ErrUnknownJob},
		{other, id, 0, backends.ErrDenied},
		{other, waits, 0, backends.ErrDenied},
	} {
		runs, err := b.m.Signalled(c.by, c.id)
		if len(runs) != c.runs || !errors.Is(err, c.err) {
			t.Errorf("%s signals %v: %d runs, %v; want %d, %v", c.by.User, c.id, len(runs), err, c.runs, c.err)
		}
	}
}
