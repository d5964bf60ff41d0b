package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// remember stores what the next cycle needs, and nothing of jobs that are gone.
func (f *farm) remember() {
	memory := &f.plan.Memory
	memory.LastCycle = f.now
	memory.Jobs = make(map[backends.ID]JobMemory, len(f.state.Memory.Jobs))
	for _, j := range f.jobs {
		m := &j.mem
		switch {
		case j.pool == nil && m.Pool == 0 && m.Kept == 0 && m.Entered.IsZero():
		case j.pool == nil:
			m.Pool, m.Entered, m.Kept = 0, time.Time{}, 0
		case m.Pool == 0 || m.Entered.IsZero():
			m.Pool, m.Entered = j.pool.ID, f.now
		default:
			m.Pool = j.pool.ID
		}
		if j.State == backends.Running && (m.Expired != 0 || !m.Backoff.IsZero()) {
			m.Expired, m.Backoff = 0, time.Time{}
		}
		if !m.empty() {
			memory.Jobs[j.ID] = *m
		}
	}
	f.rememberEnds()
	f.forget()
}

func (m *JobMemory) empty() bool {
	return m.Pool == 0 && m.Clock == 0 && m.Requeues == 0 && m.Lost == 0 && m.Expired == 0 && m.Grew == 0 && m.WrittenAt.IsZero() && len(m.Reserved) == 0
}

// rememberEnds keeps the run times of each pool's last 30 ended jobs (R12).
func (f *farm) rememberEnds() {
	const kept = 30
	memory := &f.plan.Memory
	memory.Throughput = f.throughputs
	ended := slices.Clone(f.state.Farm.Ended)
	slices.SortFunc(ended, func(a, b backends.Job) int {
		return cmp.Or(a.Ended.Compare(b.Ended), a.ID.Compare(b.ID))
	})
	if len(ended) == 0 {
		memory.EndedSince = f.state.Farm.At
		return
	}
	memory.RunTimes = maps.Clone(memory.RunTimes)
	if memory.RunTimes == nil {
		memory.RunTimes = map[string][]RunEnd{}
	}
	entitle := newEntitler(f)
	for i := range ended {
		j := &ended[i]
		ran := j.RanFor + j.Ended.Sub(j.Started)
		if j.Started.IsZero() || ran < 0 || j.IsDummy() {
			continue
		}
		pools := keep(entitle.verdict(j).pools, func(p *pool) bool { return f.on(p, j.Hosts) })
		for _, p := range pools {
			ends := memory.RunTimes[p.Key()]
			if slices.ContainsFunc(ends, func(e RunEnd) bool { return e.ID == j.ID }) {
				continue
			}
			ends = append(slices.Clone(ends), RunEnd{ID: j.ID, Ran: ran})
			memory.RunTimes[p.Key()] = ends[max(0, len(ends)-kept):]
			if own := f.state.Memory.Jobs[j.ID].Pool; own == p.ID || own == 0 && p == pools[0] {
				f.finish(p, j)
			}
		}
	}
	memory.EndedSince = f.state.Farm.At
}

// status sums up the state of the pools and the farm (R22).
func (b *books) status() {
	f := &b.plan.Farm
	f.Slots, f.Down = b.slots, b.down
	for _, j := range b.jobs {
		b.addToFarm(j, f)
	}
	for _, p := range b.pools {
		s := PoolStatus{Allocation: p.Allocation, Waiting: p.waiting, Below: p.room > 0 && p.Hosts == "", Early: max(0, b.earlyLeft(p)), Undone: b.undone[p.ID]}
		for _, j := range p.members {
			if j.State == backends.Running {
				s.Charged += j.Slots
			} else {
				s.Held += j.Slots
			}
		}
		if st := b.standings[p]; st != nil {
			s.Standby, s.Kept = st.want, st.running()
		}
		if p.head != nil {
			s.Held += p.head.mem.Kept
		}
		f.Guaranteed += p.Guarantee
		f.Unmet += s.Held
		b.plan.Pools = append(b.plan.Pools, s)
	}
	b.plan.Beyond, b.plan.Uses = b.beyond, b.uses()
	f.LowerThem = float64(f.Unpreemptable) > b.policy.UnpreemptableShare*float64(b.slots)
	b.plan.Sets, b.plan.Unserved = b.setStatus(), listReasons(b.reasons)
	for _, s := range b.plan.Sets {
		if s.Short() {
			b.warn("%sjobs wait for %d of %d guaranteed slots, and only %d can be preempted now", s.Where(), s.Unmet, s.Guaranteed, s.TakeBack)
		}
	}
	if f.LowerThem {
		b.warn("normal jobs that can't be taken back hold %d slots, more than unpreemptable.max_share of the farm (%.0f %% of %d)",
			f.Unpreemptable, 100*b.policy.UnpreemptableShare, b.slots)
	}
	if b.down > 0 {
		b.warn("%s of managed hosts are down or closed", slotCount(b.down))
	}
	if b.cut > 0 {
		b.warn("not all sets of victims were compared: %d were left out, where many jobs of a host differ in memory", b.cut)
	}
	b.warnOfStuck()
	b.plan.Heavy = b.heavyStatus()
	b.plan.Shortages = b.shortages()
}

// setStatus sums up the guarantees and the slots of each host set, and of the hosts in none:
// slots elsewhere don't help a pool that is limited to a set.
func (b *books) setStatus() []SetStatus {
	if b.rest == nil {
		f := &b.plan.Farm
		return []SetStatus{{Whole: true, Guaranteed: f.Guaranteed, Unmet: f.Unmet, Free: f.Slots - f.Running, TakeBack: f.TakeBack}}
	}
	all, at := []SetStatus{{}}, map[*part]int{b.rest: 0}
	for _, set := range b.policy.HostSets {
		at[b.parts[set.Name]] = len(all)
		all = append(all, SetStatus{Hosts: set.Name})
	}
	for _, h := range b.hosts {
		all[at[h.part]].Free += h.Slots
	}
	for _, j := range b.running {
		for _, p := range j.Hosts {
			if h := b.byName[p.Host]; h != nil {
				s := &all[at[h.part]]
				s.Free -= p.Slots
				if !j.pba() && j.spared == "" {
					s.TakeBack += p.Slots
				}
			}
		}
	}
	for _, p := range b.plan.Pools {
		if i := slices.IndexFunc(all, func(s SetStatus) bool { return s.Hosts == p.Hosts }); i >= 0 { // the config may have lost it
			all[i].Guaranteed += p.Guarantee
			all[i].Unmet += p.Held
		}
	}
	return all
}

func (b *books) addToFarm(j *job, f *FarmStatus) {
	if j.State != backends.Running && j.State != backends.Suspended {
		return
	}
	on := b.managedSlots(j)
	switch {
	case j.State == backends.Suspended:
		f.Suspended += on
	case j.standby:
		f.Running += on
		f.Kept += on
	case j.pba():
		f.Running += on
		f.PBA += on
	default:
		f.Running += on
		f.Normal += on
		if j.spared == "" {
			f.TakeBack += on
		}
		if j.fixed {
			f.Unpreemptable += on
		}
	}
}

// forget drops what no later cycle can need: reclaims that ended over an hour
// ago (R22 counts that long) and whose victims are free.
func (f *farm) forget() {
	f.plan.Memory.Reclaims = slices.DeleteFunc(f.plan.Memory.Reclaims, func(r Reclaim) bool {
		if r.Phase.Open() || f.now.Sub(r.Planned) < time.Hour {
			return false
		}
		return !slices.ContainsFunc(r.Victims, func(victim Victim) bool { return victim.Fate == Taken && !victim.Released })
	})
}

// describe returns the name of an allocation as users write it: chipA,
// chipA:synthesis, chipA (bob), chipA on gpu.
func describe(a Allocation) string {
	name := backends.JoinProject(a.Project, a.Step)
	if a.User != "" {
		name += " (" + a.User + ")"
	}
	if a.Hosts != "" {
		name += " on " + a.Hosts
	}
	return name
}
