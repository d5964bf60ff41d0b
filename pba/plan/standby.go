package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Slots on standby (R36): the site may have some slots of a project's pools kept free for
// its next jobs. A keeper, a job of the engine's own that does nothing, has each of them.
// No pool is charged for it, it ranks below all jobs of pools, and it ends as soon as a job
// of its pool waits that can't start elsewhere. Where no slot is free, one job is preempted
// for it as for any beneficiary, but after all others, and only while no job of its pool
// waits. That a keeper is there is all that is remembered of it, by the queue itself.

// keeperRank is what a keeper waits with: above normal jobs, below those of pools.
var keeperRank = backends.At(backends.LevelPlaceholder, backends.DefaultValue)

// standing is a pool's standby.
type standing struct {
	want  int    // keepers that it may have
	busy  bool   // a job of it waits: no slot is preempted for a keeper
	lacks int    // slots that may be preempted for its keepers in this plan
	kept  []*job // its keepers, those that run first
}

// running counts the keepers that have a slot.
func (s *standing) running() int {
	n := 0
	for _, k := range s.kept {
		if k.State == backends.Running {
			n++
		}
	}
	return n
}

// coming counts the slots that are to come free for them.
func (s *standing) coming() int {
	n := 0
	for _, k := range s.kept {
		if k.State == backends.Running || k.reclaim == nil || !k.reclaim.Phase.Open() {
			continue
		}
		for i := range k.reclaim.Victims {
			n += k.reclaim.Victims[i].Slots
		}
	}
	return n
}

// readKeeper adds a keeper to the farm's jobs. No rule of other jobs speaks of it: its queue
// does not count as managed, and it matches no pool.
func (f *farm) readKeeper(bj *backends.Job, seq int, named bool) {
	j := &job{
		Job: bj, seq: seq, computed: bj.Priority, Priority: bj.Priority, State: bj.State, waits: waits(bj), keeper: true,
		Slots: bj.Slots, perSlot: f.countsFor(bj), Ending: bj.Ending, verdict: &verdict{whyNot: "it keeps a slot free"}, mem: f.state.Memory.Jobs[bj.ID],
	}
	if named {
		f.byID[bj.ID] = j
	}
	f.jobs, f.keepers = append(f.jobs, j), append(f.keepers, j)
	if bj.State == backends.Running {
		f.running = append(f.running, j)
	} else {
		f.resting = append(f.resting, j)
	}
	f.occupy(j, f.state.Abilities.SuspendFrees)
}

// standby decides which keepers stay, before any slot is given out: what those that end leave
// is free for this plan.
func (b *books) standby() {
	if len(b.keepers) == 0 && len(b.policy.Standby) == 0 {
		return
	}
	b.standings = map[*pool]*standing{}
	slices.SortStableFunc(b.keepers, b.keeperOrder)
	for _, name := range slices.Sorted(maps.Keys(b.policy.Standby)) {
		left := b.policy.Standby[name]
		for _, p := range b.projectPools[name] {
			s := &standing{want: max(0, min(left, p.room)), busy: b.waitsIn(p)}
			b.standings[p] = s
			left -= s.want
			for _, k := range b.keepers {
				if len(s.kept) < s.want && k.pool == nil && k.Project == name && b.keepsFor(k, p) {
					k.pool = p
					s.kept = append(s.kept, k)
				}
			}
			s.lacks = max(0, s.want-s.running()-s.coming())
		}
	}
	for _, k := range b.keepers {
		if k.pool == nil && !k.Ending {
			b.dropKeeper(stageRelease, k, b.whyNotKept(k))
		}
	}
	b.yieldKeepers()
}

// keeperOrder orders keepers by what they are worth: those with a slot, oldest last as their
// run limit ends them first; those that slots come free for; the others.
func (b *books) keeperOrder(x, y *job) int {
	rank := func(k *job) int {
		switch {
		case k.State == backends.Running:
			return 0
		case k.reclaim != nil && k.reclaim.Phase.Open():
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(x), rank(y)), y.Started.Compare(x.Started), x.ID.Compare(y.ID))
}

// keepsFor reports whether a keeper is, or is to be, on one of the pool's hosts that is up.
func (b *books) keepsFor(k *job, p *pool) bool {
	h := b.byName[keeperHost(k)]
	return h != nil && (p.part == nil || h.part == p.part) && !k.Ending && k.State != backends.Suspended && k.mem.Expired == 0 &&
		(k.State == backends.Running || k.Job.Priority.Level() < backends.LevelHandOver || k.reclaim != nil && k.reclaim.Phase.Open())
}

// keeperHost returns where a keeper is, or is to be.
func keeperHost(k *job) string {
	switch {
	case len(k.Hosts) > 0:
		return k.Hosts[0].Host
	case len(k.Asked) > 0:
		return k.Asked[0]
	}
	return ""
}

// waitsIn reports whether a job of a pool waits.
func (b *books) waitsIn(p *pool) bool {
	return p.head != nil || slices.ContainsFunc(p.members, func(j *job) bool { return j.State != backends.Running })
}

// whyNotKept returns why a keeper is not needed.
func (b *books) whyNotKept(k *job) string {
	h := b.byName[keeperHost(k)]
	switch {
	case b.policy.Standby[k.Project] == 0:
		return fmt.Sprintf("no slots are kept for %s any more", k.Project)
	case h == nil:
		return "its host is down, or not managed"
	case k.State == backends.Pending && k.reclaim == nil && (k.mem.Expired > 0 || k.Job.Priority.Level() == backends.LevelHandOver):
		return "its reclaim ended, and it does not run"
	}
	return fmt.Sprintf("the pools of %s have no room for it there", k.Project)
}

// dropKeeper ends a keeper. Its slot counts as free.
func (f *farm) dropKeeper(at stage, k *job, why string) {
	k.pool, k.Ending = nil, true
	f.acts.add(at, Action{Verb: Drop, Hosts: []string{keeperHost(k)}, Dummies: []backends.ID{k.ID}, Reason: why})
	for _, s := range f.standings {
		s.kept = slices.DeleteFunc(s.kept, func(x *job) bool { return x == k })
	}
}

// yieldKeepers ends the keepers in whose slots jobs of their project could start at once that
// find no free ones, as many as each job needs. If there are too few for a job, those on the
// host end where it lacks least: no job need be preempted for these.
func (b *books) yieldKeepers() {
	if !slices.ContainsFunc(b.keepers, func(k *job) bool { return k.pool != nil }) {
		return
	}
	free := b.freeNow()
	for _, j := range b.resting {
		if j.reclaim != nil && j.reclaim.Phase.Open() {
			for _, p := range j.reclaim.Hosts {
				if free.byName[p.Host] != nil {
					free.nominate(j, []backends.Placement{p})
				}
			}
		}
	}
	for _, j := range b.resting {
		if j.keeper || !j.pba() || !j.waiting() || j.reclaim != nil || b.useFree(free, j) {
			continue
		}
		with := b.keepersOf(j)
		for _, k := range with {
			free.vacate(k)
		}
		best := "" // host where it lacks least
		if fits := b.useFree(free, j); !fits && j.oneHost() {
			for _, k := range with {
				if h := free.byName[keeperHost(k)]; best == "" || h.free > free.byName[best].free {
					best = h.Name
				}
			}
		}
		for _, k := range with {
			h := free.byName[keeperHost(k)]
			if h.Name != best && (best != "" || h.free >= k.Slots) { // it is of no use to the job
				free.nominate(k, k.Hosts)
				continue
			}
			b.dropKeeper(stageRelease, k, fmt.Sprintf("job %s of %s may start there", j.ID, describe(j.pool.Allocation)))
		}
	}
}

// keepersOf returns the keepers with a slot that a waiting job of their project may have.
func (b *books) keepersOf(j *job) []*job {
	suits := b.suitable(j)
	return keepJobs(b.keepers, func(k *job) bool {
		return k.pool != nil && k.Project == j.Project && k.State == backends.Running &&
			slices.ContainsFunc(suits, func(h *host) bool { return h.Name == keeperHost(k) })
	})
}

func keepJobs(jobs []*job, passes func(*job) bool) []*job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return !passes(j) })
}

// dueKeeper reports whether a slot may be preempted for a keeper that waits.
func (f *farm) dueKeeper(k *job) bool {
	s := f.standings[k.pool]
	return s != nil && !s.busy && f.looked(k)
}

// serveKeeper opens a reclaim for a keeper if that is due and allowed: its victim frees no
// more than its pool's keepers lack, and no job of a pool waits for what it can't be given.
// Where no job can be preempted, the keeper ends: it is placed elsewhere. It reports whether
// free slots must be nominated again.
func (s *serving) serveKeeper(k *job) bool {
	k.turn = true
	if k.nominated = s.findFree(k); k.nominated != nil {
		s.nominate(k, k.nominated)
		return false
	}
	st := s.standings[k.pool]
	if st.lacks <= 0 || s.now.Before(k.mem.Backoff) {
		return false
	}
	if len(s.starved()) > 0 {
		s.skip(k.ID, "jobs of pools wait for slots that they can't be given")
		return false
	}
	set := s.withinCaps(k)
	if set == nil || set.slots() > st.lacks {
		s.dropKeeper(stageRelease, k, "no job can be preempted for it there")
		return false
	}
	if limit := s.cycleCap(); s.quota.first && s.quota.victims+len(set.victims) > limit {
		s.skip(k.ID, fmt.Sprintf("put off to the next cycle: %d + %d jobs would be more than max_victims (%d)", s.quota.victims, len(set.victims), limit))
		return false
	}
	if why := s.whyNotEarly(k, set); why != "" {
		s.skip(k.ID, why)
		return false
	}
	st.lacks -= set.slots()
	s.quota.add(len(set.victims))
	s.open(k, set)
	return true
}

// slots returns the slots that a set of victims has.
func (c *candidate) slots() int {
	n := 0
	for _, j := range c.victims {
		n += j.Slots
	}
	return n
}

// starved lists the jobs of pools that are due, and that were given no slots in this plan.
func (s *serving) starved() []*job {
	return keepJobs(s.waiting.jobs, func(j *job) bool {
		return !j.keeper && j.pba() && j.nominated == nil && !j.trying && (j.reclaim == nil || !j.reclaim.Phase.Open()) && s.due(j)
	})
}

// keep completes the standby, once all others have what they can be given: it gives way where
// a job of any pool was given nothing, replaces keepers whose run limit is near, and places
// those that are missing.
func (s *serving) keep() {
	if len(s.standings) == 0 {
		return
	}
	short := s.starved()
	for _, j := range short {
		hosts := s.suitable(j)
		for _, k := range s.keepers {
			if k.pool != nil && slices.ContainsFunc(hosts, func(h *host) bool { return h.Name == keeperHost(k) }) {
				s.dropKeeper(stageLast, k, fmt.Sprintf("it gives way: job %s of %s waits for its slots", j.ID, describe(j.pool.Allocation)))
			}
		}
	}
	able := &s.state.Abilities
	if able.Place == nil || !able.Keepers || len(short) > 0 {
		return
	}
	for _, p := range s.pools {
		if st := s.standings[p]; st != nil {
			s.renewKeepers(p, st)
			s.placeKeepers(p, st)
		}
	}
}

// keeperLimit is the run limit of a keeper: it ends by itself if the engine is gone.
func (s *serving) keeperLimit() time.Duration { return cmp.Or(s.policy.Dummies.Limit, time.Hour) }

// renewKeepers replaces the keepers that their run limit ends before the next cycles could.
func (s *serving) renewKeepers(p *pool, st *standing) {
	for _, k := range slices.Clone(st.kept) {
		if k.State != backends.Running || k.RunLimit <= 0 || k.Started.Add(k.RunLimit).Sub(s.now) >= max(2*s.policy.Cycle, s.keeperLimit()/10) {
			continue
		}
		s.placeKeeper(p, keeperHost(k), 1, "the one there is about to end")
		s.dropKeeper(stageLast, k, "another one follows it")
		st.want-- // the other one counts from the next plan on
	}
}

// placeKeepers places the keepers that a pool lacks: in free slots, on the hosts with most of
// them, then where jobs may be preempted for them.
func (s *serving) placeKeepers(p *pool, st *standing) {
	lacks := st.want - len(st.kept)
	if lacks <= 0 || st.busy {
		return
	}
	one := &job{Job: &backends.Job{Slots: 1, OneHost: true, State: backends.Pending}, State: backends.Pending, Slots: 1, pool: p, keeper: true}
	hosts := slices.Clone(s.suitable(one))
	slices.SortStableFunc(hosts, func(x, y *host) int { return cmp.Compare(y.free, x.free) })
	for _, h := range hosts {
		if n := min(lacks, h.free); n > 0 && !h.contested() {
			s.placeKeeper(p, h.Name, n, "its slots are free")
			lacks -= n
		}
	}
	taken := s.taken[p.ID]
	for lacks > 0 {
		set := s.chooseSet(one)
		if set == nil {
			return
		}
		host, takes, there := set.hosts[0].Host, set.slots(), 0
		if takes == 0 || takes > lacks || taken+takes > earlyShare*p.Guarantee {
			return
		}
		for _, j := range set.victims {
			there += slotsOn(j, host)
			s.spare(j, "slots are about to be taken back from it")
		}
		s.placeKeeper(p, host, there, "slots are to come free there")
		lacks, taken = lacks-takes, taken+takes
	}
}

func (s *serving) placeKeeper(p *pool, host string, n int, why string) {
	s.acts.add(stageLast, Action{
		Verb: Place, Project: p.Project, Queue: strings.Join(s.policy.Queues, ","), Hosts: []string{host}, Slots: []int{n},
		Priority: keeperRank, Limit: s.keeperLimit(),
		Reason: fmt.Sprintf("%s of %s to be kept free for its next jobs: %s", slotCount(n), describe(p.Allocation), why),
	})
}
