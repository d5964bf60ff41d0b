package desk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/pba"
)

// checkOwnTerms checks the projects that have a pending_threshold of their own: that they
// exist, and that an engine waits for those whose slots are to be there in seconds.
func (d *Desk) checkOwnTerms(ctx context.Context, all *findings) error {
	projects, err := d.ledger.Projects(ctx)
	if err != nil || len(d.PBA.Projects) == 0 {
		return err
	}
	rules, err := d.rules(ctx, d.Now())
	if err != nil {
		return err
	}
	pools := map[string]int{} // guaranteed slots by project
	for _, a := range rules.Policy.Allocations {
		pools[a.Project] += a.Guarantee
	}
	quick := ""
	for _, name := range slices.Sorted(maps.Keys(d.PBA.Projects)) {
		if _, err := named(projects, name); err != nil {
			all.add("config", "correct the name, or remove it from pba.projects", "pba.projects names %s, and there is no project of that name", name)
			continue
		}
		if *d.PBA.Projects[name].PendingThreshold == 0 && quick == "" {
			quick = name
		}
		d.checkStandby(name, pools, all)
	}
	switch holder := pba.Holder(d.Paths.State, pba.RunLock); {
	case quick == "":
	case !d.queue.Abilities().Marks:
		all.add("config", "leave it, if slots within a cycle or two are enough", "project %s has a pending_threshold of 0s, but on this queue no cycle begins when a job comes", quick)
	case holder == 0 || !pba.HearsMarks(holder):
		all.add("cycles", "run cycles by a service that waits: `pba rebalance --every "+fmt.Sprint(d.PBA.Every)+"` without --for (docs/operate.md)",
			"project %s has a pending_threshold of 0s, and no pba rebalance waits for its jobs: they wait for the next cycle", quick)
	}
	return nil
}

// checkStandby checks the slots that are kept free for a project's next jobs.
func (d *Desk) checkStandby(name string, pools map[string]int, all *findings) {
	switch k := d.PBA.Projects[name].Standby; {
	case k == 0:
	case !d.queue.Abilities().Standbys:
		all.add("config", "remove standby from its terms", "project %s has %d slots on standby, and on this queue none are kept free", name, k)
	case k > pools[name]:
		all.add("config", "lower standby, or raise its allocation (`pba alloc set`)", "project %s has %d slots on standby, and %d are allocated to it this week: no more are kept free", name, k, pools[name])
	}
}
