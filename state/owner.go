package state

import (
	"github.com/allotment-hpc/allotment/backends"
)

// Owner is the user that a job's runs belong to.
type Owner struct {
	User   string
	UID    string // decimal; "": the daemon's own
	Limits string // resource limits of its runs, as its queue writes them; "": the daemon's own
}

// ReadOwner reads the owner of a job from its object.
func ReadOwner(dir string, id backends.ID) (Owner, error) {
	o, err := readObject(dir, id)
	if err != nil {
		return Owner{}, err
	}
	return Owner{User: o.rows.text("user"), UID: o.rows.text("uid"), Limits: o.rows.text("limits")}, nil
}
