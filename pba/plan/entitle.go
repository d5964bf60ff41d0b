package plan

import (
	"cmp"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// entitler answers whether jobs are entitled (section 2), each question of the
// same project, user and step once.
type entitler struct {
	view     *view
	projects map[string]Project
	known    map[question]verdict
}

type question struct{ project, user, step string }

type verdict struct {
	entitled bool
	pools    []*pool // that match, most specific first
	whyNot   string
}

func newEntitler(v *view) *entitler {
	e := &entitler{view: v, projects: map[string]Project{}, known: map[question]verdict{}}
	for _, p := range v.policy.Projects {
		e.projects[p.Name] = p
	}
	return e
}

func (e *entitler) verdict(j *backends.Job) verdict {
	if j.Project == "" {
		return verdict{whyNot: "it names no project"}
	}
	if _, ok := e.projects[j.Project]; !ok {
		return verdict{whyNot: "its project is not known"}
	}
	q := question{j.Project, j.User, j.Step}
	answer, ok := e.known[q]
	if !ok {
		answer = e.answer(q)
		e.known[q] = answer
	}
	return answer
}

func (e *entitler) answer(q question) verdict {
	project := e.projects[q.project]
	if !slices.Contains(e.view.state.Groups[q.user], project.Group) {
		return verdict{whyNot: "its user is not in the project's group " + project.Group}
	}
	var pools []*pool
	for _, p := range e.view.projectPools[q.project] {
		if (p.User == "" || p.User == q.user) && (p.Step == "" || p.Step == q.step) {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return verdict{whyNot: "no allocation in force matches it"}
	}
	slices.SortFunc(pools, bySpecificity)
	return verdict{entitled: true, pools: pools}
}

// bySpecificity orders pools that match one job: user and step, user, step,
// project (R9); then allocation ID.
func bySpecificity(a, b *pool) int {
	rank := func(p *pool) int {
		switch {
		case p.User != "" && p.Step != "":
			return 0
		case p.User != "":
			return 1
		case p.Step != "":
			return 2
		}
		return 3
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// fitting leaves out the pools whose whole guarantee a job would exceed.
func fitting(pools []*pool, slots int) []*pool {
	for _, p := range pools {
		if p.Guarantee < slots {
			return slices.DeleteFunc(slices.Clone(pools), func(p *pool) bool { return p.Guarantee < slots })
		}
	}
	return pools
}
