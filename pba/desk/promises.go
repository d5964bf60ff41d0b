package desk

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/agent/supervise"
	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unit"
	"github.com/allotment-hpc/allotment/pba/plan"
	"github.com/allotment-hpc/allotment/pba/settings"
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
	return promises(d.Backend, state.Farm, classes, &d.Limits, paused), nil
}

// tagOf returns what a job's owner said at its submission; of a broken tag nothing counts.
func tagOf(j *backends.Job) backends.Tag {
	tag, _, _ := backends.ParseTag(j.Tag)
	return tag
}

// promises returns them for each host on which a job is, of a farm whose jobs have these classes.
func promises(queue string, farm *backends.Snapshot, classes []plan.Class, limits *settings.Limits, paused bool) map[string]*supervise.Promises {
	all := map[string]*supervise.Promises{}
	for i := range farm.Hosts { // one whose last job has ended is to know that
		all[farm.Hosts[i].Name] = &supervise.Promises{Paused: paused}
	}
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State != backends.Running && j.State != backends.Suspended || j.IsDummy() {
			continue
		}
		id, tag := j.OnHosts(), tagOf(j)
		minimum := minimumOf(&tag)
		for _, at := range j.Hosts {
			host := all[at.Host]
			if host == nil {
				continue
			}
			p := supervise.Promise{
				Queue: queue, Job: id.Job, Index: id.Index, Slots: at.Slots, Held: j.State == backends.Suspended,
				Requeues: !j.NoRequeue && !j.Component, Saving: j.Ending && tag.Checkpoint.OnDemand(), Protected: classes[i].Within || j.Interactive,
			}
			if j.Slots > 0 {
				p.Memory = j.Memory / int64(j.Slots) * int64(at.Slots)
			}
			if classes[i].Within {
				p.Minimum = promised(limits, j, minimum, at.Slots)
			}
			if classes[i].Within && tag.Deadline > 0 {
				p.Deadline, p.Most = tag.Deadline, mostOf(limits, at.Slots)
			}
			host.Jobs = append(host.Jobs, p)
		}
	}
	return all
}

// promised returns what a job within a guarantee has as its own in each second on a number of its slots: what each
// slot of its project was promised, or the part that these slots have of the job's minimum, if that is more; but
// of that no more than the site allows for each slot, as one user can't take what others need (R48).
func promised(limits *settings.Limits, j *backends.Job, minimum supervise.Amounts, slots int) supervise.Amounts {
	slot, most := amounts(limits.SlotOf(j.Project)), mostOf(limits, slots)
	has := supervise.Amounts{}
	for r := range has {
		has[r] = max(slot[r]*int64(slots), min(part(minimum[r], slots, j.Slots), most[r]))
	}
	return has
}

// mostOf returns what the site allows a job on a number of its slots, by its owner's word.
func mostOf(limits *settings.Limits, slots int) supervise.Amounts {
	most := amounts(limits.MostOfSlot())
	for r := range most {
		most[r] *= int64(slots)
	}
	return most
}

// part returns slots/of of an amount.
func part(amount int64, slots, of int) int64 {
	if of <= slots {
		return amount
	}
	n, all := int64(slots), int64(of)
	return amount/all*n + amount%all*n/all
}

// minimumOf returns what a job's owner says that it needs at least.
func minimumOf(tag *backends.Tag) supervise.Amounts {
	return supervise.Amounts{supervise.CPU: tag.Minimum.CPU, supervise.Disk: tag.Minimum.Disk, supervise.Network: tag.Minimum.Network}
}

func amounts(p settings.Promised) supervise.Amounts {
	return supervise.Amounts{supervise.CPU: int64(math.Round(1000 * p.CPU)), supervise.Disk: int64(p.Disk), supervise.Network: int64(p.Network)}
}

// minimumInWords returns what a job needs at least by its owner's word, and how much of that counts; "": nothing
// is said.
func minimumInWords(limits *settings.Limits, j *backends.Job, within bool) string {
	tag := tagOf(j)
	minimum := minimumOf(&tag)
	if minimum == (supervise.Amounts{}) || j.State.Ended() {
		return ""
	}
	counts := limits.Looks() && within
	has := promised(limits, j, minimum, j.Slots)
	var parts []string
	for _, r := range supervise.Resources() {
		if minimum[r] == 0 {
			continue
		}
		text := amountInWords(r, minimum[r])
		if r != supervise.CPU {
			text += " of " + r.String()
		}
		switch {
		case !counts || has[r] >= minimum[r]:
		case has[r] == 0:
			text += ", of which the site allows nothing (limits.most)"
		default:
			text += ", of which the site allows " + amountInWords(r, has[r]) + " (limits.most)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ") + whyNot(limits, within)
}

// whyNot returns why an owner's word of what a job needs does not count; "": it does.
func whyNot(limits *settings.Limits, within bool) string {
	switch {
	case !limits.Looks():
		return ": it does not count, since jobs are promised nothing here beside slots (limits.mode: off)"
	case !within:
		return ": it does not count, since the job is not within a guarantee"
	}
	return ""
}

// deadlineInWords returns by when a job should have ended by its owner's word, and whether that counts; "": nothing
// is said.
func deadlineInWords(limits *settings.Limits, j *backends.Job, within bool) string {
	at := tagOf(j).Deadline
	if at == 0 || j.State.Ended() {
		return ""
	}
	return time.Unix(at, 0).Local().Format("2006-01-02 15:04") + whyNot(limits, within)
}

// amountInWords returns an amount of a resource in each second: 2 cores, 300M/s.
func amountInWords(r supervise.Resource, n int64) string {
	switch {
	case r != supervise.CPU:
		return unit.Size(n).String() + "/s"
	case n == 1000:
		return "1 core"
	}
	return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) + " cores"
}
