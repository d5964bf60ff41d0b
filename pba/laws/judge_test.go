package laws

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// judge checks one plan against the laws. It trusts the snapshot, the policy and the
// memory that the plan was made from, not the plan's sums.
type judge struct {
	d      *drive
	state  *plan.State
	policy *plan.Policy
	p      *plan.Plan
	jobs   map[backends.ID]*backends.Job
	books  *books
	acts   []plan.Action        // that preempt jobs
	gone   map[backends.ID]bool // their victims
	served map[backends.ID]bool // beneficiaries of the reclaims that are open after this plan
	fresh  []*plan.Reclaim      // that this plan opens

	hypothetical bool // nothing of the plan is done
}

func newJudge(d *drive, state *plan.State, policy *plan.Policy, p *plan.Plan) *judge {
	g := &judge{d: d, state: state, policy: policy, p: p, gone: map[backends.ID]bool{}, served: map[backends.ID]bool{}}
	for _, a := range p.Actions {
		if a.Verb == plan.Requeue || a.Verb == plan.Suspend {
			g.acts = append(g.acts, a)
			g.gone[a.Job] = true
		}
	}
	return g
}

func (g *judge) plan(n int) {
	if n%4 == len(g.d.Jobs)%4 && (!g.hypothetical || n%3 == 0) {
		g.lawSame()
	}
	g.lawHosts()
	g.lawThrottle()
	g.lawOdd()
	g.lawKey()
	g.meetOutages()
	if !g.hypothetical {
		g.lawResume()
	}
	if len(g.acts) == 0 {
		return
	}
	g.jobs = map[backends.ID]*backends.Job{}
	for i := range g.state.Farm.Jobs {
		g.jobs[g.state.Farm.Jobs[i].ID] = &g.state.Farm.Jobs[i]
	}
	for i := range g.p.Memory.Reclaims {
		r := &g.p.Memory.Reclaims[i]
		if !r.Phase.Open() {
			continue
		}
		g.served[r.Beneficiary] = true
		if !slices.ContainsFunc(g.state.Memory.Reclaims, func(old plan.Reclaim) bool { return old.ID == r.ID }) {
			g.fresh = append(g.fresh, r)
		}
	}
	g.books = charge(g.state, g.policy, nil)
	g.lawCaps()
	g.lawKeyOfVictims()
	g.excuse()
	g.lawCharge()
	g.lawTrigger()
	g.lawBeyond()
	g.lawUse()
	g.lawOdd()
	g.lawPlace()
	g.lawSpared()
	g.lawLeast()
	g.meetOutages()
	if !g.hypothetical {
		g.lawLook()
		g.lawEarly()
	}
}

// excuse leaves out victims for which the plan's own books show that no pool had
// room: jobs of several slots may be packed into pools in more than one way, and
// the one that the judge found need not be the plan's. The plan's books count
// only if they are right: nothing in them but running jobs, those that held room
// before, and heads; no pool beyond its guarantee.
func (g *judge) excuse() {
	b := charge(&plan.State{Farm: &backends.Snapshot{Hosts: g.state.Farm.Hosts}, Groups: g.state.Groups}, g.policy, nil)
	b.serving = g.books.serving
	for id, j := range g.jobs {
		was, is := g.state.Memory.Jobs[id], g.p.Memory.Jobs[id]
		p := b.index(is.Pool)
		switch {
		case is.Pool == 0 || g.gone[id]:
		case p < 0 || !slices.Contains(b.pools(j), p):
			return
		case is.Kept > 0 && was.Kept > 0:
			b.aside[p] = min(was.Kept, is.Kept)
		case is.Kept == 0 && (j.State == backends.Running || was.Pool != 0 && was.Kept == 0):
			b.put(j, p)
		}
	}
	for p := range b.room {
		if b.left(p) < 0 {
			return
		}
	}
	for id := range g.gone {
		j := g.jobs[id]
		switch {
		case j == nil || len(b.pools(j)) == 0:
		case b.admit(j):
			b.remove(j, b.charged[id])
		default:
			delete(g.gone, id)
		}
	}
}

// lawCharge: with the victims gone and the beneficiaries in their slots, charged
// anew, no pool has less than before.
func (g *judge) lawCharge() {
	before := g.books.running(nil)
	anew := charge(g.state, g.policy, g.gone)
	for _, id := range slices.SortedFunc(maps.Keys(g.served), backends.ID.Compare) {
		if _, in := anew.charged[id]; !in && g.jobs[id] != nil {
			anew.admit(g.jobs[id]) // it enters in this very plan
		}
	}
	after := anew.running(g.served)
	for i, a := range g.policy.Allocations {
		if after[i] < before[i] {
			g.d.breach(lawCharge, "pool %+v is charged %d slots before and %d after preempting %v", a, before[i], after[i], slices.Sorted(idsOf(g.gone)))
		}
	}
}

func idsOf(set map[backends.ID]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for id := range set {
			if !yield(id.String()) {
				return
			}
		}
	}
}

// lawTrigger: a beneficiary has room in a pool that it matches, beside all that
// is charged there.
func (g *judge) lawTrigger() {
	for _, r := range g.fresh {
		b := g.jobs[r.Beneficiary]
		if b == nil || offForm(b, r.Hosts) != "" {
			continue // lawUse or lawForm says so
		}
		pools := g.books.pools(b)
		if len(pools) == 0 {
			g.d.breach(lawTrigger, "reclaim %d serves job %v, which matches no pool in force", r.ID, b.ID)
			continue
		}
		if !g.feasible(b.Project) {
			g.d.breach(lawTrigger, "reclaim %d serves job %v of %d slots: however its pools %v are packed, they have no room for it; charged: %v", r.ID, b.ID, b.Slots, pools, g.books)
		}
	}
}

// waits reports whether a job waits for slots: another one, even a beneficiary, has no room.
func waits(j *backends.Job) bool {
	return j.Eligible() || j.State == backends.Suspended && j.Resuming
}

// stranded reports whether a pending job can't start because a host that it is pinned to is gone:
// it waits for slots elsewhere, and a plan that serves it pins it there.
func (g *judge) stranded(j *backends.Job) bool {
	gone := func(name string) bool {
		i := slices.IndexFunc(g.state.Farm.Hosts, func(h backends.Host) bool { return h.Name == name })
		return i < 0 || g.state.Farm.Hosts[i].State == backends.HostDown
	}
	return j.State == backends.Pending && j.Wait == backends.WaitOther && slices.ContainsFunc(j.Pinned, gone)
}

// feasible reports whether the running jobs of a project that were charged before,
// and its waiting beneficiaries of open reclaims, fit into its pools together in any way. It
// reports true if it finds none within 20,000 tries.
func (g *judge) feasible(project string) bool {
	var jobs []*backends.Job
	for id, j := range g.jobs {
		_, charged := g.books.charged[id]
		before := g.state.Memory.Jobs[id]
		if j.Project == project && (g.served[id] && (waits(j) || g.stranded(j)) || charged && j.State == backends.Running && before.Pool != 0 && before.Kept == 0 && !g.books.strayed(j, before)) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *backends.Job) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), a.ID.Compare(b.ID))
	})
	room := make([]int, len(g.policy.Allocations))
	for i, a := range g.policy.Allocations {
		room[i] = a.Guarantee
	}
	tries := 20000
	var fit func(n int) bool
	fit = func(n int) bool {
		if n == len(jobs) || tries == 0 {
			return true
		}
		tries--
		for _, p := range g.books.pools(jobs[n]) {
			if room[p] < jobs[n].Slots {
				continue
			}
			room[p] -= jobs[n].Slots
			if fit(n + 1) {
				return true
			}
			room[p] += jobs[n].Slots
		}
		return false
	}
	return fit(0)
}

// lawBeyond: no account loses more slots than it runs without a charge.
func (g *judge) lawBeyond() {
	beyond, lost := map[string]int{}, map[string]int{}
	for _, j := range g.jobs {
		if _, charged := g.books.charged[j.ID]; j.State == backends.Running && !charged && !leaving(j, &g.state.Memory) {
			beyond[g.books.account(j)] += j.Slots
		}
	}
	for id := range g.gone {
		if j := g.jobs[id]; j != nil {
			lost[g.books.account(j)] += j.Slots
		}
	}
	for account, n := range lost {
		if n > beyond[account] {
			g.d.breach(lawBeyond, "%s loses %d slots and runs %d beyond its guarantees; preempted: %v; charged: %v", account, n, beyond[account], slices.Sorted(idsOf(g.gone)), g.books)
		}
	}
}

// lawCaps: the victims of one cycle's time, but for those of its first beneficiary,
// and the jobs that one account loses within an hour, are no more than R22 allows. The
// farm counts by its slots that are up.
func (g *judge) lawCaps() {
	slots := 0
	for _, h := range g.state.Farm.Hosts {
		if h.State == backends.HostUp {
			slots += h.Slots
		}
	}
	victims, first := 0, true
	lost := map[string]int{}
	for i := range g.p.Memory.Reclaims {
		r := &g.p.Memory.Reclaims[i]
		ago := g.p.At.Sub(r.Planned)
		if ago < cycle*3/4 {
			if !first {
				victims += len(r.Victims)
			}
			first = false
		}
		for _, v := range r.Victims {
			if ago < time.Hour && (v.Fate == plan.Taken || v.Fate == plan.Intended && r.Phase.Open()) {
				lost[loser(&v)]++
			}
		}
	}
	if most := max(g.policy.MaxVictims, (slots+19)/20); victims > most && len(g.fresh) > 0 {
		g.d.breach(lawCaps, "%d jobs are preempted in a cycle after its first beneficiary's, at most %d may be", victims, most)
	}
	for _, r := range g.fresh {
		for _, v := range r.Victims {
			account, others := loser(&v), 0
			for _, a := range g.policy.Allocations {
				if account != "project "+a.Project {
					others += a.Guarantee
				}
			}
			if most := max(g.policy.MaxVictimsPerProject, others); lost[account] > most {
				g.d.breach(lawCaps, "%s loses %d jobs within an hour, at most %d may be preempted", account, lost[account], most)
			}
		}
	}
}

// loser returns what a victim counted under, as books.account writes it.
func loser(v *plan.Victim) string {
	if v.Project != "" {
		return "project " + v.Project
	}
	return "user " + v.User
}

// offer is what a host has free.
type offer struct {
	slots  int
	memory int64
	counts bool // its memory is managed
	whole  int  // slots of the host
	has    map[string]int
}

// take subtracts what a job needs of a host, or adds it.
func (o *offer) take(needs []backends.Amount, sign int) {
	for _, need := range needs {
		o.has[need.Name] -= sign * need.Count
	}
}

// lacks reports whether a job needs more of the host's resources than there are.
func (o *offer) lacks(needs []backends.Amount) bool {
	return slices.ContainsFunc(needs, func(need backends.Amount) bool { return o.has[need.Name] < need.Count })
}

// takes returns how many slots a job takes of a host where it has some: an exclusive one
// has the host for itself.
func (o *offer) takes(j *backends.Job, slots int) int {
	if j.Exclusive {
		return o.whole
	}
	return slots
}

// offers returns what the hosts have free once jobs that are leaving are gone, less
// what is nominated for the beneficiaries of earlier reclaims.
func (g *judge) offers() map[string]*offer {
	all := map[string]*offer{}
	for _, h := range g.state.Farm.Hosts {
		if h.State == backends.HostUp {
			all[h.Name] = &offer{h.Slots, h.Memory, h.Memory > 0, h.Slots, map[string]int{}}
			all[h.Name].take(h.Has, -1)
		}
	}
	for _, j := range g.jobs {
		switch {
		case j.State == backends.Running && !j.Ending && !leaving(j, &g.state.Memory):
			addOffer(all, j, -1, -1)
		case j.State == backends.Suspended:
			addOffer(all, j, 0, -1)
		}
	}
	for i := range g.p.Memory.Reclaims { // not one that this plan ends
		r := &g.p.Memory.Reclaims[i]
		if b := g.jobs[r.Beneficiary]; g.served[r.Beneficiary] && r.Phase.Open() && b != nil && !slices.Contains(g.fresh, r) {
			for _, p := range r.Hosts {
				if o := all[p.Host]; o != nil {
					o.slots -= min(o.takes(b, p.Slots), max(o.slots, 0))
					if b.State != backends.Suspended {
						o.memory -= min(perSlot(b)*int64(p.Slots), max(o.memory, 0))
						o.take(b.Needs, 1)
					}
				}
			}
		}
	}
	return all
}

func perSlot(j *backends.Job) int64 { return (j.Memory + int64(j.Slots) - 1) / int64(j.Slots) }

func addOffer(all map[string]*offer, j *backends.Job, slots int, memory int64) {
	for _, p := range j.Hosts {
		if o := all[p.Host]; o != nil {
			o.slots += slots * o.takes(j, p.Slots)
			o.memory += memory * perSlot(j) * int64(p.Slots)
			o.take(j.Needs, int(-memory))
		}
	}
}

// lawUse: every act belongs to a reclaim whose beneficiary waits for slots, may
// run where they come free, fits there, and would not fit without each victim.
func (g *judge) lawUse() {
	offers := g.offers()
	acts := map[backends.ID]bool{}
	for _, r := range g.fresh {
		b := g.jobs[r.Beneficiary]
		if b == nil || !waits(b) && !g.stranded(b) {
			g.d.breach(lawUse, "reclaim %d serves job %v, which does not wait for slots", r.ID, r.Beneficiary)
			continue
		}
		gain := 0
		for _, v := range r.Victims {
			j := g.jobs[v.ID]
			if j == nil || j.State != backends.Running || acts[v.ID] || !j.Started.Equal(v.Started) {
				g.d.breach(lawUse, "reclaim %d preempts job %v, which does not run or is preempted already", r.ID, v.ID)
				continue
			}
			acts[v.ID] = true
			gain += g.useful(j, r, b)
			memory := int64(1)
			if tag, _, _ := backends.ParseTag(j.Tag); tag.Preempt == backends.PreemptSuspend {
				memory = 0
			}
			addOffer(offers, j, 1, memory)
		}
		if !g.othersWait(b.ID) {
			g.checkNeeded(r, b, offers)
		}
		g.checkFit(r, b, offers)
		for _, v := range r.Victims {
			if j := g.jobs[v.ID]; j != nil && b.Memory == 0 && len(b.Needs) == 0 && !formed(b) && !b.Exclusive && gain-g.useful(j, r, b) >= b.Slots || j != nil && g.useful(j, r, b) == 0 {
				g.d.breach(lawUse, "reclaim %d frees %d slots where job %v of %d may run: job %v is not needed", r.ID, gain, b.ID, b.Slots, v.ID)
			}
		}
	}
	for _, a := range g.acts {
		if !acts[a.Job] && !slices.ContainsFunc(g.state.Memory.Reclaims, func(r plan.Reclaim) bool { return r.ID == a.Reclaim && r.Phase.Open() }) {
			g.d.breach(lawUse, "%s of job %v belongs to no reclaim", a.Verb, a.Job)
		}
	}
}

// othersWait reports whether another job waits with room in a pool, for which free slots may
// be meant.
func (g *judge) othersWait(beneficiary backends.ID) bool {
	for id, j := range g.jobs {
		if m := g.p.Memory.Jobs[id]; id != beneficiary && m.Pool != 0 && j.State != backends.Running && !g.served[id] {
			return true
		}
	}
	return false
}

// checkNeeded checks that a beneficiary would not fit where its reclaim says without any one of
// its victims, which the offers have as gone: each one frees some of what it lacks.
func (g *judge) checkNeeded(r *plan.Reclaim, b *backends.Job, offers map[string]*offer) {
	for _, v := range r.Victims {
		j := g.jobs[v.ID]
		if j == nil {
			continue
		}
		needed := false
		for _, p := range r.Hosts {
			o := offers[p.Host]
			at := slices.IndexFunc(j.Hosts, func(q backends.Placement) bool { return q.Host == p.Host })
			if o == nil || at < 0 {
				continue
			}
			without := offer{o.slots - j.Hosts[at].Slots, o.memory, o.counts, o.whole, maps.Clone(o.has)}
			if tag, _, _ := backends.ParseTag(j.Tag); tag.Preempt != backends.PreemptSuspend {
				without.memory -= perSlot(j) * int64(j.Hosts[at].Slots)
				without.take(j.Needs, 1)
			}
			memory, needs := perSlot(b)*int64(p.Slots), b.Needs
			if b.State == backends.Suspended {
				memory, needs = 0, nil
			}
			needed = needed || without.slots < o.takes(b, p.Slots) || o.counts && without.memory < memory || without.lacks(needs)
		}
		if !needed {
			g.d.breach(lawUse, "reclaim %d: job %v fits on %v without the slots of job %v", r.ID, b.ID, r.Hosts, v.ID)
		}
	}
}

// useful returns how many of a victim's slots lie where its beneficiary may run.
func (g *judge) useful(victim *backends.Job, r *plan.Reclaim, b *backends.Job) int {
	if len(r.Hosts) == 0 {
		return 0 // it is served nowhere
	}
	n := 0
	for _, p := range victim.Hosts {
		here := slices.ContainsFunc(r.Hosts, func(w backends.Placement) bool { return w.Host == p.Host })
		if here || !b.OneHost && setOf(g.policy, p.Host) == setOf(g.policy, r.Hosts[0].Host) && suits(b, p.Host) {
			n += p.Slots
		}
	}
	return n
}

// checkFit checks that a beneficiary fits where its reclaim says that it will run,
// and takes that off the offers.
func (g *judge) checkFit(r *plan.Reclaim, b *backends.Job, offers map[string]*offer) {
	for _, p := range r.Hosts {
		o := offers[p.Host]
		if o == nil {
			g.condemn(r)
			g.d.breach(lawUse, "reclaim %d: job %v can't run on %s", r.ID, b.ID, p.Host)
			return
		}
		memory, needs := perSlot(b)*int64(p.Slots), b.Needs
		if b.State == backends.Suspended {
			memory, needs = 0, nil
		}
		if o.slots < p.Slots || o.counts && o.memory < memory || o.lacks(needs) { // lawAlone judges the rest of the host
			g.condemn(r)
			g.d.breach(lawUse, "reclaim %d: job %v of %d slots, %d bytes and %v does not fit on %s, which will have %d slots, %d bytes and %v", r.ID, b.ID, p.Slots, memory, needs, p.Host, o.slots, o.memory, o.has)
		}
		o.take(needs, 1)
		o.slots -= o.takes(b, p.Slots)
		o.memory -= memory
	}
}

// lawSame: the same state, written and read again, and with what has no order in
// another order, gives the same plan.
func (g *judge) lawSame() {
	state, policy := *g.state, *g.policy
	data, err := json.Marshal(g.state.Memory)
	if err != nil {
		panic(err)
	}
	state.Memory = plan.Memory{}
	if err := json.Unmarshal(data, &state.Memory); err != nil {
		panic(err)
	}
	farm := *g.state.Farm
	farm.Hosts, farm.Ended = reversed(farm.Hosts), reversed(farm.Ended)
	state.Farm = &farm
	state.Groups = map[string][]string{}
	for user, groups := range g.state.Groups {
		state.Groups[user] = reversed(groups)
	}
	policy.Projects, policy.Allocations = reversed(policy.Projects), reversed(policy.Allocations)
	again := plan.Make(state, policy, g.p.At)
	one, two := encoded(g.p), encoded(&again)
	if !bytes.Equal(one, two) {
		g.d.breach(lawSame, "the same state gave\n%s\nand\n%s", differing(one, two), differing(two, one))
	}
}

func reversed[T any](s []T) []T {
	c := slices.Clone(s)
	slices.Reverse(c)
	return c
}

func encoded(p *plan.Plan) []byte {
	c := *p
	c.Memory.LastAction = time.Time{} // the engine's, once it acted
	if len(c.Memory.Jobs) == 0 {
		c.Memory.Jobs = nil
	}
	if len(c.Memory.Reclaims) == 0 {
		c.Memory.Reclaims = nil
	}
	if len(c.Memory.RunTimes) == 0 {
		c.Memory.RunTimes = nil
	}
	data, err := json.Marshal(&c)
	if err != nil {
		panic(err)
	}
	return data
}

// differing returns a's text around the first place where b differs.
func differing(a, b []byte) []byte {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return a[max(0, i-200):min(len(a), i+200)]
}

// pinnedTooLong checks that a beneficiary's pin ends by itself within hold_limit, should
// the engine die after this cycle (R21).
func (d *drive) pinnedTooLong(farm *backends.Snapshot) {
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.State == backends.Pending && len(j.Pinned) > 0 && (j.PinEnds.IsZero() || j.PinEnds.After(farm.At.Add(seconds(d.HoldLimit)))) {
			d.breach(lawReleased, "job %v is pinned to %v until %v, longer than hold_limit", j.ID, j.Pinned, sinceStart(j.PinEnds))
		}
	}
}

// heldTooLong checks that the engine, which dies now, leaves no hold that lasts longer
// than hold_limit, and no suspended job that nothing resumes (R21).
func (d *drive) heldTooLong(farm *backends.Snapshot) {
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		if j.HeldUntil.After(farm.At.Add(seconds(d.HoldLimit))) {
			d.breach(lawReleased, "job %v is held until %v, longer than hold_limit", j.ID, sinceStart(j.HeldUntil))
		}
		if i := slices.Index(d.ids, j.ID); i >= 0 && d.Jobs[i].Stopped > 0 {
			continue // its owner resumes it
		}
		if j.State == backends.Suspended && j.Mark != "" && j.HeldUntil.IsZero() && !j.Resuming {
			d.breach(lawReleased, "job %v was suspended by us and nothing resumes it", j.ID)
		}
	}
}

// checkLeftovers reports jobs that never ended and what the engine did not undo, once all should
// be over (lawReleased).
func (d *drive) checkLeftovers(farm *backends.Snapshot) {
	for i := range farm.Jobs {
		j := &farm.Jobs[i]
		d.breach(lawReleased, "job %v never ends: %v, %s; held until %v, pinned to %v, resuming %v, mark %q", j.ID, j.State, j.Reason, sinceStart(j.HeldUntil), j.Pinned, j.Resuming, j.Mark)
	}
	if d.EngineDies {
		return
	}
	for _, r := range d.ledger.Memory.Reclaims {
		if r.Phase.Open() {
			d.breach(lawReleased, "reclaim %d is still %s: %s", r.ID, r.Phase, r.Why)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(d.ledger.Memory.Jobs), backends.ID.Compare) {
		d.breach(lawReleased, "job %v has ended and is still remembered", id)
	}
}

func sinceStart(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(start())
}
