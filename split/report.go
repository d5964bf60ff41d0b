package split

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/metrics"
)

func (r *runner) roundReport(e endedRound) RoundReport {
	return RoundReport{Round: e.N, Began: e.Began, Ended: e.Ended, Gap: e.Gap, First: e.First, Last: e.Last, Under: e.Under}
}

// leases is a queue whose jobs are tasks of leases.
type leases interface {
	// Lease returns the last lease that a job had; 0: none is known.
	Lease(job int64) uint64
}

func (r *runner) taskReport(w *row) TaskReport {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	given := w.Worker
	if given == w.N { // its own job, which stayed
		given = 0
	}
	var lease uint64
	if q, ok := r.Queue.(leases); ok {
		lease = q.Lease(w.Job)
	}
	states := map[TaskState]string{Open: "open", Done: "done", Returned: "back", Killer: "killer", Superseded: "superseded"}
	return TaskReport{
		Task: w.N, Host: w.Host, First: r.def.Input.Number(w.First), Items: w.Count, Took: w.Took.Seconds(), State: states[w.State],
		Job: backends.ID{Job: w.Job}, Submitted: at(w.Submitted), Started: at(w.Began), Ended: at(w.Ended), Seen: at(w.Seen), Lease: lease, Worker: given, CopyOf: w.CopyOf,
	}
}

// report returns the Report of the split, once it has ended.
func (r *runner) report() (*Report, error) {
	ctx := context.Background()
	now := time.Now().UTC()
	all := &Report{
		Name: r.def.Name, Items: r.delivery.items, Failed: r.delivery.failed, Killers: r.delivery.killers,
		Began: r.def.Began.UTC(), Ended: now, Seconds: now.Sub(r.def.Began).Seconds(),
	}
	all.Loads = r.loadReports()
	have, _, _ := r.source.count() // it was read before
	all.Trial = r.trialReport(have)
	index := map[int]int{}
	err := r.store.Rounds(ctx, func(e endedRound) error {
		index[e.N] = len(all.Rounds)
		all.Rounds = append(all.Rounds, r.roundReport(e))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, r.store.Tasks(ctx, func(w row) error {
		if i, ok := index[w.Round]; ok {
			all.Rounds[i].Tasks = append(all.Rounds[i].Tasks, r.taskReport(&w))
		}
		return nil
	})
}

// loadReports returns the elements that count, host by host.
func (r *runner) loadReports() []LoadReport {
	var all []LoadReport
	for _, l := range r.core.Balance.Loads() {
		for _, e := range metrics.Elements() {
			if l.Influence[e] > 0 {
				all = append(all, LoadReport{Host: l.Host, Element: e.String(), Influence: l.Influence[e], X: l.X[e], CM: l.CM[e], CU: l.CU[e], JL: l.JL})
			}
		}
	}
	return all
}

// progress reports how far the split is.
func (r *runner) progress(have int64, ended bool) {
	p := r.progressNow(have, ended)
	r.notify(func(to Reporter) { to.Progress(p) })
	r.writeStatus(&p, StateRuns)
}

// progressNow returns how far the split is.
func (r *runner) progressNow(have int64, ended bool) Progress {
	p := Progress{
		Total: -1, Round: r.core.Round, Open: len(r.core.Open()), Gap: r.gap, HasGap: r.hasGap, Shares: r.core.Balance.Shares(), LastSeen: r.lastSeen,
	}
	p.Items = r.core.Next
	for _, piece := range r.core.Front {
		p.Items -= piece.Count
	}
	for _, t := range r.core.Apart() {
		p.Items -= t.Count
	}
	if ended {
		p.Total = have
	}
	if b := r.core.Blocks; b != nil && b.Period > 0 {
		p.Period, p.Items, p.Total = b.Period, p.Items-b.items(b.Period-1), b.count()
	}
	if took := r.lastSeen.Sub(r.runBegan); r.runItems > 0 && took > 0 {
		p.Rate = float64(r.runItems) / took.Seconds()
	}
	if left := p.Total - p.Items; p.Rate > 0 && left > 0 && p.Period == 0 {
		p.Left = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
	return p
}
