package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// maxExpired is after how many expired reclaims a beneficiary only reports why
// (R19).
const maxExpired = 2

// takeBack serves those whose clock has passed the threshold: by what is free or
// on its way, else by taking back exactly the need (R14, R15).
func (v *view) takeBack() {
	v.promiseOpen()
	v.again()
	waiting := v.unserved()
	waiting.promiseFree()
	served := v.servedJustNow()
	turns := waiting.beneficiaries()
	for len(turns) > 0 {
		for _, b := range turns {
			if b.promised != nil {
				b.turn = true
				v.reserveOn(b, names(b.promised), "what is free there, or on its way, is kept for it until all of it is")
				v.skip(b.ID, "slots that are free, or on their way, suit it; the queue will start it")
				continue
			}
			if v.serve(b, &served) {
				waiting.promiseFree()
			}
		}
		turns = v.outbidden() // by who ranks above them: it comes to an end
	}
}

// outbidden are those who lost, after their turn, what was promised to them. They have
// another one.
func (v *view) outbidden() []*job {
	lost := slices.DeleteFunc(v.outbids, func(b *job) bool { return b.promised != nil })
	v.outbids = nil
	for _, b := range lost {
		v.plan.Skipped = slices.DeleteFunc(v.plan.Skipped, func(s Skipped) bool { return s.Job == b.ID })
	}
	return lost
}

// due allows a twentieth of a cycle: cycles don't come to the millisecond, and a
// beneficiary must not wait a whole one for a rounding.
func (v *view) due(j *job) bool {
	return j.mem.Clock+v.policy.Cycle/20 >= v.policy.PendingThreshold
}

// promiseOpen counts what is on its way as free, and sets aside what open
// reclaims have freed, or are about to, for their beneficiaries. Victims that a
// closed reclaim left on their way out leave their slots to whom they suit, and
// so do jobs that somebody else told to end.
func (v *view) promiseOpen() {
	for _, j := range v.jobs {
		if j.leaving || j.Ending {
			v.leaves(j)
		}
	}
	for i := range v.plan.Memory.Reclaims {
		r := &v.plan.Memory.Reclaims[i]
		b := v.byID[r.Beneficiary]
		if !r.Phase.Open() || b == nil {
			continue
		}
		for _, victim := range r.Victims {
			if j := v.byID[victim.ID]; j != nil && victim.Fate == Intended && !j.leaving && !j.Ending {
				v.leaves(j)
			}
		}
		for _, p := range r.Hosts {
			if h := v.byName[p.Host]; h != nil {
				v.promise(b, []backends.Placement{p})
			}
		}
	}
}

// leaves books what a job will leave that is being taken back.
func (v *view) leaves(j *job) {
	for _, p := range j.Hosts {
		h := v.byName[p.Host]
		if h == nil {
			continue
		}
		h.free += p.Slots
		v.give(h)
		if j.Ending || j.preempt != backends.PreemptSuspend {
			h.freeMem += j.perSlot * int64(p.Slots)
		}
	}
}

func (v *view) promise(j *job, hosts []backends.Placement) {
	for _, p := range hosts {
		h := v.byName[p.Host]
		h.free -= p.Slots
		if j.Exclusive {
			h.free = min(h.free, 0)
		}
		v.touch(h)
		h.freeMem -= j.memoryFor(p)
	}
}

// memoryFor is what a job takes of a host's free memory with these slots. A suspended
// one holds its own all the time.
func (j *job) memoryFor(p backends.Placement) int64 {
	if j.State == backends.Suspended {
		return 0
	}
	return j.perSlot * int64(p.Slots)
}

// unpromise undoes promise.
func (v *view) unpromise(j *job, hosts []backends.Placement) {
	for _, p := range hosts {
		h := v.byName[p.Host]
		h.free += p.Slots
		h.freeMem += j.memoryFor(p)
		v.give(h)
	}
	if len(hosts) > 0 {
		v.moved++
	}
}

// yielding is a host as it would be if those whose turn has not come gave back what
// is set aside for them.
func (h *host) yielding() *host {
	if h.soft == 0 {
		return h
	}
	after := *h
	after.free += h.soft
	after.freeMem += h.softMem
	return &after
}

// fits is how many of a job's slots a host has free, memory included.
func (h *host) fits(j *job) int {
	n := max(h.free, 0)
	if j.Exclusive && h.free < h.Slots {
		return 0
	}
	if m := j.perSlot; m > 0 && h.Memory > 0 && j.State != backends.Suspended {
		n = min(n, int(max(h.freeMem, 0)/m))
	}
	return n
}

func (j *job) oneHost() bool { return j.OneHost || j.Slots == 1 }

// suitable lists the managed hosts that a job may run on at all, by name. A
// suspended one runs on its own.
func (v *view) suitable(j *job) []*host {
	on := j.Asked
	if j.State == backends.Suspended {
		on = names(j.Hosts)
	}
	if len(on) == 0 {
		return v.hosts
	}
	var hosts []*host
	for _, name := range on {
		if h := v.byName[name]; h != nil {
			hosts = append(hosts, h)
		}
	}
	slices.SortFunc(hosts, func(a, b *host) int { return a.at - b.at })
	return slices.Compact(hosts)
}

// serve opens a reclaim for one beneficiary if that is due, allowed and possible
// in full. It reports whether free slots are to be given out anew: what its victims
// leave beyond its need, or what it took from those who rank below it.
func (v *view) serve(b *job, sofar *served) bool {
	switch {
	case b.mem.Expired >= maxExpired:
		v.skip(b.ID, fmt.Sprintf("%d reclaims for it expired; see why with pba explain %s", b.mem.Expired, b.ID))
		return false
	case v.now.Before(b.mem.Backoff):
		v.skip(b.ID, "its last reclaim expired; the next not before "+b.mem.Backoff.Format("15:04:05"))
		return false
	case v.choicesFor(b).alone:
		v.skip(b.ID, "it wants hosts for itself: none is emptied for it")
		return false
	}
	v.giveBack(b)
	b.turn = true
	if b.promised = v.room(b); b.promised != nil {
		v.promise(b, b.promised)
		v.reserveOn(b, names(b.promised), "what others leave there is kept for it until all of it is free")
		v.skip(b.ID, "slots that come free for others suit it too")
		return false
	}
	set := v.withinCaps(b)
	if set == nil {
		hosts := v.reservable(b)
		if v.outbid(b, hosts) {
			v.serve(b, sofar) // the next plan, which sees its reservation, would begin with that
			return true
		}
		v.skip(b.ID, v.whyNone(b))
		v.reserve(b, hosts)
		return false
	}
	if limit := v.cycleCap(); sofar.first && sofar.victims+len(set.victims) > limit {
		v.skip(b.ID, fmt.Sprintf("put off to the next cycle: %d + %d jobs would be more than max_victims (%d)", sofar.victims, len(set.victims), limit))
		hosts := v.reservable(b)
		outbid := v.outbid(b, hosts)
		v.reserve(b, hosts)
		return outbid
	}
	sofar.add(len(set.victims))
	v.open(b, set)
	return true
}

// served is what one cycle has taken back so far (R22).
type served struct {
	first   bool // the first beneficiary had its slots: its victims don't count
	victims int  // of those after it
}

func (s *served) add(victims int) {
	if s.first {
		s.victims += victims
	}
	s.first = true
}

// withinCaps chooses a set whose members' parties lose no more jobs than R22 allows
// them together. Where the best set takes too much from one, the most valued
// member of it is left out, and the choice made anew.
func (v *view) withinCaps(b *job) *candidate {
	for {
		set := v.chooseSet(b)
		if set == nil {
			return nil
		}
		over := v.overCap(set)
		if over == nil {
			return set
		}
		v.spare(over, fmt.Sprintf("%s would lose more than max_victims_per_project within an hour", over.party()))
	}
}

func (v *view) overCap(set *candidate) *job {
	taken := make(map[party]int, 1)
	for _, j := range set.victims {
		who := j.party()
		if taken[who]++; v.lost[who]+taken[who] > v.hourlyCap(who) {
			return j
		}
	}
	return nil
}

// spare takes a job out of the choice for the rest of this plan.
func (v *view) spare(j *job, why string) {
	j.spared = why
	for _, p := range j.Hosts {
		if h := v.byName[p.Host]; h != nil {
			h.victims = slices.DeleteFunc(h.victims, func(it item) bool { return it.job == j })
			v.touch(h)
		}
	}
}

// servedJustNow is what cycles that ran within the last three quarters of a period
// took back already: caps count by time, however often somebody runs a cycle.
func (v *view) servedJustNow() served {
	var sofar served
	for i := range v.state.Memory.Reclaims {
		if r := &v.state.Memory.Reclaims[i]; v.now.Sub(r.Planned) < v.policy.Cycle*3/4 {
			sofar.add(len(r.Victims))
		}
	}
	return sofar
}

// again lists once more what open reclaims still have to do: acts that a cycle
// intended and could not do, and pins that are not there.
func (v *view) again() {
	for i := range v.plan.Memory.Reclaims {
		r := &v.plan.Memory.Reclaims[i]
		b := v.byID[r.Beneficiary]
		if !r.Phase.Open() || b == nil {
			continue
		}
		v.pin(b, r, stageTake)
		for k := range r.Victims {
			victim := &r.Victims[k]
			j := v.byID[victim.ID]
			if victim.Fate != Intended || j == nil {
				continue
			}
			if j.spared != "" {
				victim.Fate = Spared
				v.end(r, Cancelled, fmt.Sprintf("%s can't be taken back any more: %s", j.ID, j.spared))
				b.reclaim = nil
				break
			}
			v.take(j, b, r)
			v.spare(j, "it is being taken back already")
		}
	}
}

// cycleCap is how many jobs one cycle may take back after its first beneficiary
// (R22).
func (v *view) cycleCap() int {
	return max(v.policy.MaxVictims, int(math.Ceil(0.05*float64(v.slots))))
}

// chooseSet finds the best set of victims for a beneficiary on one host, or over
// the whole farm for one that may span hosts.
func (v *view) chooseSet(b *job) *candidate {
	at := v.choicesFor(b)
	if !at.oneHost && b.State != backends.Suspended {
		return v.chooseSpan(b)
	}
	if b.State == backends.Suspended && len(b.Hosts) != 1 {
		return nil
	}
	return at.best(v, b)
}

// contested tells whether slots that are taken back on a host could go to another
// than whom they are taken back for: who reserves it starts in what is free there, and
// who was promised more than there is stands first.
func (h *host) contested() bool { return h.aside > 0 || h.free < 0 }

func (v *view) chooseOn(h *host, b *job) *candidate {
	if h.contested() || h.Slots < b.Slots || h.Memory > 0 && h.Memory < b.memory() {
		return nil
	}
	w := want{slots: b.Slots - h.free - h.soft}
	if b.State != backends.Suspended && h.Memory > 0 && b.Memory > 0 {
		w.memory = b.memory() - h.freeMem - h.softMem
	}
	set := choose(h.victims, w)
	if set == nil {
		return nil
	}
	return newCandidate(set, max(w.slots, 0), []backends.Placement{{Host: h.Name, Slots: b.Slots}})
}

func newCandidate(set []*job, need int, hosts []backends.Placement) *candidate {
	c := &candidate{victims: set, hosts: hosts, need: need, excess: -need}
	for _, j := range set {
		c.excess += j.Slots
		c.lost += j.lost
	}
	return c
}

// whyNone says why nobody can be taken back for a beneficiary.
func (v *view) whyNone(b *job) string {
	key := strings.Join(b.Asked, " ")
	if b.State == backends.Suspended {
		key = b.ID.String()
	}
	why, ok := v.reasons[key]
	if !ok {
		why = v.whyNobody(b)
		v.reasons[key] = why
	}
	return fmt.Sprintf("its need of %s can't be met in full, so nobody is touched%s", slotCount(b.Slots), why)
}

// whyNobody sums up what spares the running jobs of the hosts that suit a
// beneficiary: the three reasons that spare most.
func (v *view) whyNobody(b *job) string {
	spared := map[string]int{}
	for _, h := range v.suitable(b) {
		for _, j := range h.running {
			if j.spared != "" {
				spared[j.spared] += slotsOn(j, h.Name)
			}
		}
	}
	reasons := slices.SortedFunc(maps.Keys(spared), func(a, b string) int {
		if c := cmp.Compare(spared[b], spared[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	var text strings.Builder
	for _, why := range reasons[:min(len(reasons), 3)] {
		fmt.Fprintf(&text, "; %s: %s", slotCount(spared[why]), why)
	}
	return text.String()
}

// open records a reclaim and lists its acts: the beneficiary first, so that
// nobody else takes what its victims leave (R19).
func (v *view) open(b *job, set *candidate) {
	memory := &v.plan.Memory
	memory.NextID = max(memory.NextID, 1)
	r := Reclaim{
		ID: memory.NextID, Beneficiary: b.ID, Project: b.Project, User: b.User, Need: set.need,
		Hosts: set.hosts, Phase: Planned, Why: "its acts are intended", Planned: v.now,
	}
	memory.NextID++
	reason := fmt.Sprintf("waited %s of %s for slots of %s", b.mem.Clock.Round(time.Second), v.policy.PendingThreshold, describe(b.pool.Allocation))
	for _, j := range set.victims {
		who := j.party()
		r.Victims = append(r.Victims, Victim{ID: j.ID, Project: who.project, User: j.User, Started: j.Started, Slots: j.Slots, Mode: j.preempt, RanFor: j.ran(v.now)})
		v.lost[who]++
	}
	v.lead(b, &r, reason)
	for _, j := range set.victims {
		v.take(j, b, &r)
	}
	v.dropVictims(set.victims)
	v.yield(set.hosts)
	v.promiseTaken(b, set)
	if set.excess > 0 {
		v.freed++
	}
	b.promised = set.hosts
	b.reclaim = &r
	memory.Reclaims = append(memory.Reclaims, r)
}

// lead puts the beneficiary at the head of the queue and where its slots will be.
func (v *view) lead(b *job, r *Reclaim, reason string) {
	at := v.leadAt(b, r)
	v.keepFor(b, r, at) // first: at each of the next steps the queue gives away what is free and nobody keeps
	v.pin(b, r, at)     // next: at its new level it may go where it likes, past what others reserve
	level := backends.At(backends.LevelHandOver, v.value(b)+2*pbaBonus)
	now := b.computed // not b.Priority: rank may have changed it in this very plan
	if b.lowered != "" {
		now = b.Priority
	}
	if level != now {
		v.actAt(at, Action{Verb: Rank, Job: b.ID, For: b.ID, Reclaim: r.ID, Priority: level, Reason: reason})
		v.write(b, level, "slots are taken back for it")
	}
}

// leadAt is when a beneficiary is led: before its victims go, and before somebody
// lets go what is free where it will run, if it counts on that. If it doesn't, that is
// for whom it is promised to: the beneficiary, standing before them, would start in it.
func (v *view) leadAt(b *job, r *Reclaim) stage {
	if r.Need >= b.Slots {
		return stageTake
	}
	for _, j := range v.lowered {
		if onAny(r.Hosts, j.mem.Reserved) {
			return stageKeep
		}
	}
	return stageTake
}

// keepFor reserves a reclaim's hosts for its beneficiary, for as long as the
// reclaim may take. Its victims don't go at one instant, and a queue passes over
// what does not fit: else a lower job takes what the first one leaves (R19).
func (v *view) keepFor(b *job, r *Reclaim, at stage) {
	if v.state.Abilities.Reserve == nil || b.State == backends.Suspended || v.small(b) && len(r.Victims) == 1 {
		return
	}
	b.reserving = true
	b.mem.Reserved, b.mem.ReservedUntil = names(r.Hosts), v.now.Add(v.policy.FreeTimeout+v.policy.HandOverTimeout)
	v.actAt(at, Action{
		Verb: Reserve, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: b.mem.Reserved, Until: b.mem.ReservedUntil,
		Reason: "what comes free there is kept for it until all of it is",
	})
}

// pin binds the beneficiary to where its slots come free, where the queue can. With the
// engine gone for good it must run all the same, whatever becomes of that host (R21):
// the pin ends by itself, and is renewed, where the queue can do that; else there is
// none where the beneficiary is put straight into its slots.
func (v *view) pin(b *job, r *Reclaim, at stage) {
	able := &v.state.Abilities
	if able.Pin == nil || b.State == backends.Suspended || able.Start != nil && !able.PinEnds && v.dummies.Unit(b.ID) == nil {
		return
	}
	ends := time.Time{}
	if able.PinEnds {
		ends = v.now.Add(v.policy.HoldLimit)
	}
	var shares []int // more on one host and less on another would be somebody else's
	if len(r.Hosts) > 1 && v.state.Abilities.PinShares {
		for _, p := range r.Hosts {
			shares = append(shares, p.Slots)
		}
	}
	lasts := b.PinEnds.IsZero() == ends.IsZero() && !b.PinEnds.Before(ends.Add(-v.policy.HoldLimit/2))
	if slices.Equal(b.Pinned, names(r.Hosts)) && slices.Equal(b.Shares, shares) && lasts {
		return
	}
	v.actAt(at, Action{Verb: PinTo, Job: b.ID, For: b.ID, Reclaim: r.ID, Hosts: names(r.Hosts), Slots: shares, Until: ends, Reason: "its slots come free there"})
}

// take lists the acts on one victim, with the notice for its owner (R23).
func (v *view) take(j, b *job, r *Reclaim) {
	act := Action{
		Verb: Requeue, Job: j.ID, For: b.ID, Reclaim: r.ID, Hosts: names(j.Hosts), Started: j.Started,
		Until: v.now.Add(v.policy.HoldLimit), Mark: r.Mark(), Grace: v.policy.GracePeriod,
		Reason: fmt.Sprintf("%s; %s needs %s", v.why(j), b.ID, slotCount(b.Slots)),
	}
	done := "requeued"
	if j.preempt == backends.PreemptSuspend {
		act.Verb, act.Grace, done = Suspend, 0, "suspended"
	}
	act.Notice = fmt.Sprintf("%s for %s by pba at %s: pba explain %s", done, backends.JoinProject(b.Project, b.Step), v.now.Format("15:04"), j.ID)
	v.act(act)
	v.dropDummies(j, b, r)
	j.mem.Written, j.mem.WrittenAt = v.afterTaking(j), v.now
	v.act(Action{Verb: Rank, Job: j.ID, For: b.ID, Reclaim: r.ID, Priority: j.mem.Written, Reason: "it goes before other normal jobs when it may start again"})
}

// afterTaking is a victim's priority once it is back in the queue: its bonus for
// one more reclaim, up to max_requeues of them (R10, R11).
func (v *view) afterTaking(j *job) backends.Priority {
	value := v.value(j)
	if j.mem.Requeues < v.policy.MaxRequeues {
		value += requeueBonus
	}
	return backends.At(backends.LevelVictim, value)
}

// why says in a few words what made a job the least valued.
func (v *view) why(j *job) string {
	return fmt.Sprintf("least valued: started %s ago, %s runs %s beyond its guarantee",
		v.now.Sub(j.Started).Round(time.Second), j.party(), slotCount(v.over[j.party()]))
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

func onAny(placed []backends.Placement, hosts []string) bool {
	return slices.ContainsFunc(placed, func(p backends.Placement) bool { return slices.Contains(hosts, p.Host) })
}

// dropVictims keeps jobs that are being taken back out of later choices, and
// those whose party has lost all that it may by now.
func (v *view) dropVictims(victims []*job) {
	for _, j := range victims {
		v.spare(j, "it is being taken back already")
		why := v.cappedByParty(j)
		if why == "" {
			continue
		}
		for _, other := range v.losers[j.party()] {
			if other.spared == "" {
				v.spare(other, why)
			}
		}
	}
}

// promiseTaken books what the victims will leave and the beneficiary will take.
func (v *view) promiseTaken(b *job, set *candidate) {
	for _, j := range set.victims {
		v.leaves(j)
	}
	v.promise(b, set.hosts)
}

func (v *view) skip(id backends.ID, reason string) {
	v.plan.Skipped = append(v.plan.Skipped, Skipped{Job: id, Reason: reason})
}
