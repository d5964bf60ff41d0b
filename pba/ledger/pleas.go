package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// pleaLasts is for how long a plea counts: a host that still lacks memory repeats it.
const pleaLasts = time.Minute

// SetPleas replaces what a host asked for, and forgets what others asked for too long ago. Host and Age of the pleas
// are ignored.
func (l *Ledger) SetPleas(ctx context.Context, host string, now time.Time, pleas []plan.Plea) error {
	return l.tx(ctx, "record what host "+host+" asks for", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM plea WHERE host = ? OR heard < ?`, host, unixtime.Of(now.Add(-pleaLasts))); err != nil {
			return err
		}
		for _, p := range pleas {
			_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO plea (host, job, idx, verb, used, frozen, heard) VALUES `+placeholders(7),
				host, p.Job.Job, p.Job.Index, string(p.Verb), p.Used, int64(p.Frozen), unixtime.Of(now))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Pleas returns what hosts ask for, by their names. A plea that was heard later than now, since the clock was put
// back, does not count.
func (l *Ledger) Pleas(ctx context.Context, now time.Time) ([]plan.Plea, error) {
	all, err := list(ctx, l.db, func(p *plan.Plea) []any {
		return []any{&p.Host, &p.Job.Job, &p.Job.Index, &p.Verb, &p.Used, &p.Frozen, &p.Age}
	}, `SELECT host, job, idx, verb, used, frozen, ?1 - heard FROM plea WHERE heard BETWEEN ?2 AND ?1 ORDER BY host, job, idx`,
		unixtime.Of(now), unixtime.Of(now.Add(-pleaLasts)))
	return all, l.explain("read what hosts ask for", err)
}
