package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/allotment-hpc/allotment/internal/unixtime"
	"github.com/allotment-hpc/allotment/pba/plan"
)

// forgetEvery is the number of cycles between two removals of old history, and
// forgetAtMost that of the rows removed from a table at a time: no cycle waits for it.
const (
	forgetEvery  = 100
	forgetAtMost = 5000
)

// doubted is for how long nothing is forgotten after the clock was put ahead: it may be
// wrong, and what was forgotten does not come back.
const doubted = 7 * 24 * time.Hour

func inDoubt(set plan.ClockSet, now time.Time) bool {
	return set.By > 0 && now.Sub(set.At) < doubted
}

// forget removes history from before a time. Edits of the plan are kept for ever.
func forget(ctx context.Context, tx *sql.Tx, before time.Time) error {
	old := unixtime.Of(before)
	const reclaims = `SELECT id FROM reclaim WHERE ended > 0 AND ended < ? ORDER BY id LIMIT ?`
	for _, statement := range []string{
		`INSERT INTO forgotten (phase, reclaims, need, taken)
			SELECT r.phase, COUNT(*), SUM(r.need), COALESCE(SUM((SELECT SUM(v.slots) FROM victim v WHERE v.reclaim = r.id AND v.fate = 'taken')), 0)
			FROM reclaim r WHERE r.id IN (` + reclaims + `) GROUP BY r.phase
			ON CONFLICT (phase) DO UPDATE SET reclaims = reclaims + excluded.reclaims, need = need + excluded.need, taken = taken + excluded.taken`,
		`DELETE FROM victim WHERE reclaim IN (` + reclaims + `)`,
		`DELETE FROM reclaim WHERE id IN (` + reclaims + `)`,
		`DELETE FROM farm_hour WHERE hour IN (SELECT hour FROM farm_hour WHERE hour < ? LIMIT ?)`,
		`DELETE FROM use_hour WHERE hour IN (SELECT DISTINCT hour FROM use_hour WHERE hour < ? ORDER BY hour LIMIT ? / 100)`,
		`DELETE FROM user_hour WHERE hour IN (SELECT DISTINCT hour FROM user_hour WHERE hour < ? ORDER BY hour LIMIT MAX(1, ? / 5000))`,
		`DELETE FROM wait_hour WHERE hour IN (SELECT DISTINCT hour FROM wait_hour WHERE hour < ? ORDER BY hour LIMIT ? / 25)`,
		`DELETE FROM ended_job WHERE (job, idx, submitted) IN (SELECT job, idx, submitted FROM ended_job WHERE ended < ? ORDER BY ended LIMIT ?)`,
		`DELETE FROM action WHERE cycle IN (SELECT id FROM cycle WHERE started < ? ORDER BY id LIMIT ?)`,
		`DELETE FROM cycle WHERE id IN (SELECT id FROM cycle WHERE started < ? ORDER BY id LIMIT ?)`,
		`DELETE FROM request WHERE id IN (SELECT id FROM request WHERE state != 'open' AND answered < ? LIMIT ?)`,
	} {
		if _, err := tx.ExecContext(ctx, statement, old, forgetAtMost); err != nil {
			return err
		}
	}
	return nil
}

// ReclaimCount sums up reclaims of one phase since the ledger was made, those
// that are not kept any more included.
type ReclaimCount struct {
	Phase    plan.Phase
	Reclaims int64
	Need     int64 // slots that were requested
	Taken    int64 // slots of the victims that were preempted
}

// ReclaimCounts sums up all reclaims by phase.
func (l *Ledger) ReclaimCounts(ctx context.Context) ([]ReclaimCount, error) {
	all, err := list(ctx, l.db, func(c *ReclaimCount) []any {
		return []any{&c.Phase, &c.Reclaims, &c.Need, &c.Taken}
	}, `SELECT phase, SUM(n), SUM(need), SUM(taken) FROM (
			SELECT phase, reclaims AS n, need, taken FROM forgotten
			UNION ALL
			SELECT phase, 1, need, COALESCE((SELECT SUM(v.slots) FROM victim v WHERE v.reclaim = reclaim.id AND v.fate = 'taken'), 0) FROM reclaim)
		GROUP BY phase ORDER BY phase`)
	return all, l.explain("count the reclaims", err)
}
