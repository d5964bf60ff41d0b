package objects

import (
	"maps"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/state"
	"github.com/allotment-hpc/allotment/state/tracker"
)

func compare(a, b state.Job) int { return tracker.Compare(a, b) }

func (t *Table) sorted(jobs map[state.Job]bool) []state.Job {
	return slices.SortedFunc(maps.Keys(jobs), compare)
}

func (t *Table) entry(job state.Job) tracker.Entry {
	o := t.jobs[job]
	if o == nil {
		return tracker.Entry{Job: job, Gone: true}
	}
	return tracker.Entry{Job: job, Sequence: o.Sequence, Live: o.Live, Claimed: !o.Grouped}
}

// Changes returns what has changed since it was last called, at most as much as a message holds.
func (t *Table) Changes() (all []tracker.Entry) {
	list := t.sorted(t.changed)
	for _, job := range list[:min(len(list), maxAnnounced)] {
		all = append(all, t.entry(job))
		delete(t.changed, job)
	}
	return all
}

// Page returns the next part of the list of all objects, in the order of tracker.Compare. last:
// the next one begins anew.
func (t *Table) Page() (a tracker.Announcement, last bool) {
	var list []state.Job
	for job := range t.jobs {
		if t.page == (state.Job{}) || compare(job, t.page) > 0 {
			list = append(list, job)
		}
	}
	slices.SortFunc(list, compare)
	a.Page = true
	if t.page != (state.Job{}) {
		a.After = t.page.String()
	}
	t.page = state.Job{}
	if len(list) > maxAnnounced {
		list = list[:maxAnnounced]
		t.page = list[len(list)-1]
		a.Through = t.page.String()
	}
	for _, job := range list {
		a.Entries = append(a.Entries, t.entry(job))
	}
	return a, t.page == (state.Job{})
}

// copyEvery is how often a copy of an object whose run is here goes to its holder, at most.
const copyEvery = time.Minute

// Push reports whether an object is to be pushed now, which allotd has ordered.
func (t *Table) Push(job state.Job, now time.Time) bool {
	o := t.jobs[job]
	if o == nil {
		t.changed[job] = true // allotd does not know yet
		return false
	}
	if o.Live && now.Sub(o.pushed) < copyEvery {
		return false
	}
	o.pushed = now
	return true
}
