package pba

import (
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// names are the projects as they are written in the plan, by their names in lower
// case, which is all that some queues keep. nil: this queue keeps names as they are.
type names map[string]string

func namesOf(a backends.ForEngine, projects []plan.Project) names {
	if !a.FoldsProjects {
		return nil
	}
	n := make(names, len(projects))
	for _, p := range projects {
		if folded := strings.ToLower(p.Name); n[folded] == "" || p.Name < n[folded] {
			n[folded] = p.Name
		}
	}
	return n
}

// resolve replaces the projects of jobs by their names in the plan.
func (n names) resolve(jobs []backends.Job) {
	if n == nil {
		return
	}
	for i := range jobs {
		if name, ok := n[jobs[i].Project]; ok {
			jobs[i].Project = name
		}
	}
}
