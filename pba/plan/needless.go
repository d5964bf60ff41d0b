package plan

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// mostBeside bounds the jobs that are read again before a victim's act.
const mostBeside = 500

// Surroundings are what says whether a victim's slots are still needed right before its act (R18):
// the open reclaims on its hosts, and the jobs that ran there.
type Surroundings struct {
	IDs []backends.ID // to be read again

	victim   *backends.Job
	reclaims []*Reclaim                    // those open on its hosts
	others   []*Reclaim                    // those open elsewhere
	ran      map[backends.ID]*backends.Job // as the plan saw them
	counts   bool                          // another reclaim than the victim's own is open there, and all jobs that ran there are in IDs
}

// Around returns the surroundings of a victim. Where only its own reclaim is open there, no jobs
// need be read again; else the reclaims' victims and beneficiaries, and if these are not too many
// the jobs that ran there and the beneficiaries of all other reclaims: a queue that binds none to
// its hosts may start one here.
func Around(victim *backends.Job, own int64, reclaims []Reclaim, farm *backends.Snapshot) *Surroundings {
	s := &Surroundings{victim: victim, ran: map[backends.ID]*backends.Job{}}
	ids := map[backends.ID]bool{}
	for i := range reclaims {
		r := &reclaims[i]
		switch {
		case !r.Phase.Open():
			continue
		case !backends.ShareHost(r.Hosts, victim.Hosts):
			s.others = append(s.others, r)
			continue
		}
		s.reclaims, s.counts = append(s.reclaims, r), s.counts || r.ID != own
		ids[r.Beneficiary] = true
		for k := range r.Victims {
			ids[r.Victims[k].ID] = true
		}
	}
	if !s.counts {
		return s
	}
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.State == backends.Running && backends.ShareHost(j.Hosts, victim.Hosts) {
			s.ran[j.ID] = j
		}
	}
	beside := maps.Clone(ids)
	for id := range s.ran {
		beside[id] = true
	}
	for _, r := range s.others {
		beside[r.Beneficiary] = true
	}
	if s.counts = len(beside) <= mostBeside; s.counts {
		ids = beside
	}
	s.IDs = slices.SortedFunc(maps.Keys(ids), backends.ID.Compare)
	return s
}

// Needless reports whether the victim need not be preempted any more (R18): on each of its hosts, the
// beneficiaries of open reclaims that still wait need no more slots than those that were free for
// them or came free since the plan was made, less what beneficiaries that started took, those of
// reclaims elsewhere too, and those of the plan's victims that are still to come. A queue may start a
// beneficiary in slots that another one's victims left, and needs a moment to start one in what is
// free. now are the jobs of IDs as they are; later reports whether a victim's act is still to come.
// It reports false where a beneficiary needs more than slots.
func (s *Surroundings) Needless(now map[backends.ID]*backends.Job, later func(backends.ID) bool) bool {
	if !s.counts {
		return false
	}
	return !slices.ContainsFunc(s.victim.Hosts, func(p backends.Placement) bool { return s.needsOn(p.Host, now, later) })
}

// needsOn reports whether slots of a host are needed; see Needless.
func (s *Surroundings) needsOn(host string, now map[backends.ID]*backends.Job, later func(backends.ID) bool) bool {
	runs := func(id backends.ID) bool { // on, in the run that the plan saw
		j := now[id]
		return j != nil && j.State == backends.Running && !j.Ending && j.Started.Equal(s.ran[id].Started)
	}
	free, demand, supply := 0, 0, 0
	served := map[backends.ID]bool{} // victims of the reclaims there
	for _, r := range s.reclaims {
		on := backends.SlotsOn(r.Hosts, host)
		if on == 0 {
			continue
		}
		b := now[r.Beneficiary]
		waits := lacksSlots(b)
		switch {
		case waits && (b.Exclusive || b.Memory > 0 || len(b.Needs) > 0):
			return true
		case waits:
			demand += on
		case b != nil && b.State == backends.Running:
			supply -= backends.SlotsOn(b.Hosts, host)
		}
		free += on
		for k := range r.Victims {
			id := r.Victims[k].ID
			v := s.ran[id]
			if v == nil || served[id] {
				continue
			}
			served[id] = true
			free -= backends.SlotsOn(v.Hosts, host)
			if !runs(id) || waits && id != s.victim.ID && later(id) {
				supply += backends.SlotsOn(v.Hosts, host)
			}
		}
	}
	for _, r := range s.others {
		if b := now[r.Beneficiary]; b != nil && b.State == backends.Running {
			supply -= backends.SlotsOn(b.Hosts, host)
		}
	}
	for id, j := range s.ran {
		if !j.Ending && !served[id] && !runs(id) {
			supply += backends.SlotsOn(j.Hosts, host)
		}
	}
	return demand > max(free, 0)+supply
}

// Unserved reports whether a beneficiary waits though all victims of its reclaim are gone: another
// one runs in what they left, and that one's victims are needed for it.
func (s *Surroundings) Unserved(own int64, now map[backends.ID]*backends.Job) bool {
	return slices.ContainsFunc(s.reclaims, func(r *Reclaim) bool {
		return r.ID != own && lacksSlots(now[r.Beneficiary]) &&
			!slices.ContainsFunc(r.Victims, func(v Victim) bool {
				j := now[v.ID]
				return j != nil && j.State == backends.Running && !j.Ending && j.Started.Equal(v.Started)
			})
	})
}

// lacksSlots reports whether a beneficiary still waits for slots; nil: it has gone.
func lacksSlots(b *backends.Job) bool {
	return b != nil && (b.State == backends.Pending || b.State == backends.Suspended)
}
