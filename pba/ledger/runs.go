package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/backends"
	"github.com/allotment-hpc/allotment/internal/unixtime"
)

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

// PastRuns gives the jobs whose ends were recorded to each, by submission, until
// it fails.
func (l *Ledger) PastRuns(ctx context.Context, each func(PastRun) error) error {
	return l.explain("read the jobs that ended", eachRun(ctx, l.db, each))
}

func eachRun(ctx context.Context, q querier, do func(PastRun) error) error {
	return each(ctx, q, func(rows *sql.Rows) error {
		var (
			r                         PastRun
			submitted, started, ended int64
		)
		if err := rows.Scan(&r.ID.Job, &r.ID.Index, &r.User, &r.Project, &r.Step, &r.Slots, &submitted, &started, &ended); err != nil {
			return err
		}
		r.Submitted, r.Started, r.Ended = unixtime.Time(submitted), unixtime.Time(started), unixtime.Time(ended)
		return do(r)
	}, `SELECT job, idx, user, project, step, slots, submitted, started, ended FROM ended_job ORDER BY submitted, job, idx`)
}
