package plan

import (
	"cmp"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// entitler decides whether jobs are entitled, and what they count under (docs/design.md,
// Words), each question about a project's members once.
type entitler struct {
	farm     *farm
	projects map[string]*knownProject
	users    map[string]*knownUser
	known    map[question]*verdict
	nameless verdict // on jobs that name no project
	unknown  verdict // on jobs whose project is not known
}

// knownUser is a user.
type knownUser struct {
	groups []string
	tally  *tally // of what counts under the user; nil: nothing did yet
}

// knownProject is a project, with the verdict on users who are not its members.
type knownProject struct {
	Project
	outside verdict
	tally   *tally // of what counts under it; nil: nothing did yet
}

type question struct{ project, user, step string }

type verdict struct {
	entitled bool
	member   bool    // of the project, which is known: the job counts under it
	pools    []*pool // that match, most specific first
	whyNot   string
}

func newEntitler(f *farm) *entitler {
	e := &entitler{farm: f, projects: map[string]*knownProject{}, users: map[string]*knownUser{}, known: map[question]*verdict{}}
	e.nameless.whyNot, e.unknown.whyNot = "it names no project", "its project is not known"
	for _, p := range f.policy.Projects {
		e.projects[p.Name] = &knownProject{Project: p, outside: verdict{whyNot: "its user is not in the project's group " + p.Group}}
	}
	return e
}

func (e *entitler) user(name string) *knownUser {
	u := e.users[name]
	if u == nil {
		u = &knownUser{groups: e.farm.state.Groups[name]}
		e.users[name] = u
	}
	return u
}

func (e *entitler) verdict(j *backends.Job) *verdict {
	if j.Project == "" {
		return &e.nameless
	}
	p := e.projects[j.Project]
	if p == nil {
		return &e.unknown
	}
	if !slices.Contains(e.user(j.User).groups, p.Group) {
		return &p.outside
	}
	q := question{j.Project, j.User, j.Step}
	answer := e.known[q]
	if answer == nil {
		answer = e.answer(q)
		e.known[q] = answer
	}
	return answer
}

// answer returns the verdict on a question about a member.
func (e *entitler) answer(q question) *verdict {
	var pools []*pool
	for _, p := range e.farm.projectPools[q.project] {
		if (p.User == "" || p.User == q.user) && (p.Step == "" || p.Step == q.step) {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return &verdict{member: true, whyNot: "no allocation in force matches it"}
	}
	slices.SortFunc(pools, bySpecificity)
	return &verdict{entitled: true, member: true, pools: pools}
}

// countPending counts a pending job under its account.
func (e *entitler) countPending(j *backends.Job, of *verdict) {
	e.tally(j, of).pending++
}

// countUnlisted counts pending jobs that the snapshot does not list.
func (e *entitler) countUnlisted(u *backends.Unlisted) {
	j := backends.Job{Project: u.Project, Step: u.Step, User: u.User}
	e.tally(&j, e.verdict(&j)).pending += u.Jobs
}

// tally returns the tally of the account that a job counts under.
func (e *entitler) tally(j *backends.Job, of *verdict) *tally {
	if of.member {
		p := e.projects[j.Project]
		if p.tally == nil {
			p.tally = e.farm.tallyOf(account{project: j.Project})
		}
		return p.tally
	}
	u := e.user(j.User)
	if u.tally == nil {
		u.tally = e.farm.tallyOf(account{user: j.User})
	}
	return u.tally
}

// bySpecificity orders pools that match one job: user and step, user, step,
// project (R9); then those of the hosts in no host set, which more jobs may run on; then
// allocation ID.
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
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(min(len(a.Hosts), 1), min(len(b.Hosts), 1)), cmp.Compare(a.ID, b.ID))
}

// fittingPools leaves out the pools whose whole guarantee a job would exceed.
func fittingPools(pools []*pool, slots int) []*pool {
	for _, p := range pools {
		if p.Guarantee < slots {
			return slices.DeleteFunc(slices.Clone(pools), func(p *pool) bool { return p.Guarantee < slots })
		}
	}
	return pools
}
