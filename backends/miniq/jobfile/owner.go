package jobfile

import (
	"fmt"

	"github.com/allotment-hpc/allotment/backends"
)

// Owner is whom a job's runs belong to.
type Owner struct {
	User   string
	UID    string // decimal; "": whoever the daemon is
	Limits string // keeper.Limits; "": the daemon's own
}

// ReadOwner reads whom a job's runs belong to, of its object or its array's.
func ReadOwner(dir string, id backends.ID) (Owner, error) {
	data, err := load(dir, id)
	if err != nil {
		return Owner{}, err
	}
	m, err := newMemory()
	if err != nil {
		return Owner{}, err
	}
	defer m.close()
	var rows specRows
	if err = m.open(data); err == nil {
		rows, err = m.rows()
	}
	if err == nil {
		err = rows.check()
	}
	if err != nil {
		return Owner{}, fmt.Errorf("read the state object of job %v: %w: %w", id, ErrCorrupt, err)
	}
	return Owner{User: rows.text("user"), UID: rows.text("uid"), Limits: rows.text("limits")}, nil
}
