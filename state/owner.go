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
	return o.rows.owner(), nil
}

// owner returns the owner that the rows name.
func (r specRows) owner() Owner {
	return Owner{User: r.text("user"), UID: r.text("uid"), Limits: r.text("limits")}
}
