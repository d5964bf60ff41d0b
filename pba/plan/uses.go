package plan

import (
	"cmp"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// Use is what one user's running jobs of one step hold of a pool, or beyond the pools.
type Use struct {
	PoolID  int64  // 0: no pool is charged
	Project string // "": the jobs count under their user alone
	User    string
	Step    string // "": none, or one of more than maxStepsShown
	Slots   int
}

// uses adds up the running jobs by pool, project, user and step, in that order.
func (b *books) uses() []Use {
	held := make(map[Use]int, len(b.tallies)) // without its slots
	steps := map[account]map[string]bool{}
	for _, j := range b.running {
		u := Use{User: j.User, Step: j.Step}
		switch {
		case j.pool != nil:
			u.PoolID, u.Project = j.pool.ID, j.pool.Project
		case !j.managed || j.lightFor != (backends.ID{}):
			continue
		default:
			if u.Project = j.of.project; u.Project == "" {
				u.Step = ""
			}
		}
		if u.Step != "" {
			of := account{project: u.Project, user: u.User}
			if steps[of] == nil {
				steps[of] = map[string]bool{}
			}
			if !steps[of][u.Step] && len(steps[of]) == maxStepsShown {
				u.Step = ""
			} else {
				steps[of][u.Step] = true
			}
		}
		held[u] += j.Slots
	}
	all := make([]Use, 0, len(held))
	for u, n := range held {
		u.Slots = n
		all = append(all, u)
	}
	slices.SortFunc(all, func(x, y Use) int {
		return cmp.Or(cmp.Compare(x.PoolID, y.PoolID), cmp.Compare(x.Project, y.Project), cmp.Compare(x.User, y.User), cmp.Compare(x.Step, y.Step))
	})
	return all
}
