package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/allotment-hpc/allotment/internal/quantile"
	"github.com/allotment-hpc/allotment/pba/ledger"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// What a row of waits is about. The parts of a reclaim are those of R14's
// promise: threshold + 2 cycles + the time that victims have to save themselves + the time to
// free the slots.
const (
	Within    = "within"    // jobs that were charged to a pool, or had room in one
	Beyond    = "beyond"    // all other jobs
	Threshold = "threshold" // of reclaims: waited up to pending_threshold
	Cycles    = "cycles"    // of reclaims: until the cycles that planned, acted and handed over
	Saving    = "saving"    // of reclaims whose victims were asked to save themselves: what they took for that, at most
	Freeing   = "freeing"   // of reclaims: from the act until the slots were free, less saving
	Total     = "total"     // of reclaims: from entering the allocation, by R14's clock, to the start
)

// Wait is how long a project's jobs, or reclaims for them, waited.
type Wait struct {
	Project string  `json:"project"` // "": all of them
	Week    string  `json:"week,omitempty"`
	User    string  `json:"user,omitempty"`
	Step    string  `json:"step,omitempty"`
	Kind    string  `json:"kind"` // jobs, reclaims
	Of      string  `json:"of"`   // one of the constants above
	Count   int     `json:"count"`
	Median  float64 `json:"median_seconds"`
	P95     float64 `json:"p95_seconds"`
	Max     float64 `json:"max_seconds"`
}

// Promise counts the reclaims that were handed over, and those of them that took
// no more than the threshold, two cycles and the time to free the slots.
type Promise struct {
	Reclaims int `json:"reclaims"`
	Kept     int `json:"kept"`
}

// Rates are what waits are measured against.
type Rates struct {
	Threshold time.Duration            // pending_threshold
	Own       map[string]time.Duration // instead, by project: those that have a shorter one may be served before
	Cycle     time.Duration            // every
}

// Waits sums up jobs that ran, and reclaims that were handed over, by groups (by project
// where none is named), and all of them. A job that never started is left out; the wait of one
// that was preempted counts from its submission to the start of its last run. A job's week is
// that of its end. What reclaims were for has no step: by step they are left out.
func Waits(jobs []ledger.PastJob, reclaims []ledger.PastReclaim, rates Rates, project string, by []By, zone *time.Location) ([]Wait, Promise) {
	if len(by) == 0 {
		by = []By{ByProject}
	}
	samples := map[Wait][]time.Duration{}
	add := func(key Key, kind, of string, d time.Duration) {
		key = key.only(by)
		k := Wait{Project: key.Project, Week: key.Week, User: key.User, Step: key.Step, Kind: kind, Of: of}
		samples[k] = append(samples[k], max(d, 0))
		if project == "" && key != (Key{}) {
			k = Wait{Kind: kind, Of: of}
			samples[k] = append(samples[k], max(d, 0))
		}
	}
	for _, j := range jobs {
		if j.Started.IsZero() || project != "" && j.Project != project {
			continue
		}
		of := Beyond
		if j.PBA {
			of = Within
		}
		add(Key{Project: j.Project, User: j.User, Step: j.Step}.at(j.Ended, zone), "jobs", of, j.Waited)
	}
	var promise Promise
	for i := range reclaims { // those without a user keep slots free: no job waits for them
		r := &reclaims[i]
		if r.Phase != plan.HandedOver || r.User == "" || project != "" && r.Project != project {
			continue
		}
		p := partsOf(r, rates)
		promise.Reclaims++
		if p.cycles <= 2*rates.Cycle {
			promise.Kept++
		}
		if slices.Contains(by, ByStep) {
			continue
		}
		key := Key{Project: r.Project, User: r.User}.at(r.Planned, zone)
		add(key, "reclaims", Threshold, p.threshold)
		add(key, "reclaims", Cycles, p.cycles)
		if p.saving > 0 {
			add(key, "reclaims", Saving, p.saving)
		}
		add(key, "reclaims", Freeing, p.freeing)
		add(key, "reclaims", Total, p.threshold+p.cycles+p.saving+p.freeing)
	}
	return summed(samples), promise
}

type parts struct{ threshold, cycles, saving, freeing time.Duration }

// partsOf parts the time from entering the allocation to the start. When slots
// were free is known only from the next cycle on: a start shows it earlier.
func partsOf(r *ledger.PastReclaim, rates Rates) parts {
	acted := r.Acted
	if acted.IsZero() {
		acted = r.Planned
	}
	freed := r.Freed
	if freed.IsZero() || freed.After(r.Started) {
		freed = r.Started
	}
	threshold := min(r.Clock, rates.Threshold)
	if own, ok := rates.Own[r.Project]; ok && (own > rates.Threshold || r.Clock < rates.Threshold) {
		threshold = min(r.Clock, own)
	}
	freeing := max(freed.Sub(acted), 0)
	saving := min(freeing, r.Saving())
	return parts{
		threshold: threshold,
		cycles:    max(r.Clock-threshold, 0) + max(acted.Sub(r.Planned), 0) + max(r.Started.Sub(freed), 0),
		saving:    saving,
		freeing:   freeing - saving,
	}
}

func summed(samples map[Wait][]time.Duration) []Wait {
	all := make([]Wait, 0, len(samples))
	for w, times := range samples {
		w.Count = len(times)
		w.Median, w.P95, w.Max = percentile(times, 50), percentile(times, 95), percentile(times, 100)
		all = append(all, w)
	}
	order := []string{Within, Beyond, Threshold, Cycles, Saving, Freeing, Total}
	slices.SortFunc(all, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Week, b.Week), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User), cmp.Compare(a.Step, b.Step), cmp.Compare(slices.Index(order, a.Of), slices.Index(order, b.Of)))
	})
	return all
}

// percentile returns a percentile of times, in seconds.
func percentile(times []time.Duration, percent int) float64 {
	return round(quantile.Of(times, percent).Seconds())
}
