package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Make decides one cycle. It is a pure function: the same state, policy and time
// give the same plan, and nothing that it is given is changed.
func Make(state State, policy Policy, now time.Time) Plan {
	v := decide(state, policy, now)
	return v.plan
}

// decide is the whole story of a cycle's decisions, in order.
func decide(state State, policy Policy, now time.Time) *view {
	stuck := Stuck(state.Farm, policy.HoldLimit, now) // heavy ones too, whose holds the next step hides
	dummies := dummiesOf(state, policy, now)
	state.Farm = dummies.Farm
	v := newView(state, policy, dummies, now)
	v.plan.At = now
	v.plan.Memory = state.Memory
	v.plan.Memory.Reclaims = slices.Clone(state.Memory.Reclaims)

	v.observe()   // what became of earlier acts
	v.believe()   // what of their places they were given
	v.charge()    // who has a place in a pool
	v.clock()     // how long those waited
	v.advance()   // the open reclaims
	v.rank()      // the order in the queue
	v.takeBack()  // the new reclaims
	v.handOver()  // what open ones have freed
	v.lower()     // what ended ones leave
	v.unpin()     //
	v.release()   //
	v.unreserve() //
	v.plan.Actions = v.withDummies(slices.Concat(slices.Concat(v.acts[:]...)...))

	v.status()
	v.warnOfStuck(stuck)
	v.plan.Heavy = v.heavy()
	v.remember()
	return v
}

// clock counts the time that PBA jobs waited (R14): from the first cycle that saw
// them so, and not through times without cycles.
func (v *view) clock() {
	for _, j := range v.jobs {
		if !j.pba() || j.State == backends.Running || !j.waiting() {
			if !j.mem.ClockSeen.IsZero() {
				j.mem.ClockSeen = time.Time{}
			}
			if j.mem.Clock != 0 && (j.State == backends.Running || !j.entitled) {
				j.mem.Clock = 0
			}
			continue
		}
		if gap := v.now.Sub(j.mem.ClockSeen); !j.mem.ClockSeen.IsZero() && gap > 0 && gap <= 2*v.policy.Cycle {
			j.mem.Clock += gap
		}
		j.mem.ClockSeen = v.now
	}
}

// remember hands on what the next cycle needs, and nothing of jobs that are gone.
func (v *view) remember() {
	memory := &v.plan.Memory
	memory.LastCycle = v.now
	memory.Dummies = v.dummies.Memory
	memory.Jobs = make(map[backends.ID]JobMemory, len(v.state.Memory.Jobs))
	for _, j := range v.jobs {
		m := &j.mem
		switch {
		case j.pool == nil && m.Pool == 0 && m.Kept == 0 && m.Entered.IsZero():
		case j.pool == nil:
			m.Pool, m.Entered, m.Kept = 0, time.Time{}, 0
		case m.Pool == 0 || m.Entered.IsZero():
			m.Pool, m.Entered = j.pool.ID, v.now
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
	v.rememberEnds()
	v.forget()
}

func (m *JobMemory) empty() bool {
	return m.Pool == 0 && m.Clock == 0 && m.Requeues == 0 && m.Expired == 0 && m.WrittenAt.IsZero() && len(m.Reserved) == 0
}

// rememberEnds keeps the run times of each pool's last 30 ended jobs (R12).
func (v *view) rememberEnds() {
	const kept = 30
	memory := &v.plan.Memory
	memory.Throughput = v.throughputs
	ended := slices.Clone(v.state.Farm.Ended)
	slices.SortFunc(ended, func(a, b backends.Job) int {
		if c := a.Ended.Compare(b.Ended); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	})
	if len(ended) == 0 {
		memory.EndedSince = v.state.Farm.At
		return
	}
	memory.RunTimes = maps.Clone(memory.RunTimes)
	if memory.RunTimes == nil {
		memory.RunTimes = map[string][]RunEnd{}
	}
	entitle := newEntitler(v)
	for i := range ended {
		j := &ended[i]
		ran := j.RanFor + j.Ended.Sub(j.Started)
		if j.Started.IsZero() || ran < 0 {
			continue
		}
		pools := entitle.verdict(j).pools
		for _, p := range pools {
			ends := memory.RunTimes[p.Key()]
			if slices.ContainsFunc(ends, func(e RunEnd) bool { return e.ID == j.ID }) {
				continue
			}
			ends = append(slices.Clone(ends), RunEnd{ID: j.ID, Ran: ran})
			memory.RunTimes[p.Key()] = ends[max(0, len(ends)-kept):]
			if own := v.state.Memory.Jobs[j.ID].Pool; own == p.ID || own == 0 && p == pools[0] {
				v.finish(p, j)
			}
		}
	}
	memory.EndedSince = v.state.Farm.At
}

// status sums up how the pools and the farm stand (R22).
func (v *view) status() {
	f := &v.plan.Farm
	f.Slots, f.Down = v.slots, v.down
	for _, j := range v.jobs {
		v.addToFarm(j, f)
	}
	for _, p := range v.pools {
		s := PoolStatus{Allocation: p.Allocation, Waiting: p.waiting, Below: p.room > 0}
		for _, j := range p.members {
			if j.State == backends.Running {
				s.Charged += j.Slots
			} else {
				s.Held += j.Slots
			}
		}
		if p.head != nil {
			s.Held += p.head.mem.Kept
		}
		f.Guaranteed += p.Guarantee
		f.Unmet += s.Held
		v.plan.Pools = append(v.plan.Pools, s)
	}
	for p, slots := range v.over {
		v.plan.Beyond = append(v.plan.Beyond, Beyond{Project: p.project, User: p.user, Slots: slots})
	}
	slices.SortFunc(v.plan.Beyond, func(a, b Beyond) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	f.LowerThem = float64(f.Unpreemptable) > v.policy.UnpreemptableShare*float64(v.slots)
	if f.TakeBack+f.Slots-f.Running < f.Unmet {
		v.warn("guaranteed %d, can be taken back now %d, but %d are waited for", f.Guaranteed, f.TakeBack, f.Unmet)
	}
	if f.LowerThem {
		v.warn("normal jobs that can't be taken back hold %d slots, more than unpreemptable.max_share of the farm (%.0f %% of %d): the filter lowers further ones",
			f.Unpreemptable, 100*v.policy.UnpreemptableShare, v.slots)
	}
	if v.down > 0 {
		v.warn("%s of managed hosts are down or closed", slotCount(v.down))
	}
}

func (v *view) addToFarm(j *job, f *FarmStatus) {
	if j.State != backends.Running && j.State != backends.Suspended {
		return
	}
	on := 0
	for _, p := range j.Hosts {
		if v.byName[p.Host] != nil {
			on += p.Slots
		}
	}
	switch {
	case j.State == backends.Suspended:
		f.Suspended += on
	case j.pba():
		f.Running += on
		f.PBA += on
	default:
		f.Running += on
		f.Normal += on
		if j.spared == "" {
			f.TakeBack += on
		}
		if j.managed && (j.NoRequeue && j.preempt == backends.PreemptRequeue || j.Interactive || j.Exclusive) {
			f.Unpreemptable += on
		}
	}
}

func (v *view) warn(format string, args ...any) {
	v.plan.Warnings = append(v.plan.Warnings, fmt.Sprintf(format, args...))
}

// describe names an allocation as people know it: chipA, chipA:synthesis, chipA
// (bob).
func describe(a Allocation) string {
	name := backends.JoinProject(a.Project, a.Step)
	if a.User != "" {
		name += " (" + a.User + ")"
	}
	return name
}
