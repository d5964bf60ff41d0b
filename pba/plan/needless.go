package plan

import (
	"maps"
	"slices"

	"github.com/allotment-hpc/allotment/backends"
)

// mostBeside bounds the jobs that are read again before a victim's act.
const mostBeside = 500

// Surroundings are what says whether a victim's slots are still needed right before its act (R18):
// the open reclaims and the nominations on its hosts, and the jobs that ran there.
type Surroundings struct {
	IDs []backends.ID // to be read again

	victim   *backends.Job
	frees    []measure // what is scarce there, and its act frees
	reclaims []*Reclaim
	others   []*Reclaim // open reclaims elsewhere
	nominees []Nominee
	hosts    map[string]*backends.Host
	ran      map[backends.ID]*backends.Job // as the plan saw them
	asleep   map[backends.ID]*backends.Job // suspended there
	counts   bool                          // all jobs that ran there are in IDs
}

// Nominee is a waiting PBA job without a victim of its own, and the slots that the plan expects it to
// start in: they are free, or about to be.
type Nominee struct {
	Job   backends.ID
	Hosts []backends.Placement
}

// Around returns the surroundings of a plan's victim, whose act is verb. Where too many jobs would have to
// be read, IDs are the victims and beneficiaries there alone, and Needless reports false.
func Around(victim *backends.Job, verb Verb, p *Plan, farm *backends.Snapshot, able backends.ForEngine) *Surroundings {
	s := &Surroundings{victim: victim, frees: []measure{slotMeasure}, hosts: map[string]*backends.Host{}, ran: map[backends.ID]*backends.Job{}, asleep: map[backends.ID]*backends.Job{}}
	if verb != Suspend {
		if able.ManagesMemory && victim.Memory > 0 {
			s.frees = append(s.frees, memoryMeasure)
		}
		for _, a := range victim.Needs {
			s.frees = append(s.frees, measure(a.Name))
		}
	}
	ids, beside := map[backends.ID]bool{}, map[backends.ID]bool{}
	for i := range p.Memory.Reclaims {
		r := &p.Memory.Reclaims[i]
		switch {
		case !r.Phase.Open():
			continue
		case !backends.ShareHost(r.Hosts, victim.Hosts):
			s.others = append(s.others, r)
			beside[r.Beneficiary] = true
			continue
		}
		s.reclaims = append(s.reclaims, r)
		ids[r.Beneficiary] = true
		for k := range r.Victims {
			ids[r.Victims[k].ID] = true
		}
	}
	for _, n := range p.Nominated {
		if backends.ShareHost(n.Hosts, victim.Hosts) {
			s.nominees = append(s.nominees, n)
			beside[n.Job] = true
		}
	}
	dropped := map[backends.ID]bool{} // the plan counts on their slots
	for i := range p.Actions {
		for _, id := range p.Actions[i].Dummies {
			dropped[id] = dropped[id] || p.Actions[i].Verb == Drop
		}
	}
	for i := range farm.Jobs {
		switch j := &farm.Jobs[i]; {
		case dropped[j.ID] || !backends.ShareHost(j.Hosts, victim.Hosts):
		case j.State == backends.Running:
			s.ran[j.ID], beside[j.ID] = j, true
		case j.State == backends.Suspended:
			s.asleep[j.ID] = j
		}
	}
	for i := range farm.Hosts {
		if h := &farm.Hosts[i]; backends.SlotsOn(victim.Hosts, h.Name) > 0 {
			s.hosts[h.Name] = h
		}
	}
	maps.Copy(beside, ids)
	if s.counts = len(beside) <= mostBeside; s.counts {
		ids = beside
	}
	s.IDs = slices.SortedFunc(maps.Keys(ids), backends.ID.Compare)
	return s
}

// Needless reports whether the victim need not be preempted any more (R18): on each of its hosts, the
// jobs that still wait, beneficiaries of open reclaims and nominees, need no more than what was free
// for them or came free since the plan was made, less what those of them took that started, of
// reclaims elsewhere too, and with what the plan's other victims are still to leave. So for slots,
// and for memory and each resource that the victim's act frees. A queue may start a beneficiary in
// slots that another one's victims left, and needs a moment to start one in what is free. now are the
// jobs of IDs as they are; later reports whether a victim's act is still to come. It reports false
// where a beneficiary needs a whole host.
//
// The victim's own beneficiary, own, may have started in what another one's victims left, or would
// have had: the victim is needed for that one then, but for no nominee, which may not be due.
func (s *Surroundings) Needless(own backends.ID, now map[backends.ID]*backends.Job, later func(backends.ID) bool) bool {
	waits := lacksSlots(now[own])
	if !s.counts {
		return !waits
	}
	return !slices.ContainsFunc(s.victim.Hosts, func(p backends.Placement) bool {
		return waits && s.needsWhole(p.Host, now) ||
			slices.ContainsFunc(s.frees, func(m measure) bool { return s.lacks(m, p.Host, now, later, waits) })
	})
}

// spareNeedless takes the acts out of the plan that an earlier cycle intended and left out, and that would
// be left out again (R18).
func (s *serving) spareNeedless() {
	if len(s.repeated) == 0 {
		return
	}
	jobs := make(map[backends.ID]*backends.Job, len(s.state.Farm.Jobs))
	for i := range s.state.Farm.Jobs {
		jobs[s.state.Farm.Jobs[i].ID] = &s.state.Farm.Jobs[i]
	}
	for _, victim := range s.repeated {
		n := slices.IndexFunc(s.plan.Actions, func(a Action) bool { return a.Job == victim.ID && a.Verb.Preempts() })
		if n < 0 {
			continue // its reclaim was cancelled
		}
		act := s.plan.Actions[n]
		later := func(id backends.ID) bool {
			return slices.ContainsFunc(s.plan.Actions[n+1:], func(a Action) bool { return a.Job == id && a.Verb.Preempts() })
		}
		if !Around(jobs[act.Job], act.Verb, &s.plan, s.state.Farm, s.state.Abilities).Needless(act.For, jobs, later) {
			continue
		}
		victim.Fate = Spared
		s.plan.Actions = slices.DeleteFunc(s.plan.Actions, func(a Action) bool { return a.Job == act.Job && a.Reclaim == act.Reclaim })
		old := s.state.Memory.Jobs[act.Job]
		mem := &s.byID[act.Job].mem
		mem.Written, mem.WrittenAt = old.Written, old.WrittenAt
	}
}

// needsWhole reports whether a beneficiary waits for all of a host.
func (s *Surroundings) needsWhole(host string, now map[backends.ID]*backends.Job) bool {
	return slices.ContainsFunc(s.reclaims, func(r *Reclaim) bool {
		b := now[r.Beneficiary]
		return lacksSlots(b) && b.Exclusive && backends.SlotsOn(r.Hosts, host) > 0
	})
}

// lacks reports whether the jobs that wait, nominees too or not, would lack something on a host
// without the victim's act.
func (s *Surroundings) lacks(m measure, host string, now map[backends.ID]*backends.Job, later func(backends.ID) bool, nominees bool) bool {
	runs := func(was *backends.Job) bool { // on, in the run that the plan saw
		j := now[was.ID]
		return j != nil && j.State == backends.Running && !j.Ending && j.Started.Equal(was.Started)
	}
	left := func(was *backends.Job) int { // what it had, if it has left
		if j := now[was.ID]; runs(was) || m != slotMeasure && j != nil && j.State == backends.Suspended {
			return 0
		}
		return m.on(host, was, was.Hosts)
	}
	demand, supply, promised, served := 0, 0, 0, map[backends.ID]bool{}
	count := func(id backends.ID, at []backends.Placement, counted bool) (waits bool) {
		b := now[id]
		if b == nil {
			b = &backends.Job{ID: id, State: backends.Done}
		}
		waits = lacksSlots(b)
		switch {
		case m != slotMeasure && s.asleep[id] != nil: // it has its memory and resources
		case waits && counted:
			demand += m.on(host, b, at)
		case b.State == backends.Running:
			supply -= m.on(host, b, b.Hosts)
		}
		promised += m.on(host, b, at)
		return waits
	}
	for _, r := range s.reclaims {
		waits := count(r.Beneficiary, r.Hosts, true)
		for k := range r.Victims {
			v := &r.Victims[k]
			was := s.ran[v.ID]
			if was == nil || served[v.ID] || !was.Started.Equal(v.Started) {
				continue
			}
			served[v.ID] = true
			promised -= m.on(host, was, was.Hosts)
			supply += left(was)
			if runs(was) && waits && v.ID != s.victim.ID && later(v.ID) && (m == slotMeasure || v.Mode != backends.PreemptSuspend) {
				supply += m.on(host, was, was.Hosts)
			}
		}
	}
	for _, r := range s.others {
		count(r.Beneficiary, nil, true)
	}
	for _, n := range s.nominees {
		count(n.Job, n.Hosts, nominees)
	}
	free := promised // the plan counted on these slots: others may be set aside, or of no use
	if h := s.hosts[host]; m != slotMeasure && h != nil {
		free = m.total(h)
		for _, j := range s.asleep {
			free -= m.on(host, j, j.Hosts)
		}
	}
	for _, was := range s.ran {
		switch {
		case was.Ending: // counted as free by the plan
			continue
		case !served[was.ID]:
			supply += left(was)
		}
		if m != slotMeasure {
			free -= m.on(host, was, was.Hosts)
		}
	}
	return demand > max(free, 0)+supply
}

// A measure is what is counted of a host: slots, bytes of memory, or a resource by its name.
type measure string

const (
	slotMeasure   measure = ""
	memoryMeasure measure = "bytes of memory" // no resource has spaces in its name
)

// on returns how much of it a job takes of a host where it has its place.
func (m measure) on(host string, j *backends.Job, at []backends.Placement) int {
	slots := backends.SlotsOn(at, host)
	switch {
	case slots == 0 || m == slotMeasure:
		return slots
	case m == memoryMeasure:
		return int(perSlot(j)) * slots
	}
	return m.in(j.Needs)
}

// total returns how much of it a host has.
func (m measure) total(h *backends.Host) int {
	switch m {
	case slotMeasure:
		return h.Slots
	case memoryMeasure:
		return int(h.Memory)
	}
	return m.in(h.Has)
}

func (m measure) in(list []backends.Amount) int {
	for _, a := range list {
		if a.Name == string(m) {
			return a.Count
		}
	}
	return 0
}

// lacksSlots reports whether a beneficiary still waits for slots; nil: it has gone.
func lacksSlots(b *backends.Job) bool {
	return b != nil && (b.State == backends.Pending || b.State == backends.Suspended)
}
