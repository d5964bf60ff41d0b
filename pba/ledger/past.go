package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// PastJob is an ended job, for reports.
type PastJob struct {
	ID       backends.ID
	User     string
	Project  string
	Step     string
	Slots    int
	Started  time.Time // of its last run; zero: it never ran
	Ended    time.Time
	Waited   time.Duration // from submission to Started, or to Ended
	PBA      bool
	Requeues int
}

// PastJobs lists the jobs that ended from one time up to, and without, another.
func (l *Ledger) PastJobs(ctx context.Context, from, to time.Time) ([]PastJob, error) {
	all, err := list(ctx, l.db, func(j *PastJob) []any {
		return []any{&j.ID.Job, &j.ID.Index, &j.User, &j.Project, &j.Step, &j.Slots, when(&j.Started), when(&j.Ended), &j.Waited, &j.PBA, &j.Requeues}
	}, `SELECT job, idx, user, project, step, slots, started, ended, waited, class = 'pba', requeues
		FROM ended_job WHERE ended >= ? AND ended < ? ORDER BY ended, job, idx`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read the jobs that ended", err)
}

// PastReclaim is a reclaim with what was known of its beneficiary.
type PastReclaim struct {
	plan.Reclaim
	Entered time.Time     // since when its beneficiary held room; zero: unknown
	Clock   time.Duration // that its beneficiary had waited when it was planned, as R14 counts
	Started time.Time     // of its beneficiary; zero: it has not started, or not in these slots
}

// PastReclaims lists the reclaims that were planned from one time up to, and
// without, another.
func (l *Ledger) PastReclaims(ctx context.Context, from, to time.Time) ([]PastReclaim, error) {
	var all []PastReclaim
	err := l.tx(ctx, "read the reclaims", func(tx *sql.Tx) error {
		reclaims, err := loadReclaims(ctx, tx, `WHERE planned >= ? AND planned < ?`, unixtime.Of(from), unixtime.Of(to))
		if err != nil {
			return err
		}
		for i := range reclaims {
			r := PastReclaim{Reclaim: reclaims[i]}
			if err := loadBeneficiary(ctx, tx, &r); err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

func loadBeneficiary(ctx context.Context, tx *sql.Tx, r *PastReclaim) error {
	err := tx.QueryRowContext(ctx, `SELECT entered, clock, COALESCE((SELECT MAX(e.started) FROM ended_job e
			WHERE e.job = reclaim.job AND e.idx = reclaim.idx AND e.started BETWEEN reclaim.planned AND reclaim.ended), 0)
		FROM reclaim WHERE id = ?`, r.ID).Scan(when(&r.Entered), &r.Clock, when(&r.Started))
	if r.Phase != plan.HandedOver {
		r.Started = time.Time{}
	} else if r.Started.IsZero() {
		r.Started = r.Ended // it runs still: when a cycle saw it run
	}
	return err
}

// DummyAct is one placing or dropping of dummy jobs, with what is known of the job
// that they are for.
type DummyAct struct {
	At      time.Time
	Verb    plan.Verb // place, drop
	Job     backends.ID
	Dummies int
	User    string // "": the job has not ended
	Project string
	Started time.Time // of its last run; zero: it has not ended, or never ran
	Ended   time.Time // zero: not yet
}

// DummyActs lists what was done from one time up to, and without, another, but for standby jobs.
func (l *Ledger) DummyActs(ctx context.Context, from, to time.Time) ([]DummyAct, error) {
	all, err := list(ctx, l.db, func(a *DummyAct) []any {
		return []any{when(&a.At), &a.Verb, &a.Job.Job, &a.Job.Index, &a.Dummies, &a.User, &a.Project, when(&a.Started), when(&a.Ended)}
	}, `SELECT a.at, a.verb, a.job, a.idx, a.dummies, COALESCE(e.user, ''), COALESCE(e.project, ''), COALESCE(e.started, 0), COALESCE(e.ended, 0)
		FROM action a LEFT JOIN ended_job e ON e.job = a.job AND e.idx = a.idx AND e.submitted =
			(SELECT MAX(x.submitted) FROM ended_job x WHERE x.job = a.job AND x.idx = a.idx AND x.submitted <= a.at
				AND (a.verb = 'drop' OR x.ended >= a.at)) -- there are queues that use their numbers again
		WHERE a.verb IN ('place', 'drop') AND a.outcome = 'done' AND a.job != 0 AND a.at >= ? AND a.at < ? ORDER BY a.at, a.id`, unixtime.Of(from), unixtime.Of(to))
	return all, l.explain("read what was done with dummy jobs", err)
}

// PastRun is an ended job as it was handed in, and how long its last run took.
type PastRun struct {
	ID        backends.ID
	User      string
	Project   string
	Step      string
	Slots     int
	Submitted time.Time
	Started   time.Time // of its last run; zero: it never ran
	Ended     time.Time
}

// PastRuns calls do for each job whose end was recorded, by submission, until do fails.
func (l *Ledger) PastRuns(ctx context.Context, do func(PastRun) error) error {
	return l.explain("read the jobs that ended", each(ctx, l.db, func(rows *sql.Rows) error {
		var r PastRun
		err := rows.Scan(&r.ID.Job, &r.ID.Index, &r.User, &r.Project, &r.Step, &r.Slots, when(&r.Submitted), when(&r.Started), when(&r.Ended))
		if err != nil {
			return err
		}
		return do(r)
	}, `SELECT job, idx, user, project, step, slots, submitted, started, ended FROM ended_job ORDER BY submitted, job, idx`))
}
