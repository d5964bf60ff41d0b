package laws

import (
	"maps"

	"github.com/allotment-hpc/allotment/backends"
)

// lawKey: what no pool is charged for is reported under the projects of the jobs, also those
// without an allocation, and under the users of jobs whose project or membership is not proven.
func (g *judge) lawKey() {
	b := &books{policy: g.policy, groups: g.state.Groups}
	want, got := map[string]int{}, map[string]int{}
	for i := range g.state.Farm.Jobs {
		j := &g.state.Farm.Jobs[i]
		if m := g.p.Memory.Jobs[j.ID]; j.State == backends.Running && (m.Pool == 0 || m.Kept > 0) {
			want[b.account(j)] += j.Slots
		}
	}
	for _, use := range g.p.Beyond {
		name := "project " + use.Project
		if use.Project == "" {
			name = "user " + use.User
		}
		got[name] += use.Slots
	}
	if !maps.Equal(want, got) {
		g.d.breach(lawKey, "slots without a charge: %v, reported: %v", want, got)
	}
}

// lawKeyOfVictims: victims count under the same, by which max_victims_per_project goes.
func (g *judge) lawKeyOfVictims() {
	for _, r := range g.fresh {
		for i := range r.Victims {
			v := &r.Victims[i]
			if j := g.jobs[v.ID]; j != nil && g.books.account(j) != loser(v) {
				g.d.breach(lawKey, "reclaim %d counts job %v under %s, not %s", r.ID, v.ID, loser(v), g.books.account(j))
			}
		}
	}
}
