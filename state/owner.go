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

// Owner reads the owner of a job from an object that may come from elsewhere, as Read does.
func (i *Inspector) Owner(object []byte, id backends.ID) (Owner, error) {
	if _, _, err := i.Read(object, id); err != nil {
		return Owner{}, err
	}
	rows, err := i.m.rows()
	if err != nil {
		return Owner{}, damaged(id, err)
	}
	return Owner{User: rows.text("user"), UID: rows.text("uid"), Limits: rows.text("limits")}, nil
}
