package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The numbers of R10 and R11.
const (
	pbaBonus     = 100
	requeueBonus = 10
	keptHistory  = 20
)

// What a cycle puts back that others than we raised: as much as half of its time allows,
// and of it the first before slots are taken back, which must not wait for thousands.
const (
	putBackTime  = 10 * time.Millisecond // of one write; 7.6 ms on LSF (lava)
	putBackFirst = 100                   // more than a large farm starts in a cycle; also the least of a cycle
)

func (p *Policy) maxPutBack() int { return max(putBackFirst, int(p.Cycle/2/putBackTime)) }

// ageCap is how much age may add to a priority (R11).
func (p *Policy) ageCap() int {
	return max(0, pbaBonus-1-requeueBonus*p.MaxRequeues)
}

// bonus is what a job's value has gained by our reclaims.
func (v *view) bonus(j *job) int { return requeueBonus * min(j.mem.Requeues, v.policy.MaxRequeues) }

// value is a job's priority within the normal band, whatever band it is in now:
// default, age and its bonuses. The +100 of a band is never part of it (R10).
func (v *view) value(j *job) int {
	return min(ownValue(j.Priority), backends.DefaultValue+v.policy.ageCap()+v.bonus(j))
}

// ownValue is a priority's value without what its band adds.
func ownValue(p backends.Priority) int { return max(p.Value()-bandBonus(p.Level()), 0) }

// bandBonus is what a level's band adds to a value.
func bandBonus(l backends.Level) int {
	switch l {
	case backends.LevelPBA:
		return pbaBonus
	case backends.LevelHandOver:
		return 2 * pbaBonus
	case backends.LevelLow, backends.LevelNormal, backends.LevelVictim, backends.LevelPlaceholder, backends.LevelNext:
	}
	return 0
}

// believe lowers the priorities of this picture to what the rules account for. On some
// queues a job's owner may give it any number, at any time: what is beyond was his wish,
// and counts for nothing, neither in the queue nor in a pool.
func (v *view) believe() {
	for _, j := range v.jobs {
		if j.Priority.Level() <= backends.LevelNormal && j.Priority.Value() <= backends.DefaultValue {
			continue // nobody's claim
		}
		if earned := v.earned(j); earned < j.Priority {
			j.claimed, j.Priority = j.Priority, earned
		}
	}
}

// earned is a job's priority as far as we wrote it, or the queue aged it: at no higher
// level than we wrote last, and with no more than the default, its bonus and its age since.
// A lower one is its owner's right.
func (v *view) earned(j *job) backends.Priority {
	least, most := v.aged(j.Submitted)
	base := backends.DefaultValue + v.bonus(j)
	least, most = base+least, base+most
	top := backends.LevelNormal
	if j.mem.Requeues > 0 {
		top = backends.LevelVictim
	}
	if j.mem.Written != 0 { // of victims, earlier versions lost it
		top = max(top, j.mem.Written.Level())
		base = max(backends.DefaultValue, ownValue(j.mem.Written))
		sinceLeast, sinceMost := v.aged(j.mem.WrittenAt)
		least, most = min(least, base+sinceLeast), min(most, base+sinceMost)
	}
	value := ownValue(j.Priority)
	if value > most {
		value = least
	}
	level := min(j.Priority.Level(), top)
	return backends.At(level, value+bandBonus(level))
}

// aged is how much a priority may have aged by itself since a time, at least and at most:
// the queue and we don't count at the same instant.
func (v *view) aged(since time.Time) (least, most int) {
	interval, most := v.state.Abilities.Ages, min(v.policy.ageCap(), v.state.Abilities.AgeCap)
	switch {
	case interval <= 0:
		return 0, 0
	case since.After(v.now): // a clock was set back
		return 0, most
	}
	ticks := int(v.now.Sub(since) / interval)
	return min(ticks, most), min(ticks+1, most)
}

// level is where a pending job belongs (R11).
func (v *view) level(j *job) backends.Level {
	switch {
	case j.reclaim != nil && j.reclaim.Phase.Open():
		return backends.LevelHandOver
	case j.pba():
		return backends.LevelPBA
	case j.next:
		return backends.LevelNext
	case v.startsSoon(j):
		return backends.LevelPlaceholder
	case j.mem.Requeues > 0:
		return backends.LevelVictim
	case j.Priority.Level() == backends.LevelLow && !j.entitled:
		return backends.LevelLow
	}
	return backends.LevelNormal
}

// stands is a job's priority as the queue has it, earned or not.
func (j *job) stands() backends.Priority { return max(j.claimed, j.Priority) }

// rank writes what changes the order in the queue, and nothing else (R13): a job
// of another level, a bonus that is not there yet, a value that its owner raised.
func (v *view) rank() {
	var raised []*job
	for _, j := range v.resting {
		if !j.managed {
			continue
		}
		want, why := v.wanted(j)
		j.computed = want
		if want == j.stands() {
			continue
		}
		if v.moves(j) {
			v.act(Action{Verb: Move, Job: j.ID, Queue: j.ownQueue(), Reason: "it is entitled now"})
		}
		switch {
		case len(j.mem.Reserved) > 0 && want.Level() < j.Priority.Level():
			j.lowered = why
			v.lowered = append(v.lowered, j)
		case want < j.claimed:
			raised = append(raised, j)
		default:
			v.act(Action{Verb: Rank, Job: j.ID, Priority: want, Reason: why})
			v.write(j, want, why)
		}
	}
	v.putBack(raised)
}

// putBack lowers jobs that stand higher than they may, in this order: those that wait for
// slots alone, as they could start next; by their place in the queue. What a cycle has no
// time for is left to the next ones.
func (v *view) putBack(raised []*job) {
	slices.SortFunc(raised, func(a, b *job) int {
		if ready := a.Eligible(); ready != b.Eligible() {
			if ready {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.claimed, a.claimed), cmp.Compare(a.seq, b.seq))
	})
	if now := v.policy.maxPutBack(); len(raised) > now {
		v.warn("%d jobs stand higher than they may, by numbers that pba did not give them: %d are put back now, %d in the next cycles", len(raised), now, len(raised)-now)
		raised = raised[:now]
	}
	for i, j := range raised {
		at := stageRank
		if i >= putBackFirst {
			at = stageLast
		}
		want, why := v.wanted(j)
		v.actAt(at, Action{Verb: Rank, Job: j.ID, Priority: want, Reason: why})
		v.write(j, want, why)
	}
}

// lower ranks those lower that keep hosts from others, unless slots are taken back
// for them anew.
func (v *view) lower() {
	for _, j := range v.lowered {
		if j.reclaim == nil {
			v.actAt(stageLet, Action{Verb: Rank, Job: j.ID, Priority: j.computed, Reason: j.lowered})
			v.write(j, j.computed, j.lowered)
		}
	}
}

// moves tells whether an entitled job has to be put back into the queue that the
// filter took it from (R1).
func (v *view) moves(j *job) bool {
	if !j.entitled || v.policy.LowQueue == "" || j.Queue != v.policy.LowQueue || v.state.Abilities.Move == nil {
		return false
	}
	own := j.ownQueue()
	return own != "" && own != j.Queue && (len(v.policy.Queues) == 0 || slices.Contains(v.policy.Queues, own))
}

// wanted is a job's computed priority, and why it differs from the queue's.
func (v *view) wanted(j *job) (backends.Priority, string) {
	level, now := v.level(j), j.Priority.Level()
	if level == now {
		return v.unlowered(j)
	}
	value := v.value(j)
	why := "it is a normal job"
	switch level {
	case backends.LevelHandOver:
		why = "slots are taken back for it"
	case backends.LevelPBA:
		if now < backends.LevelPBA {
			value = v.unaged(j, value)
		}
		why = "it entered " + describe(j.pool.Allocation)
		if now == backends.LevelHandOver {
			why = "its reclaim ended"
		}
	case backends.LevelNext:
		why = "it is next in line for its pool"
	case backends.LevelVictim:
		why = "it lost its slots to a reclaim"
		if j.mem.Written.Level() == level { // its bonus, if that was not written yet
			value = max(value, j.mem.Written.Value())
		}
	case backends.LevelPlaceholder:
		why = "its dummies are in place"
	case backends.LevelLow, backends.LevelNormal:
		if now == backends.LevelNext {
			why = "it is not next in line for its pool"
		}
	}
	return backends.At(level, value+bandBonus(level)), why
}

// unlowered is the priority of a job at its own level: as it stands, unless we gave it
// more there. Among normal jobs lower is its owner's right.
func (v *view) unlowered(j *job) (backends.Priority, string) {
	switch level := j.Priority.Level(); {
	case level > backends.LevelNormal && j.mem.Written.Level() == level && j.Priority < j.mem.Written:
		return j.mem.Written, fmt.Sprintf("it stands at %d, lower than it should", j.Priority.Value())
	case j.claimed == 0:
		return j.Priority, ""
	case j.claimed.Level() == backends.LevelNext && j.entitled: // the submit filter's rank
		return j.Priority, "it is not next in line for its pool"
	}
	return j.Priority, fmt.Sprintf("somebody else than pba raised it to %d (%s): a job's owner can lower it only", j.claimed.Value(), j.claimed.Level())
}

// unaged takes the age of this cycle off again: the cycle in which a job enters
// its allocation adds none (R10).
func (v *view) unaged(j *job, value int) int {
	if v.state.Abilities.Ages > 0 && value > backends.DefaultValue+v.bonus(j) {
		return value - 1
	}
	return value
}

func (v *view) write(j *job, p backends.Priority, why string) {
	j.computed = p
	j.mem.Written, j.mem.WrittenAt = p, v.now
	j.mem.History = append(slices.Clone(j.mem.History), Point{At: v.now, Priority: p, Why: why})
	if over := len(j.mem.History) - keptHistory; over > 0 {
		j.mem.History = j.mem.History[over:]
	}
}

// reserve keeps what frees on a beneficiary's best hosts from lower-ranked jobs,
// since nobody can be taken back for it now (R15): else short jobs under
// min_runtime keep a wide one out for ever.
func (v *view) reserve(b *job, hosts []string) {
	if len(hosts) == 0 {
		return
	}
	v.setAside(b, hosts)
	v.reserveOn(b, hosts, "nobody can be taken back for it now: what comes free there is kept for it")
}

// outbid takes back what was promised or set aside, on hosts that a job is about to
// reserve, for jobs that rank below it: the queue would keep it from them. It reports
// whether there was anything.
func (v *view) outbid(b *job, hosts []string) bool {
	if len(hosts) == 0 {
		return false
	}
	moved := v.moved
	for _, w := range v.resting {
		switch {
		case w == b, w.promised == nil && w.aside == nil:
			continue
		case beforeInQueue(w, b) < 0, !onAny(w.promised, hosts) && !onAny(w.aside, hosts):
			continue
		}
		v.giveBack(w)
		v.unpromise(w, w.promised)
		if w.promised != nil && w.turn && !slices.Contains(v.outbids, w) {
			v.outbids = append(v.outbids, w)
		}
		w.promised = nil
	}
	return v.moved != moved
}

// reserveOn reserves hosts for a beneficiary, unless it does so already: what it needs
// does not come free at one instant, and a queue passes over what does not fit.
func (v *view) reserveOn(b *job, hosts []string, why string) {
	if !v.reserves(b) {
		return
	}
	b.reserving = true
	if slices.Equal(hosts, b.mem.Reserved) && b.mem.ReservedUntil.Sub(v.now) > v.policy.HoldLimit/2 {
		return
	}
	b.mem.Reserved, b.mem.ReservedUntil = hosts, v.now.Add(v.policy.HoldLimit)
	v.act(Action{Verb: Reserve, Job: b.ID, For: b.ID, Hosts: hosts, Until: b.mem.ReservedUntil, Reason: why})
}

// reserves tells whether a reservation would do anything for a beneficiary.
func (v *view) reserves(b *job) bool {
	return v.state.Abilities.Reserve != nil && b.State != backends.Suspended && !v.small(b)
}

// small tells whether a job takes whatever slot comes free: nothing that ranks
// below it can keep it out, so it needs no reservation.
func (v *view) small(b *job) bool {
	return b.Slots <= 1 && b.Memory <= v.choicesFor(b).share
}

// setAside books what is free on hosts where it is kept for a job, so that nobody who
// ranks below counts on it. Before the job's turn has come, a beneficiary may have it
// (see yield); after that, slots are taken back there for nobody else (see contested).
func (v *view) setAside(b *job, hosts []string) {
	left := b.Slots
	for _, name := range hosts {
		h := v.byName[name]
		if h == nil {
			continue
		}
		if n := min(left, max(h.free, 0)); n > 0 {
			b.aside = append(b.aside, backends.Placement{Host: name, Slots: n})
			left -= n
		}
	}
	v.promise(b, b.aside)
	v.countAside(b, 1)
	if !b.turn && len(b.aside) > 0 {
		v.soft = append(v.soft, b)
	}
}

func (v *view) countAside(b *job, sign int) {
	for _, p := range b.aside {
		h := v.byName[p.Host]
		if b.turn {
			h.aside += sign * p.Slots
			continue
		}
		h.soft += sign * p.Slots
		h.softMem += int64(sign) * b.memoryFor(p)
	}
}

// yield gives back what is set aside on hosts for those whose turn has not come: it
// goes to one who stands before them.
func (v *view) yield(hosts []backends.Placement) {
	for _, p := range hosts {
		for v.byName[p.Host].soft > 0 {
			i := slices.IndexFunc(v.soft, func(w *job) bool {
				return slices.ContainsFunc(w.aside, func(q backends.Placement) bool { return q.Host == p.Host })
			})
			v.giveBack(v.soft[i])
		}
	}
}

// giveBack undoes setAside, for the job itself to be served.
func (v *view) giveBack(b *job) {
	v.countAside(b, -1)
	v.unpromise(b, b.aside)
	if !b.turn && len(b.aside) > 0 {
		v.soft = slices.DeleteFunc(v.soft, func(w *job) bool { return w == b })
	}
	b.aside = nil
}

// reservable are the hosts that a beneficiary should wait for: those that it
// reserves already, else those that lack least; then by name. A host whose memory
// suspended jobs hold is none of them: they could wait for each other for ever.
func (v *view) reservable(b *job) []string {
	if !v.reserves(b) {
		return nil
	}
	var hosts []*host
	for _, h := range v.suitable(b) {
		if n := h.couldOffer(b); n >= b.Slots || n > 0 && !b.oneHost() {
			hosts = append(hosts, h)
		}
	}
	slices.SortStableFunc(hosts, func(x, y *host) int {
		if xr, yr := slices.Contains(b.mem.Reserved, x.Name), slices.Contains(b.mem.Reserved, y.Name); xr != yr {
			if xr {
				return -1
			}
			return 1
		}
		return y.free - x.free
	})
	left := b.Slots
	var chosen []string
	for _, h := range hosts {
		chosen = append(chosen, h.Name)
		if left -= h.couldOffer(b); left <= 0 {
			return chosen
		}
	}
	return nil
}

// unreserve takes back the reservations that nobody needs any more.
func (v *view) unreserve() {
	for _, j := range v.jobs {
		if len(j.mem.Reserved) == 0 || j.reserving || j.reclaim != nil {
			continue
		}
		if j.State == backends.Pending && v.state.Abilities.Reserve != nil && v.now.Before(j.mem.ReservedUntil) {
			v.act(Action{Verb: Unreserve, Job: j.ID, Hosts: j.mem.Reserved, Reason: "it does not need its reservation any more"})
		}
		j.mem.Reserved, j.mem.ReservedUntil = nil, time.Time{}
	}
}
