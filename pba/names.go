package pba

import (
	"maps"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// names are the projects as they are written in the plan, by the names that jobs may have
// for them: their former names and, on a queue that keeps all names in lower case, these.
type names struct {
	projects map[string]string
	formers  map[string]string // former names as they are written in the plan
}

func namesOf(a backends.ForEngine, projects []plan.Project) names {
	n := names{map[string]string{}, map[string]string{}}
	kept := func(name string) string { return name }
	if a.FoldsProjects {
		kept = strings.ToLower
		for _, p := range projects {
			if folded := kept(p.Name); n.projects[folded] == "" || p.Name < n.projects[folded] {
				n.projects[folded] = p.Name
			}
		}
	}
	for _, p := range projects {
		for _, name := range p.Former {
			if n.projects[kept(name)] == "" {
				n.projects[kept(name)], n.formers[kept(name)] = p.Name, name
			}
		}
	}
	return n
}

// Resolve replaces the projects of jobs by their names in the plan, as cycles do.
func Resolve(a backends.ForEngine, projects []plan.Project, jobs []backends.Job) {
	namesOf(a, projects).resolve(jobs)
}

// resolve replaces the projects of jobs by their names in the plan.
func (n names) resolve(jobs []backends.Job) {
	if len(n.projects) == 0 {
		return
	}
	for i := range jobs {
		if name, ok := n.projects[jobs[i].Project]; ok {
			jobs[i].Project = name
		}
	}
}

// former returns the former names that jobs have, as the queue has them.
func (n names) former(jobs []backends.Job) []string {
	had := map[string]bool{}
	for i := range jobs {
		if name, is := n.formers[jobs[i].Project]; is {
			had[name] = true
		}
	}
	return slices.Sorted(maps.Keys(had))
}
