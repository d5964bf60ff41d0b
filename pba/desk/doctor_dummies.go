package desk

import (
	"context"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
	"github.com/allotment-hpc/allotment/internal/printable"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// checkDummies looks whether what the site says of heavy jobs suits its queue, and
// whether dummy jobs were left behind.
func (d *Desk) checkDummies(ctx context.Context, r *pba.Result, all *findings) error {
	checkDummyMode(d.Paths.Config, r.Rules.Policy, r.State, all)
	last, ran, err := d.ledger.LastCycle(ctx)
	if err != nil || !r.Rules.Paused && ran && d.Now().Sub(last.Started) <= d.late() {
		return err // the next cycle ends them
	}
	left := 0
	for _, a := range unneeded(r) {
		left += len(a.Dummies)
	}
	if left > 0 {
		all.add("dummies", "`pba dummies prune` ends them", "%s without a heavy job, and no cycle ends them", printable.Count(left, "dummy job"))
	}
	return nil
}

func checkDummyMode(config string, p plan.Policy, state plan.State, all *findings) {
	on, able := p.Dummies.Mode != dummy.Off, state.Abilities
	switch {
	case on && able.ManagesMemory:
		all.add("dummies", "set dummies.mode: off in "+config,
			"dummies.mode is %s, and the queue manages memory by itself: dummy jobs only occupy slots", p.Dummies.Mode)
	case on && able.Place == nil:
		all.add("dummies", "set dummies.mode: off in "+config,
			"dummies.mode is %s, and dummy jobs can't be placed on this queue: jobs that need much memory only wait", p.Dummies.Mode)
	case !on && !able.ManagesMemory:
		heavy := heavyJobs(state.Farm, p)
		if len(heavy) == 0 {
			return
		}
		remedy := "configure the queue to manage memory"
		if able.Place != nil {
			remedy += ", or set dummies.mode: reserve in " + config + " (docs/operate.md)"
		}
		all.add("dummies", remedy,
			"jobs that ask for more memory than goes with their slots run (%s), and the queue does not manage memory: it may start jobs beside them that don't fit", few(heavy))
	}
}

// heavyJobs are the running jobs that need more memory than goes with their slots
// (R28), by what they asked for.
func heavyJobs(farm *backends.Snapshot, p plan.Policy) []string {
	hosts := map[string]*backends.Host{}
	for i := range farm.Hosts {
		if h := &farm.Hosts[i]; h.Slots > 0 && h.Memory > 0 {
			hosts[h.Name] = h
		}
	}
	var names []string
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State != backends.Running || len(p.Queues) > 0 && !slices.Contains(p.Queues, j.Queue) {
			continue
		}
		share, known := int64(0), true
		for _, at := range j.Hosts {
			h := hosts[at.Host]
			if known = known && h != nil; known {
				share += h.Memory * int64(at.Slots) / int64(h.Slots)
			}
		}
		if known && j.Memory > share {
			names = append(names, "job "+j.ID.String())
		}
	}
	return names
}
