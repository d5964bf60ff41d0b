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

// A cycle puts back as many priorities that users raised as half of its time allows. Only
// the first come before the reclaims, which must not wait for thousands.
const (
	lowerTime  = 10 * time.Millisecond // of one write; 7.6 ms on LSF (lava)
	lowerFirst = 100                   // more than a large farm starts in a cycle; also the least of a cycle
)

func (p *Policy) maxLowered() int { return max(lowerFirst, int(p.Cycle/2/lowerTime)) }

// ageCap returns how much age may add to a priority (R11).
func (p *Policy) ageCap() int {
	return max(0, pbaBonus-1-requeueBonus*p.MaxRequeues)
}

// bonus returns what a job's value has gained by losing its slots to reclaims.
func (f *farm) bonus(j *job) int { return requeueBonus * min(j.mem.Requeues, f.policy.MaxRequeues) }

// value returns a job's priority within the normal band, whatever band it is in now:
// default, age and its bonuses. The +100 of a band is never part of it (R10).
func (f *farm) value(j *job) int {
	return min(ownValue(j.Priority), backends.DefaultValue+f.policy.ageCap()+f.bonus(j))
}

// ownValue returns a priority's value without what its band adds.
func ownValue(p backends.Priority) int {
	return max(p.Value()-bandBonus(p.Level())-lead(p), 0)
}

// lead returns what a priority's value has so that the job goes before others of its level:
// victims that gave way without a loss before other victims (R33), beneficiaries that wait
// for slots on several hosts before others (R19).
func lead(p backends.Priority) int {
	switch p.Level() {
	case backends.LevelVictim:
		if p.Value() >= backends.GaveWay {
			return backends.GaveWay
		}
	case backends.LevelHandOver:
		steps := max(p.Value()-bandBonus(backends.LevelHandOver), 0) / backends.Spread
		return min(steps, mostSpread) * backends.Spread
	case backends.LevelLow, backends.LevelNormal, backends.LevelPlaceholder, backends.LevelNext, backends.LevelPBA:
	}
	return 0
}

// mostSpread is how many times backends.Spread a beneficiary's value has at most.
const mostSpread = 2

// aheadBy returns a beneficiary's lead. Slurm's main scheduler, in a pass in which a job waits
// for resources, uses none of the nodes of the job's partition; a later job of another
// partition that is bound to one of these nodes as well as to others waits for none of its
// nodes: a normal job starts there. So what waits for several hosts goes first, and before
// that what may run on all hosts, whose partition has the nodes of others.
func (f *farm) aheadBy(j *job, hosts []backends.Placement) int {
	switch {
	case len(hosts) < 2:
		return 0
	case j.Suits == nil || len(j.Suits.Hosts) >= len(f.hosts):
		return mostSpread * backends.Spread
	}
	return backends.Spread
}

// bandBonus returns what a level's band adds to a value.
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

// discountClaims lowers the priorities of this snapshot to what the rules account for. On some
// queues a job's owner may set any number, at any time: what exceeds the rules does not
// count, neither in the queue nor in a pool.
func (f *farm) discountClaims() {
	for _, j := range f.jobs {
		if j.Priority.Level() <= backends.LevelNormal && j.Priority.Value() <= backends.DefaultValue {
			continue // it claims nothing
		}
		if earned := f.earned(j); earned < j.Priority {
			j.claimed, j.Priority = j.Priority, earned
		}
	}
}

// earned returns a job's priority as far as the engine wrote it or the queue aged it: at no
// higher level than was written last, and with no more than the default, its bonus and its
// age since. The owner may lower it.
func (f *farm) earned(j *job) backends.Priority {
	least, most := f.aged(j.Submitted)
	base := backends.DefaultValue + f.bonus(j)
	least, most = base+least, base+most
	top := backends.LevelNormal
	if j.mem.Requeues > 0 {
		top = backends.LevelVictim
	}
	if j.mem.Written != 0 { // earlier versions did not remember it for victims
		top = max(top, j.mem.Written.Level())
		base = max(backends.DefaultValue, ownValue(j.mem.Written))
		sinceLeast, sinceMost := f.aged(j.mem.WrittenAt)
		least, most = min(least, base+sinceLeast), min(most, base+sinceMost)
	}
	value := ownValue(j.Priority)
	if value > most {
		value = least
	}
	level, ahead := min(j.Priority.Level(), top), 0
	switch {
	case level == backends.LevelVictim && j.Priority.Level() == level && j.mem.GaveWay:
		ahead = lead(j.Priority)
	case level == backends.LevelHandOver:
		ahead = min(lead(j.Priority), lead(j.mem.Written))
	}
	return backends.At(level, value+bandBonus(level)+ahead)
}

// aged returns how much the queue may have aged a priority since a time, at least and at
// most: the queue and the engine don't count at the same instant.
func (f *farm) aged(since time.Time) (least, most int) {
	interval, most := f.state.Abilities.Ages, min(f.policy.ageCap(), f.state.Abilities.AgeCap)
	switch {
	case interval <= 0:
		return 0, 0
	case since.After(f.now): // a clock was set back
		return 0, most
	}
	ticks := int(f.now.Sub(since) / interval)
	return min(ticks, most), min(ticks+1, most)
}

// level returns the level that a pending job belongs to (R11).
func (f *farm) level(j *job) backends.Level {
	switch {
	case j.reclaim != nil && j.reclaim.Phase.Open():
		return backends.LevelHandOver
	case j.pba():
		return backends.LevelPBA
	case j.next:
		return backends.LevelNext
	case f.startsSoon(j):
		return backends.LevelPlaceholder
	case j.mem.Requeues > 0:
		return backends.LevelVictim
	case j.Priority.Level() == backends.LevelLow && !j.entitled:
		return backends.LevelLow
	}
	return backends.LevelNormal
}

// queuePriority returns the priority that the queue reports for a job, earned or not.
func (j *job) queuePriority() backends.Priority { return max(j.claimed, j.Priority) }

// rank writes the priorities that change the order in the queue, and no others (R13):
// another level, a bonus that is not there yet, a value that the owner raised. It
// returns the jobs that reserve hosts and will rank lower: see lower.
func (b *books) rank() (lowered []*job) {
	var raised []*job
	for _, j := range b.resting {
		if !j.managed {
			continue
		}
		want, why := b.wanted(j)
		j.computed = want
		if want == j.queuePriority() {
			continue
		}
		if b.moves(j) {
			b.acts.add(stageRank, Action{Verb: Move, Job: j.ID, Queue: j.ownQueue(), Reason: "it is entitled now"})
		}
		switch {
		case len(j.mem.Reserved) > 0 && want.Level() < j.Priority.Level():
			j.lowered = why
			lowered = append(lowered, j)
		case want < j.claimed:
			raised = append(raised, j)
		default:
			b.acts.add(stageRank, Action{Verb: Rank, Job: j.ID, Priority: want, Reason: why})
			b.write(j, want, why)
		}
	}
	b.lowerRaised(raised)
	return lowered
}

// lowerRaised lowers jobs that rank higher than they may, in this order: those that wait for
// slots alone, as they could start next; by their place in the queue. What a cycle has no
// time for is left to the next ones.
func (f *farm) lowerRaised(raised []*job) {
	slices.SortFunc(raised, func(a, b *job) int {
		if ready := a.Eligible(); ready != b.Eligible() {
			if ready {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.claimed, a.claimed), cmp.Compare(a.seq, b.seq))
	})
	if now := f.policy.maxLowered(); len(raised) > now {
		f.warn("%d jobs have priorities that pba did not set, above what they may have: %d are lowered now, %d in the next cycles", len(raised), now, len(raised)-now)
		raised = raised[:now]
	}
	for i, j := range raised {
		at := stageRank
		if i >= lowerFirst {
			at = stageLast
		}
		want, why := f.wanted(j)
		f.acts.add(at, Action{Verb: Rank, Job: j.ID, Priority: want, Reason: why})
		f.write(j, want, why)
	}
}

// moves reports whether an entitled job has to go back to the queue that the filter
// took it from (R1).
func (f *farm) moves(j *job) bool {
	if !j.entitled || f.policy.LowQueue == "" || j.Queue != f.policy.LowQueue || f.state.Abilities.Move == nil {
		return false
	}
	own := j.ownQueue()
	return own != "" && own != j.Queue && (len(f.policy.Queues) == 0 || slices.Contains(f.policy.Queues, own))
}

// wanted returns a job's computed priority, and why it differs from the queue's.
func (f *farm) wanted(j *job) (backends.Priority, string) {
	level, now := f.level(j), j.Priority.Level()
	if level == now && level == backends.LevelVictim && j.mem.GaveWay && lead(j.Priority) == 0 {
		return backends.At(level, ownValue(j.Priority)+backends.GaveWay), "it gave way without losing work: it goes before other victims"
	}
	if level == now {
		return f.unlowered(j)
	}
	value, ahead := f.value(j), 0
	why := "it is a normal job"
	switch level {
	case backends.LevelHandOver:
		ahead = f.aheadBy(j, j.reclaim.Hosts)
		why = "slots are taken back for it"
	case backends.LevelPBA:
		if now < backends.LevelPBA {
			value = f.unaged(j, value)
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
			value = max(value, ownValue(j.mem.Written))
		}
		if j.mem.GaveWay {
			ahead = backends.GaveWay
		}
	case backends.LevelPlaceholder:
		why = "its dummies are in place"
	case backends.LevelLow, backends.LevelNormal:
		if now == backends.LevelNext {
			why = "it is not next in line for its pool"
		}
	}
	return backends.At(level, value+bandBonus(level)+ahead), why
}

// unlowered returns the priority of a job that keeps its level: as it is, or what the
// engine wrote there if that is more. The owner of a normal job may lower it.
func (f *farm) unlowered(j *job) (backends.Priority, string) {
	switch level := j.Priority.Level(); {
	case level > backends.LevelNormal && j.mem.Written.Level() == level && j.Priority < j.mem.Written:
		return j.mem.Written, fmt.Sprintf("its priority, %d, is lower than pba set it", j.Priority.Value())
	case j.claimed == 0:
		return j.Priority, ""
	case j.claimed.Level() == backends.LevelNext && j.entitled: // the submit filter's rank
		return j.Priority, "it is not next in line for its pool"
	}
	return j.Priority, fmt.Sprintf("it was raised outside pba to %d (%s): a job's owner may only lower it", j.claimed.Value(), j.claimed.Level())
}

// unaged subtracts the age of this cycle: the cycle in which a job enters its
// allocation adds none (R10).
func (f *farm) unaged(j *job, value int) int {
	if f.state.Abilities.Ages > 0 && value > backends.DefaultValue+f.bonus(j) {
		return value - 1
	}
	return value
}

func (f *farm) write(j *job, p backends.Priority, why string) {
	j.computed = p
	j.mem.Written, j.mem.WrittenAt = p, f.now
	j.mem.History = append(slices.Clone(j.mem.History), Point{At: f.now, Priority: p, Why: why})
	if over := len(j.mem.History) - keptHistory; over > 0 {
		j.mem.History = j.mem.History[over:]
	}
}
