package laws

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/miniq/manager"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// outageCase is a time in which a host is down or closed. Its runs go on.
type outageCase struct {
	Host, At, For int
	Closed        bool
}

// drawWhere gives some farms hosts with resources and a feature, jobs that ask for these or for
// hosts of their own, job arrays, jobs that are not understood, and hosts that come and go.
// Small numbers are drawn more often than large ones.
func (f *farm) drawWhere(t *rapid.T, d dice) {
	chance := func(what string, percent int) bool { return d.percent.Draw(t, what) >= 100-percent }
	if chance("resources", 45) {
		f.drawResources(t, d)
	}
	if chance("arrays", 60) {
		for i := range f.Jobs {
			// What is done to one job by its owner would be done to all elements.
			j := &f.Jobs[i]
			if chance("array", 40) && j.Slots <= 2 && j.Killed == 0 && j.Raised == 0 && j.Stopped == 0 && !j.Hold && !j.Interactive {
				j.Array = 2 + d.percent.Draw(t, "elements")%4
				j.Limit = d.percent.Draw(t, "limit") % 4
			}
		}
	}
	if chance("odd", 20) {
		for i := range f.Jobs {
			f.Jobs[i].Odd = chance("odd job", 30)
		}
	}
	if chance("exclusive", 55) {
		for i := range f.Jobs {
			j := &f.Jobs[i]
			if j.Project > 0 && chance("exclusive job", 40) && j.Array == 0 {
				j.Exclusive = true
			}
		}
	}
	for range []int{0, 1, 2, 4}[d.percent.Draw(t, "outages")/25] {
		o := outageCase{Host: d.percent.Draw(t, "which host") % len(f.Hosts), At: d.late.Draw(t, "goes"), For: 10 + 2*d.percent.Draw(t, "for"), Closed: chance("closed", 40)}
		if chance("just after a cycle", 60) {
			o.At = o.At/20*20 + 1 // while its victims end
		}
		f.Outages = append(f.Outages, o)
	}
	f.Forms = chance("forms", 80)
	if chance("even", 80) {
		for i := range f.Jobs {
			if j := &f.Jobs[i]; j.Slots > 1 && !j.OneHost && chance("even job", 80) {
				if j.Even = (j.Slots + 1) / (2 + d.percent.Draw(t, "hosts of an even job")%2); !f.holdsEvenly(j) {
					j.Even = 0
				}
			}
		}
	}
}

func (f *farm) drawResources(t *rapid.T, d dice) {
	for i := range f.Hosts {
		f.Hosts[i].GPUs = []int{2, 1, 0, 4}[d.percent.Draw(t, "host's gpus")%4]
		f.Hosts[i].Big = d.percent.Draw(t, "big host")%2 == 0
	}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		switch kind := d.percent.Draw(t, "needs") % 8; kind {
		case 1, 2, 3:
			j.GPUs = 1 + kind/3
		case 5:
			j.Big = true
		case 7:
			j.GPUs, j.Big = 1, true
		}
		if !f.holds(j) {
			j.GPUs, j.Big = 0, false
		}
	}
}

// holds reports whether the hosts that a job asks for could hold it, were they empty.
func (f *farm) holds(j *jobCase) bool {
	total := 0
	for i, h := range f.Hosts {
		if j.Host >= 0 && i != j.Host || h.GPUs < j.GPUs || j.Big && !h.Big {
			continue
		}
		slots := h.Slots
		if h.Memory > 0 && j.Memory > 0 {
			slots = int(min(int64(slots), int64(h.Memory)*gigabyte/perSlot(&backends.Job{Slots: j.Slots, Memory: int64(j.Memory) * gigabyte})))
		}
		if total += slots; slots >= j.Slots {
			return true
		}
	}
	return !j.OneHost && total >= j.Slots
}

// holdsEvenly reports whether empty hosts could hold a job with its slots on each of them.
func (f *farm) holdsEvenly(j *jobCase) bool {
	var could []backends.Host
	b := backends.Job{Slots: j.Slots, Memory: int64(j.Memory) * gigabyte, PerHost: j.Even}
	for i, h := range f.Hosts {
		if (j.Host < 0 || i == j.Host) && h.GPUs >= j.GPUs && (!j.Big || h.Big) {
			could = append(could, h.host(i))
		}
	}
	return j.Even > 0 && couldLie(could, &b)
}

func (h *hostCase) host(i int) backends.Host {
	of := backends.Host{Name: hostName(i), Slots: h.Slots, Memory: int64(h.Memory) * gigabyte}
	if h.GPUs > 0 {
		of.Has = []backends.Amount{{Name: "gpu", Count: h.GPUs}}
	}
	if h.Big {
		of.Features = []string{"big"}
	}
	return of
}

func (j *jobCase) specWhere(s *backends.Spec) {
	if j.GPUs > 0 {
		s.Needs = []backends.Amount{{Name: "gpu", Count: j.GPUs}}
	}
	if j.Big {
		s.Features = []string{"big"}
	}
	s.PerHost = j.Even
	if j.Array > 0 {
		s.Array = &backends.Array{Limit: j.Limit}
		for i := range j.Array {
			s.Array.Indices = append(s.Array.Indices, i+1)
		}
	}
}

// scheduleOutages lets hosts go and come back.
func (d *drive) scheduleOutages() {
	for _, o := range d.Outages {
		up := func(closed bool) func(*drive, int) {
			return func(d *drive, i int) {
				h := d.Hosts[i].host(i)
				d.shaken, d.shook = true, d.world.Now()
				d.world.Step(manager.NodeUp{Name: h.Name, Slots: h.Slots, Memory: h.Memory, Has: h.Has, Features: h.Features, Closed: closed})
			}
		}
		goes := up(true)
		if !o.Closed {
			goes = func(d *drive, i int) {
				d.shaken, d.shook = true, d.world.Now()
				d.world.Step(manager.NodeDown{Name: hostName(i)})
			}
		}
		d.events = append(d.events, happening{start().Add(seconds(o.At)), o.Host, goes}, happening{start().Add(seconds(o.At + o.For)), o.Host, up(false)})
	}
}

// useGPUs counts the units of a resource that runs take of a host.
func (u *usage) useGPUs(at time.Time, r *useOfRun, host string, sign int) {
	for _, need := range r.Spec.Needs {
		u.gpus[host] += sign * need.Count
		has := units(u.hosts[host], need.Name)
		if u.gpus[host] > has && u.overHas == "" {
			u.overHas = fmt.Sprintf("%v after the start: job %v: host %s has %d %s, %d are used", at.Sub(start()), r.ID, host, has, need.Name, u.gpus[host])
		}
	}
}

// odd reports whether a pending job is not understood.
func odd(j *backends.Job) bool { return j.Unserved != "" || j.Component }

// units returns how much a host has of a resource.
func units(h backends.Host, name string) int {
	for _, a := range h.Has {
		if a.Name == name {
			return a.Count
		}
	}
	return 0
}

// hasEnough reports whether an empty host has the resources that a job needs of it.
func hasEnough(h backends.Host, j *backends.Job) bool {
	return !slices.ContainsFunc(j.Needs, func(need backends.Amount) bool { return units(h, need.Name) < need.Count })
}

// suits reports whether a job may run on a host at all.
func suits(j *backends.Job, host string) bool {
	return (len(j.Asked) == 0 || slices.Contains(j.Asked, host)) && (j.Suits == nil || slices.Contains(j.Suits.Hosts, host))
}

// lawOdd: a job that is not understood has no room in a pool and takes none of the slots of
// others (R32).
func (g *judge) lawOdd() {
	for i := range g.state.Farm.Jobs {
		j := &g.state.Farm.Jobs[i]
		if j.State != backends.Pending || !odd(j) {
			continue
		}
		g.d.met[metOdd] = true
		if m := g.p.Memory.Jobs[j.ID]; m.Pool != 0 {
			g.d.breach(lawOdd, "job %v is not understood and has room in pool %d", j.ID, m.Pool)
		}
		for _, r := range g.fresh {
			if r.Beneficiary == j.ID {
				g.d.breach(lawOdd, "reclaim %d serves job %v, which is not understood", r.ID, j.ID)
			}
		}
	}
}

// lawThrottle: of an array no more elements have room in a pool, or are served, than may still
// start.
func (g *judge) lawThrottle() {
	type sum struct{ limit, runs, held, served int }
	arrays := map[int64]*sum{}
	at := serving(&g.p.Memory)
	for i := range g.state.Farm.Jobs {
		j := &g.state.Farm.Jobs[i]
		if j.ID.Index == 0 {
			continue
		}
		c := g.d.jobCase(j.ID)
		if c == nil || c.Limit == 0 {
			continue
		}
		a := arrays[j.ID.Job]
		if a == nil {
			a = &sum{limit: c.Limit}
			arrays[j.ID.Job] = a
		}
		m := g.p.Memory.Jobs[j.ID]
		switch {
		case j.State == backends.Running || j.State == backends.Suspended:
			a.runs++
			continue
		case m.Pool != 0:
			a.held++
		}
		if at[j.ID] != nil {
			a.served++
		}
	}
	for id, a := range arrays {
		left := max(a.limit-a.runs, 0)
		g.d.met[metThrottle] = g.d.met[metThrottle] || a.held > 0
		if a.held > left || a.served > left {
			g.d.breach(lawThrottle, "%d of the elements of array %d may run at a time and %d run: %d have room in a pool, %d are served", a.limit, id, a.runs, a.held, a.served)
		}
	}
}

// jobCase returns how a job was drawn.
func (d *drive) jobCase(id backends.ID) *jobCase {
	for i := range d.ids {
		if d.ids[i].Job == id.Job {
			return &d.Jobs[i]
		}
	}
	return nil
}

// lawPlace: where a beneficiary is served, the hosts suit it, have what it needs, lie in the
// form that it asks for, and are its own if it is exclusive.
func (g *judge) lawPlace() {
	for _, r := range g.fresh {
		b := g.jobs[r.Beneficiary]
		if b == nil || len(r.Victims) == 0 {
			continue
		}
		g.d.met[metNeeds] = g.d.met[metNeeds] || len(b.Needs) > 0
		g.d.met[metSuits] = g.d.met[metSuits] || b.Suits != nil
		g.d.met[metEven] = g.d.met[metEven] || !g.hypothetical && b.PerHost > 0
		g.d.met[metAlone] = g.d.met[metAlone] || b.Exclusive
		for _, p := range r.Hosts {
			i := slices.IndexFunc(g.state.Farm.Hosts, func(h backends.Host) bool { return h.Name == p.Host })
			if i < 0 || g.state.Farm.Hosts[i].State != backends.HostUp || !suits(b, p.Host) || !hasEnough(g.state.Farm.Hosts[i], b) {
				g.condemn(r)
				g.d.breach(lawPlace, "reclaim %d serves job %v on %s, which does not suit it", r.ID, b.ID, p.Host)
			}
		}
		if why := offForm(b, r.Hosts); why != "" {
			g.condemn(r)
			g.d.breach(lawForm, "reclaim %d serves job %v on %v: %s", r.ID, b.ID, r.Hosts, why)
		}
		if b.Exclusive {
			g.lawAlone(r, b)
		}
	}
}

// condemn keeps a reclaim out of lawUseless: another law found why it can't serve its job.
func (g *judge) condemn(r *plan.Reclaim) {
	if !g.hypothetical {
		g.d.condemned[r.ID] = true
	}
}

// preempts reports whether the plan preempts a job, for any of its reclaims.
func (g *judge) preempts(id backends.ID) bool {
	return slices.ContainsFunc(g.fresh, func(r *plan.Reclaim) bool {
		return slices.ContainsFunc(r.Victims, func(v plan.Victim) bool { return v.ID == id })
	})
}

// lawAlone: no job is left on the hosts that an exclusive beneficiary shall have for itself.
func (g *judge) lawAlone(r *plan.Reclaim, b *backends.Job) {
	for _, j := range g.jobs {
		on := slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool {
			return slices.ContainsFunc(r.Hosts, func(q backends.Placement) bool { return p.Host == q.Host })
		})
		tag, _, _ := backends.ParseTag(j.Tag)
		switch {
		case !on || j.ID == b.ID:
		case j.State == backends.Suspended:
			g.condemn(r)
			g.d.breach(lawAlone, "reclaim %d: exclusive job %v shall run on %v, where job %v is suspended", r.ID, b.ID, r.Hosts, j.ID)
		case j.State != backends.Running || j.Ending || leaving(j, &g.state.Memory) && tag.Preempt != backends.PreemptSuspend:
		case !g.preempts(j.ID) || tag.Preempt == backends.PreemptSuspend:
			g.condemn(r)
			g.d.breach(lawAlone, "reclaim %d: exclusive job %v shall run on %v, where job %v stays", r.ID, b.ID, r.Hosts, j.ID)
		}
	}
}

// offForm returns why a job's slots may not lie so on their hosts; "": they may.
func offForm(j *backends.Job, at []backends.Placement) string {
	hosts := map[string]bool{}
	odd, sum := 0, 0
	for _, p := range at {
		hosts[p.Host] = true
		sum += p.Slots
		if j.Unit > 1 && p.Slots%j.Unit != 0 {
			return fmt.Sprintf("%d slots are no multiple of %d", p.Slots, j.Unit)
		}
		if p.Slots != j.PerHost {
			odd++
		}
		if j.PerHost > 0 && p.Slots > j.PerHost {
			odd += 2
		}
	}
	switch {
	case len(hosts) != len(at):
		return "a host is named twice"
	case sum != j.Slots:
		return fmt.Sprintf("these are not its %d slots", j.Slots)
	case len(at) < j.MinHosts:
		return fmt.Sprintf("it needs %d hosts", j.MinHosts)
	case j.OneHost && len(at) > 1, j.MaxHosts > 0 && len(at) > j.MaxHosts:
		return "these are too many hosts"
	case j.PerHost > 0 && odd > 1:
		return fmt.Sprintf("it needs %d slots on each host but one", j.PerHost)
	}
	return ""
}

// lawSpared: R16's jobs are not preempted.
func (g *judge) lawSpared() {
	up := map[string]bool{}
	for _, h := range g.state.Farm.Hosts {
		up[h.Name] = h.State == backends.HostUp
	}
	for _, r := range g.fresh {
		for _, v := range r.Victims {
			j := g.jobs[v.ID]
			if j == nil {
				continue // lawUse says so
			}
			tag, _, _ := backends.ParseTag(j.Tag)
			why := ""
			switch {
			case j.Interactive:
				why = "is interactive"
			case j.Exclusive:
				why = "has its hosts for itself"
			case j.Component:
				why = "is a part of another one"
			case j.NoRequeue && tag.Preempt != backends.PreemptSuspend:
				why = "may not be requeued"
			case j.Ending:
				why = "is ending"
			case g.state.Farm.At.Sub(j.Started) < g.policy.MinRuntime:
				why = "has run for less than min_runtime"
			case slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return !up[p.Host] }):
				why = "is on a host that is not up"
			}
			if why != "" {
				g.d.breach(lawSpared, "reclaim %d preempts job %v, which %s", r.ID, j.ID, why)
			}
		}
	}
}

// meetOutages records reclaims that are open while their hosts go, and those that are planned
// while some host is away.
func (g *judge) meetOutages() {
	if slices.ContainsFunc(g.state.Farm.Hosts, func(h backends.Host) bool { return h.State != backends.HostUp }) {
		g.d.met[metAway] = g.d.met[metAway] || len(g.fresh) > 0
	}
	for _, r := range g.state.Memory.Reclaims {
		g.d.met[metOutage] = g.d.met[metOutage] || r.Phase.Open() && g.d.shook.After(r.Planned)
	}
}

// findClaims records where jobs started that had a priority of their owner's.
func (d *drive) findClaims(farm *backends.Snapshot) {
	for _, jobs := range [][]backends.Job{farm.Jobs, farm.Ended} {
		for i := range jobs {
			j := &jobs[i]
			if c := d.jobCase(j.ID); c == nil || c.Claim == 0 {
				continue
			}
			for _, p := range j.Hosts {
				if j.Started.After(d.claims[p.Host]) {
					d.claims[p.Host] = j.Started
				}
			}
		}
	}
}

// lawUseless: a reclaim that took slots from victims ends with a job of a pool in them, unless
// something came in between that no plan can know of: its owner's act, a job that its owner put
// before all others or that strayed from its pool's hosts, another guarantee, a host that went,
// victims that did not end in time.
func (d *drive) lawUseless(state *plan.State, p *plan.Plan) {
	if d.usage.broken != "" || d.usage.overHas != "" {
		return // no plan fits a host that the queue overfilled
	}
	for i := range p.Memory.Reclaims {
		r := &p.Memory.Reclaims[i]
		taken := slices.ContainsFunc(r.Victims, func(v plan.Victim) bool { return v.Fate == plan.Taken || v.Fate == plan.Lost })
		slow := r.Phase == plan.Expired && r.Freed.IsZero()
		if r.Phase.Open() || r.Phase == plan.HandedOver || !r.Ended.Equal(p.At) || !taken || slow || d.condemned[r.ID] || d.shook.After(r.Planned) {
			continue
		}
		if slices.ContainsFunc(r.Hosts, func(p backends.Placement) bool { return !d.claims[p.Host].Before(r.Planned) }) {
			continue
		}
		if c := d.jobCase(r.Beneficiary); c == nil || c.Killed+c.Raised+c.Stopped > 0 || c.Hold {
			continue
		}
		if slices.ContainsFunc(d.Shrinks, func(s shrinkCase) bool {
			return s.Cycle > 0 && s.Cycle <= d.at && !start().Add(time.Duration(s.Cycle)*cycle).Before(r.Planned)
		}) {
			continue
		}
		used := slices.ContainsFunc(state.Farm.Jobs, func(j backends.Job) bool {
			return j.State == backends.Running && j.Started.After(r.Planned) && p.Memory.Jobs[j.ID].Pool != 0 && sharesHost(j.Hosts, r.Hosts)
		})
		if !used {
			d.breach(lawUseless, "reclaim %d of %+v ended for job %v, which never ran: %s", r.ID, r.Victims, r.Beneficiary, r.Why)
		}
	}
}

// findStrays records whether, and where, jobs that had room in a pool started on hosts that are
// not the pool's, where they are normal ones: in slots that the plan meant for others. A queue
// is not bound to a pool's hosts.
func (d *drive) findStrays(state *plan.State, policy *plan.Policy) {
	d.strayed = false
	if d.Sets == nil {
		return
	}
	for i := range state.Farm.Jobs {
		j := &state.Farm.Jobs[i]
		at := slices.IndexFunc(policy.Allocations, func(a plan.Allocation) bool { return a.ID == state.Memory.Jobs[j.ID].Pool })
		if j.State != backends.Running || at < 0 || !slices.ContainsFunc(j.Hosts, func(p backends.Placement) bool { return setOf(policy, p.Host) != policy.Allocations[at].Hosts }) {
			continue
		}
		d.strayed = true
		for _, p := range j.Hosts {
			if j.Started.After(d.claims[p.Host]) {
				d.claims[p.Host] = j.Started
			}
		}
	}
}

func sharesHost(a, b []backends.Placement) bool {
	return slices.ContainsFunc(a, func(p backends.Placement) bool {
		return slices.ContainsFunc(b, func(q backends.Placement) bool { return p.Host == q.Host })
	})
}

// judgeForms judges what would be planned if some waiting jobs asked for their slots in some
// form, most of which miniq has no words for. Nothing of it is done.
func (d *drive) judgeForms(was *plan.State, policy *plan.Policy, now time.Time) {
	state := *was
	farm := *state.Farm
	farm.Jobs = slices.Clone(farm.Jobs)
	for i := range farm.Jobs {
		if j := &farm.Jobs[i]; j.State == backends.Pending && j.Slots > 1 && j.PerHost == 0 {
			giveForm(j, int(j.ID.Job)+j.ID.Index)
		}
	}
	state.Farm = &farm
	state.Abilities.Considers = false // no trial comes between
	p := plan.Make(state, *policy, now)
	g := newJudge(d, &state, policy, &p)
	g.hypothetical = true
	g.plan(d.at)
	for _, r := range g.fresh {
		b := g.jobs[r.Beneficiary]
		d.met[metForm] = d.met[metForm] || b != nil && formed(b) && len(r.Victims) > 0
	}
}

// formed reports whether a job asks for more of its hosts than slots.
func formed(j *backends.Job) bool {
	return j.MinHosts > 1 || j.MaxHosts > 1 || j.PerHost > 0 || j.Unit > 1
}

// giveForm gives a job of several slots a form that these can have.
func giveForm(j *backends.Job, kind int) {
	j.OneHost = false
	switch kind % 5 {
	case 0:
		j.MinHosts = 2
	case 1:
		j.PerHost = (j.Slots + 1) / 2
	case 2:
		j.PerHost = 1
	case 3:
		j.MaxHosts = 2
	case 4:
		j.OneHost = true
		return
	}
	if kind%2 == 0 && j.Slots%2 == 0 && j.PerHost == 0 && j.MinHosts <= j.Slots/2 {
		j.Unit = 2
	}
	if kind%7 == 0 {
		j.Component = true
	}
}

// atOnce reports whether all that a plan preempts is for projects whose jobs wait for no
// threshold: a victim that a plan released may be due in the next one.
func (d *drive) atOnce(p *plan.Plan) bool {
	for _, a := range p.Actions {
		if a.Verb != plan.Requeue && a.Verb != plan.Suspend {
			continue
		}
		if c := d.jobCase(a.For); c == nil || c.Project < 0 || c.Project >= len(d.Own) || d.Own[c.Project] != 0 {
			return false
		}
	}
	return true
}
