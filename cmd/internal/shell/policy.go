package shell

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"

	"github.com/allotment-hpc/allotment/esub"
	"github.com/allotment-hpc/allotment/internal/trusted"
	"github.com/allotment-hpc/allotment/pba/configfile"
)

// readPolicy reads the snapshot as a whole: all of it is looked at.
func readPolicy(c configfile.Config) *esub.Reader {
	file, err := trusted.OpenBy(filepath.Join(c.Paths.State, esub.SnapshotName), trusted.OwnerOf(c.Paths.State))
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil
	}
	r, err := esub.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil
	}
	return r
}

// ProjectGroups returns the number of each project's group, by the project's name;
// esub.Unknown where it is not known. nil: no cycle has published the projects.
func ProjectGroups(c configfile.Config) map[string]int64 {
	r := readPolicy(c)
	if r == nil {
		return nil
	}
	groups := map[string]int64{}
	for i := range r.Projects() {
		p, err := r.At(i)
		if err != nil {
			return nil
		}
		groups[p.Name] = p.GID
	}
	return groups
}
