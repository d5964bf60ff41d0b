package plan

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Trial is the question to the queue whether a job could start on hosts that are full now
// (R32). The job is pinned to them, and no job is preempted before the queue has
// considered it there: the queue may know of limits, features or resources that the plan
// does not.
type Trial struct {
	Hosts   []string  // that it is pinned to, or will be; empty: there is no trial now
	Pinned  time.Time // the pin was written no later, by the queue's clock; zero: the queue does not show it yet
	Refused []Refusal // trials that the queue refused, the last one last; each on other hosts
}

// Refusal is a trial that the queue refused. It holds for its hosts alone, as long as the
// job and these hosts are as they were.
type Refusal struct {
	Hosts  []string  `json:"hosts"`
	Times  int       `json:"times"`            // in a row
	At     time.Time `json:"at"`               // of the last one
	Until  time.Time `json:"until"`            // no other trial there before
	Why    string    `json:"why"`              // in the queue's words
	Of     string    `json:"of"`               // what the job asked for and these hosts had; see requestOn
	Stands bool      `json:"stands,omitempty"` // the queue had a reason against the job without a pin, too: a limit
}

// Bounds of a trial's record.
const (
	maxTrialDoublings = 6   // of the time between two trials
	maxTrialWhy       = 100 // bytes of a queue's reason
	maxRefused        = 4   // sets of hosts in force that refuse a job: with so many, no others are tried
)

// tries reports whether a beneficiary needs a trial.
func (f *farm) tries(b *job) bool {
	able := &f.state.Abilities
	return able.Considers && able.Pin != nil && !b.standby && b.State == backends.Pending && f.dummies.Unit(b.ID) == nil
}

// dueSoon reports whether a job is due in the next cycle: its trial begins now, so that the
// promise holds with it. One that is due before the site's threshold is not tried before
// the queue has considered it where it may run at all.
func (f *farm) dueSoon(j *job) bool {
	return f.tries(j) && j.mem.Clock+f.policy.Cycle+f.policy.Cycle/20 >= f.threshold(j) &&
		(f.lateSoon(j) || f.looked(j) || len(f.plan.Memory.Trials[j.ID].Hosts) > 0)
}

// lateSoon reports whether a job will have waited for the site's threshold in the next cycle.
func (f *farm) lateSoon(j *job) bool {
	return j.mem.Clock+f.policy.Cycle+f.policy.Cycle/20 >= f.policy.PendingThreshold
}

// readTrials drops the trials of jobs that need them no more, ends those that the queue
// refused, and drops refusals that the job, its hosts or a limit have changed since.
func (s *serving) readTrials() {
	memory := &s.plan.Memory
	memory.Trials = maps.Clone(memory.Trials) // an empty one, too: the last cycle's stays as it is
	for id, t := range memory.Trials {
		j := s.byID[id]
		if j == nil || j.State != backends.Pending || !s.tries(j) {
			delete(memory.Trials, id)
			continue
		}
		if len(t.Hosts) > 0 && j.Wait == backends.WaitOther && sameHosts(j.Pinned, t.Hosts) {
			s.refuse(j, j.Reason)
			t = memory.Trials[id]
		}
		t.Refused = s.inForce(j, t.Refused)
		memory.Trials[id] = t
		if len(t.Hosts) == 0 && len(t.Refused) == 0 {
			delete(memory.Trials, id)
		}
		var barred []string
		for _, r := range t.Refused {
			if len(r.Hosts) == 1 && s.now.Before(r.Until) {
				barred = append(barred, r.Hosts[0])
			}
		}
		slices.Sort(barred)
		j.barred = strings.Join(barred, "\x00")
	}
}

// barPlanned bars a job that has waited in vain for slots that are free from hosts where the
// queue plans to start jobs ahead of it. Slurm keeps all of such a host, also what these leave
// of it, from jobs that could still run when it starts them: for months, if no run limits end
// before. Elsewhere victims may be found.
func (s *serving) barPlanned() {
	if !s.state.Abilities.Considers {
		return
	}
	planned := map[string]bool{}
	for _, j := range s.waiting.jobs {
		if len(planned) > 0 && s.tries(j) && s.looked(j) && j.mem.Clock >= s.threshold(j)+2*s.policy.Cycle {
			barred := planned
			if j.barred != "" {
				barred = maps.Clone(planned)
				for name := range strings.SplitSeq(j.barred, "\x00") {
					barred[name] = true
				}
			}
			j.barred = strings.Join(slices.Sorted(maps.Keys(barred)), "\x00")
		}
		for _, name := range j.Planned {
			planned[name] = true
		}
	}
}

// inForce returns the refusals of a job that still hold, or count for the next back-off.
func (s *serving) inForce(j *job, refused []Refusal) []Refusal {
	var kept []Refusal
	for _, r := range refused {
		considered := len(j.Pinned) == 0 && j.Considered.After(r.At)
		switch {
		case r.Of != s.requestOn(j, r.Hosts), s.now.Sub(r.Until) > time.Hour:
			continue
		case considered && j.Wait == backends.WaitOther:
			r.Stands = true
		case considered && r.Stands && j.Wait == backends.WaitResources:
			continue // the limit is gone
		}
		kept = append(kept, r)
	}
	return kept
}

// requestOn returns a digest of what a job asks for and of some hosts: while it is the
// same, the queue would say the same of the job on these hosts, but for limits.
func (f *farm) requestOn(j *job, hosts []string) string {
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%q %q %q %q %d %d %t %t %q %v %v\n", j.User, j.Project, j.Step, j.Queue,
		j.Slots, j.Memory, j.OneHost, j.Exclusive, j.Asked, j.form(), j.RunLimit)
	fmt.Fprintf(digest, "%v\n", j.Needs)
	for _, name := range hosts {
		h := f.byName[name]
		if h == nil {
			fmt.Fprintf(digest, "%q\n", name)
			continue
		}
		fmt.Fprintf(digest, "%q %d %d %v %v %q %t\n", name, h.Slots, h.Memory, h.State, h.Has, h.Features, j.Suits.Contains(name))
	}
	return strconv.FormatUint(digest.Sum64(), 36)
}

// refuse ends a trial that the queue did not confirm. The next one on the same hosts waits
// twice as long each time.
func (s *serving) refuse(j *job, why string) {
	t := s.plan.Memory.Trials[j.ID]
	hosts := slices.Sorted(slices.Values(t.Hosts))
	times := 1
	refused := slices.DeleteFunc(slices.Clone(t.Refused), func(r Refusal) bool {
		if !sameHosts(r.Hosts, hosts) {
			return false
		}
		times = min(r.Times+1, maxTrialDoublings)
		return true
	})
	refused = append(refused, Refusal{
		Hosts: hosts, Times: times, At: s.now, Until: s.now.Add(s.policy.PendingThreshold << times),
		Why: strings.ToValidUTF8(why[:min(len(why), maxTrialWhy)], ""), Of: s.requestOn(j, hosts),
	})
	s.plan.Memory.Trials[j.ID] = Trial{Refused: refused[max(0, len(refused)-maxRefused):]}
}

// whyNoTrial returns why no trial of a job may begin now, wherever; "" if one may.
func (s *serving) whyNoTrial(b *job) string {
	refused := s.refusals(b)
	if len(refused) == 0 {
		return ""
	}
	last := refused[len(refused)-1]
	if !b.Considered.After(last.At) && s.now.Sub(last.At) < s.policy.HandOverTimeout {
		return fmt.Sprintf("the queue would not start it on %s (%s), and is to consider it without that pin first", strings.Join(last.Hosts, ", "), last.Why)
	}
	if len(refused) < maxRefused {
		return ""
	}
	first := slices.MinFunc(refused, func(x, y Refusal) int { return x.Until.Compare(y.Until) })
	return refusedText(first)
}

// whyNotOn returns why no trial of a job may begin on these hosts now; "" if one may. With
// no hosts it says why none is left.
func (s *serving) whyNotOn(b *job, hosts []string) string {
	for _, r := range slices.Backward(s.refusals(b)) {
		if hosts == nil || sameHosts(r.Hosts, hosts) {
			return refusedText(r)
		}
	}
	return ""
}

func refusedText(r Refusal) string {
	return fmt.Sprintf("the queue would not start it where slots could be taken back: on %s (%s); the next attempt there not before %s",
		strings.Join(r.Hosts, ", "), r.Why, r.Until.Format("15:04:05"))
}

// refusals returns the refusals that bar a job from hosts now.
func (s *serving) refusals(b *job) []Refusal {
	t, known := s.plan.Memory.Trials[b.ID]
	if !known || !s.tries(b) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.Refused), func(r Refusal) bool { return !s.now.Before(r.Until) })
}

// tryEarly begins the trial of a job that is due in the next cycle.
func (s *serving) tryEarly(b *job) {
	if b.nominated != nil || b.mem.Expired >= maxExpired || s.now.Before(b.mem.Backoff) || s.whyNoTrial(b) != "" {
		return
	}
	if set := s.withinCaps(b); set != nil && (s.lateSoon(b) || s.whyNotEarly(b, set) == "") {
		s.confirmed(b, set)
	}
}

// confirmed reports whether a set of victims may be preempted for a beneficiary: the
// queue has considered it on their hosts and found nothing wrong but that they are full.
// Until then it goes on with the beneficiary's trial there.
func (s *serving) confirmed(b *job, set *candidate) bool {
	if !s.tries(b) || len(set.victims) == 0 {
		return true
	}
	t, hosts := s.plan.Memory.Trials[b.ID], names(set.hosts)
	if why := s.whyNotOn(b, hosts); why != "" {
		if s.due(b) {
			s.skip(b.ID, why)
		}
		return false
	}
	switch {
	case !sameHosts(t.Hosts, hosts), !sameHosts(b.Pinned, hosts):
		t.Hosts, t.Pinned = hosts, time.Time{} // its owner may have removed the pin, or it ended
	case t.Pinned.IsZero():
		t.Pinned = s.state.Memory.LastAction
	}
	waited := s.now.Sub(t.Pinned)
	if t.Pinned.IsZero() {
		waited = 0
	}
	considered := !t.Pinned.IsZero() && b.Considered.After(t.Pinned)
	if s.due(b) && (considered || s.plain(b) && waited >= 2*s.policy.Cycle) {
		delete(s.plan.Memory.Trials, b.ID)
		return true
	}
	if s.plan.Memory.Trials == nil {
		s.plan.Memory.Trials = map[backends.ID]Trial{}
	}
	s.plan.Memory.Trials[b.ID] = t
	if !considered && waited > s.policy.HandOverTimeout {
		s.refuse(b, fmt.Sprintf("it did not consider it within %s", s.policy.HandOverTimeout))
		s.skip(b.ID, s.whyNotOn(b, hosts))
		return false
	}
	b.trying, s.trying[b.ID] = true, true
	s.pin(b, &Reclaim{Hosts: set.hosts}, stagePreempt, "the queue shall consider it there before slots are taken back")
	for _, j := range set.victims {
		s.spare(j, "slots are about to be taken back from it")
	}
	s.yield(set.hosts)
	s.holdFree(b, set)
	if s.due(b) {
		s.skip(b.ID, "it is pinned to "+strings.Join(hosts, ", ")+": slots are taken back there once the queue has considered it")
	}
	return false
}

// holdFree keeps for a beneficiary that is tried what its victims will not leave it of its
// slots, memory and resources, and is free by now. Its victims run on: neither its share of
// theirs nor what they have beyond its need is free for other jobs.
func (s *serving) holdFree(b *job, set *candidate) {
	if b.Exclusive { // it takes all of its hosts
		b.nominated = set.hosts
		s.nominate(b, b.nominated)
		return
	}
	b.nominated = []backends.Placement{}
	for _, p := range set.hosts {
		h := s.byName[p.Host]
		keep := h.beyond(b, p, set.victims)
		if keep == nil {
			continue
		}
		b.kept = append(b.kept, keep)
		b.nominated = append(b.nominated, backends.Placement{Host: p.Host, Slots: keep.slots})
		keep.take(h, -1)
		s.recordChange(h)
	}
}

// withdrawFrom undoes holdFree or nominate for a job whose nomination is withdrawn.
func (s *serving) withdrawFrom(j *job) {
	if j.kept == nil {
		s.withdraw(j, j.nominated)
		return
	}
	for _, keep := range j.kept {
		h := s.byName[keep.host]
		keep.take(h, 1)
		s.recordFreed(h)
	}
	j.kept = nil
}

// portion is what a job keeps from others on a host.
type portion struct {
	host   string
	slots  int
	memory int64 // bytes
	has    []int // of each resource of the host's Has, in that order
}

// beyond returns what a job needs on a host beyond what some jobs leave there when they are
// preempted; nil if that is nothing.
func (h *host) beyond(b *job, p backends.Placement, victims []*job) *portion {
	after := *h
	after.freeHas = slices.Clone(h.freeHas)
	for _, j := range victims {
		if n := slotsOn(j, p.Host); n > 0 {
			after.leave(j, backends.Placement{Host: p.Host, Slots: n}, j.Ending || j.preempt != backends.PreemptSuspend)
		}
	}
	after.assign(b, p, h.slotsFor(b, p))
	keep := &portion{host: p.Host, slots: max(h.free-after.free, 0), memory: max(h.freeMem-after.freeMem, 0)}
	some := keep.slots > 0 || keep.memory > 0
	for i, n := range h.freeHas {
		keep.has = append(keep.has, max(n-after.freeHas[i], 0))
		some = some || keep.has[i] > 0
	}
	if !some {
		return nil
	}
	return keep
}

// take adds a portion, times sign, to what is free on its host.
func (keep *portion) take(h *host, sign int) {
	h.free += sign * keep.slots
	h.freeMem += int64(sign) * keep.memory
	for i, n := range keep.has {
		h.freeHas[i] += sign * n
	}
}

// chooseAgain returns the best set on the hosts of a beneficiary's trial; nil if it has no
// trial, or no job can be preempted there.
func (s *serving) chooseAgain(b *job) *candidate {
	var hosts []*host
	for _, name := range s.plan.Memory.Trials[b.ID].Hosts {
		if h := s.byName[name]; h != nil && b.mayUse(h) {
			hosts = append(hosts, h)
		}
	}
	switch {
	case len(hosts) == 0 || !s.tries(b):
		return nil
	case b.oneHost():
		return chooseOn(hosts[0], b)
	}
	slices.SortFunc(hosts, func(x, y *host) int { return x.at - y.at })
	return s.chooseSpan(b, hosts)
}

// plain reports whether a job may run on any managed host, in the slots of one, and needs
// nothing there but slots and memory: what the queue finds on one host, it finds on all.
func (s *serving) plain(b *job) bool {
	return b.oneHost() && b.MinHosts <= 1 && b.Suits == nil && len(b.Asked) == 0 && len(b.Needs) == 0 && !b.Exclusive
}

// sameHosts reports whether two lists have the same hosts, in whichever order.
func sameHosts(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(host string) bool { return !slices.Contains(b, host) })
}

// endTrials ends the trials of jobs that need no slots of others by now.
func (s *serving) endTrials() {
	for id, t := range s.plan.Memory.Trials {
		if len(t.Hosts) == 0 || s.trying[id] {
			continue
		}
		if t.Hosts, t.Pinned = nil, (time.Time{}); len(t.Refused) == 0 {
			delete(s.plan.Memory.Trials, id)
		} else {
			s.plan.Memory.Trials[id] = t
		}
	}
}
