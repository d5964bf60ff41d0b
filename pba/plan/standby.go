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
// its next jobs. A standby job, a job of the engine's own that does nothing, has each of them.
// No pool is charged for it, it ranks below all jobs of pools, and it ends as soon as a job
// of its pool waits that can't start elsewhere. Where no slot is free, one job is preempted
// for it as for any beneficiary, but after all others, and only while no job of its pool
// waits. That a standby job is there is all that is remembered of it, by the queue itself.

// standbyRank is what a standby job waits with: above normal jobs, below those of pools.
var standbyRank = backends.At(backends.LevelPlaceholder, backends.DefaultValue)

// standing is a pool's standby.
type standing struct {
	want  int    // standby jobs that it may have
	busy  bool   // a job of it waits: no slot is preempted for a standby job
	lacks int    // slots that may be preempted for its standby jobs in this plan
	kept  []*job // its standby jobs, those that run first
}

// running counts the standby jobs that have a slot.
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

// readStandby adds a standby job to the farm's jobs. No rule of other jobs speaks of it: its queue
// does not count as managed, and it matches no pool.
func (f *farm) readStandby(bj *backends.Job, seq int, named bool) {
	j := &job{
		Job: bj, seq: seq, computed: bj.Priority, Priority: bj.Priority, State: bj.State, waits: waits(bj), standby: true,
		Slots: bj.Slots, perSlot: f.countsFor(bj), Ending: bj.Ending, verdict: &verdict{whyNot: "it keeps a slot free"}, of: f.tallyOf(account{user: bj.User}), mem: f.state.Memory.Jobs[bj.ID],
	}
	if named {
		f.byID[bj.ID] = j
	}
	f.jobs, f.standbys = append(f.jobs, j), append(f.standbys, j)
	if bj.State == backends.Running {
		f.running = append(f.running, j)
	} else {
		f.resting = append(f.resting, j)
	}
	f.occupy(j, f.state.Abilities.SuspendFrees)
}

// standby decides which standby jobs stay, before any slot is given out: what those that end leave
// is free for this plan.
func (b *books) standby() {
	if len(b.standbys) == 0 && len(b.policy.Standby) == 0 {
		return
	}
	b.standings = map[*pool]*standing{}
	slices.SortStableFunc(b.standbys, b.standbyOrder)
	for _, name := range slices.Sorted(maps.Keys(b.policy.Standby)) {
		left := b.policy.Standby[name]
		for _, p := range b.projectPools[name] {
			s := &standing{want: max(0, min(left, p.room)), busy: b.waitsIn(p)}
			b.standings[p] = s
			left -= s.want
			for _, k := range b.standbys {
				if len(s.kept) < s.want && k.pool == nil && k.Project == name && b.keepsFor(k, p) {
					k.pool = p
					s.kept = append(s.kept, k)
				}
			}
			s.lacks = max(0, s.want-s.running()-s.coming())
		}
	}
	for _, k := range b.standbys {
		if k.pool == nil && !k.Ending {
			b.dropStandby(stageRelease, k, b.whyNotKept(k))
		}
	}
	b.yieldStandbys()
}

// standbyOrder orders standby jobs by what they are worth: those with a slot, oldest last as their
// run limit ends them first; those that slots come free for; the others.
func (b *books) standbyOrder(x, y *job) int {
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

// keepsFor reports whether a standby job is, or is to be, on one of the pool's hosts that is up.
func (b *books) keepsFor(k *job, p *pool) bool {
	h := b.byName[standbyHost(k)]
	return h != nil && (p.part == nil || h.part == p.part) && !k.Ending && k.State != backends.Suspended && k.mem.Expired == 0 &&
		(k.State == backends.Running || k.Job.Priority.Level() < backends.LevelHandOver || k.reclaim != nil && k.reclaim.Phase.Open())
}

// standbyHost returns where a standby job is, or is to be.
func standbyHost(k *job) string {
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

// whyNotKept returns why a standby job is not needed.
func (b *books) whyNotKept(k *job) string {
	h := b.byName[standbyHost(k)]
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

// dropStandby ends a standby job. Its slot counts as free.
func (f *farm) dropStandby(at stage, k *job, why string) {
	k.pool, k.Ending = nil, true
	f.acts.add(at, Action{Verb: Drop, Hosts: []string{standbyHost(k)}, Dummies: []backends.ID{k.ID}, Reason: why})
	for _, s := range f.standings {
		s.kept = slices.DeleteFunc(s.kept, func(x *job) bool { return x == k })
	}
}

// yieldStandbys ends the standby jobs in whose slots jobs of their project could start at once that
// find no free ones, as many as each job needs. If there are too few for a job, those on the
// host end where it lacks least: no job need be preempted for these.
func (b *books) yieldStandbys() {
	if !slices.ContainsFunc(b.standbys, func(k *job) bool { return k.pool != nil }) {
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
		if j.standby || !j.pba() || !j.waiting() || j.reclaim != nil || b.useFree(free, j) {
			continue
		}
		with := b.standbysOf(j)
		for _, k := range with {
			free.vacate(k)
		}
		best := "" // host where it lacks least
		if fits := b.useFree(free, j); !fits && j.oneHost() {
			for _, k := range with {
				if h := free.byName[standbyHost(k)]; best == "" || h.free > free.byName[best].free {
					best = h.Name
				}
			}
		}
		for _, k := range with {
			h := free.byName[standbyHost(k)]
			if h.Name != best && (best != "" || h.free >= k.Slots) { // it is of no use to the job
				free.nominate(k, k.Hosts)
				continue
			}
			b.dropStandby(stageRelease, k, fmt.Sprintf("job %s of %s may start there", j.ID, describe(j.pool.Allocation)))
		}
	}
}

// standbysOf returns the standby jobs with a slot that a waiting job of their project may have.
func (b *books) standbysOf(j *job) []*job {
	suits := b.suitable(j)
	return keep(b.standbys, func(k *job) bool {
		return k.pool != nil && k.Project == j.Project && k.State == backends.Running &&
			slices.ContainsFunc(suits, func(h *host) bool { return h.Name == standbyHost(k) })
	})
}

// dueStandby reports whether a slot may be preempted for a standby job that waits.
func (f *farm) dueStandby(k *job) bool {
	s := f.standings[k.pool]
	return s != nil && !s.busy && f.looked(k)
}

// serveStandby opens a reclaim for a standby job if that is due and allowed: its victim frees no
// more than its pool's standby jobs lack, and no job of a pool waits for what it can't be given.
// Where no job can be preempted, the standby job ends: it is placed elsewhere. It reports whether
// free slots must be nominated again.
func (s *serving) serveStandby(k *job) bool {
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
		s.dropStandby(stageRelease, k, "no job can be preempted for it there")
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
	return keep(s.waiting.jobs, func(j *job) bool {
		return !j.standby && j.pba() && j.nominated == nil && !j.trying && (j.reclaim == nil || !j.reclaim.Phase.Open()) && s.due(j)
	})
}

// keep completes the standby, once all others have what they can be given: it gives way where
// a job of any pool was given nothing, replaces standby jobs whose run limit is near, and places
// those that are missing.
func (s *serving) keep() {
	if len(s.standings) == 0 {
		return
	}
	short := s.starved()
	for _, j := range short {
		hosts := s.suitable(j)
		for _, k := range s.standbys {
			if k.pool != nil && slices.ContainsFunc(hosts, func(h *host) bool { return h.Name == standbyHost(k) }) {
				s.dropStandby(stageLast, k, fmt.Sprintf("it gives way: job %s of %s waits for its slots", j.ID, describe(j.pool.Allocation)))
			}
		}
	}
	able := &s.state.Abilities
	if able.Place == nil || !able.Standbys || len(short) > 0 {
		return
	}
	for _, p := range s.pools {
		if st := s.standings[p]; st != nil {
			s.renewStandbys(p, st)
			s.placeStandbys(p, st)
		}
	}
}

// standbyLimit is the run limit of a standby job: it ends by itself if the engine is gone.
func (s *serving) standbyLimit() time.Duration { return cmp.Or(s.policy.Dummies.Limit, time.Hour) }

// renewStandbys replaces the standby jobs that their run limit ends before the next cycles could.
func (s *serving) renewStandbys(p *pool, st *standing) {
	for _, k := range slices.Clone(st.kept) {
		if k.State != backends.Running || k.RunLimit <= 0 || k.Started.Add(k.RunLimit).Sub(s.now) >= max(2*s.policy.Cycle, s.standbyLimit()/10) {
			continue
		}
		s.placeStandby(p, standbyHost(k), 1, "the one there is about to end")
		s.dropStandby(stageLast, k, "another one follows it")
		st.want-- // the other one counts from the next plan on
	}
}

// placeStandbys places the standby jobs that a pool lacks: in free slots, on the hosts with most of
// them, then where jobs may be preempted for them.
func (s *serving) placeStandbys(p *pool, st *standing) {
	lacks := st.want - len(st.kept)
	if lacks <= 0 || st.busy {
		return
	}
	one := &job{Job: &backends.Job{Slots: 1, OneHost: true, State: backends.Pending}, State: backends.Pending, Slots: 1, pool: p, standby: true}
	hosts := slices.Clone(s.suitable(one))
	slices.SortStableFunc(hosts, func(x, y *host) int { return cmp.Compare(y.free, x.free) })
	for _, h := range hosts {
		if n := min(lacks, h.free); n > 0 && !h.contested() {
			s.placeStandby(p, h.Name, n, "its slots are free")
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
		s.placeStandby(p, host, there, "slots are to come free there")
		lacks, taken = lacks-takes, taken+takes
	}
}

func (s *serving) placeStandby(p *pool, host string, n int, why string) {
	s.acts.add(stageLast, Action{
		Verb: Place, Project: p.Project, Queue: strings.Join(s.policy.Queues, ","), Hosts: []string{host}, Slots: []int{n},
		Priority: standbyRank, Limit: s.standbyLimit(),
		Reason: fmt.Sprintf("%s of %s to be kept free for its next jobs: %s", slotCount(n), describe(p.Allocation), why),
	})
}
