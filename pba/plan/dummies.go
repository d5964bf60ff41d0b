package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/dummy"
)

// planDummies decides, before all other rules, which dummy jobs should exist (R28–R31):
// the others see a heavy job and its dummies as one.
func planDummies(state State, policy Policy, now time.Time) *dummy.Result {
	rules := policy.Dummies
	rules.Cycle, rules.HoldLimit, rules.Queues, rules.Hosts = policy.Cycle, policy.HoldLimit, policy.Queues, policy.Hosts
	if len(policy.Queues) > 0 && policy.LowQueue != "" {
		rules.Queues = append(slices.Clone(policy.Queues), policy.LowQueue)
	}
	in := dummy.Input{
		Farm: state.Farm, Able: state.Abilities, Memory: state.Memory.Dummies,
		ReclaimHosts: map[backends.ID]string{}, Barred: map[backends.ID]bool{}, OfPool: ofPool(&state.Memory, &policy),
	}
	for i := range state.Memory.Reclaims {
		r := &state.Memory.Reclaims[i]
		if !r.Phase.Open() {
			continue
		}
		if len(r.Hosts) == 1 {
			in.ReclaimHosts[r.Beneficiary] = r.Hosts[0].Host
		}
		for _, victim := range r.Victims {
			in.Barred[victim.ID] = true
		}
	}
	return dummy.Plan(in, rules, now)
}

// ofPool returns a function that reports whether a job that holds room in a pool may gather
// on a host: one of the pool's. nil: there are no host sets.
func ofPool(memory *Memory, policy *Policy) func(id backends.ID, host string) bool {
	if len(policy.HostSets) == 0 {
		return nil
	}
	setOf := map[string]string{}
	for _, set := range policy.HostSets {
		for _, host := range set.Hosts {
			setOf[host] = set.Name
		}
	}
	setOfPool := map[int64]string{}
	for _, a := range policy.Allocations {
		setOfPool[a.ID] = a.Hosts
	}
	return func(id backends.ID, host string) bool {
		set, inForce := setOfPool[memory.Jobs[id].Pool]
		return !inForce || setOf[host] == set
	}
}

// startsSoon reports whether a heavy job waits for its own slots only. Its dummies
// keep theirs meanwhile.
func (f *farm) startsSoon(j *job) bool {
	u := f.dummies.Unit(j.ID)
	return u != nil && u.Stage == dummy.Ready
}

// dropDummies ends a victim's dummies together with it. With a grace period the victim
// uses its memory until it ends: then a later cycle ends the dummies.
func (f *farm) dropDummies(j, b *job, r *Reclaim) {
	u := f.dummies.Unit(j.ID)
	if u == nil || len(u.All) == 0 || f.policy.GracePeriod > 0 {
		return
	}
	f.acts.add(stagePreempt, Action{
		Verb: Drop, Job: j.ID, For: b.ID, Reclaim: r.ID, Hosts: []string{u.Host}, Dummies: u.All,
		Reason: "its dummies go with it",
	})
}

// withDummies adds what is to be done about dummy jobs to the actions of a plan.
func (s *serving) withDummies(actions []Action) []Action {
	pooled := map[backends.ID]bool{}
	if len(s.dummies.Units) > 0 {
		for _, j := range s.resting {
			if j.pool != nil {
				pooled[j.ID] = true
			}
		}
	}
	steps := s.dummies.Finish(pooled, s.gatheringInTheWay())
	s.plan.Memory.Dummies = steps.Memory
	first, last := steps.First, steps.Last
	if len(first)+len(last) == 0 {
		return actions
	}
	all := make([]Action, 0, len(first)+len(actions)+len(last))
	dropped := map[backends.ID]bool{} // victims whose dummies go with them
	for i := range actions {
		if actions[i].Verb == Drop {
			dropped[actions[i].Job] = true
		}
	}
	for _, t := range first {
		all = append(all, s.stepAction(t))
	}
	// Dummies that a running heavy job lacks, or a PBA job gathers, are placed before
	// another job is released that could start there.
	early := func(t dummy.Step) bool { return t.Do == dummy.Place && t.Priority.Level() >= backends.LevelPBA }
	last = slices.DeleteFunc(slices.Clone(last), func(t dummy.Step) bool { return dropped[t.Job] || dropped[t.For] })
	for _, t := range last {
		if early(t) {
			all = append(all, s.stepAction(t))
		}
	}
	all = append(all, actions...)
	for _, t := range last {
		if !early(t) {
			all = append(all, s.stepAction(t))
		}
	}
	return all
}

func (f *farm) stepAction(s dummy.Step) Action {
	a := Action{Verb: Verb(s.Do), Job: s.Job, Priority: s.Priority, Until: s.Until, Dummies: s.Dummies, Reason: s.Reason}
	if s.Host != "" {
		a.Hosts = []string{s.Host}
	}
	if s.Do == dummy.Place {
		a.Slots, a.Limit = []int{s.Count}, f.policy.Dummies.Limit
	}
	return a
}

// gatheringInTheWay returns the hosts where PBA jobs are about to start in slots that they
// find nowhere else, and how many slots each job lacks there: dummies that gather may hold
// them. Heavy jobs are left out: their own dummies hold their slots.
func (f *farm) gatheringInTheWay() []dummy.Demand {
	if !slices.ContainsFunc(f.dummies.Units, gathers) {
		return nil
	}
	free, heavy := f.freeNow(), map[backends.ID]*job{}
	for _, j := range f.resting {
		if f.dummies.Unit(j.ID) != nil {
			heavy[j.ID] = j
		}
	}
	var demands []dummy.Demand
	for _, j := range f.resting {
		if j.standby || !j.pba() || !j.waiting() || heavy[j.ID] != nil {
			continue
		}
		at := j.nominated
		if at == nil && j.reclaim != nil && j.reclaim.Phase.Open() {
			at = j.reclaim.Hosts
		}
		if j.reclaim == nil && f.useFree(free, j) {
			continue
		}
		before := func(u *dummy.Unit) bool { return u.Normal || beforeInQueue(j, heavy[u.Job]) < 0 }
		for _, p := range at {
			h := free.byName[p.Host]
			if h == nil || p.Slots == 0 { // kept for what it needs beside slots
				continue
			}
			slots := h.slotsFor(j, p)
			lacking := max(slots-h.free, 0)
			h.assign(j, p, slots)
			h.free = max(h.free, 0)
			demands = append(demands, dummy.Demand{Host: p.Host, Lacking: lacking, Before: before})
		}
	}
	return demands
}

// gathers reports whether a heavy job has, or waits for, dummies before it starts.
func gathers(u *dummy.Unit) bool { return u.Stage == dummy.Gathers || u.Stage == dummy.Ready }

// useFree takes slots for a job, and what it needs with them, out of what is free, and
// reports whether there is enough.
func (f *farm) useFree(free *occupancy, j *job) bool {
	return f.placeIn(free, j) != nil
}

// freeNow returns the hosts with what no job has of them. Dummies that gather have their
// slots; what a job is about to leave counts as free.
func (f *farm) freeNow() *occupancy {
	free := newOccupancy(f.state.Farm, f.policy.Hosts)
	for _, j := range f.jobs {
		if !j.leaving && !j.Ending && !f.isVictim(j) {
			free.occupy(j, f.state.Abilities.SuspendFrees)
		}
	}
	for _, u := range f.dummies.Units {
		if h := free.byName[u.Host]; h != nil && gathers(u) {
			h.free -= len(u.Dummies)
		}
	}
	return &free
}

// isVictim reports whether this plan, or an open reclaim, intends to preempt a job.
func (f *farm) isVictim(j *job) bool {
	for i := range f.plan.Memory.Reclaims {
		r := &f.plan.Memory.Reclaims[i]
		if r.Phase.Open() && slices.ContainsFunc(r.Victims, func(victim Victim) bool {
			return victim.ID == j.ID && victim.Fate == Intended
		}) {
			return true
		}
	}
	return false
}

// heavyStatus returns the status of each heavy job.
func (f *farm) heavyStatus() []HeavyStatus {
	var all []HeavyStatus
	for _, u := range f.dummies.Units {
		gathers := u.Stage == dummy.Gathers || u.Stage == dummy.Ready || u.Host == "" // else it runs, or is suspended
		all = append(all, HeavyStatus{Job: u.Job, Host: u.Host, Need: u.Slots, Dummies: len(u.Dummies), Gathers: gathers})
	}
	return all
}

// explainDummies describes the dummies of a heavy job, and for a light job whose
// dummy's slot it has; "" for every other.
func (f *farm) explainDummies(id backends.ID) string {
	if whose, ok := f.dummies.Lights[id]; ok {
		return fmt.Sprintf("runs on the slot of a dummy job of job %v, which leaves it enough", whose)
	}
	u := f.dummies.Unit(id)
	if u == nil {
		return ""
	}
	switch u.Stage {
	case dummy.Gathers:
		return fmt.Sprintf("gathers %s on %s: %d held", slotCount(u.Slots), u.Host, len(u.Dummies))
	case dummy.Ready:
		return fmt.Sprintf("has gathered its %s on %s, and starts there", slotCount(u.Slots), u.Host)
	case dummy.Runs:
		return fmt.Sprintf("needs that of %s on %s: %d held beside its own %d", slotCount(u.Slots), u.Host, len(u.Dummies), u.Own)
	case dummy.Waits:
	}
	if u.Why == "" {
		return fmt.Sprintf("needs that of %s on one host", slotCount(u.Slots))
	}
	return fmt.Sprintf("needs that of %s on one host, and gathers none yet: %s", slotCount(u.Slots), u.Why)
}
