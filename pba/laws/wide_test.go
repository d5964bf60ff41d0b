package laws

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// The law of jobs that are wider than what no pool is guaranteed (R35), on all farms, and on farms
// of their own: on these such jobs are usual, and the engine runs on for a day after the last job
// of a pool.

// A job is held as too wide if, and only if, it is one: it is wider than what no pool is
// guaranteed, lost too much, offers no way to lose nothing, and pools sent jobs within a day. It
// does not start before its hold ends.
func TestLawJobsThatAreTooWideWait(t *testing.T) {
	obeyed(t, lawTooWide)
	obeyedBy(t, allWide(), wideFarms(), lawTooWide)
}

// TestLawsOfWideFarmsWerePutToTheTest checks that enough farms could have broken the law.
func TestLawsOfWideFarmsWerePutToTheTest(t *testing.T) {
	checkShares(t, allWide(), map[share]float64{metTooWide: 30, metWideForADay: 15, metWideNoMore: 2})
}

// wideFarms draws farms as they are drawn for the other laws. Their first jobs are about as wide as
// what no pool is guaranteed, or wider, and jobs of pools come soon, and hours later.
func wideFarms() *rapid.Generator[farm] {
	base := farms()
	return rapid.Custom(func(t *rapid.T) farm {
		f := base.Draw(t, "farm")
		pick := func(what string, n ...int) int { return rapid.SampledFrom(n).Draw(t, what) }
		f.Wide, f.Forms = true, false
		f.HoldLimit = pick("long hold limit", 3600, 7200) // few cycles renew it for a day
		f.RunsWide = pick("runs wide from cycle", 0, 0, 0, 0, 0, 0, 8, 12)
		f.EngineDies = pick("dies", 0, 0, 0, 0, 1) == 1
		others := f.Jobs[len(f.Jobs)*3/5:]
		f.Jobs = nil
		for range pick("wide jobs", 1, 1, 2, 3) {
			f.Jobs = append(f.Jobs, f.drawWide(t))
		}
		f.Jobs = append(f.Jobs, others[:min(len(others), pick("other jobs", 0, 1, 2, 4, 8))]...)
		for range pick("jobs of pools", 1, 2, 3, 5) {
			f.drawOfPool(t, rapid.IntRange(20, 240).Draw(t, "comes after"))
		}
		for range pick("late jobs of pools", 0, 0, 1, 2, 3) {
			f.drawOfPool(t, 60*rapid.IntRange(10, 30*60).Draw(t, "comes after minutes"))
		}
		return f
	})
}

// drawWide draws a job that leaves little or nothing of the farm free, or is about as wide as what no pool
// is guaranteed.
func (f *farm) drawWide(t *rapid.T) jobCase {
	pick := func(what string, n ...int) int { return rapid.SampledFrom(n).Draw(t, what) }
	total := 0
	for _, h := range f.Hosts {
		total += h.Slots
	}
	beside := total
	for _, p := range f.Pools {
		beside -= p.Guarantee
	}
	j := jobCase{
		At: pick("wide at", 0, 0, 0, 1, 30), Takes: pick("wide takes", 600, 300, 1200), User: pick("wide user", 0, 1, 2, 3),
		Project: min(pick("wide project", -1, 0, 0, 1), len(f.Members)-1), Host: -1,
		Slots: max(1, pick("slots of wide", total, total, total, total-1, total-2, beside+1, beside)),
	}
	switch pick("wide kind", 0, 0, 0, 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		j.Suspend = true
	case 2:
		j.Saves, j.SaveTakes = 20, pick("wide saves in", 10, 0, 40)
	case 3:
		j.Every = 30
	case 4:
		j.RunLimit = j.Takes + 60
	}
	return j
}

// drawOfPool adds a job that some pool is for, if there are pools.
func (f *farm) drawOfPool(t *rapid.T, at int) {
	if len(f.Pools) == 0 {
		return
	}
	p := f.Pools[rapid.IntRange(0, len(f.Pools)-1).Draw(t, "of pool")]
	j := jobCase{
		At: at, Takes: rapid.SampledFrom([]int{60, 20, 300}).Draw(t, "takes"), User: p.User, Project: p.Project, Step: p.Step,
		Slots: min(p.Guarantee, rapid.IntRange(1, 3).Draw(t, "slots of pool")), Host: -1, OneHost: true,
	}
	if j.User < 0 {
		j.User = max(0, slices.Index(f.Members[p.Project], true))
	}
	j.fit(f.Hosts)
	f.Jobs = append(f.Jobs, j)
}

// wideBooks are what the judge remembers of a farm's jobs from cycle to cycle, to know which are too
// wide.
type wideBooks struct {
	lost   map[backends.ID]float64   // slot-seconds of work that reclaims threw away
	stakes map[stakeOf]stakeOfVictim // that are not lost yet
	sent   time.Time                 // the last cycle that saw a job of a pool
	maybe  time.Time                 // the last one that may have seen one
	held   map[backends.ID]time.Time // the jobs that the last cycle left held as too wide: until when
	cycle  time.Time                 // the last cycle
}

// stakeOf names the stake of a victim.
type stakeOf struct {
	reclaim int64
	job     backends.ID
}

// stakeOfVictim is what a victim loses if it is requeued, or if it does not save itself before.
type stakeOfVictim struct {
	lost    float64 // slot-seconds
	saves   bool
	started time.Time
}

// countLost adds up what reclaims threw away, by the marks that they left on the queue's jobs: all that
// a victim had run since its last known checkpoint when it was chosen.
func (d *drive) countLost(r *pba.Result) {
	w, jobs := &d.wide, byID(r.State.Farm)
	for of, s := range w.stakes {
		j := jobs[of.job]
		switch {
		case j == nil:
			delete(w.stakes, of)
		case j.Mark != "r"+strconv.FormatInt(of.reclaim, 10):
		case s.saves && (j.State == backends.Running || j.State == backends.Suspended) && j.Started.Equal(s.started): // it has time to
		default:
			delete(w.stakes, of)
			if !s.saves || j.FailedSaves > 0 {
				w.lost[of.job] += s.lost
			}
		}
	}
	for id, m := range r.Plan.Memory.Jobs {
		if jobs[id] != nil && m.Lost != w.lost[id] {
			d.breach(lawSaves, "job %v lost %v slot-seconds to reclaims so far, and %v are remembered", id, w.lost[id], m.Lost)
		}
	}
	for i := range r.Plan.Memory.Reclaims {
		c := &r.Plan.Memory.Reclaims[i]
		if slices.ContainsFunc(r.State.Memory.Reclaims, func(old plan.Reclaim) bool { return old.ID == c.ID }) {
			continue
		}
		for k := range c.Victims {
			j := jobs[c.Victims[k].ID]
			if j == nil || suspends(j) {
				continue
			}
			ran := j.RanFor + r.State.Farm.At.Sub(j.Started)
			if tag, _, _ := backends.ParseTag(j.Tag); tag.Checkpoint.Every > 0 {
				ran %= tag.Checkpoint.Every
			}
			w.stakes[stakeOf{c.ID, j.ID}] = stakeOfVictim{float64(j.Slots) * ran.Seconds(), d.mustSave(j) > 0, j.Started}
		}
	}
}

func byID(farm *backends.Snapshot) map[backends.ID]*backends.Job {
	jobs := make(map[backends.ID]*backends.Job, len(farm.Jobs))
	for i := range farm.Jobs {
		jobs[farm.Jobs[i].ID] = &farm.Jobs[i]
	}
	return jobs
}

// lawTooWide judges one cycle: the jobs that it saw, and how it left them in the queue.
func (d *drive) lawTooWide(r *pba.Result, after *backends.Snapshot) {
	w, now := &d.wide, r.State.Farm.At
	d.judgeWideStarts(r.State.Farm)
	b := &books{policy: &r.Rules.Policy, groups: r.State.Groups, hosts: r.State.Farm.Hosts, serving: serving(&r.State.Memory)}
	if sure, maybe := b.send(&r.State); sure || maybe {
		w.maybe = now
		if sure {
			w.sent = now
		}
	}
	named, were := map[backends.ID]bool{}, w.held
	for _, t := range r.Plan.TooWide {
		named[t.Job] = true
	}
	w.held, w.cycle = map[backends.ID]time.Time{}, now
	if d.broken[lawSaves] != "" {
		return // what jobs lost is in doubt
	}
	left := byID(after)
	for i := range r.State.Farm.Jobs {
		was := &r.State.Farm.Jobs[i]
		j := left[was.ID]
		if was.State != backends.Pending || j == nil {
			continue
		}
		why := d.notTooWide(was, b)
		mayBe := why == "" || why == sentNothing && now.Sub(w.maybe) < day
		switch {
		case why == "" && (j.State != backends.Pending || !j.HeldUntil.After(now.Add(cycle))):
			d.breach(lawTooWide, "job %v of %d slots lost %v slot-seconds and is too wide: it is left %v, held until %v", j.ID, j.Slots, w.lost[j.ID], j.State, sinceStart(j.HeldUntil))
		case why == "" && !named[j.ID] && len(named) < 20:
			d.breach(lawTooWide, "job %v is held as too wide, and the plan does not name it", j.ID)
		case !mayBe && named[j.ID]:
			d.breach(lawTooWide, "the plan names job %v as too wide, and %s", j.ID, why)
		case !mayBe && j.State == backends.Pending && j.HeldUntil.After(now) && !isVictim(&r.Plan, j):
			d.breach(lawTooWide, "job %v of %d slots is held until %v, and %s", j.ID, j.Slots, sinceStart(j.HeldUntil), why)
		}
		switch _, held := were[j.ID]; {
		case why == "":
			d.met[metTooWide] = true
			w.held[j.ID] = j.HeldUntil
		case held:
			d.met[metWideForADay] = d.met[metWideForADay] || why == sentNothing
			d.met[metWideNoMore] = d.met[metWideNoMore] || why != sentNothing
		}
	}
}

const (
	day         = 24 * time.Hour
	sentNothing = "no pool sent a job within a day"
)

// notTooWide returns why a job that waits may start; "": it is too wide.
func (d *drive) notTooWide(j *backends.Job, b *books) string {
	beside := 0
	for _, h := range b.hosts {
		if h.State == backends.HostUp {
			beside += h.Slots
		}
	}
	for _, a := range b.policy.Allocations {
		beside -= a.Guarantee
	}
	tag, _, _ := backends.ParseTag(j.Tag)
	switch {
	case !b.policy.HoldTooWide:
		return "the site lets it run"
	case j.Slots <= max(beside, 0):
		return "it is no wider than what no pool is guaranteed"
	case d.wide.lost[j.ID] <= float64(j.Slots)*b.policy.MaxLost.Seconds():
		return "it did not lose too much"
	case suspends(j) || d.mustSave(j) > 0 || tag.Checkpoint.Every > 0:
		return "it loses little"
	case len(b.pools(j)) > 0 && !odd(j):
		return "a pool is for it"
	case d.wide.sent.IsZero() || d.wide.cycle.Sub(d.wide.sent) >= day:
		return sentNothing
	}
	return ""
}

// send reports whether jobs of a pool run or wait, and whether some may: one that wants whole hosts
// may need more slots than its pool has.
func (b *books) send(state *plan.State) (sure, maybe bool) {
	for i := range state.Farm.Jobs {
		j := &state.Farm.Jobs[i]
		if (j.State == backends.Running && !leaving(j, &state.Memory) || waits(j) && !odd(j)) && len(b.pools(j)) > 0 {
			maybe = true
			sure = sure || j.State == backends.Running || !j.Exclusive
		}
	}
	return sure, maybe
}

// isVictim reports whether a reclaim that goes on after a plan holds a job.
func isVictim(p *plan.Plan, j *backends.Job) bool {
	return slices.ContainsFunc(p.Memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase.Open() && r.Mark() == j.Mark })
}

// judgeWideStarts checks that no job started before the end of the hold in which the last cycle left
// it as too wide.
func (d *drive) judgeWideStarts(farm *backends.Snapshot) {
	for _, jobs := range [][]backends.Job{farm.Jobs, farm.Ended} {
		for i := range jobs {
			j := &jobs[i]
			if until, held := d.wide.held[j.ID]; held && j.Started.After(d.wide.cycle) && j.Started.Before(until) {
				d.breach(lawTooWide, "job %v was held as too wide until %v, and started at %v", j.ID, sinceStart(until), sinceStart(j.Started))
			}
		}
	}
}

// idle reports whether, on a farm of wide jobs, the engine has nothing to do but to renew holds.
func (d *drive) idle() bool {
	if !d.Wide || slices.ContainsFunc(d.ledger.Memory.Reclaims, func(r plan.Reclaim) bool { return r.Phase.Open() }) {
		return false
	}
	for _, m := range d.ledger.Memory.Jobs {
		if !m.ClockSeen.IsZero() {
			return false
		}
	}
	return true
}

// renewWide returns when the engine renews the first hold of a job that is too wide, if that is
// before a time.
func (d *drive) renewWide(at time.Time) time.Time {
	for _, until := range d.wide.held {
		if renew := until.Add(time.Second - seconds(d.HoldLimit)/2); renew.Before(at) {
			at = renew
		}
	}
	return at
}
