package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// The numbers of R10 and R11.
const (
	pbaBonus     = 100
	requeueBonus = 10
	// maxNormalAge is where age alone stops: PBA floor − 1 − requeue × max_requeues
	// for the default of 3 requeues.
	maxNormalAge = backends.DefaultValue + pbaBonus - 1 - requeueBonus*3
	keptHistory  = 20
)

// ageCap is how much age may add to a priority (R11).
func (p *Policy) ageCap() int {
	return max(0, pbaBonus-1-requeueBonus*p.MaxRequeues)
}

// value is a job's priority within the normal band, whatever band it is in now:
// default, age and its bonuses. The +100 of a band is never part of it (R10).
func (v *view) value(j *job) int {
	p, _ := v.untampered(j, j.Priority.Level()) // what somebody else wrote buys nothing in another band, either
	bonus := requeueBonus * min(j.mem.Requeues, v.policy.MaxRequeues)
	return min(ownValue(p), backends.DefaultValue+v.policy.ageCap()+bonus)
}

// ownValue is a priority's value without what its band adds.
func ownValue(p backends.Priority) int {
	value := p.Value()
	switch p.Level() {
	case backends.LevelPBA:
		value -= pbaBonus
	case backends.LevelHandOver:
		value -= 2 * pbaBonus
	case backends.LevelLow, backends.LevelNormal, backends.LevelVictim, backends.LevelPlaceholder, backends.LevelNext:
	}
	return max(value, 0)
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

// rank writes what changes the order in the queue, and nothing else (R13): a job
// of another level, a bonus that is not there yet, a value that its owner moved.
func (v *view) rank() {
	for _, j := range v.resting {
		if !j.managed {
			continue
		}
		want, why := v.wanted(j)
		j.computed = want
		if want == j.Priority {
			continue
		}
		if v.moves(j) {
			v.act(Action{Verb: Move, Job: j.ID, Queue: j.ownQueue(), Reason: "it is entitled now"})
		}
		if len(j.mem.Reserved) > 0 && want.Level() < j.Priority.Level() {
			j.lowered = why
			v.lowered = append(v.lowered, j)
			continue
		}
		v.act(Action{Verb: Rank, Job: j.ID, Priority: want, Reason: why})
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
	value := v.value(j)
	if level == now {
		return v.untampered(j, level)
	}
	why := "it is a normal job"
	switch level {
	case backends.LevelHandOver:
		value += 2 * pbaBonus
		why = "slots are taken back for it"
	case backends.LevelPBA:
		if now < backends.LevelPBA {
			value = v.unaged(j, value)
		}
		value += pbaBonus
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
	return backends.At(level, value), why
}

// unaged takes the age of this cycle off again: the cycle in which a job enters
// its allocation adds none (R10).
func (v *view) unaged(j *job, value int) int {
	base := backends.DefaultValue + requeueBonus*min(j.mem.Requeues, v.policy.MaxRequeues)
	if v.state.Abilities.Ages > 0 && value > base {
		return value - 1
	}
	return value
}

// untampered compares a job's place with what we wrote, or with what it was
// submitted with: it may have aged since, nothing else.
func (v *view) untampered(j *job, level backends.Level) (backends.Priority, string) {
	from, at := backends.At(level, backends.DefaultValue), j.Submitted
	if !j.mem.WrittenAt.IsZero() && j.mem.Written.Level() == level {
		from, at = j.mem.Written, j.mem.WrittenAt
	} else if level > backends.LevelNormal {
		return j.Priority, ""
	}
	most := from + backends.Priority(v.ticks(at))
	switch {
	case j.Priority > most:
		return most, fmt.Sprintf("it was raised to %d by somebody else", j.Priority.Value())
	case j.Priority < from && !j.mem.WrittenAt.IsZero():
		return from, fmt.Sprintf("it stands at %d, lower than it should", j.Priority.Value())
	}
	return j.Priority, ""
}

// ticks is how much a priority may have aged by itself since a time; one more
// than counted, since the queue and we don't count at the same instant.
func (v *view) ticks(at time.Time) int {
	ages := v.state.Abilities.Ages
	if ages <= 0 || at.IsZero() {
		return 0
	}
	return min(int(max(0, v.now.Sub(at))/ages)+1, v.policy.ageCap())
}

func (v *view) write(j *job, p backends.Priority, why string) {
	j.computed = p
	j.mem.Written, j.mem.WrittenAt = p, v.now
	j.mem.History = append(slices.Clone(j.mem.History), Point{At: v.now, Priority: p, Why: why})
	if over := len(j.mem.History) - keptHistory; over > 0 {
		j.mem.History = j.mem.History[over:]
	}
}

// reserve keeps what frees on a beneficiary's best host from lower-ranked jobs,
// since nobody can be taken back for it now (R15): else short jobs under
// min_runtime keep a wide one out for ever.
func (v *view) reserve(b *job) {
	if v.state.Abilities.Reserve == nil || b.State == backends.Suspended || v.small(b) {
		return
	}
	hosts := v.reservable(b)
	if len(hosts) == 0 {
		return
	}
	v.outbid(b, hosts)
	v.setAside(b, hosts)
	v.reserveOn(b, hosts, "nobody can be taken back for it now: what comes free there is kept for it")
}

// outbid takes back what was promised on hosts to jobs that rank below the one that
// reserves them: the queue would keep it from them.
func (v *view) outbid(b *job, hosts []string) {
	for _, w := range v.jobs {
		below := w.computed < b.computed || w.computed == b.computed && w.seq > b.seq
		if w == b || w.promised == nil || !below || !onAny(w.promised, hosts) {
			continue
		}
		v.unpromise(w, w.promised)
		w.promised = nil
		if w.turn {
			v.outbids = append(v.outbids, w)
		}
	}
}

// reserveOn reserves hosts for a beneficiary, unless it does so already: what it needs
// does not come free at one instant, and a queue passes over what does not fit.
func (v *view) reserveOn(b *job, hosts []string, why string) {
	if v.state.Abilities.Reserve == nil || b.State == backends.Suspended || v.small(b) {
		return
	}
	b.reserving = true
	if slices.Equal(hosts, b.mem.Reserved) && b.mem.ReservedUntil.Sub(v.now) > v.policy.HoldLimit/2 {
		return
	}
	b.mem.Reserved, b.mem.ReservedUntil = hosts, v.now.Add(v.policy.HoldLimit)
	v.act(Action{Verb: Reserve, Job: b.ID, For: b.ID, Hosts: hosts, Until: b.mem.ReservedUntil, Reason: why})
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
		h.softMem += int64(sign) * b.perSlot * int64(p.Slots)
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
