package lsf

import (
	"context"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/backends/reconcile"
)

// repairPeriod is how long after its end a job that the engine's requeue ended is put back, at
// each Reconcile; meanwhile it shows as on its way. After that it is lost.
const repairPeriod = time.Minute

// repairRequeues puts back jobs that the engine's requeue ended. LSF ends a job whose host dies
// during its requeue (volclava 2.2: after 11 s, `Termination request issued; but unable
// to reach the execution host`); a job that is left alone lives through the outage.
// `brequeue -e` puts such a job back, with the same ID, where LSF can do that. A job that
// ended while its host stayed up was killed, and stays ended.
func (c *Client) repairRequeues(ctx context.Context, p *snapshot) error {
	down := map[string]bool{}
	for _, h := range p.hosts {
		down[h.Name] = h.State == backends.HostDown
	}
	var seen, ended []*job
	for _, j := range p.jobs {
		if !j.entry.Requeuing || !j.sameRun() {
			continue
		}
		if onAny(j, down) {
			seen = append(seen, j)
		}
		if !j.saving() && j.listed.State == backends.Exited && (onAny(j, down) || !j.entry.Down.IsZero()) && j.repairable(p.at) {
			ended = append(ended, j)
		}
	}
	b := reconcile.Of(seen)
	c.updateEntries(b, func(_ *item, e *entry) { e.Down = p.at })
	if err := b.Errors().First(); err != nil {
		return err
	}
	c.brequeue(ctx, reconcile.Of(ended), "-e") // the next Reconcile sees the result
	return nil
}

func onAny(j *job, hosts map[string]bool) bool {
	for _, at := range j.listed.Hosts {
		if hosts[at.Host] {
			return true
		}
	}
	return false
}

// repairable reports whether a job that has ended may still be put back.
func (j *job) repairable(at time.Time) bool { return at.Sub(j.listed.Ended) < repairPeriod }

// leftAt returns when a job that has ended was no longer on its way back.
func (j *job) leftAt() time.Time {
	e := &j.entry
	switch {
	case !e.Requeuing || !j.sameRun() || j.finished():
		return j.Ended
	case j.saving():
		return j.savedUntil(j.listed.Ended)
	case !e.Down.IsZero():
		return j.listed.Ended.Add(repairPeriod)
	}
	return latest(e.Acted.Add(gap), j.listed.Ended.Add(gap))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
