package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Prune returns a plan that drops the dummy jobs that are not needed (R31): their heavy
// job is gone, or is not heavy to Make any more. It leaves the memory as it is.
func Prune(state State, policy Policy, now time.Time) Plan {
	p := Plan{At: now, Memory: state.Memory}
	if slices.ContainsFunc(state.Farm.Jobs, func(j backends.Job) bool { return j.IsDummy() }) {
		p.Actions = append(drops(state.Farm, Make(state, policy, now).Heavy), dropStandbys(state.Farm, policy.Standby)...)
	}
	return p
}

// dropStandbys returns actions that end the standby jobs of projects that have none.
func dropStandbys(farm *backends.Snapshot, standby map[string]int) []Action {
	var actions []Action
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.IsStandby() && standby[j.Project] == 0 {
			actions = append(actions, Action{Verb: Drop, Dummies: []backends.ID{j.ID}, Reason: fmt.Sprintf("no slots are kept for %s", j.Project)})
		}
	}
	return actions
}

// drops returns actions that end all dummy jobs but those of these heavy jobs.
func drops(farm *backends.Snapshot, heavy []HeavyStatus) []Action {
	needed, there := map[backends.ID]bool{}, map[backends.ID]bool{}
	for _, h := range heavy {
		needed[h.Job] = h.Host != ""
	}
	for i := range farm.Jobs {
		there[farm.Jobs[i].ID] = true
	}
	var actions []Action
	at := map[backends.ID]int{} // of a job's action
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if !j.IsDummy() || j.IsStandby() || needed[j.DummyFor] {
			continue
		}
		k, begun := at[j.DummyFor]
		if !begun {
			why := "is gone"
			if there[j.DummyFor] {
				why = "needs no dummy jobs"
			}
			k, at[j.DummyFor] = len(actions), len(actions)
			actions = append(actions, Action{Verb: Drop, Job: j.DummyFor, Reason: fmt.Sprintf("job %v %s", j.DummyFor, why)})
		}
		actions[k].Dummies = append(actions[k].Dummies, j.ID)
	}
	return actions
}
