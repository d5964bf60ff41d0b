package plan

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
)

// Outlook is when a job that waits for slots may start, if none comes that ranks before it.
type Outlook struct {
	Ahead   int           // jobs that wait for slots and rank before it
	Waiting int           // all jobs that wait for slots
	Soonest time.Duration // from now, if other jobs are as short as they usually are
	Latest  time.Duration // from now, if they run as long as they may; negative: not known
	Open    int           // running jobs, and those that rank before it, of which no longest run is known
}

// Runs describes how long a user's runs took. It is zero if fewer than five are known.
type Runs struct {
	Short time.Duration // a quarter of them ended earlier
	Long  time.Duration // one in twenty took longer
}

// NewRuns describes past runs; with fewer than five it is zero.
func NewRuns(took []time.Duration) Runs {
	n := len(took)
	if n < 5 {
		return Runs{}
	}
	slices.Sort(took)
	return Runs{Short: took[n/4], Long: took[n-1-n/20]}
}

// maxForeseen bounds the jobs ahead of one whose start is foreseen, for the time that it takes.
const maxForeseen = 2000

// Foresee plays the queue forward up to the start of a job, from run limits and users' past
// runs. It reports false for a job that does not wait for slots.
func (d Decision) Foresee(id backends.ID, runs func(user string) Runs) (Outlook, bool) {
	f, now := d.f, d.now
	queue := f.queueNow()
	at := slices.IndexFunc(queue, func(j *job) bool { return j.ID == id })
	if at < 0 {
		return Outlook{}, false
	}
	o := Outlook{Ahead: at, Waiting: len(queue), Latest: -1}
	l := lengths{now, runs}
	for _, j := range append(slices.Clone(queue[:o.Ahead]), f.running...) {
		if l.most(j) == forever {
			o.Open++
		}
	}
	if o.Ahead > maxForeseen {
		return o, true
	}
	queue = queue[:o.Ahead+1]
	if soonest := f.startOf(queue, l.least); soonest != forever {
		o.Soonest = soonest
	}
	if latest := f.startOf(queue, l.most); latest != forever {
		o.Latest = max(latest, o.Soonest)
	}
	return o, true
}

// queueNow lists the jobs that wait for slots, those that no rule concerns too, in the order in
// which the queue considers them.
func (f *farm) queueNow() []*job {
	var queue []*job
	known := map[backends.ID]bool{}
	for _, j := range f.resting {
		known[j.ID] = true
		if j.waiting() && !j.IsDummy() {
			queue = append(queue, j)
		}
	}
	for i := range f.state.Farm.Jobs {
		if j := &f.state.Farm.Jobs[i]; waits(j) && !j.IsDummy() && !known[j.ID] {
			queue = append(queue, &job{
				Job: j, seq: i, computed: j.Priority, Priority: j.Priority, State: j.State, Slots: j.Slots, waits: true, perSlot: f.countsFor(j),
			})
		}
	}
	slices.SortFunc(queue, beforeInQueue)
	return queue
}

// startOf plays the queue forward from now on, and returns when its last job starts, given
// how long runs take from now on; forever if that can't be foreseen. Each job starts where and
// as soon as it fits, as the queue passes over those that do not.
func (f *farm) startOf(queue []*job, takes func(*job) time.Duration) time.Duration {
	free := newOccupancy(f.state.Farm, f.policy.Hosts)
	var coming comingEnds
	for _, j := range f.jobs {
		free.occupy(j, f.state.Abilities.SuspendFrees)
		if j.State != backends.Running {
			continue
		}
		left := takes(j)
		if j.Ending || j.leaving {
			left = 0
		}
		coming = append(coming, comingEnd{left, j, j.Hosts})
	}
	heap.Init(&coming)
	target, clock := queue[len(queue)-1], time.Duration(0)
	for waiting := slices.Clone(queue); ; {
		full := map[*choices]bool{} // shapes that fit nowhere now
		waiting = slices.DeleteFunc(waiting, func(j *job) bool {
			shape := f.choicesFor(j)
			if full[shape] {
				return false
			}
			at := f.placeIn(&free, j)
			if full[shape] = at == nil; at == nil {
				return false
			}
			heap.Push(&coming, comingEnd{later(clock, takes(j)), j, at})
			return true
		})
		if len(waiting) == 0 || waiting[len(waiting)-1] != target {
			return clock
		}
		if len(coming) == 0 || coming[0].at == forever {
			return forever
		}
		for clock = coming[0].at; len(coming) > 0 && coming[0].at == clock; {
			e := heap.Pop(&coming).(comingEnd) //nolint:forcetypeassert // of ours alone
			for _, p := range e.hosts {
				if h := free.byName[p.Host]; h != nil {
					h.leave(e.job, p, true)
				}
			}
		}
	}
}

// placeIn takes for a job what it needs of what is free, and returns where; nil if there is
// not enough.
func (f *farm) placeIn(free *occupancy, j *job) []backends.Placement {
	var hosts []*host
	for _, h := range f.suitable(j) {
		hosts = append(hosts, free.byName[h.Name])
	}
	at := j.lay(hosts, func(h *host) int { return h.fits(j) })
	if at != nil {
		free.nominate(j, at)
	}
	return at
}

func later(clock, takes time.Duration) time.Duration {
	if takes == forever {
		return forever
	}
	return clock + takes
}

// comingEnd is a run's end in startOf.
type comingEnd struct {
	at    time.Duration
	job   *job
	hosts []backends.Placement
}

// comingEnds is a heap, the first end first.
type comingEnds []comingEnd

func (e comingEnds) Len() int { return len(e) }
func (e comingEnds) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), e[i].job.ID.Compare(e[j].job.ID)) < 0
}
func (e comingEnds) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *comingEnds) Push(x any)   { *e = append(*e, x.(comingEnd)) } //nolint:forcetypeassert // heap.Interface
func (e *comingEnds) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// lengths are how long a job's runs take from now on, at the least and at the most.
type lengths struct {
	now  time.Time
	runs func(user string) Runs
}

const forever = time.Duration(math.MaxInt64)

func (l lengths) least(j *job) time.Duration {
	least := l.runs(j.User).Short
	if j.RunLimit > 0 {
		least = min(least, j.RunLimit)
	}
	return max(least-j.ran(l.now), 0)
}

// most returns forever where nothing is known.
func (l lengths) most(j *job) time.Duration {
	most := l.runs(j.User).Long
	if j.RunLimit > 0 {
		most = j.RunLimit
	}
	if left := most - j.ran(l.now); left > 0 || j.RunLimit > 0 {
		return max(left, 0)
	}
	return forever
}
