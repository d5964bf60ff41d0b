package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Trial is the question to the queue whether a job could start on hosts that are full now
// (R32). The job is pinned to them, and no job is preempted before the queue has
// considered it there: the queue may know of limits, features or resources that the plan
// does not.
type Trial struct {
	Hosts    []string  // that it is pinned to, or will be; empty: there is no trial now
	Pinned   time.Time // the pin was written no later, by the queue's clock; zero: the queue does not show it yet
	Refusals int       // trials in a row that the queue refused
	Until    time.Time // no other trial before
	Why      string    // of the last refusal, in the queue's words
}

// Bounds of a trial's record.
const (
	maxTrialDoublings = 6   // of the time between two trials
	maxTrialWhy       = 100 // bytes of a queue's reason
)

// tries reports whether a beneficiary needs a trial.
func (f *farm) tries(b *job) bool {
	able := &f.state.Abilities
	return able.Considers && able.Pin != nil && b.State == backends.Pending && f.dummies.Unit(b.ID) == nil
}

// dueSoon reports whether a job is due in the next cycle: its trial begins now, so that the
// promise holds with it.
func (f *farm) dueSoon(j *job) bool {
	return f.tries(j) && j.mem.Clock+f.policy.Cycle+f.policy.Cycle/20 >= f.policy.PendingThreshold
}

// readTrials drops the trials of jobs that need them no more, and ends those that the
// queue refused.
func (s *serving) readTrials() {
	memory := &s.plan.Memory
	memory.Trials = maps.Clone(memory.Trials) // an empty one, too: the last cycle's stays as it is
	for id, t := range memory.Trials {
		j := s.byID[id]
		switch {
		case j == nil, j.State != backends.Pending, !s.tries(j):
			delete(memory.Trials, id)
		case len(t.Hosts) > 0 && j.Wait == backends.WaitOther && sameHosts(j.Pinned, t.Hosts):
			s.refuse(j.ID, j.Reason)
		case len(t.Hosts) == 0 && s.now.Sub(t.Until) > time.Hour:
			delete(memory.Trials, id)
		}
	}
}

// refuse ends a trial that the queue did not confirm. The next one waits twice as long each
// time.
func (s *serving) refuse(id backends.ID, why string) {
	t := s.plan.Memory.Trials[id]
	t.Refusals = min(t.Refusals+1, maxTrialDoublings)
	t.Why = strings.ToValidUTF8(why[:min(len(why), maxTrialWhy)], "")
	t.Hosts, t.Pinned, t.Until = nil, time.Time{}, s.now.Add(s.policy.PendingThreshold<<t.Refusals)
	s.plan.Memory.Trials[id] = t
}

// whyNoTrial returns why no trial of a job may begin now; "" if one may.
func (s *serving) whyNoTrial(b *job) string {
	t := s.plan.Memory.Trials[b.ID]
	if !s.tries(b) || !s.now.Before(t.Until) {
		return ""
	}
	return fmt.Sprintf("the queue would not start it where slots could be taken back (%s); the next attempt not before %s", t.Why, t.Until.Format("15:04:05"))
}

// tryEarly begins the trial of a job that is due in the next cycle.
func (s *serving) tryEarly(b *job) {
	if b.nominated != nil || b.mem.Expired >= maxExpired || s.now.Before(b.mem.Backoff) || s.whyNoTrial(b) != "" {
		return
	}
	if set := s.withinCaps(b); set != nil {
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
		s.refuse(b.ID, fmt.Sprintf("it did not consider it within %s", s.policy.HandOverTimeout))
		s.skip(b.ID, s.whyNoTrial(b))
		return false
	}
	b.trying, s.trying[b.ID] = true, true
	s.pin(b, &Reclaim{Hosts: set.hosts}, stagePreempt, "the queue shall consider it there before slots are taken back")
	for _, j := range set.victims {
		s.spare(j, "slots are about to be taken back from it")
	}
	s.yield(set.hosts)
	s.nominateFreed(b, set)
	b.nominated = set.hosts
	if s.due(b) {
		s.skip(b.ID, "it is pinned to "+strings.Join(hosts, ", ")+": slots are taken back there once the queue has considered it")
	}
	return false
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
		if t.Hosts, t.Pinned = nil, (time.Time{}); t.Refusals == 0 {
			delete(s.plan.Memory.Trials, id)
		} else {
			s.plan.Memory.Trials[id] = t
		}
	}
}
