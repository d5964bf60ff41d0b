package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// awaits reports whether a beneficiary waits for jobs that end by their run limits anyway,
// rather than have others preempted (R15): on one host, until a cycle after its threshold at the
// latest. If they still run then, or another job took their slots, the next cycle preempts for it:
// that is within the promise.
func (s *serving) awaits(b *job) bool {
	window := s.threshold(b) + s.policy.Cycle - b.mem.Clock
	at := s.choicesFor(b)
	if window <= 0 || b.standby || b.State == backends.Suspended || b.Exclusive || !at.plain() {
		return false
	}
	var best *host
	var last time.Duration // when the last one ends
	var ending []*job
	for _, h := range s.ends {
		if _, suits := s.indexIn(at, h.host); !suits {
			continue
		}
		if jobs, end := s.endingOn(h, b, window); jobs != nil && (best == nil || end < last) {
			best, ending, last = h.host, jobs, end
		}
	}
	if best == nil {
		return false
	}
	for i := range s.ends { // one end serves one beneficiary
		s.ends[i].jobs = slices.DeleteFunc(s.ends[i].jobs, func(j *job) bool { return slices.Contains(ending, j) })
	}
	s.ends = slices.DeleteFunc(s.ends, func(h ends) bool { return len(h.jobs) == 0 })
	if !s.small(b) {
		hosts := []string{best.Name}
		s.setAside(b, hosts)
		s.reserveOn(b, hosts, "jobs there end soon by their run limits: slots that come free are reserved for it")
	}
	final := ending[len(ending)-1]
	s.skip(b.ID, fmt.Sprintf("job %s ends by its run limit in %s: no job is preempted", final.ID, max(last, 0).Round(time.Second)))
	return true
}

// ends is a host with the jobs that end there soon by their run limits, in the order of their ends,
// but for those that a beneficiary waits for.
type ends struct {
	*host
	jobs []*job
}

// readEnds lists the hosts where jobs end soon.
func (s *serving) readEnds() {
	on := map[string][]*job{}
	for _, j := range s.ending {
		for _, p := range j.Hosts {
			on[p.Host] = append(on[p.Host], j)
		}
	}
	for _, h := range s.hosts {
		if jobs := on[h.Name]; jobs != nil {
			slices.SortFunc(jobs, func(x, y *job) int { return cmp.Or(cmp.Compare(x.left(s.now), y.left(s.now)), x.ID.Compare(y.ID)) })
			s.ends = append(s.ends, ends{h, jobs})
		}
	}
}

// left returns the time until a job's run limit.
func (j *job) left(now time.Time) time.Duration { return j.RunLimit - j.ran(now) }

// endingOn returns the jobs on a host that end within some time and leave a beneficiary what it
// lacks, and when the last of them ends; nil if they don't.
func (s *serving) endingOn(h ends, b *job, within time.Duration) (ending []*job, last time.Duration) {
	if h.contested() || h.Slots < b.Slots || h.Memory > 0 && h.Memory-h.stuck < b.memory() {
		return nil, 0
	}
	w := wantOn(h.host, b, b.Slots)
	if w.needs != nil {
		return nil, 0
	}
	for _, j := range h.jobs {
		if j.left(s.now) > within || j.leaving || j.Ending {
			continue
		}
		ending = append(ending, j)
		n := slotsOn(j, h.Name)
		w.slots -= n
		w.memory -= j.perSlot * int64(n)
		if w.nothing() {
			return ending, j.left(s.now)
		}
	}
	return nil, 0
}
