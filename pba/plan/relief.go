package plan

import (
	"cmp"
	"fmt"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Plea is what a host that lacks memory asks for: that a job which it has frozen ends its run there (R47).
type Plea struct {
	Host   string
	Job    backends.ID // as the host knows it: see backends.Job.OnHosts
	Verb   Verb        // Requeue or Kill
	Used   int64       // bytes of memory, there
	Frozen time.Duration
	Age    time.Duration // since it was heard
}

// ReliefMark is the Mark of a job that was requeued as its host lacked memory.
const ReliefMark = "memory"

// relieve ends the runs of jobs whose hosts ask for it: each has more memory there than it asked for, and is not
// protected. Their owners' choices hold.
func (s *serving) relieve() {
	for i := range s.state.Pleas {
		p := &s.state.Pleas[i]
		j := s.pleaded(p)
		if j == nil || j.leaving || j.Ending || j.reclaim != nil {
			continue
		}
		asked := j.perSlot * int64(slotsOn(j, p.Host))
		if why := s.whyStays(j, p, asked); why != "" {
			s.skip(j.ID, fmt.Sprintf("%s lacks memory, and asks to %s it: %s", p.Host, p.Verb, why))
			continue
		}
		act := Action{
			Verb: p.Verb, Job: j.ID, Hosts: names(j.Hosts), Started: j.Started,
			Reason: fmt.Sprintf("%s lacks memory, and it has %d MiB there and asked for %d", p.Host, p.Used>>20, asked>>20),
		}
		if p.Verb == Requeue {
			// It is frozen: a time to end in is of no use to it, unless it is to save itself, and is thawed for that.
			act.Save, act.Mark, act.Until = j.saves, ReliefMark, s.now.Add(s.policy.HoldLimit)
			act.Notice = fmt.Sprintf("requeued by pba at %s, as %s lacked memory: it had %d MiB there and asked for %d: pba explain %s",
				s.now.Format("15:04"), p.Host, p.Used>>20, asked>>20, j.ID)
			j.mem.Grew, j.mem.GrewAt = s.sizeFor(j, p), s.now
		}
		s.acts.add(stageFirst, act)
		if j.spared == "" {
			s.spare(j, "its host asked for its end")
		}
	}
}

// pleaded returns the running job that a plea means; nil: there is none, or it is in a later run.
func (s *serving) pleaded(p *Plea) *job {
	began := s.now.Add(-p.Age - p.Frozen)
	for _, j := range s.running {
		if j.OnHosts() == p.Job && slotsOn(j, p.Host) > 0 && !j.Started.After(began) {
			return j
		}
	}
	return nil
}

// whyStays returns why a job's run is not ended for its host's sake; "": it is.
func (s *serving) whyStays(j *job, p *Plea, asked int64) string {
	if asked == 0 || p.Used <= asked {
		return fmt.Sprintf("it has %d MiB there and asked for %d", p.Used>>20, asked>>20)
	}
	if why := cmp.Or(s.whyForeign(j), whyProtected(j)); why != "" {
		return why
	}
	switch exempt := s.exemption(); {
	case p.Verb == Requeue && j.NoRequeue:
		return notRequeued
	case exempt.has(j):
		return exempted
	case j.spared == takenBack:
		return takenBack
	}
	return ""
}

// sizeFor returns what a job should ask for, over all its slots: a quarter more than it had when it was frozen, as
// it was growing, and no more than the largest host has.
func (s *serving) sizeFor(j *job, p *Plea) int64 {
	const mib = 1 << 20
	here := int64(slotsOn(j, p.Host))
	most := int64(0)
	for _, h := range s.hosts {
		most = max(most, h.Memory)
	}
	size := p.Used + p.Used/4
	if most > 0 {
		size = min(size, most)
	}
	return (size/here*int64(j.Slots) + mib - 1) / mib * mib
}

// enlarge has jobs that were requeued as their hosts lacked memory ask for more, and lets them start then.
func (s *serving) enlarge() {
	able := s.state.Abilities.Enlarge != nil
	for _, j := range s.jobs {
		m := &j.mem
		switch {
		case m.Grew == 0 || j.leaving || j.Ending:
		case j.State == backends.Running:
			if j.Started.After(m.GrewAt) {
				m.Grew, m.GrewAt = 0, time.Time{}
			}
		case j.State == backends.Pending || j.State == backends.Held:
			asks := able && j.Memory < m.Grew
			if asks {
				s.acts.add(stageFirst, Action{
					Verb: Enlarge, Job: j.ID, Memory: m.Grew,
					Reason: fmt.Sprintf("it was requeued as its host lacked memory: it asks for %d MiB instead of %d, so that it starts where that is", m.Grew>>20, j.Memory>>20),
				})
			}
			held := !j.HeldUntil.IsZero() && j.Mark == ReliefMark
			if held && j.wide == nil && !j.gated {
				s.acts.add(stageRelease, Action{Verb: Release, Job: j.ID, Reason: "it asks for the memory that it needs"})
			}
			if !asks && !held {
				m.Grew, m.GrewAt = 0, time.Time{}
			}
		}
	}
}
