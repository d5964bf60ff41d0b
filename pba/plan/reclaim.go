package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// takenBack is why a victim is spared from another reclaim.
const takenBack = "it is being taken back already"

// open records a reclaim and lists its acts: the beneficiary first, so that no
// other job takes what its victims leave (R19).
func (s *serving) open(b *job, set *candidate) {
	memory := &s.plan.Memory
	memory.NextID = max(memory.NextID, 1)
	r := Reclaim{
		ID: memory.NextID, Beneficiary: b.ID, Pool: b.pool.ID, Project: b.Project, User: b.User, Need: set.need,
		Hosts: set.hosts, Phase: Planned, Why: "its acts are intended", Planned: s.now,
	}
	memory.NextID++
	reason := fmt.Sprintf("waited %s of %s for slots of %s", b.mem.Clock.Round(time.Second), s.threshold(b), describe(b.pool.Allocation))
	for _, j := range set.victims {
		r.Victims = append(r.Victims, Victim{ID: j.ID, Project: j.of.project, User: j.User, Started: j.Started, Slots: j.Slots, Mode: j.preempt, RanFor: j.unsaved(s.now), Save: j.saves.Wait})
		j.of.lost++
		s.taken[b.pool.ID] += j.Slots
	}
	if b.standby {
		r.User = "" // no user waits for it
		reason = "a slot of " + describe(b.pool.Allocation) + " is kept free for its next jobs"
	}
	s.cut += set.cut
	s.prepareBeneficiary(b, &r, reason)
	for _, j := range set.victims {
		s.preemptVictim(j, b, &r)
	}
	s.dropVictims(set.victims)
	s.yield(set.hosts)
	s.nominateFreed(b, set)
	if set.excess > 0 {
		s.waiting.more = true
	}
	b.nominated = set.hosts
	b.reclaim = &r
	memory.Reclaims = append(memory.Reclaims, r)
}

// prepareBeneficiary raises the beneficiary to the head of the queue and binds it to its slots' hosts.
func (s *serving) prepareBeneficiary(b *job, r *Reclaim, reason string) {
	at := s.raiseStage(b, r)
	s.reserveFor(b, r, at)     // first: at each of the next steps the queue may start other jobs in slots that are not reserved
	s.pin(b, r, at, comesFree) // next: at its new level it may start anywhere, in slots that others reserve, too
	level := backends.At(backends.LevelHandOver, s.value(b)+bandBonus(backends.LevelHandOver)+s.aheadBy(b, r.Hosts))
	now := b.computed // not b.Priority: rank may have changed it in this very plan
	if b.lowered != "" {
		now = b.Priority
	}
	if level != now {
		s.acts.add(at, Action{Verb: Rank, Job: b.ID, For: b.ID, Reclaim: r.ID, Priority: level, Reason: reason})
		s.write(b, level, "slots are taken back for it")
	}
}

// raiseStage returns the stage in which the beneficiary's priority is raised: before its
// victims' acts; if it needs what is free as well, before jobs that could start there are raised,
// lowered or released: slots, the rest of an exclusive job's hosts, or resources. If it
// needs nothing that is free it is not raised so early: it could start in slots nominated
// for others.
func (s *serving) raiseStage(b *job, r *Reclaim) stage {
	switch {
	case r.Need >= b.Slots && !b.Exclusive && len(b.Needs) == 0:
		return stagePreempt
	case s.moves(b):
		return stageReserve // after its move
	}
	s.acts.drop(stageRank, Rank, b.ID) // stageFirst sets a higher priority
	return stageFirst
}

// reserveFor reserves a reclaim's hosts for its beneficiary, for as long as the
// reclaim may take. Its victims don't leave at one instant, and a queue passes over
// what does not fit: else a lower job takes what the first one leaves (R19).
func (s *serving) reserveFor(b *job, r *Reclaim, at stage) {
	if s.state.Abilities.Reserve == nil || b.State == backends.Suspended || s.small(b) && len(r.Victims) == 1 {
		return
	}
	b.reserving = true
	b.mem.Reserved, b.mem.ReservedUntil = names(r.Hosts), s.now.Add(r.Saving()+s.policy.FreeTimeout+s.policy.HandOverTimeout)
	s.acts.add(at, Action{
		Verb: Reserve, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: b.mem.Reserved, Until: b.mem.ReservedUntil,
		Reason: "slots that come free there are reserved for it until it has all of them",
	})
}

// comesFree is why a beneficiary is pinned.
const comesFree = "its slots come free there"

// pin binds the beneficiary to where its slots come free, if the queue can. The job must
// run even if the engine is gone for good, whatever becomes of that host (R21): the pin
// ends by itself, and is renewed, if the queue can do that; else there is none if the
// beneficiary is put straight into its slots. A heavy job whose dummies are in place is
// pinned beside them, and for good: elsewhere its memory is not free.
func (s *serving) pin(b *job, r *Reclaim, at stage, reason string) {
	able := &s.state.Abilities
	if able.Pin == nil || b.standby || b.State == backends.Suspended || s.startsSoon(b) || able.Start != nil && !able.PinEnds && s.dummies.Unit(b.ID) == nil {
		return
	}
	ends := time.Time{}
	if able.PinEnds {
		ends = s.now.Add(s.policy.HoldLimit)
	}
	var shares []int // more on one host and less on another would take another job's slots
	if len(r.Hosts) > 1 && s.state.Abilities.PinShares {
		for _, p := range r.Hosts {
			shares = append(shares, p.Slots)
		}
	}
	lasts := b.PinEnds.IsZero() == ends.IsZero() && !b.PinEnds.Before(ends.Add(-s.policy.HoldLimit/2))
	same := sameHosts(b.Pinned, names(r.Hosts)) && len(b.Shares) == 0
	if len(shares) > 0 {
		same = slices.Equal(b.Pinned, names(r.Hosts)) && slices.Equal(b.Shares, shares)
	}
	if same && lasts {
		return
	}
	s.acts.add(at, Action{Verb: PinTo, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: names(r.Hosts), Slots: shares, Until: ends, Reason: reason})
}

// repeatOpen lists once more what open reclaims still have to do: acts that a cycle
// intended and could not do, and pins that are missing or about to end.
func (s *serving) repeatOpen() {
	for i := range s.plan.Memory.Reclaims {
		r := &s.plan.Memory.Reclaims[i]
		b := s.byID[r.Beneficiary]
		if !r.Phase.Open() || b == nil {
			continue
		}
		s.pin(b, r, stagePreempt, comesFree)
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := s.byID[victim.ID]
			if victim.Fate != Intended || j == nil {
				continue
			}
			if j.spared != "" {
				victim.Fate = Spared
				s.end(r, Cancelled, fmt.Sprintf("%s can't be taken back any more: %s", j.ID, j.spared))
				b.reclaim = nil
				break
			}
			victim.Save = j.saves.Wait
			s.preemptVictim(j, b, r)
			s.spare(j, takenBack)
			s.repeated = append(s.repeated, victim)
		}
	}
}

// preemptVictim lists the acts on one victim, with the notice for its owner (R23).
func (s *serving) preemptVictim(j, b *job, r *Reclaim) {
	act := Action{
		Verb: Requeue, Job: j.ID, For: b.ID, Reclaim: r.ID, Hosts: names(j.Hosts), Started: j.Started,
		Until: s.now.Add(s.policy.HoldLimit), Mark: r.Mark(), Grace: s.policy.GracePeriod,
		Reason: fmt.Sprintf("%s; %s needs %s", s.whyLeastValued(j), b.ID, slotCount(b.Slots)),
	}
	done := "requeued"
	switch {
	case j.preempt == backends.PreemptSuspend:
		act.Verb, act.Grace, done = Suspend, 0, "suspended"
	case j.saves.OnDemand():
		act.Grace, act.Save, done = 0, j.saves, fmt.Sprintf("asked to save itself within %v and requeued", j.saves.Wait)
	}
	act.Notice = fmt.Sprintf("%s for %s by pba at %s: pba explain %s", done, backends.JoinProject(b.Project, b.Step), s.now.Format("15:04"), j.ID)
	s.acts.add(stagePreempt, act)
	s.dropDummies(j, b, r)
	j.mem.Written, j.mem.WrittenAt = s.preemptedPriority(j), s.now
	s.acts.add(stagePreempt, Action{Verb: Rank, Job: j.ID, For: b.ID, Reclaim: r.ID, Priority: j.mem.Written, Reason: "it goes before other normal jobs when it may start again"})
}

// preemptedPriority returns a victim's priority once it is back in the queue: with its bonus
// for one more reclaim, up to max_requeues of them (R10, R11). What a requeue loses is not
// known yet.
func (s *serving) preemptedPriority(j *job) backends.Priority {
	value := s.value(j)
	if j.mem.Requeues < s.policy.MaxRequeues {
		value += requeueBonus
	}
	if j.preempt == backends.PreemptSuspend {
		value += backends.GaveWay
	}
	return backends.At(backends.LevelVictim, value)
}

// whyLeastValued returns in a few words what made a job the least valued.
func (s *serving) whyLeastValued(j *job) string {
	first := ""
	if j.low {
		first = "it failed a test of the submit filter, "
	}
	return fmt.Sprintf("least valued: %s%s runs %s beyond its guarantee, %s is lost, started %s ago",
		first, j.of.account, slotCount(j.of.over), workText(j.lost), s.now.Sub(j.Started).Round(time.Second))
}

// workText writes an amount of work, in slot-seconds.
func workText(lost float64) string {
	switch {
	case lost <= 0:
		return "no work"
	case lost < 3600:
		return fmt.Sprintf("work of %.0f slot-seconds", lost)
	}
	return fmt.Sprintf("work of %.1f slot-hours", lost/3600)
}

func slotCount(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}

func names(hosts []backends.Placement) []string {
	var all []string
	for _, p := range hosts {
		all = append(all, p.Host)
	}
	return all
}

func onAny(placements []backends.Placement, hosts []string) bool {
	return slices.ContainsFunc(placements, func(p backends.Placement) bool { return slices.Contains(hosts, p.Host) })
}

// dropVictims keeps jobs that are being preempted out of later choices, and the jobs
// of accounts that may lose no more.
func (s *serving) dropVictims(victims []*job) {
	for _, j := range victims {
		s.spare(j, takenBack)
		why := s.hourlyCapReason(j)
		if why == "" {
			continue
		}
		for _, other := range j.of.losers {
			if other.spared == "" {
				s.spare(other, why)
			}
		}
	}
}

// nominateFreed counts what the victims will leave as free, and what the beneficiary will
// use as nominated.
func (s *serving) nominateFreed(b *job, set *candidate) {
	for _, j := range set.victims {
		s.vacate(j)
	}
	s.nominate(b, set.hosts)
}
