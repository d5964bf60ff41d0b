package bsub

import (
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// JobsNamed returns the IDs of a user's jobs of a name, each once: of an array's name the array's.
// Jobs that have ended are found only where no unfinished one has the name. User "": of any user.
// Where none has the name, known are the names that there are.
func JobsNamed(farm *backends.Snapshot, user, name string) (found []backends.ID, known []string) {
	for _, jobs := range [][]backends.Job{farm.Jobs, farm.Ended} {
		seen := map[backends.ID]bool{}
		for i := range jobs {
			j := &jobs[i]
			if user != "" && j.User != user || j.IsDummy() {
				continue
			}
			id := j.ID
			switch name {
			case JobName(j):
			case ArrayName(j):
				id = backends.ID{Job: id.Job}
			default:
				known = append(known, ArrayName(j))
				continue
			}
			if !seen[id] {
				seen[id] = true
				found = append(found, id)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	slices.Sort(known)
	return nil, slices.Compact(known)
}

// maxListed is the number of jobs of one name that are listed.
const maxListed = 10

// ListIDs lists jobs for an error, the first ten of them.
func ListIDs(ids []backends.ID) string {
	var texts []string
	for i, id := range ids {
		if i == maxListed {
			texts = append(texts, "…")
			break
		}
		texts = append(texts, id.String())
	}
	return strings.Join(texts, ", ")
}
