package dummy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// gather carries out R29's mode reserve: heavy jobs are held, gather dummies on a host
// and start once these are in place.
func (p *planner) gather() {
	slices.SortStableFunc(p.heavy, p.before)
	held, firstNormal := 0, true
	for _, u := range p.heavy {
		if u.Stage == Runs || u.job.State == backends.Suspended || p.in.Barred[u.Job] {
			if u.Stage != Runs {
				p.dropAll(u, "it lost its slots to a reclaim")
			}
			continue
		}
		p.holdUntilReady(u)
		was := p.in.Memory.Gathers[u.Job]
		g := Gather{Backoff: was.Backoff}
		h := p.chooseHost(u, &g, was)
		if h != nil && u.Normal {
			if most := p.policy.MaxGathering * float64(p.slots); !firstNormal && !u.waitsForSlot() && float64(held+h.slotsFor(u)) > most {
				u.Why = fmt.Sprintf("others gather %s, and max_gathering allows %.0f in all", slotCount(held), most)
				h = nil
			} else {
				held, firstNormal = held+h.slotsFor(u), false
			}
		}
		if u.waitsForSlot() && (h == nil || h.Name != u.Host) {
			// It may start at any moment: its dummies go once it is held again.
			p.addFirst(Step{Do: Hold, Job: u.Job, Until: p.now.Add(p.policy.HoldLimit), Reason: "it is not to start on " + u.Host})
			u.Stage, u.Why = Gathers, ""
			if h != nil { // the host where it gathers next is kept for it
				h.gathering = true
				h.wanted += u.lacks(h)
			}
			if h = p.byName[u.Host]; h != nil {
				h.gathering = true
			}
			p.r.steps.Memory.Gathers[u.Job] = was
			continue
		}
		if h == nil {
			p.dropAll(u, "it does not gather now: "+u.Why)
			u.Host = ""
			p.r.steps.Memory.Gathers[u.Job] = g
			continue
		}
		if u.Host != h.Name {
			p.dropAll(u, "its dummies belong on "+h.Name)
			u.Host = h.Name
		}
		g.Host, g.Since = h.Name, p.now
		if was.Host == h.Name {
			g.Since = was.Since
		}
		p.r.steps.Memory.Gathers[u.Job] = g
		u.Slots = h.slotsFor(u)
		h.gathering = true
		h.wanted += u.lacks(h)
		p.gatherOn(u, h)
	}
}

// before orders heavy jobs by their turn to get a host: beneficiaries of open reclaims,
// PBA jobs, jobs that gather already, others; then by priority (but not among those that
// gather), then by ID.
func (p *planner) before(a, b *Unit) int {
	rank := func(u *Unit) int {
		switch {
		case p.in.ReclaimHosts[u.Job] != "":
			return 0
		case !u.Normal:
			return 1
		case u.Host != "":
			return 2
		}
		return 3
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if c := cmp.Compare(b.job.Priority, a.job.Priority); c != 0 && rank(a) != 2 {
		return c
	}
	return a.Job.Compare(b.Job)
}

// holdUntilReady holds a heavy job, or renews its hold before it ends, unless its dummies are
// in place.
func (p *planner) holdUntilReady(u *Unit) {
	j := u.job
	wouldStart := j.State == backends.Pending && (j.Wait == backends.WaitResources || j.Wait == backends.WaitTime)
	if !wouldStart && j.HeldUntil.IsZero() {
		return // it waits for another reason, which a hold might hide
	}
	if p.released(u) {
		return
	}
	left := j.HeldUntil.Sub(p.now)
	tooLong := left > 2*p.policy.HoldLimit                             // it was set while the clock was ahead
	if left < max(p.policy.HoldLimit/2, 4*p.policy.Cycle) || tooLong { // cycles may fail
		p.addFirst(Step{Do: Hold, Job: u.Job, Until: p.now.Add(p.policy.HoldLimit), Reason: "it waits until its dummies are in place"})
	}
}

// waitsForSlot reports whether a heavy job that has dummies waits for nothing but a free slot.
func (u *Unit) waitsForSlot() bool {
	return u.job.State == backends.Pending && u.job.HeldUntil.IsZero() && len(u.job.Pinned) > 0 && len(u.Dummies) > 0
}

// released reports whether a heavy job waits for its own slots only.
func (p *planner) released(u *Unit) bool {
	h := p.byName[u.Host]
	return h != nil && slices.Equal(u.job.Pinned, []string{u.Host}) && u.job.HeldUntil.IsZero() && p.ready(u, h)
}

// ready reports whether a heavy job may start: its dummies are there, and if it needs
// several slots of its own, these are free or dummies' too.
func (p *planner) ready(u *Unit, h *host) bool {
	k, there := h.slotsFor(u), len(u.Dummies)
	return there >= k-u.Own && (u.Own == 1 || there+max(h.free, 0) >= k)
}

// chooseHost chooses a heavy job's host, nil with Unit.Why if it can't gather now.
func (p *planner) chooseHost(u *Unit, g *Gather, was Gather) *host {
	j := u.job
	switch {
	case j.State == backends.Held:
		u.Why = "its owner holds it"
		return nil
	case j.Wait == backends.WaitDependency, j.Wait == backends.WaitThrottle:
		u.Why = "it waits for another job"
		return nil
	case j.BeginTime.After(p.now):
		u.Why = "its begin time has not come"
		return nil
	case j.Wait != backends.WaitResources && j.HeldUntil.IsZero() && len(j.Pinned) == 0:
		u.Why = "it does not wait for slots"
		return nil
	case p.now.Before(was.Backoff):
		u.Why = "it gave way to others; it gathers again not before " + was.Backoff.Format("15:04:05")
		return nil
	}
	if u.Normal && was.Host != "" && p.now.Sub(was.Since) > p.policy.GatherTimeout && !p.released(u) {
		g.Backoff = p.now.Add(p.policy.GatherTimeout)
		u.Why = fmt.Sprintf("its dummies were not in place after gather_timeout (%s)", p.policy.GatherTimeout)
		return nil
	}
	var best *host
	for _, h := range p.suitable(u) {
		if h.gathering && u.lacks(h) > h.free-h.wanted || h.slotsFor(u)+h.stuck > h.Slots || !u.Normal && h.slotsFor(u) != u.least {
			continue
		}
		if p.in.OfPool != nil && !p.in.OfPool(u.Job, h.Name) {
			continue
		}
		if reclaimHost := p.in.ReclaimHosts[u.Job]; reclaimHost != "" && reclaimHost != h.Name {
			continue
		}
		if best == nil || p.better(u, h, best) {
			best = h
		}
	}
	switch {
	case best != nil:
	case len(p.suitable(u)) == 0:
		u.Why = "no host that it may run on has that much memory"
	default:
		u.Why = "others gather on every host that it fits on"
	}
	return best
}

// better reports whether a heavy job gathers on a rather than on b: where nothing is
// missing; where it gathers already; where it needn't wait for another heavy job's end;
// where fewest slots are missing; where least memory is left over; by name.
func (p *planner) better(u *Unit, a, b *host) bool {
	missing := func(h *host) int { return max(u.lacks(h)-max(h.free-h.wanted, 0), 0) }
	if (missing(a) == 0) != (missing(b) == 0) {
		return missing(a) == 0
	}
	if (a.Name == u.Host) != (b.Name == u.Host) {
		return a.Name == u.Host
	}
	conflict := func(h *host) bool { return h.units+h.slotsFor(u) > h.Slots }
	if conflict(a) != conflict(b) {
		return conflict(b)
	}
	if c := cmp.Compare(missing(a), missing(b)); c != 0 {
		return c < 0
	}
	if c := cmp.Compare(a.Memory-u.need, b.Memory-u.need); c != 0 {
		return c < 0
	}
	return a.Name < b.Name
}

// lacks returns how many slots of a host a heavy job does not have yet.
func (u *Unit) lacks(h *host) int {
	n := h.slotsFor(u)
	if h.Name == u.Host {
		n -= len(u.Dummies)
	}
	return max(n, 0)
}

// gatherOn places a heavy job's dummies on its host, or pins and releases the job.
func (p *planner) gatherOn(u *Unit, h *host) {
	rank := gathers
	switch {
	case p.in.ReclaimHosts[u.Job] != "":
		rank = urgent
	case !u.Normal:
		rank = gathersPBA
	}
	want := u.Slots - u.Own
	if !p.ready(u, h) {
		u.Stage = Gathers
		if u.Own > 1 || !u.Normal { // its own slots come one by one, too, or are kept for it
			want = u.Slots
		}
		p.complete(u, want, rank, fmt.Sprintf("it gathers %s on %s", slotCount(want), h.Name))
		return
	}
	u.Stage = Ready
	// A pin that a reclaim set ends by itself: the job would start where its memory is not free.
	if !slices.Equal(u.job.Pinned, []string{h.Name}) || !u.job.PinEnds.IsZero() {
		p.addLast(Step{Do: Pin, Job: u.Job, Host: h.Name, Reason: "its dummies are in place there"})
	}
	if !u.job.HeldUntil.IsZero() {
		p.addLast(Step{Do: Release, Job: u.Job, Reason: "its dummies are in place"})
	}
	p.complete(u, want, rank, "it is about to start")
}

// heldByFilter reports whether a job's hold is still the submit filter's.
func heldByFilter(j *backends.Job) bool {
	tag, _, err := backends.ParseTag(j.Tag)
	return err == nil && !tag.Fixed && tag.Held != 0 && tag.Held == j.HeldUntil.Unix()
}

// releaseHeld releases jobs that the submit filter, which does not know the hosts, held and
// that need no dummies; in other modes than reserve, all jobs that were held for dummies.
func (p *planner) releaseHeld() {
	for i := range p.in.Farm.Jobs {
		j := &p.in.Farm.Jobs[i]
		if j.State != backends.Pending || j.HeldUntil.IsZero() || p.in.Barred[j.ID] {
			continue
		}
		_, gathered := p.in.Memory.Gathers[j.ID]
		switch {
		case p.policy.Mode != Reserve && (gathered || heldByFilter(j)):
			p.addFirst(Step{Do: Release, Job: j.ID, Reason: "dummies are not gathered any more"})
		case p.policy.Mode == Reserve && p.r.byJob[j.ID] == nil && heldByFilter(j):
			p.addFirst(Step{Do: Release, Job: j.ID, Reason: "it needs no dummies"})
		}
	}
}

// couldBeLight reports whether a pending job may have a dummy's place: a normal job of
// one slot whose need of memory is known. assignLights checks that it is small.
func (p *planner) couldBeLight(j *backends.Job, need int64) bool {
	return j.Eligible() && max(j.Slots, 1) == 1 && need > 0 && !j.Exclusive && len(j.Pinned) == 0 && j.HeldUntil.IsZero() &&
		j.Priority.Level() < backends.LevelPBA && (len(p.queues) == 0 || p.queues[j.Queue])
}

// patience is the least time that a light job has to start in its place.
const patience = 30 * time.Second

// Finish completes the plan for dummy jobs, once the rest of the cycle is planned: light
// jobs of no pool get dummies' places, and jobs that gather give way to the demands.
func (r *Result) Finish(pooled map[backends.ID]bool, demands []Demand) Steps {
	r.assignLights(pooled)
	r.giveWay(demands)
	return r.steps
}

// assignLights assigns dummies' places to light jobs that wait (R30). Jobs of a pool get
// none: the allocation's rules decide where they start.
func (r *Result) assignLights(pooled map[backends.ID]bool) {
	p := r.planner
	if p == nil || p.policy.Mode == Off {
		return
	}
	for id := range r.steps.Memory.Lights {
		if _, running := r.Lights[id]; !running && pooled[id] { // it has entered one since
			delete(r.steps.Memory.Lights, id)
		}
	}
	waiting := slices.DeleteFunc(p.waiting, func(j *backends.Job) bool { return pooled[j.ID] })
	slices.SortStableFunc(waiting, func(a, b *backends.Job) int { return cmp.Compare(b.Priority, a.Priority) })
	free := 0
	for _, h := range p.hosts {
		free += max(h.free, 0)
	}
	waiting = waiting[min(free, len(waiting)):] // they start anyway
	for _, u := range p.heavy {
		if u.Stage != Runs || u.Own+len(u.Dummies)-u.expiring+u.lights < u.Slots {
			continue
		}
		h := p.byName[u.Host]
		left := h.Memory/int64(h.Slots)*int64(u.Slots) - u.need - u.light
		freeSlots := len(u.Dummies) - u.expiring
		waiting = slices.DeleteFunc(waiting, func(j *backends.Job) bool {
			need := p.needs(j)
			if freeSlots <= 0 || need > left || float64(need) > p.policy.LightFraction*float64(h.Memory)/float64(h.Slots) ||
				len(j.Asked) > 0 && !slices.Contains(j.Asked, h.Name) {
				return false
			}
			p.replaceByLight(j, u, h)
			left -= need
			freeSlots--
			return true
		})
	}
}

// readLights records which light jobs have a place, and which could have one.
func (p *planner) readLights() {
	if p.policy.Mode == Off {
		return
	}
	for _, j := range p.light {
		was, known := p.in.Memory.Lights[j.ID]
		if !known {
			p.waiting = append(p.waiting, j)
			continue
		}
		u := p.r.byJob[was.For]
		there := u != nil && u.Stage == Runs && u.Host == was.Host
		running := j.State == backends.Running && len(j.Hosts) == 1 && j.Hosts[0].Host == was.Host
		coming := j.State == backends.Pending && p.now.Sub(was.At) < max(patience, 3*p.policy.Cycle)
		if !there || !running && !coming {
			continue
		}
		p.r.steps.Memory.Lights[j.ID] = was
		u.lights++
		u.light += p.needs(j)
		if running {
			p.r.Lights[j.ID] = was.For
		}
	}
}

// replaceByLight ends a dummy for a light job, which takes its slot; another dummy is submitted
// and takes the slot after it.
func (p *planner) replaceByLight(j *backends.Job, u *Unit, h *host) {
	d := u.Dummies[len(u.Dummies)-1]
	u.Dummies = u.Dummies[:len(u.Dummies)-1]
	why := fmt.Sprintf("it is light: it has the place of a dummy of %v on %s", u.Job, h.Name)
	p.addLast(Step{Do: Pin, Job: j.ID, For: u.Job, Host: h.Name, Reason: why})
	p.addLast(Step{Do: Rank, Job: j.ID, For: u.Job, Priority: urgent, Reason: why})
	p.addLast(Step{Do: Place, Job: u.Job, Host: h.Name, Count: 1, Priority: urgent, Reason: fmt.Sprintf("it comes back after light job %v", j.ID)})
	p.addLast(Step{Do: Drop, Job: u.Job, Dummies: []backends.ID{d}, Reason: fmt.Sprintf("light job %v has its place", j.ID)})
	p.r.steps.Memory.Lights[j.ID] = Light{For: u.Job, Host: h.Name, At: p.now}
}

// Demand is a PBA job that is about to start on a host, and the slots that it lacks there.
type Demand struct {
	Host    string
	Lacking int
	Before  func(*Unit) bool // the job goes before the unit
}

// giveWay makes heavy jobs that gather give way to PBA jobs that go before them (R13,
// R17). On hosts where such a job is about to start no dummies are placed for now; as
// many dummies end as it lacks slots.
func (r *Result) giveWay(demands []Demand) {
	const why = "it gives way to PBA jobs"
	for _, u := range slices.Backward(r.Units) {
		if u.Stage != Gathers && u.Stage != Ready {
			continue
		}
		there, n := false, 0 // n of its dummies end
		for i := range demands {
			if d := &demands[i]; d.Host == u.Host && d.Before(u) {
				gets := min(len(u.Dummies)-n, d.Lacking)
				there, n, d.Lacking = true, n+gets, d.Lacking-gets
			}
		}
		if !there {
			continue
		}
		if u.Stage == Gathers {
			r.steps.Last = slices.DeleteFunc(r.steps.Last, func(s Step) bool { return s.Job == u.Job && s.Do == Place })
			if len(u.Coming) > 0 {
				r.steps.Last = append(r.steps.Last, Step{Do: Drop, Job: u.Job, Dummies: u.Coming, Reason: why})
				u.Coming = nil
			}
		}
		if n == 0 {
			continue
		}
		if u.Stage == Ready && u.job.HeldUntil.IsZero() {
			// It may start at any moment: its dummies go once it is held again.
			g := r.steps.Memory.Gathers[u.Job]
			g.Backoff = r.planner.now.Add(2 * r.planner.policy.Cycle)
			r.steps.Memory.Gathers[u.Job] = g
			r.steps.Last = append(r.steps.Last, Step{Do: Hold, Job: u.Job, Until: r.planner.now.Add(r.planner.policy.HoldLimit), Reason: why})
			continue
		}
		if u.Stage == Ready { // not released yet
			r.steps.Last = slices.DeleteFunc(r.steps.Last, func(s Step) bool { return s.Job == u.Job })
			u.Stage = Gathers
		}
		r.steps.Last = append(r.steps.Last, Step{Do: Drop, Job: u.Job, Dummies: slices.Clone(u.Dummies[len(u.Dummies)-n:]), Reason: why})
		u.Dummies = u.Dummies[:len(u.Dummies)-n]
	}
}

// fold makes the snapshot that the allocation's rules see.
func (p *planner) fold() {
	p.r.Units = p.heavy
	farm := *p.in.Farm
	farm.Jobs = make([]backends.Job, 0, len(p.in.Farm.Jobs))
	for i := range p.in.Farm.Jobs {
		j := &p.in.Farm.Jobs[i]
		if j.IsDummy() && !j.IsStandby() {
			continue
		}
		farm.Jobs = append(farm.Jobs, *j)
		mine := &farm.Jobs[len(farm.Jobs)-1]
		if u := p.r.byJob[j.ID]; u != nil {
			p.foldHeavy(u, mine)
		} else if _, light := p.r.steps.Memory.Lights[j.ID]; light && j.State == backends.Pending {
			mine.Pinned = nil
			if j.Priority == urgent { // the engine's, until it starts
				mine.Priority = backends.At(backends.LevelNormal, backends.DefaultValue)
			}
		}
	}
	farm.Ended = slices.DeleteFunc(slices.Clone(farm.Ended), func(j backends.Job) bool { return j.IsDummy() })
	p.r.Farm = &farm
}

func (p *planner) foldHeavy(u *Unit, j *backends.Job) {
	switch {
	case p.policy.Mode == Off:
	case u.Stage == Runs:
		j.Slots = u.Slots
		j.Hosts = []backends.Placement{{Host: u.Host, Slots: u.Own + len(u.Dummies)}}
	case p.policy.Mode != Reserve, j.State != backends.Pending, p.in.Barred[u.Job]:
	default:
		// Pools are asked for the fewest slots that it needs on any host: its charge must
		// not depend on where it gathers just now.
		j.Slots, j.Memory, j.OneHost, j.HeldUntil = u.least, u.need, true, time.Time{}
		if u.Stage != Waits || p.mayWait(u) {
			j.Wait = backends.WaitResources
		}
		if p.in.ReclaimHosts[u.Job] == "" {
			j.Pinned, j.Shares = nil, nil
		}
		j.Asked = nil
		for _, h := range p.suitable(u) {
			if h.slotsFor(u) == u.least && (u.Stage != Ready || h.Name == u.Host) { // it may start there at any moment
				j.Asked = append(j.Asked, h.Name)
			}
		}
		if u.Host != "" {
			j.Keeps = []string{u.Host}
		}
	}
}

// mayWait reports whether a job that does not gather waits for nothing but slots.
func (p *planner) mayWait(u *Unit) bool {
	j := u.job
	return (j.Wait == backends.WaitResources || j.Wait == backends.WaitTime && !j.HeldUntil.IsZero()) && !j.BeginTime.After(p.now)
}
