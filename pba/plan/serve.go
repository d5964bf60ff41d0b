package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/allotment-hpc/allotment/backends"
)

// maxExpired is the number of expired reclaims after which a beneficiary is only
// reported (R19).
const maxExpired = 2

// serving assigns free and preempted slots to the PBA jobs that wait.
type serving struct {
	*books
	waiting *waiting
	lowered []*job               // that will rank lower, and reserve hosts until then
	quota   quota                // of this cycle
	soft    []*job               // those with slots tentatively reserved, which host.soft adds up
	outbids []*job               // whose nomination was withdrawn after their turn: they get another turn
	trying  map[backends.ID]bool // jobs whose trials go on
	ends    []ends               // hosts where jobs end soon
	reasons map[*choices]string  // why no job can be preempted

	repeated []*Victim // whose acts an earlier cycle intended and did not do
}

// serveDue serves the jobs whose clock has passed the threshold: with slots that are
// free or about to be, else by preempting exactly the need (R14, R15).
func serveDue(b *books, lowered []*job) *serving {
	s := &serving{books: b, lowered: lowered, trying: map[backends.ID]bool{}, reasons: map[*choices]string{}}
	s.readTrials()
	s.nominateOpen()
	s.repeatOpen()
	s.waiting = b.unserved()
	s.barPlanned()
	s.quota = b.recentQuota()
	s.nominateFree()
	s.readEnds()
	turns := s.beneficiaries()
	for len(turns) > 0 {
		for _, b := range turns {
			if !s.due(b) {
				s.tryEarly(b)
				continue
			}
			if b.nominated != nil {
				b.turn = true
				s.reserveOn(b, names(b.nominated), "slots that are free there, or about to be, are reserved for it until it has all of them")
				s.skip(b.ID, "slots that are free, or about to be, suit it; the queue will start it")
				continue
			}
			if s.serve(b) {
				s.nominateFree()
			}
		}
		turns = s.outbidden() // each by a job that ranks above it: so this ends
	}
	s.endTrials()
	s.plan.Looks = s.looks()
	s.plan.Nominated = s.nominees()
	return s
}

// nominees returns the PBA jobs that are to start in slots that no reclaim of theirs frees, but where
// other reclaims may be open.
func (s *serving) nominees() []Nominee {
	var list []Nominee
	for _, j := range s.waiting.jobs {
		if j.nominated != nil && j.pba() && !j.standby && !j.trying && (j.reclaim == nil || !j.reclaim.Phase.Open()) {
			list = append(list, Nominee{Job: j.ID, Hosts: j.nominated})
		}
	}
	return list
}

// outbidden returns the jobs whose nomination was withdrawn after their turn. They get
// another turn.
func (s *serving) outbidden() []*job {
	lost := slices.DeleteFunc(s.outbids, func(b *job) bool { return b.nominated != nil })
	s.outbids = nil
	for _, b := range lost {
		s.plan.Skipped = slices.DeleteFunc(s.plan.Skipped, func(s Skipped) bool { return s.Job == b.ID })
	}
	return lost
}

// due reports whether a job's clock has passed the threshold, less a twentieth of a
// cycle: cycles don't come to the millisecond, and none must be lost to rounding. Before
// the site's threshold the queue must have decided that the job can't start.
func (f *farm) due(j *job) bool {
	if j.standby {
		return f.dueStandby(j)
	}
	waited := j.mem.Clock + f.policy.Cycle/20
	return waited >= f.threshold(j) && (waited >= f.policy.PendingThreshold || f.looked(j))
}

// nominateOpen counts slots that are about to be left as free, and nominates what open
// reclaims have freed, or are about to, for their beneficiaries. Slots left by victims
// of closed reclaims, and by jobs that a user or the queue ends, suit any job.
func (s *serving) nominateOpen() {
	for _, j := range s.jobs {
		if j.leaving || j.Ending {
			s.vacate(j)
		}
	}
	for i := range s.plan.Memory.Reclaims {
		r := &s.plan.Memory.Reclaims[i]
		b := s.byID[r.Beneficiary]
		if !r.Phase.Open() || b == nil {
			continue
		}
		for _, victim := range r.Victims {
			if j := s.byID[victim.ID]; j != nil && victim.Fate == Intended && !j.leaving && !j.Ending {
				s.vacate(j)
			}
		}
		for _, p := range r.Hosts {
			if h := s.byName[p.Host]; h != nil {
				s.nominate(b, []backends.Placement{p})
			}
		}
	}
}

func (j *job) oneHost() bool { return j.OneHost || j.Slots == 1 }

// serve opens a reclaim for one beneficiary if that is due, allowed and possible
// in full. It reports whether free slots must be nominated again: what its victims
// leave beyond its need, or what it outbid jobs of lower rank for.
func (s *serving) serve(b *job) bool {
	if b.standby {
		return s.serveStandby(b)
	}
	switch {
	case b.mem.Expired >= maxExpired:
		s.skip(b.ID, fmt.Sprintf("%d reclaims for it expired; see why with pba explain %s", b.mem.Expired, b.ID))
		return false
	case s.now.Before(b.mem.Backoff):
		s.skip(b.ID, "its last reclaim expired; the next not before "+b.mem.Backoff.Format("15:04:05"))
		return false
	case s.whyNoTrial(b) != "":
		s.skip(b.ID, s.whyNoTrial(b))
		return false
	}
	s.releaseAside(b)
	b.turn = true
	if b.nominated = s.findFree(b); b.nominated != nil {
		s.nominate(b, b.nominated)
		s.reserveOn(b, names(b.nominated), "slots that others leave there are reserved for it until it has all of them")
		s.skip(b.ID, "slots that come free for others suit it too")
		return false
	}
	set := s.withinCaps(b)
	if set == nil && s.whyNotOn(b, nil) != "" {
		s.skip(b.ID, s.whyNotOn(b, nil))
		return false
	}
	if set == nil {
		hosts := s.reservable(b)
		if s.outbid(b, hosts) {
			s.serve(b) // the next plan, which sees its reservation, would begin with that
			return true
		}
		s.skip(b.ID, s.whyNoVictims(b))
		s.reserve(b, hosts)
		return false
	}
	if s.awaits(b) {
		return false
	}
	if limit := s.cycleCap(); s.quota.first && s.quota.victims+len(set.victims) > limit {
		s.skip(b.ID, fmt.Sprintf("put off to the next cycle: %d + %d jobs would be more than max_victims (%d)", s.quota.victims, len(set.victims), limit))
		hosts := s.reservable(b)
		outbid := s.outbid(b, hosts)
		s.reserve(b, hosts)
		return outbid
	}
	if why := s.whyNotEarly(b, set); why != "" {
		s.skip(b.ID, why)
		return false
	}
	if !s.confirmed(b, set) {
		return false
	}
	s.quota.add(len(set.victims))
	s.open(b, set)
	return true
}

// quota counts the victims of one cycle so far (R22).
type quota struct {
	first   bool // the first beneficiary had its slots: its victims don't count
	victims int  // of those after it
}

func (q *quota) add(victims int) {
	if q.first {
		q.victims += victims
	}
	q.first = true
}

// withinCaps chooses a set whose members' accounts lose no more jobs than R22 allows
// them together. Where the best set takes too many from one, the first member that
// exceeds the cap is left out, and the choice made anew.
func (s *serving) withinCaps(b *job) *candidate {
	for {
		set := s.chooseSet(b)
		if set == nil {
			return nil
		}
		over := s.overCap(set)
		if over == nil {
			return set
		}
		s.spare(over, fmt.Sprintf("%s would lose more than max_victims_per_project within an hour", over.of.account))
	}
}

func (s *serving) overCap(set *candidate) *job {
	counts := make(map[*tally]int, 1)
	for _, j := range set.victims {
		if counts[j.of]++; j.of.lost+counts[j.of] > s.hourlyCap(j.of) {
			return j
		}
	}
	return nil
}

// spare takes a job out of the choice for the rest of this plan.
func (s *serving) spare(j *job, why string) {
	j.spared = why
	for _, p := range j.Hosts {
		if h := s.byName[p.Host]; h != nil {
			h.victims = slices.DeleteFunc(h.victims, func(it item) bool { return it.job == j })
			s.recordChange(h)
		}
	}
}

// recentQuota returns what cycles within the last three quarters of a period
// preempted: caps count by time, however often a user runs a cycle.
func (f *farm) recentQuota() quota {
	var sofar quota
	for i := range f.state.Memory.Reclaims {
		if r := &f.state.Memory.Reclaims[i]; f.now.Sub(r.Planned) < f.policy.Cycle*3/4 {
			sofar.add(len(r.Victims))
		}
	}
	return sofar
}

// cycleCap returns the number of jobs that one cycle may preempt after its first
// beneficiary's (R22).
func (s *serving) cycleCap() int {
	return max(s.policy.MaxVictims, int(math.Ceil(0.05*float64(s.slots))))
}

// chooseSet finds the best set of victims for a beneficiary on one host, or over
// the whole farm for one that may span hosts.
//
// A set on the hosts that the queue considers it on already is preferred to one that frees
// as many slots: else a beneficiary could be tried on one host after another.
func (s *serving) chooseSet(b *job) *candidate {
	b.budget = s.slotsForWhole(b)
	best := s.chooseAnew(b)
	if again := s.chooseAgain(b); again != nil && (best == nil || cmp.Or(cmp.Compare(again.spent, best.spent), cmp.Compare(again.excess, best.excess)) <= 0) {
		return again
	}
	return best
}

func (s *serving) chooseAnew(b *job) *candidate {
	at := s.choicesFor(b)
	switch {
	case b.State == backends.Suspended && len(b.Hosts) != 1:
		return nil
	case b.State != backends.Suspended && !at.plain():
		return s.chooseSpecial(at, b)
	case b.State != backends.Suspended && !at.oneHost:
		return s.chooseSpan(b, at.hosts)
	}
	return s.bestOffer(at, b)
}

func chooseOn(h *host, b *job) *candidate {
	if h.contested() || h.Slots < b.Slots || h.Memory > 0 && h.Memory < b.memory() {
		return nil
	}
	if len(b.Needs) > 0 && b.State != backends.Suspended && h.couldOffer(b) == 0 { // a suspended one has its resources
		return nil
	}
	if b.Exclusive {
		return chooseAllOn(h, b)
	}
	w := wantOn(h, b, b.Slots)
	set, cut := choose(itemsFor(h, b, &w), w)
	if set == nil {
		return nil
	}
	c := newCandidate(set, max(w.slots, 0), []backends.Placement{{Host: h.Name, Slots: b.Slots}})
	c.cut = cut
	if len(b.Needs) > 0 {
		if w.needs != nil {
			c.need = b.Slots // none of the free ones is of use without them
		}
		c.excess += max(w.slots, 0)
	}
	return c
}

func newCandidate(set []*job, need int, hosts []backends.Placement) *candidate {
	c := &candidate{victims: set, hosts: hosts, need: need, excess: -need}
	for _, j := range set {
		c.excess += j.Slots
		c.lost += j.lost
		if j.spent {
			c.spent++
		}
	}
	return c
}

// whyNoVictims returns why no job can be preempted for a beneficiary.
func (s *serving) whyNoVictims(b *job) string {
	key := s.choicesFor(b)
	why, ok := s.reasons[key]
	if !ok {
		why = s.sparedReasons(b)
		s.reasons[key] = why
	}
	if b.Exclusive {
		return fmt.Sprintf("its need of whole hosts, with no more than the %s that its pool has left for it, can't be met in full, so no job is preempted%s", slotCount(max(b.budget, 0)), why)
	}
	return fmt.Sprintf("its need of %s can't be met in full, so no job is preempted%s", slotCount(b.Slots), why)
}

// sparedReasons returns the three reasons that spare most slots on the hosts that suit a
// beneficiary.
func (s *serving) sparedReasons(b *job) string {
	spared := map[string]int{}
	for _, h := range s.suitable(b) {
		for _, j := range h.running {
			if j.spared != "" {
				spared[j.spared] += slotsOn(j, h.Name)
			}
		}
	}
	reasons := slices.SortedFunc(maps.Keys(spared), func(a, b string) int {
		return cmp.Or(cmp.Compare(spared[b], spared[a]), cmp.Compare(a, b))
	})
	var text strings.Builder
	for _, why := range reasons[:min(len(reasons), 3)] {
		fmt.Fprintf(&text, "; %s: %s", slotCount(spared[why]), why)
	}
	return text.String()
}
