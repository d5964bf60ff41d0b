package desk

import (
	"context"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Plead records what a host asks for instead of what it asked for before (R47). The next cycle decides.
func (d *Desk) Plead(ctx context.Context, host string, p *supervise.Pleas) error {
	var all []plan.Plea
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Queue != d.Backend {
			continue // a job of another queue there
		}
		verb := plan.Requeue
		if j.Verb == supervise.Kill {
			verb = plan.Kill
			if !d.Limits.Kill {
				continue
			}
		}
		all = append(all, plan.Plea{Job: backends.ID{Job: j.Job, Index: j.Index}, Verb: verb, Used: j.Used, Frozen: j.Frozen})
	}
	return d.ledger.SetPleas(ctx, host, d.Now(), all)
}
