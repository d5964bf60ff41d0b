package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// PastJob is an ended job, for reports.
type PastJob struct {
	ID       backends.ID
	User     string
	Project  string
	Slots    int
	Started  time.Time // of its last run; zero: it never ran
	Ended    time.Time
	Waited   time.Duration // from submission to Started, or to Ended
	PBA      bool
	Requeues int
}

// PastJobs lists the jobs that ended from one time up to, and without, another.
func (l *Ledger) PastJobs(ctx context.Context, from, to time.Time) ([]PastJob, error) {
	var all []PastJob
	err := each(ctx, l.db, func(rows *sql.Rows) error {
		var (
			j                      PastJob
			started, ended, waited int64
		)
		err := rows.Scan(&j.ID.Job, &j.ID.Index, &j.User, &j.Project, &j.Slots, &started, &ended, &waited, &j.PBA, &j.Requeues)
		j.Started, j.Ended, j.Waited = moment(started), moment(ended), time.Duration(waited)
		all = append(all, j)
		return err
	}, `SELECT job, idx, user, project, slots, started, ended, waited, class = 'pba', requeues
		FROM ended_job WHERE ended >= ? AND ended < ? ORDER BY ended, job, idx`, stamp(from), stamp(to))
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
		reclaims, err := loadReclaims(ctx, tx, `WHERE planned >= ? AND planned < ?`, stamp(from), stamp(to))
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
	var entered, clock, started int64
	err := tx.QueryRowContext(ctx, `SELECT entered, clock, COALESCE((SELECT MAX(e.started) FROM ended_job e
			WHERE e.job = reclaim.job AND e.idx = reclaim.idx AND e.started BETWEEN reclaim.planned AND reclaim.ended), 0)
		FROM reclaim WHERE id = ?`, r.ID).Scan(&entered, &clock, &started)
	r.Entered, r.Clock, r.Started = moment(entered), time.Duration(clock), moment(started)
	if r.Phase != plan.HandedOver {
		r.Started = time.Time{}
	} else if r.Started.IsZero() {
		r.Started = r.Ended // it runs still: when a cycle saw it run
	}
	return err
}
