package simulate

import (
	"fmt"
	"maps"
	"slices"
)

// amount is a number of jobs and their slot-seconds.
type amount struct {
	jobs int
	work float64
}

func (a *amount) add(jobs int, work float64) {
	a.jobs += jobs
	a.work += work
}

// omissions are jobs that are not simulated, by why.
type omissions map[string]*LeftOut

func (o omissions) of(why string) *LeftOut {
	if o[why] == nil {
		o[why] = &LeftOut{Why: why}
	}
	return o[why]
}

func (l *LeftOut) add(jobs int, work float64) {
	l.Jobs += jobs
	l.SlotSeconds += work
}

// list returns the omissions by why, each with its share of a whole.
func (o omissions) list(of amount) []LeftOut {
	var all []LeftOut
	for _, why := range slices.Sorted(maps.Keys(o)) {
		l := *o[why]
		if of.jobs > 0 {
			l.JobShare = float64(l.Jobs) / float64(of.jobs)
		}
		if of.work > 0 {
			l.WorkShare = l.SlotSeconds / of.work
		}
		all = append(all, l)
	}
	return all
}

// Share says how much of the trace the jobs are, as in "2.3 % of the jobs, 28.6 % of the
// slot-seconds".
func (l *LeftOut) Share() string {
	jobs := fmt.Sprintf("%.1f %% of the jobs", 100*l.JobShare)
	if l.Unknown {
		return jobs + ", slot-seconds not known"
	}
	return fmt.Sprintf("%s, %.1f %% of the slot-seconds", jobs, 100*l.WorkShare)
}
