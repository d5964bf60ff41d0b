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
	for _, h := range at.hosts {
		if jobs, end := s.endingOn(h, b, window); jobs != nil && (best == nil || end < last) {
			best, ending, last = h, jobs, end
		}
	}
	if best == nil {
		return false
	}
	for _, j := range ending {
		s.awaited[j] = true
	}
	if !s.small(b) {
		hosts := []string{best.Name}
		s.setAside(b, hosts)
		s.reserveOn(b, hosts, "jobs there end soon by their run limits: slots that come free are reserved for it")
	}
	final := ending[len(ending)-1]
	s.skip(b.ID, fmt.Sprintf("job %s ends by its run limit in %s: no job is preempted", final.ID, max(last, 0).Round(time.Second)))
	return true
}

// endingOn returns the jobs on a host, in the order of their ends, that end within some time by their
// run limits and leave a beneficiary what it lacks, and when the last of them ends; nil if they don't.
func (s *serving) endingOn(h *host, b *job, within time.Duration) (ending []*job, last time.Duration) {
	if h.contested() || h.Slots < b.Slots || h.Memory > 0 && h.Memory-h.stuck < b.memory() {
		return nil, 0
	}
	w := wantOn(h, b, b.Slots)
	if w.needs != nil {
		return nil, 0
	}
	left := func(j *job) time.Duration { return j.RunLimit - j.ran(s.now) }
	for _, j := range h.running {
		if j.RunLimit > 0 && left(j) <= within && !j.leaving && !j.Ending && !s.awaited[j] {
			ending = append(ending, j)
		}
	}
	slices.SortFunc(ending, func(x, y *job) int { return cmp.Or(cmp.Compare(left(x), left(y)), x.ID.Compare(y.ID)) })
	for i, j := range ending {
		n := slotsOn(j, h.Name)
		w.slots -= n
		w.memory -= j.perSlot * int64(n)
		if w.nothing() {
			return ending[:i+1], left(j)
		}
	}
	return nil, 0
}
