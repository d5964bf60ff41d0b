package desk

import (
	"context"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Promises returns what the jobs on each host were promised, by what the last cycle published (R47). It is of the
// desks of a Service.
func (d *Desk) Promises(ctx context.Context) (map[string]*supervise.Promises, error) {
	v, err := d.view()
	if err != nil {
		return nil, err
	}
	paused, err := d.ledger.Paused(ctx)
	if err != nil {
		return nil, err
	}
	state := &v.Result.State
	classes, err := d.shared.classes.get(v, d.Now(), func() ([]plan.Class, error) {
		return plan.Classes(*state, v.Result.Rules.Policy, state.Farm.At), nil
	})
	if err != nil {
		return nil, err
	}
	slot := supervise.Amounts{supervise.CPU: int64(1000 * d.Limits.Slot.CPU), supervise.Disk: int64(d.Limits.Slot.Disk), supervise.Network: int64(d.Limits.Slot.Network)}
	return promises(d.Backend, state.Farm, classes, slot, paused), nil
}

// savesOnDemand reports whether a job can be asked to save itself (R33).
func savesOnDemand(j *backends.Job) bool {
	tag, _, _ := backends.ParseTag(j.Tag)
	return tag.Checkpoint.OnDemand()
}

// promises returns them for each host on which a job is, of a farm whose jobs have these classes.
func promises(queue string, farm *backends.Snapshot, classes []plan.Class, slot supervise.Amounts, paused bool) map[string]*supervise.Promises {
	all := map[string]*supervise.Promises{}
	for i := range farm.Hosts { // one whose last job has ended is to know that
		all[farm.Hosts[i].Name] = &supervise.Promises{Paused: paused}
	}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State != backends.Running && j.State != backends.Suspended || j.IsDummy() {
			continue
		}
		id := j.OnHosts()
		for _, at := range j.Hosts {
			host := all[at.Host]
			if host == nil {
				continue
			}
			p := supervise.Promise{
				Queue: queue, Job: id.Job, Index: id.Index, Slots: at.Slots, Held: j.State == backends.Suspended,
				Requeues: !j.NoRequeue && !j.Component, Saving: j.Ending && savesOnDemand(j), Protected: classes[i].Within || j.Interactive,
			}
			if j.Slots > 0 {
				p.Memory = j.Memory / int64(j.Slots) * int64(at.Slots)
			}
			if classes[i].Within {
				for r := range p.Minimum {
					p.Minimum[r] = slot[r] * int64(at.Slots)
				}
			}
			host.Jobs = append(host.Jobs, p)
		}
	}
	return all
}
