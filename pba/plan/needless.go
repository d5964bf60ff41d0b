package plan

import (
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// mostBeside bounds the jobs that are read again before a victim's act.
const mostBeside = 500

// Beside returns the jobs that say whether a victim's slots are still needed (see Needless): those that
// ran on its hosts, and the victims and beneficiaries of open reclaims there. It returns none
// where no other reclaim but its own is open there, or where these are too many to be read.
func Beside(victim backends.ID, own int64, reclaims []Reclaim, farm *backends.Snapshot) []backends.ID {
	hosts := hostsOf(victim, farm)
	ids := map[backends.ID]bool{}
	shared := false
	for i := range reclaims {
		r := &reclaims[i]
		if !r.Phase.Open() || !slices.ContainsFunc(r.Hosts, func(p backends.Placement) bool { return slices.Contains(hosts, p.Host) }) {
			continue
		}
		shared = shared || r.ID != own
		ids[r.Beneficiary] = true
		for k := range r.Victims {
			ids[r.Victims[k].ID] = true
		}
	}
	if !shared {
		return nil
	}
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.State == backends.Running && slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return slices.Contains(hosts, p.Host) }) {
			ids[j.ID] = true
		}
	}
	all := make([]backends.ID, 0, len(ids))
	for id := range ids {
		all = append(all, id)
	}
	if len(all) > mostBeside {
		return nil
	}
	slices.SortFunc(all, backends.ID.Compare)
	return all
}

// Needless reports whether a victim need not be preempted any more (R18): on each of its hosts, the
// beneficiaries of open reclaims that still wait need no more slots than those that were free for
// them or came free since the plan was made, less what beneficiaries that started took, and those
// of the plan's victims that are still to come. A queue may start a beneficiary in slots that
// another one's victims left, and needs a moment to start one in what is free. now are the jobs
// of Beside as they are. It reports false where a beneficiary needs more than slots.
func Needless(victim backends.ID, reclaims []Reclaim, farm *backends.Snapshot, now map[backends.ID]*backends.Job, later func(backends.ID) bool) bool {
	was := map[backends.ID]*backends.Job{}
	for i := range farm.Jobs {
		was[farm.Jobs[i].ID] = &farm.Jobs[i]
	}
	runs := func(id backends.ID) bool { // on, in the run that the plan saw
		j := now[id]
		return j != nil && j.State == backends.Running && !j.Ending && j.Started.Equal(was[id].Started)
	}
	for _, host := range hostsOf(victim, farm) {
		free, demand, supply := 0, 0, 0
		served := map[backends.ID]bool{} // victims of open reclaims there
		for i := range reclaims {
			r := &reclaims[i]
			on := slotsAt(r.Hosts, host)
			if !r.Phase.Open() || on == 0 {
				continue
			}
			b := now[r.Beneficiary]
			waits := b != nil && (b.State == backends.Pending || b.State == backends.Suspended)
			switch {
			case waits && (b.Exclusive || b.Memory > 0 || len(b.Needs) > 0):
				return false
			case waits:
				demand += on
			case b != nil && b.State == backends.Running:
				supply -= slotsAt(b.Hosts, host)
			}
			free += on
			for k := range r.Victims {
				id := r.Victims[k].ID
				v := was[id]
				if v == nil || v.State != backends.Running || served[id] {
					continue
				}
				served[id] = true
				free -= slotsAt(v.Hosts, host)
				if !runs(id) || waits && id != victim && later(id) {
					supply += slotsAt(v.Hosts, host)
				}
			}
		}
		for id, j := range was {
			if j.State == backends.Running && !j.Ending && !served[id] && !runs(id) {
				supply += slotsAt(j.Hosts, host)
			}
		}
		if demand > max(free, 0)+supply {
			return false
		}
	}
	return true
}

func hostsOf(id backends.ID, farm *backends.Snapshot) (hosts []string) {
	for i := range farm.Jobs {
		if farm.Jobs[i].ID == id {
			for _, p := range farm.Jobs[i].Hosts {
				hosts = append(hosts, p.Host)
			}
		}
	}
	return hosts
}

func slotsAt(at []backends.Placement, host string) int {
	n := 0
	for _, p := range at {
		if p.Host == host {
			n += p.Slots
		}
	}
	return n
}
