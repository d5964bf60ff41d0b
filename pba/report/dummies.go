package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// Heavy sums up the heavy jobs of one user in one project, and their dummy jobs.
type Heavy struct {
	Project string  `json:"project"` // "": of jobs that neither the ledger nor the queue knows
	User    string  `json:"user"`
	Jobs    int     `json:"heavy_jobs"`
	Dummies int     `json:"dummies"` // that were placed
	Median  float64 `json:"median_gather_seconds"`
	Max     float64 `json:"max_gather_seconds"`
	Held    float64 `json:"held_slot_hours"`
}

// Dummies sums up what was placed and dropped, most slot-hours held first. Jobs
// are those that the queue still has; a dummy job that was not dropped ends with
// its job, or by its limit.
//
// A job gathers from its first dummy job to its start; one that has not started, or
// started without waiting for any, is left out of these times.
func Dummies(acts []ledger.DummyAct, jobs []backends.Job, limit time.Duration, to time.Time, project string) []Heavy {
	byJob := map[backends.ID]*heavyJob{}
	var order []*heavyJob
	for _, a := range acts {
		h := byJob[a.Job]
		if h == nil {
			h = &heavyJob{}
			byJob[a.Job] = h
			order = append(order, h)
		}
		h.identify(a.User, a.Project, a.Started, a.Ended)
	}
	for i := range jobs {
		if h := byJob[jobs[i].ID]; h != nil {
			h.identify(jobs[i].User, jobs[i].Project, jobs[i].Started, time.Time{})
		}
	}
	for _, a := range acts {
		byJob[a.Job].apply(a, limit, to)
	}
	type key struct{ project, user string }
	rows, times := map[key]*Heavy{}, map[key][]time.Duration{}
	for _, h := range order {
		if h.placed == 0 || project != "" && h.project != project {
			continue
		}
		k := key{h.project, h.user}
		if rows[k] == nil {
			rows[k] = &Heavy{Project: k.project, User: k.user}
		}
		rows[k].Jobs++
		rows[k].Dummies += h.placed
		rows[k].Held += h.held().Hours()
		if !h.gathers.IsZero() && !h.started.IsZero() {
			times[k] = append(times[k], h.started.Sub(h.gathers))
		}
	}
	all := make([]Heavy, 0, len(rows))
	for k, row := range rows {
		if all := times[k]; len(all) > 0 {
			row.Median, row.Max = percentile(all, 50), percentile(all, 100)
		}
		row.Held = round(row.Held)
		all = append(all, *row)
	}
	slices.SortFunc(all, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
	})
	return all
}

// heavyJob is one job and its dummy jobs, those that were placed together in one.
type heavyJob struct {
	user, project  string
	started, ended time.Time
	gathers        time.Time // since when it gathered before it started; zero: it did not
	placed         int
	batches        []batch // oldest first
}

type batch struct {
	n        int
	from, to time.Time
}

func (h *heavyJob) identify(user, project string, started, ended time.Time) {
	if h.user == "" {
		h.user, h.project, h.started, h.ended = user, project, started, ended
	}
}

func (h *heavyJob) apply(a ledger.DummyAct, limit time.Duration, to time.Time) {
	if a.Verb == plan.Drop {
		h.drop(a.Dummies, a.At)
		return
	}
	none := !slices.ContainsFunc(h.batches, func(b batch) bool { return b.to.After(a.At) })
	if none && (h.started.IsZero() || !a.At.After(h.started)) {
		h.gathers = a.At
	}
	end := to
	if by := a.At.Add(limit); limit > 0 && by.Before(end) {
		end = by
	}
	if h.ended.After(a.At) && h.ended.Before(end) {
		end = h.ended
	}
	h.placed += a.Dummies
	h.batches = append(h.batches, batch{n: a.Dummies, from: a.At, to: end})
}

// drop ends so many of those that there are, the oldest first.
func (h *heavyJob) drop(n int, at time.Time) {
	for i := range h.batches {
		b := &h.batches[i]
		if n == 0 || !b.to.After(at) {
			continue
		}
		left := *b
		left.n = max(0, b.n-n)
		n -= b.n - left.n
		b.n -= left.n
		b.to = at
		if left.n > 0 {
			h.batches = append(h.batches, left)
			break
		}
	}
}

func (h *heavyJob) held() ledger.SlotTime {
	var sum ledger.SlotTime
	for _, b := range h.batches {
		sum += ledger.SlotTime(b.n) * ledger.SlotTime(b.to.Sub(b.from))
	}
	return sum
}
